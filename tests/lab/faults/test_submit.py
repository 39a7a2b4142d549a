"""SUBMIT: what the real sbatch says when it refuses, hangs or loses its answer, and that nothing is submitted twice."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from lab import Lab
from siteannex.errors import Stage
from tests.faultbook import FaultRow
from tests.lab.ground import Ground
from tests.lab.person import Person, Screenful
from tests.lab.probing import changed, program

SITE = Path(__file__).parents[3] / "sites" / "lab.yaml"
CONF = "/etc/slurm/slurm.conf"
SLURMCTLD = "pkill -u slurm -f '^slurmctld'"
STARTED = "slurmctld; until sinfo -h -o %T 2>/dev/null | grep -q idle; do sleep 0.1; done"
Change = Callable[[dict[str, Any]], object]


class Submitter:
    """Alice with a held session, a site file as a test wants it, and `up` as far as SUBMIT."""

    def __init__(self, lab: Lab, person: Person) -> None:
        self.lab, self.person = lab, person

    def up(self, *arguments: str, change: Change = lambda _: None) -> Screenful:
        site = YAML(typ="safe").load(SITE.read_text(encoding="utf-8"))
        site["deadlines"] = {"submit": "3s"}
        change(site)
        folder = "/home/alice/.config/siteannex/sites"
        write = ["sh", "-c", f"mkdir -p {folder} && cat >{folder}/lab.yaml"]
        self.lab.exec("ap", write, user="alice", input=json.dumps(site, default=str), check=True)
        usual = "gpu-shared" if "--gpus" in arguments else "debug"
        where = () if "--partition" in arguments else ("--partition", usual)
        return self.person.types("up", "lab", "--lifetime", "5m", "--no-wait", "--json", *where, *arguments)

    def refused(self, *arguments: str, change: Change = lambda _: None) -> tuple[dict[str, Any], float]:
        """The failure `up` ends with, and the seconds it took."""
        shown = self.up(*arguments, change=change)
        assert shown.status == 14, shown.text
        failure: dict[str, Any] = shown.json()["failure"]
        return failure, shown.seconds

    def configured(self, line: str) -> AbstractContextManager[None]:
        """Slurm with one more line in slurm.conf."""
        key = line.partition("=")[0]
        undo = f"sed -i '/^{key}=/d' {CONF}; scontrol reconfigure"
        return changed(self.lab, "login1", f"echo {line} >>{CONF}; scontrol reconfigure", undo)

    def checked_by(self, condition: str, words: str) -> AbstractContextManager[None]:
        """Slurm with a site's own check of submissions, as many centers have one."""
        plugin = (
            "cat >/etc/slurm/job_submit.lua <<'EOF'\n"
            "function slurm_job_submit(job, partitions, uid)\n"
            f'  if {condition} then slurm.log_user("{words}") return slurm.ERROR end\n'
            "  return slurm.SUCCESS\nend\n"
            "function slurm_job_modify(job, record, partitions, uid) return slurm.SUCCESS end\nEOF\n"
        )
        add = f"echo JobSubmitPlugins=lua >>{CONF}; scontrol reconfigure"
        undo = f"sed -i '/^JobSubmitPlugins=/d' {CONF}; scontrol reconfigure; rm /etc/slurm/job_submit.lua"
        return changed(self.lab, "login1", plugin + add, undo)

    def sbatch(self, script: str) -> AbstractContextManager[None]:
        """A program of the site before Slurm's own sbatch."""
        return changed(self.lab, "login1", *program("sbatch", script))


@pytest.fixture(scope="module")
def one_login(lab: Lab) -> Iterator[Submitter]:
    """One login for all tests here."""
    person = Person(lab)
    person.types("down", "--all", "--now")
    assert person.types("login", "lab").status == 0
    yield Submitter(lab, person)
    person.types("logout", "--all")
    person.shell("rm -rf ~/.config/siteannex ~/.ssh/known_hosts ~/.local/state/siteannex/annexes")


@pytest.fixture
def submitter(one_login: Submitter, ground: Ground) -> Iterator[Submitter]:
    """The submitter; afterwards nothing of the annex is left."""
    yield one_login
    if ground.batch_jobs() or ground.files():  # `up` went on, or cannot know whether Slurm has a pilot
        one_login.person.types("down", "--all", "--now")
    ground.nothing_left()


