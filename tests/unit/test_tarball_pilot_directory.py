"""The pilot and its annex's directory: gone, shared with a sibling, taken away; and the login's environment."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.pilot_ground import SHELLS, Ground, grounds, nothing_is_left


@pytest.fixture(params=SHELLS)
def ground(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ground]:
    yield from grounds(request.param, tmp_path)


def test_the_last_pilot_of_an_annex_takes_its_directory_away(tmp_path: Path) -> None:
    ground = Ground(tmp_path, "/bin/sh", pilots=2)
    with ground.listener:
        ground.knob("idle")
        assert ground.run("71") == 0
        assert (ground.annex / "token").exists()
        assert ground.run("72") == 0
        assert not ground.annex.exists()
        assert sorted(path.name for path in ground.logs.glob("*.jsonl")) == ["71.jsonl", "72.jsonl"]


@pytest.mark.parametrize(
    ("squeue", "last"),
    [
        ("71\n", True),  # the other one was cancelled in the queue, or died with its node: it left no mark
        ("71\n72\n", False),
        ("72\n", False),
        ("", False),  # Slurm knows at least the job that asks: this answer is of no worth
        (None, False),
    ],
)
def test_a_pilot_whose_sibling_never_left_a_mark_asks_slurm_whether_it_is_the_last(
    tmp_path: Path, squeue: str | None, last: bool
) -> None:
    ground = Ground(tmp_path, "/bin/sh", pilots=2)
    with ground.listener:
        ground.knob("idle")
        if squeue is not None:
            ground.knob("squeue", squeue)
        assert ground.run("71") == 0
        assert ground.annex.exists() is not last


STOPPED = "slurmstepd-c1: error: *** JOB 71 ON c1 CANCELLED AT 2026-11-29T12:00:00 DUE TO {} ***\n"


@pytest.mark.parametrize(
    ("why", "restarts", "text", "stays"),
    [
        ("PREEMPTION", "1", "preempted", True),
        ("JOB REQUEUE", "1", "requeued", True),
        ("PREEMPTION", "0", "preempted", False),  # preempted for good
        ("PREEMPTION", "slurm_load_jobs error", "preempted", False),
        ("TIME LIMIT", "1", "walltime", False),
        ("", "1", "cancelled", False),
    ],
)
def test_a_pilot_that_slurm_stops_says_why_and_keeps_the_directory_where_it_starts_again(
    tmp_path: Path, why: str, restarts: str, text: str, stays: bool
) -> None:
    ground = Ground(tmp_path, "/bin/sh")
    with ground.listener:
        output = ground.annex / "slurm-71.out"
        output.write_text(STOPPED.format("JOB REQUEUE"))  # an earlier start's
        pilot = ground.start()
        ground.await_step("READY")
        with output.open("a") as stream:
            stream.write(STOPPED.format(why) if why else "")
        ground.knob("squeue", restarts)
        pilot.send_signal(signal.SIGTERM)
        assert ground.end(pilot) == 0
        assert ground.reports()[-1]["text"] == text
        assert (ground.annex / "token").exists() is stays
        assert (ground.annex / "pilots").exists() is False


def test_htcondor_settings_of_the_login_do_not_reach_the_ep(ground: Ground) -> None:
    ground.environment = {"_CONDOR_COLLECTOR_HOST": "elsewhere", "_condor_START": "true", "_CONDOR_X": "two\nlines"}
    ground.knob("idle")
    assert ground.run() == 0
    assert ground.turned("environment") == ""


def test_a_directory_taken_away_while_the_pilot_lives_does_not_stop_its_end(ground: Ground) -> None:
    pilot = ground.start()
    ground.await_step("READY")
    shutil.rmtree(ground.annex)
    pilot.send_signal(signal.SIGTERM)
    assert ground.end(pilot) == 0
    assert ground.steps()[-1] == ("RELEASED", "ok")
    nothing_is_left(ground)


def test_a_pilot_whose_directory_is_gone_ends_by_itself(ground: Ground) -> None:
    ground.knob("job")
    pilot = ground.start()
    ground.await_step("READY")
    shutil.rmtree(ground.annex)
    assert ground.end(pilot) == 0
    assert ground.steps()[-1] == ("RELEASED", "ok")
    assert ground.reports()[-1]["text"] == "cancelled"
    nothing_is_left(ground)


def test_a_directory_that_is_gone_for_a_blink_ends_nothing(ground: Ground) -> None:
    pilot = ground.start()
    ground.await_step("READY")
    sleep, away = ground.path / "tools/sleep", ground.path / "away"
    back = f'#!/bin/sh\n[ ! -e "{away}" ] || mv "{away}" "{ground.annex}"\nexec /bin/sleep 0.02\n'
    (ground.path / "back").write_text(back)
    (ground.path / "back").chmod(0o755)
    sleep.with_name("new").write_text(f'#!/bin/sh\nmv "{ground.annex}" "{away}"\nmv "{ground.path}/back" "$0"\n')
    sleep.with_name("new").chmod(0o755)
    sleep.with_name("new").rename(sleep)  # the next sleep takes the directory away, the one after it brings it back
    until = time.monotonic() + 10
    while (ground.path / "back").exists() or away.exists():
        assert time.monotonic() < until
        time.sleep(0.02)
    time.sleep(0.3)
    assert pilot.poll() is None
    ground.knob("idle")
    assert ground.end(pilot) == 0
    assert ground.reports()[-1]["text"] == "idle 10 m"


def test_a_batch_job_that_starts_after_the_annex_is_gone_does_nothing(ground: Ground) -> None:
    script = (ground.annex / "batch.sh").read_text()
    shutil.rmtree(ground.annex)
    done = subprocess.run([ground.shell, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 10
    assert "was taken down" in done.stderr
    assert not ground.annex.exists()
