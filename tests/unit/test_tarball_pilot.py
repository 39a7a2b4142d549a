"""The pilot, for real, under dash and under bash, with stub HTCondor programs: every way it can end."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from siteannex.annex.bundle import pilot_files
from siteannex.errors import Stage
from siteannex.failures import FAILURES
from siteannex.resources import data_dir
from tests.unit.pilot_ground import SHELLS, TOKEN, Ground, grounds, nothing_is_left

UP = [("BATCH_JOB", "ok"), ("EP_START", "ok"), ("AP_CONNECT", "ok"), ("EP_CONFIG", "ok"), ("READY", "ok")]


@pytest.fixture(params=SHELLS)
def ground(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ground]:
    yield from grounds(request.param, tmp_path)


def test_both_shells_of_the_worlds_sites_are_tried() -> None:
    assert SHELLS == ["dash", "bash"]


def test_an_idle_ep_ends_well_and_leaves_its_logs_alone(ground: Ground) -> None:
    pilot = ground.start()
    ground.await_step("READY")
    ground.knob("idle")
    assert ground.end(pilot) == 0
    assert ground.steps() == [*UP, ("RELEASED", "ok")]
    assert ground.reports()[-1]["text"] == "idle 10 m"
    nothing_is_left(ground)
    assert sorted(path.name for path in ground.logs.iterdir()) == ["71.jsonl", "71.out", "71.tar.gz"]
    assert (ground.logs / "71.out").read_text() == (ground.logs / "71.jsonl").read_text()
    with tarfile.open(ground.logs / "71.tar.gz") as tar:
        names = {name.removeprefix("./") for name in tar.getnames()}
    assert {"MasterLog", "StartLog", "condor_config"} <= names


def test_each_line_is_one_json_object_a_reader_can_place(ground: Ground) -> None:
    ground.knob("idle")
    ground.run()
    for line in ground.reports():
        assert set(line) == {"v", "at", "job", "node", "stage", "code", "text"}
        assert line["v"] == 1
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", line["at"])
        assert line["job"] == "71"
        assert line["stage"] in set(Stage)


def test_the_slot_is_what_slurm_granted_and_no_more(ground: Ground) -> None:
    ground.knob("idle")
    ground.run()
    config = ground.turned("config")
    assert "SITEANNEX_CPUS = 8\n" in config
    assert "SITEANNEX_MEMORY_MIB = 32768\n" in config
    assert "granted 8 CPUs, 32 GB, 2 GPUs" in str(ground.reports()[1]["text"])


@pytest.mark.parametrize(
    ("slurm", "mib"),
    [
        ({"SLURM_MEM_PER_NODE": "", "SLURM_MEM_PER_CPU": "4000"}, 32000),
        ({"SLURM_MEM_PER_NODE": "", "SLURM_MEM_PER_GPU": "15000"}, 30000),
        ({"SLURM_MEM_PER_NODE": "0", "SLURM_MEM_PER_CPU": "2000"}, 32768),
        ({"SLURM_MEM_PER_NODE": ""}, 32768),
    ],
)
def test_memory_is_read_in_each_way_slurm_says_it(ground: Ground, slurm: dict[str, str], mib: int) -> None:
    ground.environment = slurm
    ground.knob("slot", f"8 {mib} 2\n")
    ground.knob("idle")
    assert ground.run() == 0
    assert f"SITEANNEX_MEMORY_MIB = {mib}\n" in ground.turned("config")


def test_an_array_task_has_the_name_slurm_prints(ground: Ground) -> None:
    ground.environment = {"SLURM_ARRAY_JOB_ID": "70", "SLURM_ARRAY_TASK_ID": "2"}
    ground.knob("idle")
    assert ground.run() == 0
    assert "SITEANNEX_JOB = 70_2\n" in ground.turned("config")
    assert ground.steps("70_2")[-1] == ("RELEASED", "ok")


FAULTS: dict[str, tuple[str, int, str]] = {
    "broken": ("ep-library-missing", 20, "libfoo.so.1: cannot open shared object file"),
    "bad-config": ("ep-config-invalid", 20, "Configuration Error Line 14: no such knob"),
    "dies-at-once": ("ep-master-exited", 20, '.tar.gz): ERROR "bad knob" at line 1'),
    "startd-crashes": ("ep-startd-crashes", 20, "died due to signal 11"),
    "unseen": ("ep-not-seen", 30, "MasterLog ("),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_and_does_not_hold_the_node(ground: Ground, fault: str) -> None:
    code, status, words = FAULTS[fault]
    if fault == "unseen":
        pilot_sh = ground.annex / "pilot.sh"
        pilot_sh.write_text(pilot_sh.read_text().replace("SEEN_WITHIN_S=120", "SEEN_WITHIN_S=1"))
    ground.knob(fault, words if fault == "broken" else "")
    assert ground.run() == status
    assert ground.steps()[-2:] == [(FAILURES[code].stage, code), ("RELEASED", "ok")]
    assert words in ground.seen(code)
    nothing_is_left(ground)


def test_scratch_that_is_not_there_is_told_with_each_candidate(ground: Ground) -> None:
    shutil.rmtree(ground.scratch)
    assert ground.run() == 20
    assert f"{ground.scratch}: no such directory" in ground.text("scratch-unusable")
    assert not ground.annex.exists()


def test_scratch_that_cannot_be_written_is_told(ground: Ground) -> None:
    ground.scratch.rmdir()
    ground.scratch.symlink_to("/proc")  # where nobody makes a file, root neither
    assert ground.run() == 20
    assert "not writable" in ground.text("scratch-unusable")


def test_gpus_are_counted_from_what_slurm_says_when_cuda_says_nothing(ground: Ground) -> None:
    ground.environment = {"CUDA_VISIBLE_DEVICES": "", "SLURM_JOB_GPUS": "1,3"}
    ground.knob("idle")
    assert ground.run() == 0


def test_a_failed_ep_tells_the_collector_why(ground: Ground) -> None:
    ground.knob("slot", "8 32768 1\n")
    ground.run()
    ads = ground.turned("ads")
    assert 'SiteannexCode = "gpus-missing"' in ads
    assert 'State = "Drained"' in ads
    assert ads.rindex("INVALIDATE_MASTER_ADS") < ads.index("UPDATE_STARTD_AD")


def test_usr1_drains_and_a_running_job_may_end(ground: Ground) -> None:
    ground.knob("job")
    pilot = ground.start()
    ground.await_step("READY")
    pilot.send_signal(signal.SIGUSR1)
    ground.await_step("DRAIN")
    time.sleep(0.4)
    assert pilot.poll() is None
    assert ground.turned("signals") == "HUP\n"
    ground.knob("job-ends")
    assert ground.end(pilot) == 0
    assert ground.turned("signals") == "HUP\nTERM\n"
    assert ground.steps() == [*UP, ("DRAIN", "ok"), ("RELEASED", "ok")]
    assert ground.reports()[-1]["text"] == "asked to end"
    nothing_is_left(ground)


def test_term_evicts_the_running_job_and_ends(ground: Ground) -> None:
    ground.knob("job")
    pilot = ground.start()
    ground.await_step("READY")
    begun = time.monotonic()
    pilot.send_signal(signal.SIGTERM)
    assert ground.end(pilot) == 0
    assert time.monotonic() - begun < 3
    assert ground.turned("signals") == "HUP\nQUIT\n"
    assert ground.reports()[-1]["text"] == "cancelled"
    nothing_is_left(ground)


def test_term_to_every_process_of_the_job_leaves_time_only_to_clean_up(ground: Ground) -> None:
    ground.knob("job")
    ground.knob("struck")
    pilot = ground.start()
    ground.await_step("READY")
    pilot.send_signal(signal.SIGTERM)
    assert ground.end(pilot) == 0
    assert ground.turned("signals") == "QUIT\n"
    nothing_is_left(ground)


def test_term_before_the_ep_is_up_ends_at_once_too(ground: Ground) -> None:
    ground.knob("unseen")
    pilot = ground.start()
    ground.await_step("AP_CONNECT")
    pilot.send_signal(signal.SIGTERM)
    assert ground.end(pilot) == 0
    assert ground.reports()[-1]["text"] == "cancelled"
    nothing_is_left(ground)


def test_walltime_drains_evicts_and_ends_in_time(ground: Ground) -> None:
    ground.knob("job")
    ends = int(time.time()) + 79
    ground.environment = {"SLURM_JOB_END_TIME": str(ends)}
    pilot = ground.start()
    ground.await_step("DRAIN")
    assert ground.end(pilot) == 0
    assert time.time() < ends - 60
    assert ground.turned("signals") == "HUP\nTERM\n"
    assert [line["text"] for line in ground.reports()][-3:-1] == [
        "walltime: no new jobs, running ones may end",
        ground.reports()[-2]["text"],
    ]
    assert ground.reports()[-2]["text"].endswith("s: jobs have 41 s to end")
    assert ground.reports()[-1]["text"] == "walltime"


def test_an_ep_that_dies_unasked_is_a_failure(ground: Ground) -> None:
    pilot = ground.start()
    ground.await_step("READY")
    ground.knob("status", "44")
    assert ground.end(pilot) == 50
    assert "status 44" in ground.text("ep-died")
    nothing_is_left(ground)


def test_ninety_nine_is_how_htcondor_says_asked_to_end(ground: Ground) -> None:
    pilot = ground.start()
    ground.await_step("READY")
    ground.knob("status", "99")
    assert ground.end(pilot) == 0


def test_a_killed_pilot_is_cleaned_up_after(ground: Ground) -> None:
    ground.knob("job")
    pilot = ground.start()
    ground.await_step("READY")
    pilot.kill()
    pilot.wait(5)
    until = time.monotonic() + 10
    while ground.annex.exists() or ground.processes():
        assert time.monotonic() < until, ground.processes()
        time.sleep(0.05)
    assert ground.steps()[-2:] == [("READY", "ep-died"), ("RELEASED", "ok")]
    nothing_is_left(ground)


def test_a_signal_that_a_shell_would_hide_from_jobs_reaches_them(ground: Ground) -> None:
    pilot = ground.start()
    ground.await_step("READY")
    ignored = re.search(r"SigIgn:\s*(\w+)", ground.turned("signals-ignored"))
    assert ignored is not None
    assert int(ignored[1], 16) & (1 << signal.SIGINT - 1 | 1 << signal.SIGQUIT - 1) == 0
    ground.knob("idle")
    assert ground.end(pilot) == 0


def test_no_archive_ever_holds_the_token(ground: Ground) -> None:
    ground.knob("idle")
    with (ground.annex / "ep.conf").open("a") as conf:
        conf.write(f"# {TOKEN.reveal()}\n")
    assert ground.run() == 0
    with tarfile.open(ground.logs / "71.tar.gz") as tar:
        names = {name.removeprefix("./") for name in tar.getnames()}
    assert "StartLog" in names
    assert not {"condor_config", "MasterLog"} & names


def test_a_log_archive_stays_small(ground: Ground) -> None:
    pilot = ground.start()
    ground.await_step("READY")
    log = Path(ground.turned("config-path").strip()).parent / "log"
    for name in (
        "StarterLog.slot1_1",
        "StarterLog.slot1_2",
        "StarterLog.slot1_3",
        "StarterLog.slot1_4",
        "SharedPortLog",
    ):
        (log / name).write_bytes(os.urandom(600_000))
    ground.knob("idle")
    assert ground.end(pilot) == 0
    assert (ground.logs / "71.tar.gz").stat().st_size <= 1_000_000


def test_every_code_in_the_tarball_is_in_the_catalogue() -> None:
    text = "".join(pilot_files().values())
    used = set(re.findall(r"\bfail ([a-z]+(?:-[a-z]+)+)", text))
    staged = re.search(r"stage_of\(\) \{.*?\n\}", text, re.DOTALL)
    assert staged is not None
    named = dict.fromkeys(used)
    for codes, stage in re.findall(r"^    ([a-z| -]+)\)\s*echo (\w+) ;;", staged[0], re.MULTILINE):
        for code in codes.split(" | "):
            assert FAILURES[code].stage == stage, code
            named.pop(code, None)
    assert len(used) >= 12
    assert not named, "codes that stage_of does not know"


def test_the_tarballs_shell_passes_shellcheck() -> None:
    paths = [str(path) for path in sorted(data_dir("tarball").glob("*.sh"))]
    assert len(paths) > len(pilot_files()) == 6
    checked = subprocess.run(["shellcheck", "-x", *paths], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


def test_every_variable_of_the_pilot_is_set_somewhere_and_used_somewhere(tmp_path: Path) -> None:
    parts = pilot_files()
    main = parts.pop("pilot.sh")
    whole = re.sub(
        r"# shellcheck disable=SC2034.*\n|^\. .*\n", "", "\n".join([*parts.values(), main]), flags=re.MULTILINE
    )
    (tmp_path / "whole.sh").write_text("#!/bin/sh\n" + whole)
    words = ["shellcheck", "-i", "SC2034,SC2154", str(tmp_path / "whole.sh")]
    checked = subprocess.run(words, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
