"""`down`: pending pilots cancelled, running ones drained, nothing cancelled blindly, and nothing left behind."""

from __future__ import annotations

import getpass
from pathlib import Path

import pytest

from siteannex.annex.down import forget
from siteannex.annex.ending import END_WAIT_S, STOP_WAIT_S
from siteannex.annex.events import What
from siteannex.annex.store import Annex
from siteannex.errors import AnnexError, Stage
from tests.unit.samples import plan, request, slot
from tests.unit.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def brought_up(world: World, gpus: int = 2, *, wait: bool = True) -> Annex:
    annex, _ = world.up(request(gpus=gpus), wait=wait)
    return annex


def failed(world: World, annex: Annex, *, now: bool = False) -> str:
    with pytest.raises(AnnexError) as raised:
        world.down(annex, now=now)
    failure = raised.value.failure
    assert (failure.code, failure.stage) == ("release-incomplete", Stage.RELEASED)
    assert not annex.state().ended
    return "\n".join([failure.summary, *(item.text for item in failure.evidence)])


def assert_nothing_left(world: World, annex: Annex) -> None:
    assert not world.directory(annex).exists()
    assert not {"PENDING", "RUNNING"} & set(world.slurm.states().values())
    state = annex.state()
    assert (state.ended, state.stage, state.end_text) == (True, Stage.RELEASED, "taken down")
    assert world.store.living(annex.name) is None


def test_a_pending_pilot_is_cancelled_at_once(world: World) -> None:
    annex = brought_up(world, wait=False)
    world.down(annex)
    assert_nothing_left(world, annex)
    assert world.slurm.states() == {"71": "CANCELLED by 1000"}
    assert "cancel pending job 71" in world.view.text


def test_a_running_pilot_is_drained_and_waited_for(world: World) -> None:
    annex = brought_up(world)
    world.pool.ads.append(slot(job="12.0", slot_type="Dynamic", annex_id=annex.plan.annex_id))
    waits = 0

    def finish_at_last() -> None:
        nonlocal waits
        waits += 1
        if waits == 50:
            world.slurm.job("71", annex.plan.annex_id, "COMPLETED")

    world.clock.on_sleep = finish_at_last
    world.down(annex)
    assert world.slurm.cancels() == ["--batch --signal=USR1 71"]
    assert world.slurm.states() == {"71": "COMPLETED"}
    assert waits == 50
    assert any("1 job still running (12.0)" in text for _, text in world.view.lives)
    assert_nothing_left(world, annex)


def test_with_now_running_pilots_are_told_to_evict_and_end(world: World) -> None:
    annex = brought_up(world)
    world.down(annex, now=True)
    assert world.slurm.cancels() == ["--batch --signal=TERM 71"]
    assert_nothing_left(world, annex)


def test_a_pilot_that_does_not_end_by_itself_is_cancelled_after_a_while(world: World) -> None:
    annex = brought_up(world)
    world.slurm.set("deaf")
    world.down(annex, now=True)
    assert world.slurm.cancels() == [
        "--batch --signal=TERM 71",
        "71",
        f"--user={getpass.getuser()} --name={annex.plan.annex_id}",
    ]
    assert STOP_WAIT_S < sum(world.clock.slept) < END_WAIT_S
    assert_nothing_left(world, annex)


def test_one_pilot_waits_and_one_runs_each_gets_its_own(world: World) -> None:
    annex = brought_up(world, gpus=8, wait=False)
    world.start("71")
    world.slurm.set("drains")
    world.down(annex)
    assert world.slurm.cancels() == ["72", "--batch --signal=USR1 71"]
    assert world.slurm.states() == {"71": "COMPLETED", "72": "CANCELLED by 1000"}
    assert_nothing_left(world, annex)


def test_when_slurm_cannot_be_asked_nothing_is_cancelled_or_removed(world: World) -> None:
    annex = brought_up(world)
    world.slurm.set("squeue.down", "slurm_load_jobs error: Unable to contact slurm controller")
    words = failed(world, annex, now=True)
    assert "could not say" in words
    assert "Unable to contact slurm controller" in words
    assert world.slurm.cancels() == []
    assert world.directory(annex).exists()
    assert world.slurm.states() == {"71": "RUNNING"}


def test_a_pilot_that_does_not_end_is_told_with_its_state_and_can_be_tried_again(world: World) -> None:
    annex = brought_up(world)
    world.slurm.set("stuck")
    assert "71 RUNNING on c1" in failed(world, annex, now=True)
    assert sum(world.clock.slept) > END_WAIT_S
    assert world.directory(annex).exists()
    world.slurm.unset("stuck")
    world.down(annex, now=True)
    assert_nothing_left(world, annex)


def test_a_pilot_that_appears_late_is_not_overlooked(world: World) -> None:
    annex = brought_up(world, wait=False)

    def late(script: str) -> None:
        if script.startswith("rm -rf"):
            world.slurm.job("99", annex.plan.annex_id, "PENDING")

    world.transport.after = late
    assert "99" in failed(world, annex)
    world.transport.after = lambda _: None
    world.down(annex)
    assert_nothing_left(world, annex)


def test_pilots_that_ended_by_themselves_are_only_cleaned_up(world: World) -> None:
    annex = brought_up(world)
    world.slurm.job("71", annex.plan.annex_id, "TIMEOUT")
    world.slurm.set("purged")
    world.slurm.set("sacct.off")
    world.down(annex)
    assert world.slurm.cancels() == []
    assert_nothing_left(world, annex)


def test_down_killed_in_the_middle_is_finished_by_the_next_one(world: World) -> None:
    annex = brought_up(world)

    def kill(script: str) -> None:
        if "scancel" in script:
            raise KeyboardInterrupt

    world.transport.after = kill
    with pytest.raises(KeyboardInterrupt):
        world.down(annex, now=True)
    world.transport.after = lambda _: None
    assert not annex.state().ended
    assert annex.state().begun is Stage.DRAIN
    world.down(annex, now=True)
    assert_nothing_left(world, annex)


def test_log_archives_stay(world: World) -> None:
    annex = brought_up(world)
    archive = world.transport.home / ".siteannex" / "logs" / annex.plan.annex_id / "71.tar.gz"
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"logs")
    world.down(annex, now=True)
    assert archive.is_file()


def test_an_annex_that_never_submitted_is_closed_without_a_login(world: World) -> None:
    annex = world.store.create(plan())
    annex.record(Stage.CONNECT, What.BEGIN)
    forget(annex, world.view)
    assert annex.state().ended
    assert "nothing had been submitted" in world.view.text
    assert world.logins == 0


def test_down_now_overtakes_a_down_that_waits_for_jobs(world: World) -> None:
    annex = brought_up(world)
    world.pool.ads.append(slot(job="12.0", slot_type="Dynamic", annex_id=annex.plan.annex_id))

    def another_terminal() -> None:
        if len(world.clock.slept) == 5:
            world.down(annex, now=True)

    world.clock.on_sleep = another_terminal
    world.down(annex)
    assert world.slurm.cancels() == ["--batch --signal=USR1 71", "--batch --signal=TERM 71"]
    assert_nothing_left(world, annex)


def test_a_collector_that_is_silent_does_not_keep_an_annex_up(world: World) -> None:
    annex = brought_up(world)
    world.pool.answers = False
    world.clock.on_sleep = lambda: world.slurm.job("71", annex.plan.annex_id, "COMPLETED")
    world.down(annex)
    assert any("the collector does not say what runs" in text for _, text in world.view.lives)
    assert_nothing_left(world, annex)
