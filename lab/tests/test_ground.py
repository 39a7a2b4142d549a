"""The ground is real: each of these is what a person would check by hand. Needs a running lab (`lab/lab up`)."""

import base64
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import Lab, LabError

LOGIN = (Path(__file__).parent / "login.py").read_text()
KEY = "/home/alice/.ssh/id_ed25519"


@pytest.fixture(scope="module")
def lab() -> Lab:
    return Lab.attach()


@pytest.fixture
def nat_afterwards(lab: Lab) -> Iterator[None]:
    yield
    lab.net("nat")


def login(lab: Lab, user: str, answer: str, *, key: bool = False, password: str | None = None) -> dict[str, Any]:
    words = [user, password or lab.password(user), answer, KEY if key else ""]
    done = lab.exec("ap", ["/opt/siteannex/bin/python3", "-c", LOGIN, *words], user="alice")
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def prompts(said: dict[str, Any]) -> list[str]:
    return [prompt for prompt, _echo in said["asked"]]


def reaches_collector(lab: Lab, where: str) -> "subprocess.CompletedProcess[str]":
    return lab.exec(where, ["timeout", "2", "bash", "-c", "exec 3<>/dev/tcp/ap.lab/9618"])


def test_alice_is_asked_for_her_password_and_then_for_a_code(lab: Lab) -> None:
    said = login(lab, "alice", lab.code("alice"))
    assert prompts(said) == ["Password: ", "Verification code: "]
    assert said["out"] == "alice\n"
    assert "Use is monitored" in said["banner"]


def test_a_code_works_once(lab: Lab) -> None:
    code = lab.code("bob")
    assert "refused" not in login(lab, "bob", code)
    assert "refused" in login(lab, "bob", code)
    assert "refused" not in login(lab, "bob", lab.code("bob"))


def test_a_wrong_password_is_refused_before_the_code_is_asked(lab: Lab) -> None:
    said = login(lab, "bob", "000000", password="wrong")
    assert "refused" in said
    assert prompts(said) == ["Password: "]


def test_tess_logs_in_to_tcsh(lab: Lab) -> None:
    assert login(lab, "tess", lab.code("tess"))["out"] == "tess\n"
    assert lab.exec("login1", ["sh", "-c", "echo $SHELL"], user="tess").stdout == "/bin/tcsh\n"


def test_noras_bashrc_speaks_before_every_command(lab: Lab) -> None:
    said = login(lab, "nora", lab.code("nora"))
    assert said["out"].splitlines()[-1] == "nora"
    assert "hello nora" in said["out"]
    assert said["err"].startswith("warning")
    assert not said["err"].endswith("\n")


def test_kim_needs_her_key_and_a_code(lab: Lab) -> None:
    said = login(lab, "kim", lab.code("kim"), key=True)
    assert prompts(said) == ["Verification code: "]
    assert said["out"] == "kim\n"


def test_kay_needs_her_key_only(lab: Lab) -> None:
    said = login(lab, "kay", "", key=True)
    assert prompts(said) == []
    assert said["out"] == "kay\n"


@pytest.mark.parametrize("option", ["1", "passcode"])
def test_dana_answers_the_menu_with_a_push_or_a_passcode(lab: Lab, option: str) -> None:
    said = login(lab, "dana", lab.code("dana") if option == "passcode" else option)
    menu, echo = said["asked"][-1]
    assert menu.endswith("Passcode or option (1-3): ")
    assert "\n 1. Duo Push to XXX-XXX-0000\n" in menu
    assert echo
    assert said["out"] == "dana\n"


@pytest.mark.parametrize("answer", ["2", "4", "000000", "no"])
def test_dana_is_refused_for_any_other_answer(lab: Lab, answer: str) -> None:
    assert "refused" in login(lab, "dana", answer)


def sbatch(lab: Lab, *options: str, script: str = "true", user: str = "alice") -> "subprocess.CompletedProcess[str]":
    command = ["sbatch", "--parsable", "-o", "job.out", *options, "--wrap", script]
    return lab.exec("login1", command, user=user)


