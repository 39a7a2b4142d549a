"""However an annex ends, nothing stays at the site but its log archive."""

from __future__ import annotations

import pytest

from siteannex.errors import Stage
from tests.faultbook import FaultRow
from tests.lab.ground import Ground
from tests.lab.jobs import submit
from tests.lab.person import Person


def test_down_lets_running_jobs_finish(alice: Person, ground: Ground) -> None:
    assert alice.types("up", "lab", "--cpus", "2").status == 0
    batch = submit(alice, "lab", "sleep 6; echo finished", count=1)
    assert ground.wait_for(batch.states, lambda seen: seen == ["2"], within_s=30) == ["2"]
    down = alice.types("down", "lab")
    assert down.status == 0, down.text
    assert ground.wait_for(batch.states, lambda seen: not seen, within_s=20) == []
    assert batch.output() == "finished"
    ground.nothing_left()
    logs = alice.types("logs", "lab", "--file", "StartLog")
    assert "StartLog" in logs.text
    assert "Startd" in logs.text or "STARTD" in logs.text


def test_down_now_evicts(alice: Person, ground: Ground) -> None:
    assert alice.types("up", "lab", "--cpus", "2").status == 0
    batch = submit(alice, "lab", "sleep 600")
    assert ground.wait_for(batch.states, lambda seen: seen == ["2"], within_s=30) == ["2"]
    down = alice.types("down", "lab", "--now")
    assert down.status == 0, down.text
    assert down.seconds < 60
    ground.nothing_left()
    assert ground.wait_for(batch.states, lambda seen: seen == ["1"], within_s=60) == ["1"]
    batch.remove()


def test_a_pending_pilot_is_taken_down(alice: Person, ground: Ground) -> None:
    assert alice.types("up", "lab", "--gpus", "4", "--partition", "gpu", "--name", "one").status == 0
    assert alice.types("up", "lab", "--gpus", "4", "--partition", "gpu", "--name", "two", "--no-wait").status == 0
    assert alice.types("down", "two").status == 0
    assert len(ground.batch_jobs()) == 1
    assert alice.types("down", "one").status == 0
    ground.nothing_left()


def test_a_pilot_whose_sibling_was_cancelled_in_the_queue_leaves_nothing(alice: Person, ground: Ground) -> None:
    knows_no_limit = "extends: lab\npartitions: {gpu: {caps: {gpus_per_user: null}}}\n"
    alice.shell(f"mkdir -p ~/.config/siteannex/sites; printf '{knows_no_limit!s}' > ~/.config/siteannex/sites/lab.yaml")
    wide = ("--gpus", "8", "--nodes", "2", "--partition", "gpu", "--idle", "10s", "--name", "wide")
    up = alice.types("up", "lab", *wide, "--no-wait")  # the QOS allows six GPUs at once
    assert up.status == 0, up.text
    ground.wait_for(ground.batch_jobs, lambda seen: any("RUNNING" in job for job in seen), within_s=20)
    [waiting] = [job.split()[0] for job in ground.batch_jobs() if "PENDING" in job]
    ground.at("login1", f"scancel {waiting}")
    ground.nothing_left(within_s=60)


@pytest.mark.fault("idle expiry", code="-")
def test_an_idle_annex_ends_by_itself(alice: Person, ground: Ground, fault: FaultRow) -> None:
    assert alice.types("up", "lab", "--cpus", "1", "--idle", "10s").status == 0
    ground.nothing_left(within_s=60)
    [row] = alice.types("status", "lab", "--remote", "--json").json()
    fault.no_failure(Stage(row["stage"]))
    assert (row["stage"], row["failure"]) == ("RELEASED", None)
    assert "idle" in row["text"]
    again = alice.types("up", "lab", "--cpus", "1", "--idle", "10m")
    assert again.status == 0, again.text
    assert "the last lab has ended: idle" in again.text
    assert len(ground.batch_jobs()) == 1


@pytest.mark.fault("walltime ends an annex with a running job", code="-")
def test_walltime_ends_an_annex_cleanly(alice: Person, ground: Ground, fault: FaultRow) -> None:
    assert alice.types("up", "lab", "--cpus", "1", "--lifetime", "2m").status == 0
    batch = submit(alice, "lab", "sleep 600")
    assert ground.wait_for(batch.states, lambda seen: seen == ["2"], within_s=30) == ["2"]
    ground.nothing_left(within_s=180)
    assert ground.wait_for(batch.states, lambda seen: seen == ["1"], within_s=60) == ["1"]
    [row] = alice.types("status", "lab", "--remote", "--json").json()
    fault.no_failure(Stage(row["stage"]))
    assert (row["stage"], row["failure"]) == ("RELEASED", None)
    assert "walltime" in row["text"]
    assert "the pilot of lab ended: walltime" in alice.types("why", batch.cluster).text
    batch.remove()