@pytest.mark.fault("unknown partition", code="partition-invalid")
def test_a_partition_slurm_does_not_know(submitter: Submitter, fault: FaultRow) -> None:
    failure, seconds = submitter.refused(
        "--partition", "gpux", change=lambda site: site["partitions"].update(gpux=site["partitions"]["debug"])
    )
    assert "invalid partition specified: gpux" in failure["evidence"][0]["text"]
    assert "gpu-shared" in failure["hint"]
    fault.saw(failure, seconds=seconds)


@pytest.mark.fault("unknown account", code="account-invalid")
def test_an_account_slurm_does_not_know(submitter: Submitter, fault: FaultRow) -> None:
    failure, seconds = submitter.refused("--account", "nosuch")
    assert "Invalid account or account/partition combination" in failure["evidence"][0]["text"]
    assert "--account abc123" in failure["hint"]
    fault.saw(failure, seconds=seconds)


@pytest.mark.fault("missing account", code="account-invalid")
def test_a_site_that_wants_an_account_named(submitter: Submitter, fault: FaultRow) -> None:
    with submitter.checked_by("job.account == nil", "You must specify an account with -A"):
        failure, seconds = submitter.refused(change=lambda site: site.pop("account"))
    assert "You must specify an account" in failure["evidence"][0]["text"]
    assert "--account abc123" in failure["hint"]
    fault.saw(failure, seconds=seconds)


@pytest.mark.fault("unknown QOS", code="qos-invalid")
def test_a_qos_slurm_does_not_know(submitter: Submitter, fault: FaultRow) -> None:
    failure, seconds = submitter.refused(change=lambda site: site["partitions"]["debug"].update(qos="gold"))
    assert "normal, tiny" in failure["hint"]
    fault.saw(failure, seconds=seconds)


@pytest.mark.fault("QOS refuses (DenyOnLimit)", code="limits-exceeded")
def test_a_qos_that_refuses_what_is_over_its_limit(submitter: Submitter, lab: Lab, fault: FaultRow) -> None:
    deny = "sacctmgr -i modify qos tiny set flags{}=DenyOnLimit"
    with changed(lab, "login1", deny.format("+"), deny.format("-")):
        failure, seconds = submitter.refused(
            "--lifetime", "10m", change=lambda site: site["partitions"]["debug"].update(qos="tiny")
        )
    assert "QOSMaxWallDurationPerJobLimit" in failure["evidence"][0]["text"]
    assert "tiny|00:05:00" in failure["hint"]
    fault.saw(failure, seconds=seconds)


@pytest.mark.fault("walltime over the partition's limit, refused", code="walltime-invalid")
def test_a_walltime_over_the_limit(submitter: Submitter, fault: FaultRow) -> None:
    with submitter.configured("EnforcePartLimits=ALL"):
        failure, seconds = submitter.refused(
            "--lifetime", "2h", change=lambda site: site["partitions"]["debug"].update(max_walltime="4h")
        )
    assert "Requested time limit is invalid" in failure["evidence"][0]["text"]
    assert "debug 30:00" in failure["hint"]
    fault.saw(failure, seconds=seconds)


@pytest.mark.fault("GPU type unknown", code="nodes-unavailable")
def test_a_gpu_type_that_no_node_has(submitter: Submitter, fault: FaultRow) -> None:
    failure, seconds = submitter.refused(
        "--gpus",
        "1",
        change=lambda site: site["partitions"]["gpu-shared"].update(gpu_request="--gres=gpu:h100:{count}"),
    )
    assert "Requested node configuration is not available" in failure["evidence"][0]["text"]
    assert "gpu:a100:4" in failure["hint"]
    fault.saw(failure, seconds=seconds)


@pytest.mark.fault("GRES spelling the site rejects", code="gres-invalid")
def test_a_gres_spelling_slurm_rejects(submitter: Submitter, fault: FaultRow) -> None:
    failure, seconds = submitter.refused(
        "--gpus",
        "1",
        change=lambda site: site["partitions"]["gpu-shared"].update(gpu_request="--gres=gpus:a100:{count}"),
    )
    assert "Invalid generic resource" in failure["evidence"][0]["text"]
    assert "gpu-shared: gpu:a100:4" in failure["hint"]
    fault.saw(failure, seconds=seconds)


