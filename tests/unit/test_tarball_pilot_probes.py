"""What the pilot finds out before it advertises an EP: software, scratch, grants, GPUs, the way to the AP, matching."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from siteannex.annex.bundle import pilot_files
from siteannex.annex.events import AnnexState
from siteannex.annex.judging.judge import judge
from siteannex.annex.slurm_site import read_reports
from siteannex.model import Join, Witnesses
from siteannex.pool.ads import slot_from_ad
from siteannex.resources import data_dir
from siteannex.units import format_duration, format_memory
from tests.faultbook import FaultRow
from tests.unit.pilot_ground import SHELLS, Ground, grounds, nothing_is_left
from tests.unit.samples import NOW, plan

DENIED = (
    'READ ok\nADVERTISE_STARTD failed!\nSECMAN:2010:Received "DENIED" from server for user alice@ap.lab using method X.'
)
UNBELIEVED = "READ failed!\nAUTHENTICATE:1004:Failed to authenticate using IDTOKENS"


@pytest.fixture(params=SHELLS)
def ground(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ground]:
    yield from grounds(request.param, tmp_path)


def fails(ground: Ground, code: str, status: int, *words: str) -> None:
    """The pilot ends with this failure, says these words, and leaves nothing."""
    assert ground.run() == status, ground.reports()
    told = ground.text(code) + "\n" + ground.seen(code)
    for word in words:
        assert word in told
    nothing_is_left(ground)


# --- software and scratch ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spoil", "words"),
    [("missing", "is not there"), ("damaged", "is damaged and was removed: its sha256 is"), ("empty", "is damaged")],
)
def test_software_that_is_missing_or_damaged_is_not_used_and_not_found_again(
    ground: Ground, spoil: str, words: str
) -> None:
    if spoil == "missing":
        ground.software.unlink()
    else:
        ground.software.write_bytes(b"" if spoil == "empty" else ground.software.read_bytes()[:-20])
    fails(ground, "ep-software-damaged", 20, words)
    assert not ground.software.exists()


def test_software_that_is_no_archive_is_told_with_tars_words(ground: Ground) -> None:
    ground.replace_software(b"what a login page says")
    fails(ground, "ep-unpack-failed", 20, "tar could not unpack", "tar: ")


DF = '#!/bin/sh\n[ "$1" = -Pi ] && exec echo "h\nfs 1000 {used} {inodes} 1% /"\nexec echo "h\nfs 900000 1 {kib} 1% /"\n'


@pytest.mark.parametrize(
    ("kib", "inodes", "words"),
    [(20480, 100000, "20 MB free, 100 MB needed"), (9000000, 12, "12 inodes free, 500 needed")],
)
def test_scratch_without_room_is_told_with_what_is_free_and_needed(
    ground: Ground, kib: int, inodes: int, words: str
) -> None:
    ground.tool("df", DF.format(kib=kib, inodes=inodes, used=1))
    fails(ground, "scratch-full", 20, f"{ground.scratch}: {words}")


def test_a_file_system_that_does_not_count_inodes_has_enough(ground: Ground) -> None:
    ground.tool("df", '#!/bin/sh\n[ "$1" = -Pi ] && exec echo "h\nfs 0 0 0 - /"\nexec echo "h\nfs 9 1 9000000 1% /"\n')
    ground.knob("idle")
    assert ground.run() == 0


def test_a_quota_shows_only_when_it_is_hit_and_then_the_next_directory_is_tried(ground: Ground) -> None:
    tar = shutil.which("tar")
    refuses = (
        f'case "$PWD $*" in *"{ground.scratch}/"*) echo "tar: x: Cannot write: Disk quota exceeded" >&2; exit 2 ;; esac'
    )
    ground.tool("tar", f'#!/bin/sh\n{refuses}\nexec {tar} "$@"\n')
    ground.tool("quota", "#!/bin/sh\necho '/dev/sda 5242880 5242880'\n")
    fails(ground, "scratch-full", 20, "Disk quota exceeded", "quota: /dev/sda")


def test_a_second_candidate_is_taken_when_the_first_has_no_room(ground: Ground) -> None:
    second = ground.path / "second"
    second.mkdir()
    params = ground.annex / "params.sh"
    params.write_text(params.read_text().replace(f'"{ground.scratch}"', f'"{ground.scratch}" "{second}"'))
    tar = shutil.which("tar")
    refuses = f'case "$*" in *"{ground.scratch}/"*) echo "tar: x: Disk quota exceeded" >&2; exit 2 ;; esac'
    ground.tool("tar", f'#!/bin/sh\n{refuses}\nexec {tar} "$@"\n')
    ground.knob("idle")
    assert ground.run() == 0
    assert f"runs in {second}/siteannex.71." in str(ground.reports()[1]["text"])
    assert list(second.iterdir()) == []
    nothing_is_left(ground)


# --- programs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "code", "words"),
    [
        (
            "condor_x: /lib/libc.so.6: version `GLIBC_2.38' not found (required by condor_x)",
            "ep-loader-too-old",
            "condor_config_val needs GLIBC_2.38 and this node has glibc 2.17",
        ),
        ("FATAL: kernel too old", "ep-loader-too-old", "needs a newer kernel and this node has glibc 2.17 (Linux "),
        ("sh: condor_x: Exec format error", "ep-binary-broken", "is not for this node's processor ("),
        ("Segmentation fault", "ep-binary-broken", "condor_config_val does not run"),
    ],
)
def test_programs_that_do_not_run_are_told_by_what_the_loader_said(
    ground: Ground, said: str, code: str, words: str
) -> None:
    ground.tool("getconf", "#!/bin/sh\necho glibc 2.17\n")
    ground.knob("broken", said)
    fails(ground, code, 20, words, f"condor_config_val: {said}")


# --- grants and GPUs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("slurm", "code", "words"),
    [
        ({"CUDA_VISIBLE_DEVICES": "1"}, "gpus-missing", "Slurm granted 1 of the 2 GPUs asked for"),
        ({"CUDA_VISIBLE_DEVICES": "", "SLURM_GPUS_ON_NODE": ""}, "gpus-none", "Slurm granted 0 of the 2 GPUs"),
        ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, "gpus-none", "CUDA_VISIBLE_DEVICES=NoDevFiles"),
        ({"SLURM_CPUS_ON_NODE": "1"}, "cpus-missing", "Slurm granted 1 of the 8 CPUs asked for"),
        ({"SLURM_MEM_PER_NODE": "2048"}, "memory-missing", "Slurm granted 2 GB of the 32 GB asked for"),
    ],
)
def test_less_than_asked_is_a_failure_before_htcondor_starts_and_the_ap_is_told(
    ground: Ground, slurm: dict[str, str], code: str, words: str
) -> None:
    ground.environment = slurm
    fails(ground, code, 40, words)
    assert f'SiteannexCode = "{code}"' in ground.turned("ads")
    assert ground.turned("config") == "", "no EP was started"


def discovery(*devices: tuple[str, int]) -> str:
    """What condor_gpu_discovery prints of GPUs of this model and memory (MiB)."""
    names = ", ".join(f"GPU-{number}" for number in range(len(devices)))
    lines = [
        f'GPU_{n}=[ id="GPU-{n}"; DeviceName="{model}"; GlobalMemoryMb={mib}; ]'
        for n, (model, mib) in enumerate(devices)
    ]
    return "\n".join([f'DetectedGPUs="{names}"', "Common=[ Capability=8.0; ]", *lines, ""])


A100 = ("NVIDIA A100-SXM4-40GB", 40536)


@pytest.mark.parametrize(
    ("found", "code", "words"),
    [
        (discovery(A100), "gpus-missing", "Slurm granted 2 GPUs (CUDA_VISIBLE_DEVICES=2,3), HTCondor found 1"),
        ("DetectedGPUs=0\n", "gpus-none", "this node shows none (driver not loaded)"),
        ("libcuda.so: cannot open shared object file\n", "gpus-none", "condor_gpu_discovery: libcuda.so: cannot open"),
        (
            discovery(("Tesla V100-SXM2-32GB", 32510), ("Tesla V100-SXM2-32GB", 32510)),
            "gpu-model-differs",
            "this node's GPUs are Tesla V100-SXM2-32GB; the plan is for NVIDIA A100-SXM4-40GB",
        ),
        (discovery(A100, ("NVIDIA H100", 81559)), "gpu-model-differs", "NVIDIA A100-SXM4-40GB + NVIDIA H100"),
        (
            discovery(A100, ("NVIDIA A100-SXM4-40GB MIG 3g.20gb", 20086)),
            "gpu-memory-small",
            "has 19.6 GB; the plan is for 39.6 GB",
        ),
    ],
)
def test_gpus_that_are_not_what_was_planned_are_told_with_what_was_found(
    ground: Ground, found: str, code: str, words: str
) -> None:
    ground.tool("nvidia-smi", "#!/bin/sh\necho '0, some GPU, 40960 MiB, 570.86.15'\n")
    ground.knob("gpus", found)
    fails(ground, code, 40, words, "nvidia-smi: 0, some GPU, 40960 MiB, 570.86.15")


@pytest.mark.parametrize("spelled", ["A100-SXM4-40GB", "nvidia a100 40GB PCIe", "NVIDIA A100-PCIE-40GB"])
def test_a_model_is_compared_by_its_own_word_not_by_a_drivers_spelling(ground: Ground, spelled: str) -> None:
    ground.knob("gpus", discovery((spelled, 40960), (spelled, 40960)))
    ground.knob("idle")
    assert ground.run() == 0
    assert f"2 x {spelled} with 40 GB each" in next(
        line["text"] for line in ground.reports() if line["stage"] == "EP_CONFIG"
    )


# --- containers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "words"),
    [(37, "apptainer version 1.4.5 works"), (255, "does not work (user namespaces are "), (0, "does not work")],
)
def test_apptainer_is_tried_not_only_found(ground: Ground, status: int, words: str) -> None:
    ground.tool(
        "apptainer",
        f'#!/bin/sh\n[ "$1" = --version ] && exec echo apptainer version 1.4.5\necho FATAL: "no" >&2\nexit {status}\n',
    )
    ground.knob("idle")
    assert ground.run() == 0
    assert words in str(ground.reports()[1]["text"])
    assert f"SINGULARITY = {ground.path}/tools/apptainer\n" in ground.turned("config")
    assert 'SiteannexContainers = "apptainer version 1.4.5' in ground.turned("config")


# --- the way to the access point -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ahead_s", "words"),
    [(-700, "this node's clock is 11 m 40 s ahead of 127.0.0.1's"), (400, "this node's clock is 6 m 40 s behind")],
)
def test_a_clock_that_is_off_a_little_is_told_and_no_failure(ground: Ground, ahead_s: int, words: str) -> None:
    ground.knob("ap-ahead", str(ahead_s))
    ground.knob("idle")
    assert ground.run() == 0
    told = next(line["text"] for line in ground.reports() if line["stage"] == "AP_CONNECT")
    assert re.sub(r"(40|41|39|38|42) s", "40 s", told).endswith(words if ahead_s < 0 else f"{words} 127.0.0.1's")


def test_clocks_far_apart_are_a_failure_and_the_ap_is_told(ground: Ground) -> None:
    ground.knob("ap-ahead", "7200")
    fails(ground, "clock-skew", 30, "this node's clock is 2 h behind 127.0.0.1's", "condor_ping, session's second")
    assert 'SiteannexCode = "clock-skew"' in ground.turned("ads")


def test_a_collector_that_refuses_is_told_with_address_port_and_words(ground: Ground) -> None:
    port = ground.listener.getsockname()[1]
    ground.listener.close()
    fails(
        ground, "collector-refused", 30, f"127.0.0.1:{port}: Connection refused", "DNS ok (127.0.0.1, this node itself)"
    )


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("bash: connect: No route to host", "collector-no-route"),
        ("bash: connect: Network is unreachable", "collector-no-route"),
        ("bash: connect: Connection timed out", "collector-unreachable"),
        ("", "collector-unreachable"),
    ],
)
def test_each_way_a_port_can_fail_has_its_code(ground: Ground, said: str, code: str) -> None:
    bash = shutil.which("bash")
    ground.tool("bash", f'#!{bash}\n[ "$1" = -c ] || exec {bash} "$@"\nprintf %s "{said}" >&2\nexit 1\n')
    fails(ground, code, 30, "tried 3 times")


def test_what_answers_and_is_no_htcondor_is_told(ground: Ground) -> None:
    ground.knob("mute")
    ground.knob("refuse", "READ failed!\nSECMAN:2007:This service is running, but did not respond")
    fails(ground, "collector-silent", 30, "does not speak to HTCondor", "SECMAN:2007")


def test_a_name_that_does_not_resolve_is_told(ground: Ground) -> None:
    params = ground.annex / "params.sh"
    params.write_text(params.read_text().replace("P_COLLECTOR_HOST=127.0.0.1", "P_COLLECTOR_HOST=no.such.host.invalid"))
    assert ground.run(limit_s=60) == 30
    assert ground.text("collector-unresolvable").startswith("no.such.host.invalid does not resolve on ")


def token(**claims: object) -> str:
    """A token with these claims, unsigned."""
    body = {"iss": "ap.lab", "sub": "alice@ap.lab", "iat": 1, "exp": int(time.time()) + 3600, **claims}
    parts = [{"alg": "HS256", "kid": "POOL"}, body]
    words = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return ".".join([*words, "c2lnbmF0dXJl"])


NEARLY_AN_HOUR_S = 3500  # to spare on both sides: what is said in days leaves out the minutes
TWO_DAYS_AGO = int(time.time()) - 2 * 86400
IN_TWO_DAYS = int(time.time()) + 2 * 86400 + NEARLY_AN_HOUR_S
SCOPE = r"condor:\/READ condor:\/ADVERTISE_MASTER"


@pytest.mark.parametrize(
    ("text", "refusal", "code", "words"),
    [
        (token(exp=TWO_DAYS_AGO), UNBELIEVED, "token-expired", "the token expired 2 d ago"),
        (token(iat=IN_TWO_DAYS), UNBELIEVED, "token-not-yet-valid", "valid only in 2 d"),
        (token(nbf=IN_TWO_DAYS), UNBELIEVED, "token-not-yet-valid", "valid only in 2 d"),
        (
            token(iss="other.org"),
            UNBELIEVED,
            "token-wrong-issuer",
            "is from other.org; 127.0.0.1 takes those of ap.lab",
        ),
        (token(), UNBELIEVED, "token-wrong-key", "has no key POOL that signed it"),
        ("garbage", UNBELIEVED, "token-rejected", "the file in its place is not a token"),
        (token(scope=SCOPE), DENIED, "token-scope-missing", "the token lacks ADVERTISE_STARTD"),
        (
            token(scope=SCOPE + r" condor:\/ADVERTISE_STARTD"),
            DENIED,
            "token-not-authorized",
            "knows alice@ap.lab and does not",
        ),
        (token(), DENIED, "token-not-authorized", "does not allow this"),
        (token(), "READ failed!\nSECMAN:2999:odd", "token-rejected", "SECMAN:2999:odd"),
    ],
)
def test_why_a_token_was_refused_is_read_from_the_token_itself(
    ground: Ground, text: str, refusal: str, code: str, words: str
) -> None:
    (ground.annex / "token").write_text(text + "\n")
    ground.knob("refuse", refusal)
    fails(ground, code, 30, words, "condor_ping: ")
    assert text.split(".")[-1] not in json.dumps(ground.reports()) or text == "garbage"
    assert ground.turned("ads") == "", "nobody would take the ad"


@pytest.mark.fault("token not yet valid, where HTCondor minds", code="token-not-yet-valid")
def test_a_refused_token_of_tomorrow_is_told_by_the_judge_too(tmp_path: Path, fault: FaultRow) -> None:
    ground = Ground(tmp_path, "/bin/sh")
    with ground.listener:
        (ground.annex / "token").write_text(token(nbf=IN_TWO_DAYS))
        ground.knob("refuse", UNBELIEVED)
        assert ground.run() == 30
    reports = read_reports((ground.logs / "71.jsonl").read_text())
    told = judge(plan(), AnnexState(job_ids=("71",)), Witnesses(reports=reports), NOW).failure
    assert told is not None
    assert "condor_ping: READ failed!" in told.evidence[0].text
    fault.saw(told)


@pytest.mark.parametrize(
    ("ahead_s", "lives_s", "code"),
    [(3000, 1800, "token-expired"), (-3000, -1800, "token-wrong-key")],
)
def test_a_tokens_times_are_judged_by_the_aps_clock(ground: Ground, ahead_s: int, lives_s: int, code: str) -> None:
    (ground.annex / "token").write_text(token(exp=int(time.time()) + lives_s))
    ground.knob("ap-ahead", str(ahead_s))
    ground.knob("refuse", UNBELIEVED)
    fails(ground, code, 30)


# --- would jobs come and match? ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("knob", "text", "code", "status", "words"),
    [
        ("configured-CCB_ADDRESS", "\n", "ccb-missing", 30, "CCB_ADDRESS is empty"),
        ("configured-NUM_CPUS", "4\n", "cpus-missing", 40, "granted 8 CPUs; the slot would have 4"),
        ("configured-MEMORY", "16384\n", "memory-missing", 40, "granted 32 GB; the slot would have 16 GB"),
        ("start-is", "false\n", "start-never", 40, 'TargetAnnexName = "sweep1"'),
        (
            "mapping",
            "bob@ap.lab\n",
            "owner-mismatch",
            40,
            "takes this EP for bob@ap.lab's; the annex is alice@ap.lab's",
        ),
    ],
)
def test_an_ep_that_no_job_would_reach_or_match_is_never_started(
    ground: Ground, knob: str, text: str, code: str, status: int, words: str
) -> None:
    ground.knob(knob, text)
    fails(ground, code, status, words)
    told = f'SiteannexCode = "{code}"' in ground.turned("ads")
    assert told is (code != "owner-mismatch"), "an ad in another's name is nobody's to find or to remove"
    assert ground.turned("config") == "", "no EP was started"


@pytest.mark.parametrize("verdict", ["true", "undefined", "error", ""])
def test_a_start_that_depends_on_the_job_is_not_judged(ground: Ground, verdict: str) -> None:
    ground.knob("configured-START", "Target.WantBig && TARGET.User == MY.Owner\n")
    ground.knob("start-is", f"{verdict}\n")
    ground.knob("idle")
    assert ground.run() == 0
    assert ground.turned("start") == "SiteannexJob.WantBig && SiteannexJob.User == MY.Owner\n"


def test_an_htcondor_too_old_for_direct_attach_is_told(tmp_path: Path) -> None:
    ground = Ground(tmp_path, "/bin/sh", join=Join.DIRECT, stubs={"sbin/condor_startd": "exit 0\n"})
    with ground.listener:
        fails(ground, "direct-attach-unsupported", 40, "HTCondor 25.14.1 cannot attach to a schedd directly")


@pytest.mark.parametrize(
    ("slot", "code"), [("8 32768 1", "gpus-missing"), ("4 32768 2", "cpus-missing"), ("8 16000 2", "memory-missing")]
)
def test_a_slot_that_differs_from_what_was_granted_is_a_failure(ground: Ground, slot: str, code: str) -> None:
    ground.knob("slot", slot + "\n")
    fails(ground, code, 40)


# --- how it is told ------------------------------------------------------------------------------------------------


def test_what_a_pilot_has_seen_reaches_the_reader_line_by_line(ground: Ground) -> None:
    ground.knob("refuse", UNBELIEVED)
    ground.run()
    [bad] = [
        report for report in read_reports((ground.logs / "71.jsonl").read_text()) if report.code == "token-rejected"
    ]
    assert bad.seen.splitlines()[0] == "condor_ping: READ failed!"
    slot = slot_from_ad({"SiteannexCode": "x", "SiteannexText": "t", "SiteannexSeen": "a: b | c: d"})
    assert (slot.failed_text, slot.failed_seen) == ("t", "a: b\nc: d")


def test_a_refused_configuration_is_told_to_the_ap_without_the_lines_that_spoil_it(ground: Ground) -> None:
    with (ground.annex / "ep.conf").open("a") as conf:
        conf.write("\n# This site's own lines.\nuse security:no_such_thing\n")
    ground.knob("bad-config")
    fails(ground, "ep-config-invalid", 20, "HTCondor 25.14.1 does not accept its configuration")
    assert 'SiteannexCode = "ep-config-invalid"' in ground.turned("ads")
    assert "\nuse " not in ground.turned("tools.conf")
    assert "SEC_TOKEN_DIRECTORY" in ground.turned("tools.conf")


def spelled(function: str, numbers: list[int]) -> list[str]:
    """What the pilot's shell makes of each number."""
    script = (
        f'. "{data_dir("tarball")}/pilot-report.sh"; for n in {" ".join(map(str, numbers))}; do {function} "$n"; done'
    )
    done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@settings(max_examples=15)
@given(st.lists(st.integers(0, 30 * 86400), min_size=1, max_size=100))
def test_the_pilot_spells_durations_as_every_other_screen_does(seconds: list[int]) -> None:
    assert spelled("spell_s", seconds) == [format_duration(number) for number in seconds]


@settings(max_examples=15)
@given(st.lists(st.integers(0, 4 * 1024**2), min_size=1, max_size=100))
def test_the_pilot_spells_sizes_as_every_other_screen_does(sizes: list[int]) -> None:
    assert spelled("spell_mib", sizes) == [format_memory(number) for number in sizes]


def test_no_step_of_the_pilot_speaks_in_seconds_or_mib_where_people_read() -> None:
    said = re.findall(r"^ *(?:report|fail) .*", "".join(pilot_files().values()), re.MULTILINE)
    assert said
    assert not [line for line in said if re.search(r"_MIB\"? MiB|\$\{?[A-Za-z_]*MIB\}? |_S\b\} s\b", line)]
