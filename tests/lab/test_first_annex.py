"""The main job, end to end on the real thing."""

from __future__ import annotations

import pytest

from tests.lab.ground import Ground
from tests.lab.jobs import submit
from tests.lab.person import Person


@pytest.mark.parametrize("join", ["pool", "direct"])
def test_up_reaches_ready_and_runs_only_the_owners_jobs(alice: Person, ground: Ground, join: str) -> None:
    up = alice.types("up", "lab", "--gpus", "2", "--lifetime", "30m", "--join", join)
    assert up.status == 0, up.text
    assert up.answers == ("known", "password", "code")
    assert "ready" in up.text
    assert "2 GPUs" in up.text

    bob = Person(alice.lab, user="bob", account="bob")
    foreign = submit(bob, "lab", "id", gpus=1)
    batch = submit(alice, "lab", "id -un; echo gpu $CUDA_VISIBLE_DEVICES; hostname; sleep 8", gpus=1, count=3)
    states = ground.wait_for(batch.states, lambda seen: seen.count("2") == 2, within_s=30)
    assert sorted(states) == ["1", "2", "2"], "two jobs run at once on two GPUs, the third waits"

    status = alice.types("status", "lab", "--json")
    [row] = status.json()
    assert row["stage"] == "READY"
    assert row["jobs"] == {"waiting": 1, "running": 2, "held": 0}
    slots = [slot for pilot in row["pilots"] for slot in pilot["slots"]]
    assert [slot["total_gpus"] for slot in slots if slot["type"] == "Partitionable"] == [2]

    assert not ground.wait_for(batch.states, lambda seen: not seen, within_s=60)
    user, gpu, host = batch.output().splitlines()
    assert user == "alice"
    assert gpu.startswith("gpu ")
    assert gpu != "gpu "
    assert host in ("c1", "c2")
    assert foreign.states() == ["1"], "another user's job does not start there"
    foreign.remove()

    down = alice.types("down", "lab")
    assert down.status == 0, down.text
    ground.nothing_left()


def test_a_second_up_reports_the_living_annex_and_submits_nothing(alice: Person, ground: Ground) -> None:
    assert alice.types("up", "lab", "--cpus", "2").status == 0
    jobs = ground.batch_jobs()
    again = alice.types("up", "lab", "--cpus", "2")
    assert again.status == 0, again.text
    assert again.answers == ()
    assert "lives already" in again.text
    assert ground.batch_jobs() == jobs

    other = alice.types("up", "lab", "--cpus", "3")
    assert other.status == 10
    assert "request-differs" in other.text
    assert "--cpus 3 asked, 2 living" in other.text
    assert ground.batch_jobs() == jobs


def test_two_pilots_share_the_gpus(alice: Person, ground: Ground) -> None:
    up = alice.types("up", "lab", "--gpus", "4", "--nodes", "2", "--name", "wide")
    assert up.status == 0, up.text
    assert len(ground.batch_jobs()) == 2
    [row] = alice.types("status", "wide", "--remote", "--json").json()
    assert [pilot["stage"] for pilot in row["pilots"]] == ["READY", "READY"]
    assert [pilot["state"] for pilot in row["pilots"]] == ["RUNNING", "RUNNING"]
    assert sum(slot["total_gpus"] for pilot in row["pilots"] for slot in pilot["slots"]) == 4


def test_dry_run_does_nothing_at_all(alice: Person, ground: Ground) -> None:
    before = ground.logins()
    shown = alice.types("up", "lab", "--gpus", "2", "--dry-run")
    assert shown.status == 0
    assert "--gres=gpu:a100:2" in shown.text
    assert ground.logins() == before
    assert alice.types("status").text.startswith("No annex is up")