@pytest.mark.fault("memory flag forbidden", code="memory-request-refused")
def test_a_site_that_forbids_the_memory_flag(submitter: Submitter, fault: FaultRow) -> None:
    asked = "job.min_mem_per_node ~= nil and job.min_mem_per_node < 1000000000"
    with submitter.checked_by(asked, "--mem is not allowed here: memory comes with the node"):
        failure, seconds = submitter.refused()
    assert "--mem is not allowed here" in failure["evidence"][0]["text"]
    assert "memory_request: null" in failure["hint"]
    fault.saw(failure, seconds=seconds)


@pytest.mark.fault("slurmctld down", code="slurm-unreachable")
def test_a_controller_that_is_down(submitter: Submitter, lab: Lab, ground: Ground, fault: FaultRow) -> None:
    with changed(lab, "login1", f"{SLURMCTLD}; while {SLURMCTLD} -0; do sleep 0.1; done", STARTED):
        # sbatch itself tries for some nine seconds
        failure, seconds = submitter.refused(change=lambda site: site.update(deadlines={"submit": "1m"}))
        assert ground.files() == []
    assert "Unable to contact slurm controller" in failure["evidence"][0]["text"]
    assert failure["retryable"]
    fault.saw(failure, seconds=seconds)
    assert submitter.up().status == 0


def taken_once(submitter: Submitter, ground: Ground, shown: Screenful, fault: FaultRow) -> None:
    """`up` knows the one job Slurm has."""
    assert shown.status == 0, shown.text
    (job,) = ground.batch_jobs()
    assert [pilot["job_id"] for pilot in shown.json()["pilots"]] == [job.split()[0]]
    fault.no_failure(Stage.SUBMIT, seconds=shown.seconds)


@pytest.mark.fault("sbatch hangs after accepting", code="-")
def test_an_sbatch_that_hangs_after_accepting(submitter: Submitter, ground: Ground, fault: FaultRow) -> None:
    with submitter.sbatch('/usr/bin/sbatch "$@" >/dev/null; exec sleep 600'):
        shown = submitter.up()
    assert "sbatch gave no answer in 3 s and was ended: looking for the job by name" in shown.text
    taken_once(submitter, ground, shown, fault)


@pytest.mark.fault("socket timed out, job accepted", code="-")
def test_a_socket_that_timed_out_after_accepting(submitter: Submitter, ground: Ground, fault: FaultRow) -> None:
    lost = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"
    with submitter.sbatch(f'/usr/bin/sbatch "$@" >/dev/null; echo "{lost}" >&2; exit 1'):
        shown = submitter.up()
    taken_once(submitter, ground, shown, fault)


@pytest.mark.fault("socket timed out, no job seen", code="submit-uncertain")
def test_a_socket_that_timed_out_before_accepting(submitter: Submitter, fault: FaultRow) -> None:
    lost = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"
    with submitter.sbatch(f'echo "{lost}" >&2; exit 1'):
        failure, seconds = submitter.refused()
    assert "Socket timed out" in failure["evidence"][0]["text"]
    assert failure["retryable"]
    fault.saw(failure, seconds=seconds)


@pytest.mark.fault("numbers in the site's banner before the job id", code="-")
def test_a_site_that_greets_with_numbers(submitter: Submitter, ground: Ground, fault: FaultRow) -> None:
    with submitter.sbatch('echo "Welcome to cluster 9"; echo 4711; echo; exec /usr/bin/sbatch "$@"'):
        shown = submitter.up()
    taken_once(submitter, ground, shown, fault)


@pytest.mark.fault("job id with the cluster's name", code="-")
def test_a_job_id_that_names_its_cluster(submitter: Submitter, ground: Ground, fault: FaultRow) -> None:
    with submitter.sbatch('exec /usr/bin/sbatch -M lab "$@"'):
        shown = submitter.up()
    taken_once(submitter, ground, shown, fault)
