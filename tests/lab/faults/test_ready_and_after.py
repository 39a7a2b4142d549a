"""READY and after: an EP that was right and is gone, and jobs taken off it: why, told apart."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from siteannex.errors import Stage
from tests.faultbook import FaultRow
from tests.lab.faults.site_file import own_site
from tests.lab.ground import Ground
from tests.lab.jobs import Batch, submit
from tests.lab.person import Person

UP = ("up", "lab", "--cpus", "1", "--partition", "debug", "--lifetime", "10m")
STUBBORN = "trap : TERM; while :; do sleep 1; done"
"""A job that does not die of a signal that Slurm sends to every process."""


def status(alice: Person, *more: str) -> dict[str, Any]:
    [row] = alice.types("status", "lab", "--json", *more).json()
    assert isinstance(row, dict)
    return row


def running_job(alice: Person, ground: Ground, script: str = "sleep 600") -> Batch:
    batch = submit(alice, "lab", script)
    assert ground.wait_for(batch.states, lambda seen: seen == ["2"], within_s=30) == ["2"]
    return batch


def why(alice: Person, batch: Batch) -> str:
    """What `why JOB` says of a job that came back to the queue."""
    return alice.types("why", batch.cluster).text


@contextmanager
def cut_off(ground: Ground, node: str) -> Iterator[None]:
    """A node that finds no way out of its own network any more: neither to the AP nor to slurmctld."""
    way = ground.at(node, "ip route show default")
    ground.at(node, "ip route del default")
    try:
        yield
    finally:
        ground.at(node, f"ip route add {way}")


@pytest.mark.fault("node vanishes", code="ep-vanished")
def test_a_node_that_vanishes_is_told_and_ready_when_it_is_back(alice: Person, ground: Ground, fault: FaultRow) -> None:
    own_site(alice, add="deadlines: {unheard: 12s}\n")
    up = alice.types(*UP, "--idle", "20s")  # its EP then speaks to the collector every five seconds
    assert up.status == 0, up.text
    batch = running_job(alice, ground)
    node = ground.at("login1", "squeue -h -u alice -o %N")
    with cut_off(ground, node):
        fault.start()
        row = ground.wait_for(lambda: status(alice, "--remote"), lambda seen: seen["failure"], within_s=60)
        fault.saw(row)
        assert row["confidence"] == "disputed"
        assert f"Slurm says RUNNING on {node}, and the collector has not heard its EP" in row["doubt"]
        told = alice.types("why", "lab", "--remote").text
        assert "the witnesses disagree: Slurm says RUNNING" in told
    row = ground.wait_for(lambda: status(alice, "--remote"), lambda seen: not seen["failure"], within_s=90)
    assert (row["stage"], row["failure"]) == ("READY", None)
    batch.remove()
    assert alice.types("down", "lab", "--now").status == 0
    ground.nothing_left(within_s=60)


@pytest.mark.fault("job evicted by down --now", code="-")
def test_a_job_that_down_evicts_says_so(alice: Person, ground: Ground, fault: FaultRow) -> None:
    assert alice.types(*UP).status == 0
    batch = running_job(alice, ground)
    fault.start()
    assert alice.types("down", "lab", "--now").status == 0
    assert ground.wait_for(batch.states, lambda seen: seen == ["1"], within_s=60) == ["1"]
    told = why(alice, batch)
    fault.no_failure(Stage.RELEASED)
    assert "you took lab down" in told
    assert "seen HTCondor" in told
    batch.remove()
    ground.nothing_left()


@pytest.mark.fault("preempted with a running job", code="-")
def test_a_job_whose_pilot_was_preempted_says_so(alice: Person, ground: Ground, fault: FaultRow) -> None:
    """Slurm signals every process of a batch job: the EP has no time to give the job back, and its AP waits for it."""
    assert alice.types(*UP).status == 0
    batch = running_job(alice, ground, STUBBORN)
    ground.at("login1", "cd /tmp && sbatch -A xyz789 -p urgent -N2 -n2 -c 16 -t 1 --wrap 'sleep 2'", user="bob")
    fault.start()
    lost = ground.wait_for(lambda: why(alice, batch), lambda text: "HTCondor has lost it" in text, within_s=30)
    assert "so the site stopped the pilot of lab" in lost, "without asking the site"
    row = ground.wait_for(lambda: status(alice, "--remote"), lambda seen: seen["stage"] == "RELEASED", within_s=20)
    fault.no_failure(Stage.RELEASED)
    assert (row["text"], row["failure"]) == ("preempted: Slurm gave its node to other jobs", None)
    told = why(alice, batch)
    assert "the pilot of lab ended: preempted" in told
    assert status(alice)["text"] == row["text"], "also without a connection, from then on"
    [remedy] = [line for line in told.splitlines() if "condor_hold" in line]
    alice.shell(remedy.strip().removeprefix("do").partition("   sends")[0])
    assert ground.wait_for(batch.states, lambda seen: seen == ["1"], within_s=20) == ["1"]
    batch.remove()
    ground.nothing_left()


@pytest.mark.fault("pilot cancelled by someone after READY", code="-")
def test_a_pilot_cancelled_by_root_after_it_was_ready_says_by_whom(
    alice: Person, ground: Ground, fault: FaultRow
) -> None:
    assert alice.types(*UP).status == 0
    ground.at("login1", "scancel -u alice")
    row = ground.wait_for(lambda: status(alice, "--remote"), lambda seen: seen["stage"] == "RELEASED", within_s=30)
    fault.no_failure(Stage.RELEASED)
    assert (row["text"], row["failure"]) == ("cancelled at the site by root (uid 0)", None)
    ground.nothing_left()
