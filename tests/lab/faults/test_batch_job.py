"""BATCH_JOB: what a real Slurm does to a pilot that waits or has just started; told with its words, nothing left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pytest

from siteannex.errors import Stage
from tests.faultbook import FaultRow
from tests.lab.faults.site_file import DEBUG, SLOW_START, own_site
from tests.lab.ground import Ground
from tests.lab.person import Person

UP = ("up", "lab", "--cpus", "1", "--partition", "debug", "--lifetime", "10m")


@pytest.fixture
def full(ground: Ground) -> Iterator[None]:
    """Every core of the site is bob's for some minutes."""
    for node in ("c1", "c2"):
        ground.at("login1", f"cd /tmp && sbatch -A xyz789 -p debug -c 16 -w {node} -t 5 --wrap 'sleep 600'", user="bob")
    seen = ground.wait_for(lambda: ground.batch_jobs("bob"), lambda jobs: len(running(jobs)) == 2, within_s=20)
    assert len(running(seen)) == 2, seen
    yield
    ground.at("login1", "scancel -u bob")
    ground.wait_for(lambda: ground.batch_jobs("bob"), lambda jobs: not jobs, within_s=20)


@pytest.fixture
def nodes(ground: Ground) -> Iterator[Ground]:
    """Nodes that a test breaks are whole again afterwards."""
    yield ground
    for node in ("c1", "c2"):
        ground.at("login1", f"scontrol update nodename={node} state=resume 2>/dev/null || true")
    fine = ground.wait_for(lambda: node_states(ground), lambda states: set(states) <= {"idle", "mixed"}, within_s=30)
    assert set(fine) <= {"idle", "mixed"}, fine


def node_states(ground: Ground) -> list[str]:
    return ground.at("login1", "sinfo -h -N -p debug -o %T").split()


def running(jobs: list[str]) -> list[str]:
    return [job for job in jobs if "RUNNING" in job]


def submitted(alice: Person, ground: Ground, state: str, *more: str) -> str:
    """The id of a pilot that was submitted and is in a state."""
    begun = alice.types(*UP, *more, "--no-wait")
    assert begun.status == 0, begun.text
    seen = ground.wait_for(ground.batch_jobs, lambda jobs: any(state in job for job in jobs), within_s=20)
    [job] = [job for job in seen if state in job] or pytest.fail(f"no job is {state}: {seen}")
    return job.split()[0]


def failing_up(alice: Person) -> dict[str, Any]:
    """What `up` says when it comes to watch a pilot that will not be: exit status and words."""
    done = alice.types(*UP, "--json")
    assert done.status == 15, done.text
    failure: dict[str, Any] = done.json()["failure"]
    return failure


def status(alice: Person, *more: str) -> dict[str, Any]:
    [row] = alice.types("status", "lab", "--json", *more).json()
    assert isinstance(row, dict)
    return row


def words(failure: dict[str, Any]) -> str:
    return " ".join([failure["summary"], *(item["text"] for item in failure["evidence"])])


@pytest.mark.fault("pending for a reason that can never clear", code="pending-forever")
def test_a_pilot_that_can_never_start(alice: Person, ground: Ground, fault: FaultRow) -> None:
    own_site(alice, ("max_walltime: 30m", "max_walltime: 2h"))  # the partition takes half an hour
    done = alice.types("up", "lab", "--cpus", "1", "--partition", "debug", "--lifetime", "1h", "--json")
    assert done.status == 15, done.text
    failure = done.json()["failure"]
    fault.saw(failure, seconds=done.seconds_after_answers)
    assert "the walltime is longer than the partition allows" in failure["summary"]
    assert "PartitionTimeLimit" in words(failure)
    ground.nothing_left()


@pytest.mark.usefixtures("full")
@pytest.mark.fault("pending with a projected start", code="-")
def test_a_pilot_that_waits_its_turn(alice: Person, ground: Ground, fault: FaultRow) -> None:
    submitted(alice, ground, "PENDING")
    row = ground.wait_for(lambda: status(alice, "--remote"), lambda seen: seen["pilots"][0]["start"], within_s=20)
    fault.no_failure(Stage(row["stage"]))
    [pilot] = row["pilots"]
    assert (row["failure"], pilot["state"], row["confidence"]) == (None, "PENDING", "agreed")
    assert pilot["reason"] in ("Resources", "Priority")
    start = datetime.fromisoformat(pilot["start"])
    [later] = status(alice)["pilots"]  # without a connection: what the queue last said
    assert later["queue_seen"]["text"] == f"PENDING, {pilot['reason']}"
    assert datetime.fromisoformat(later["queue_seen"]["start"]) == start
    screen = alice.types("status").text
    assert "QUEUE" in screen
    assert "1 pending" in screen
    assert "starts about" in screen
    assert alice.types("down", "lab").status == 0
    ground.nothing_left()


@pytest.mark.usefixtures("full")
@pytest.mark.fault("held by an administrator", code="pending-held")
def test_a_pilot_held_by_an_administrator(alice: Person, ground: Ground, fault: FaultRow) -> None:
    job = submitted(alice, ground, "PENDING")
    ground.at("login1", f"scontrol hold {job}")
    fault.start()
    failure = failing_up(alice)
    fault.saw(failure)
    assert "JobHeldAdmin" in words(failure)
    assert "help desk" in failure["hint"]
    ground.nothing_left()