def test_a_gpu_job_sees_the_gpus_it_was_given(lab: Lab) -> None:
    script = "hostname; echo $CUDA_VISIBLE_DEVICES; echo ${SLURM_MEM_PER_NODE-unset}; python3 -c 'import numpy'"
    done = sbatch(lab, "-W", "-A", "abc123", "-p", "gpu-shared", "--gpus", "2", script=script)
    assert done.returncode == 0, done.stderr
    host, gpus, memory = lab.exec("login1", ["cat", "job.out"], user="alice").stdout.split()
    assert host in ("c1", "c2")
    assert len(gpus.split(",")) == 2
    assert memory == "unset"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["-A", "xyz789"], "Invalid account or account/partition combination specified"),
        (["-A", "abc123", "-q", "nosuch"], "Invalid qos specification"),
        (["-A", "abc123", "-p", "nosuch"], "invalid partition specified: nosuch"),
        (["-A", "abc123", "-p", "gpu", "--gpus-per-node", "8"], "Requested node configuration is not available"),
    ],
)
def test_slurm_refuses_in_its_own_words(lab: Lab, options: list[str], text: str) -> None:
    done = sbatch(lab, *options)
    assert done.returncode == 1
    assert text in done.stderr


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["-p", "gpu-shared", "-N", "2", "--gpus-per-node", "4"], "QOSMaxGRESPerUser"),
        (["-q", "tiny", "-t", "10"], "QOSMaxWallDurationPerJobLimit"),
        (["-p", "debug", "-t", "40"], "PartitionTimeLimit"),
    ],
)
def test_a_job_over_a_limit_waits_for_ever_and_says_why(lab: Lab, options: list[str], reason: str) -> None:
    job = sbatch(lab, "-A", "abc123", *options).stdout.strip()
    try:
        seen = lab.exec(
            "login1",
            ["timeout", "10", "sh", "-c", f"until squeue -h -j {job} -o %r | grep {reason}; do sleep 0.2; done"],
        )
        assert seen.stdout.strip() == reason
    finally:
        lab.exec("login1", ["scancel", job])


@pytest.mark.parametrize("key", ["POOL", "AP"])
def test_alice_gets_tokens_in_her_own_name(lab: Lab, key: str) -> None:
    fetch = ["condor_token_fetch", "-key", key, "-lifetime", "60", "-authz", "READ"]
    head, body, _ = lab.exec("ap", fetch, user="alice").stdout.strip().split(".")
    assert _decoded(head)["kid"] == key
    assert _decoded(body)["sub"] == "alice@ap.lab"


def _decoded(part: str) -> dict[str, Any]:
    return dict(json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))))


def test_the_annex_collector_is_there(lab: Lab) -> None:
    asked = lab.exec(
        "ap", ["condor_status", "-schedd", "-pool", "ap.lab:9618?sock=ap_collector", "-af", "Name"], user="bob"
    )
    assert asked.stdout == "ap.lab\n"


@pytest.mark.usefixtures("nat_afterwards")
@pytest.mark.parametrize(
    ("mode", "out", "inward"),
    [("open", 0, True), ("nat", 0, False), ("blocked", 124, False), ("rejected", 1, False)],
)
def test_the_router_obeys(lab: Lab, mode: str, out: int, inward: bool) -> None:
    assert lab.net(mode) == mode
    assert reaches_collector(lab, "c1").returncode == out
    assert reaches_collector(lab, "login1").returncode == 0
    asked = lab.exec("ap", ["timeout", "1", "bash", "-c", "exec 3<>/dev/tcp/c1.lab/6818"])
    assert (asked.returncode == 0) is inward


def test_compute_nodes_come_from_the_routers_address(lab: Lab) -> None:
    listen = "nc -l -p 7000 -v -n 2>&1 & sleep 0.3; wait"
    with subprocess.Popen(lab.argv("ap", ["sh", "-c", listen]), stdout=subprocess.PIPE, text=True) as server:
        lab.exec("c2", ["sh", "-c", "for i in 1 2 3 4 5; do nc -z ap.lab 7000 && break; sleep 0.2; done"])
        out, _ = server.communicate(timeout=10)
    assert "10.77.1.1 " in out.replace("]", " ")
    assert "10.77.3" not in out


def test_homes_are_shared_and_scratch_is_not(lab: Lab) -> None:
    lab.exec("c1", ["sh", "-c", "touch ~/here /scratch/here"], user="alice", check=True)
    assert lab.exec("c2", ["ls", "/home/alice/here"], user="alice").returncode == 0
    assert lab.exec("c2", ["ls", "/scratch/here"], user="alice").returncode != 0
    lab.exec("c1", ["sh", "-c", "rm ~/here /scratch/here"], user="alice", check=True)


def test_a_terminal_is_given_where_asked_and_statuses_come_back(lab: Lab) -> None:
    assert lab.exec("ap", ["sh", "-c", "test -t 0; exit $?"], user="alice").returncode == 1
    assert lab.exec("ap", ["sh", "-c", "test -t 0 && exit 7"], user="alice", tty=True).returncode == 7


def test_a_lab_that_does_not_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="no lab runs in"):
        Lab.attach(tmp_path)