@pytest.mark.usefixtures("full")
@pytest.mark.fault("cancelled by someone else", code="batch-job-cancelled-by-other")
def test_a_pilot_that_somebody_cancels(alice: Person, ground: Ground, fault: FaultRow) -> None:
    job = submitted(alice, ground, "PENDING")
    ground.at("login1", f"scancel {job}")
    fault.start()
    failure = failing_up(alice)
    fault.saw(failure)
    assert "cancelled by root (uid 0)" in failure["summary"]
    ground.nothing_left()


@pytest.mark.fault("node failure", code="batch-job-node-failed")
def test_a_node_that_fails_under_a_pilot(alice: Person, nodes: Ground, fault: FaultRow) -> None:
    own_site(alice, SLOW_START)
    submitted(alice, nodes, "RUNNING")
    node = nodes.at("login1", "squeue -h -u alice -o %N")
    nodes.at("login1", f"scontrol update nodename={node} state=down reason=test")
    fault.start()
    failure = failing_up(alice)
    fault.saw(failure)
    assert "NODE_FAIL" in words(failure)
    assert node in failure["summary"]
    nodes.nothing_left()


@pytest.mark.fault("preempted", code="batch-job-preempted")
def test_a_pilot_preempted_before_its_ep_is_up(alice: Person, ground: Ground, fault: FaultRow) -> None:
    own_site(alice, SLOW_START)
    submitted(alice, ground, "RUNNING")
    urgent(ground)
    fault.start()
    failure = failing_up(alice)
    fault.saw(failure)
    assert "PREEMPTED" in words(failure)
    ground.nothing_left()


@pytest.mark.fault("preempted and requeued under the same id", code="-")
def test_a_pilot_preempted_and_requeued_is_a_new_start_of_the_same_job(
    alice: Person, ground: Ground, fault: FaultRow
) -> None:
    own_site(alice, (DEBUG, f"{DEBUG}    options: ['--requeue']\n"))
    up = alice.types(*UP, "--idle", "60s")
    assert up.status == 0, up.text
    [job] = [job.split()[0] for job in ground.batch_jobs()]
    urgent(ground)
    fault.start()
    row = ground.wait_for(
        lambda: status(alice, "--remote"), lambda seen: seen["pilots"][0]["state"] == "PENDING", within_s=20
    )
    assert (row["stage"], row["failure"]) == ("BATCH_JOB", None)
    assert "was stopped by Slurm and waits to start again under the same id" in row["text"]
    fault.no_failure(Stage(row["stage"]))
    ground.at("login1", f"scontrol update jobid={job} starttime=now")  # Slurm itself waits two minutes
    again = alice.types(*UP, "--idle", "60s")
    assert again.status == 0, again.text
    assert "nothing is submitted twice" in again.text
    row = status(alice, "--remote")
    assert (row["stage"], row["failure"], row["pilots"][0]["job_id"]) == ("READY", None, job)
    assert alice.types("down", "lab", "--now").status == 0
    ground.nothing_left()


@pytest.mark.fault("launch failure", code="batch-job-launch-failed")
def test_a_node_that_cannot_launch_a_pilot(alice: Person, nodes: Ground, fault: FaultRow) -> None:
    own_site(alice, (DEBUG, f"{DEBUG}    options: ['--nodelist=c1']\n"))
    nodes.at("c1", "mount -t tmpfs -o ro tmpfs /var/spool/slurmd")
    try:
        fault.start()
        failure = failing_up(alice)
    finally:
        nodes.at("c1", "umount /var/spool/slurmd")
    fault.saw(failure)
    assert "c1" in failure["summary"]
    nodes.nothing_left()


@pytest.mark.fault("slurmctld gives no answer", code="-")
def test_a_batch_system_that_gives_no_answer_is_said_and_outlived(
    alice: Person, ground: Ground, controller: Callable[[str], None], fault: FaultRow
) -> None:
    up = alice.types(*UP)
    assert up.status == 0, up.text
    controller("STOP")
    fault.start()
    row = status(alice, "--remote")
    assert (row["stage"], row["failure"], row["confidence"]) == ("READY", None, "partial")
    assert row["doubt"] == "Slurm gives no answer"
    fault.no_failure(Stage.BATCH_JOB)
    controller("CONT")
    row = status(alice, "--remote")
    assert (row["stage"], row["confidence"]) == ("READY", "agreed")
    assert alice.types("down", "lab", "--now").status == 0
    ground.nothing_left()


@pytest.fixture
def controller(ground: Ground) -> Iterator[Callable[[str], None]]:
    """Sends slurmctld a signal; it runs again afterwards."""

    def signal(name: str) -> None:
        ground.at("login1", f"kill -{name} $(pidof slurmctld)")

    yield signal
    signal("CONT")


def urgent(ground: Ground) -> None:
    """A job of bob's that takes both nodes from whoever has them, for two seconds."""
    ground.at("login1", "cd /tmp && sbatch -A xyz789 -p urgent -N2 -n2 -c 16 -t 1 --wrap 'sleep 2'", user="bob")
