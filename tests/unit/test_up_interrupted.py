"""`up` killed at every boundary, then run again: each pilot is submitted once, ever, and nothing is orphaned."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from siteannex.annex.store import Annex
from siteannex.errors import AnnexError
from siteannex.failures import fail
from tests.unit.samples import request
from tests.unit.world import World

ASKED = request(gpus=8)  # two pilots of four


class Killed(BaseException):
    """kill -9: nobody catches it, nothing is cleaned."""


class Boundaries:
    """Counts what `up` does to the world, and at one of these points ends it."""

    def __init__(self, world: World, stop_at: int, problem: Callable[[], BaseException]) -> None:
        self.count, self.stop_at, self.problem = 0, stop_at, problem
        self.names: list[str] = []
        world.transport.before = lambda script: self.step(f"before {script[:40]!r}")
        world.transport.after = lambda script: self.step(f"after {script[:40]!r}")
        world.on_login = lambda: self.step("login")
        world.pool.on_token = lambda: self.step("token")
        wake = world.clock.on_sleep

        def wait() -> None:
            self.step("wait")
            wake()

        world.clock.on_sleep = wait

    def step(self, name: str) -> None:
        self.names.append(name)
        self.count += 1
        if self.count == self.stop_at:
            raise self.problem()


LAST = 23


@pytest.mark.parametrize("between", ["nothing", "status", "status --remote"])
@pytest.mark.parametrize("stop_at", range(1, LAST + 1))
def test_up_killed_anywhere_and_run_again_has_each_pilot_once(tmp_path: Path, stop_at: int, between: str) -> None:
    world = World(tmp_path)
    Boundaries(world, stop_at, Killed)
    try:
        world.up(ASKED)
    except Killed:
        if between != "nothing":
            world.status(remote=between == "status --remote")
        world.up(ASKED)
    assert_one_annex_of_two_pilots(world)


@pytest.mark.parametrize("stop_at", range(1, LAST + 1))
def test_a_link_that_breaks_anywhere_and_up_again_has_each_pilot_once(tmp_path: Path, stop_at: int) -> None:
    world = World(tmp_path)
    Boundaries(world, stop_at, lambda: fail("link-broken", "lab", "the link broke"))
    try:
        world.up(ASKED)
    except AnnexError as problem:
        broken = problem.failure.code
        assert broken == "link-broken"
        world.up(ASKED)
    assert_one_annex_of_two_pilots(world)


@pytest.mark.parametrize("stop_at", range(1, LAST + 1))
def test_up_killed_anywhere_and_then_down_leaves_nothing(tmp_path: Path, stop_at: int) -> None:
    world = World(tmp_path)
    Boundaries(world, stop_at, Killed)
    try:
        annex, _ = world.up(ASKED)
    except Killed:
        left = world.store.living("sweep1")
        if left is None or not left.state().submit_begun:
            assert world.slurm.submissions() == 0
            return
        annex = left
    world.down(annex, now=True)
    assert not {"PENDING", "RUNNING"} & set(world.slurm.states().values())
    assert not world.directory(annex).exists()
    assert annex.state().ended


@pytest.mark.parametrize("stop_at", range(1, LAST + 1))
def test_up_killed_anywhere_and_a_down_that_cannot_cancel_is_not_the_end(tmp_path: Path, stop_at: int) -> None:
    world = World(tmp_path)
    Boundaries(world, stop_at, Killed)
    try:
        annex, _ = world.up(ASKED)
    except Killed:
        annex = world.latest() if world.store.annexes() else world.up(ASKED, wait=False)[0]
    living = {"PENDING", "RUNNING"} & set(world.slurm.states().values())
    world.slurm.set("scancel.down", "scancel: error: Unable to contact slurm controller")
    world.clock.on_sleep = lambda: None
    try:
        world.down(annex, now=True)
    except AnnexError as problem:
        refused = problem.failure.code
        assert refused == "release-incomplete"
        assert living
        assert not annex.state().ended
        assert world.directory(annex).exists()
        world.slurm.unset("scancel.down")
        world.down(annex, now=True)
    assert not {"PENDING", "RUNNING"} & set(world.slurm.states().values())
    assert annex.state().ended


def test_the_boundaries_above_are_all_there_are(tmp_path: Path) -> None:
    world = World(tmp_path)
    counted = Boundaries(world, 0, Killed)
    world.up(ASKED)
    assert counted.count == LAST, counted.names


def test_a_submission_cut_off_between_two_pilots_is_completed(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.transport.after = lambda script: _kill_after(script, world)
    with pytest.raises(Killed):
        world.up(ASKED)
    world.transport.after = lambda _: None
    world.slurm.job("71", "sweep1-00000001", "PENDING")
    _forget_second(world)
    world.up(ASKED)
    assert world.slurm.states() == {"71": "RUNNING", "73": "RUNNING"}


@pytest.mark.parametrize("remote", [False, True])
@pytest.mark.parametrize("started", [False, True])
def test_a_pilot_that_status_found_after_the_kill_does_not_hide_that_the_other_is_missing(
    tmp_path: Path, started: bool, remote: bool
) -> None:
    world = World(tmp_path)
    world.transport.after = lambda script: _kill_after(script, world)
    with pytest.raises(Killed):
        world.up(ASKED)
    world.transport.after = lambda _: None
    _forget_second(world)
    if started:
        world.start("71")
    world.status(remote=remote)
    assert _only(world).state().job_ids == (("71",) if started or remote else ())
    world.up(ASKED)
    assert world.slurm.states() == {"71": "RUNNING", "73": "RUNNING"}
    assert _only(world).state().job_ids == ("71", "73")


def test_a_second_pilot_refused_later_takes_the_first_one_down_too(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.transport.after = lambda script: _kill_after(script, world)
    with pytest.raises(Killed):
        world.up(ASKED)
    world.transport.after = lambda _: None
    _forget_second(world)
    world.slurm.set("refuse.73", "sbatch: error: Invalid qos specification")
    with pytest.raises(AnnexError) as raised:
        world.up(ASKED)
    assert raised.value.failure.code == "qos-invalid"
    assert world.slurm.states() == {"71": "CANCELLED by 1000"}


def test_when_slurm_cannot_be_asked_what_was_submitted_nothing_is_submitted_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.transport.after = lambda script: _kill_after(script, world)
    with pytest.raises(Killed):
        world.up(ASKED)
    world.transport.after = lambda _: None
    world.slurm.set("squeue.down", "Unable to contact slurm controller")
    world.clock.on_sleep = lambda: None
    with pytest.raises(AnnexError) as raised:
        world.up(ASKED)
    assert raised.value.failure.code == "submit-uncertain"
    assert world.slurm.submissions() == 2
    world.clock.on_sleep = world.wake
    world.slurm.unset("squeue.down")
    world.up(ASKED)
    assert_one_annex_of_two_pilots(world)


def test_what_once_failed_is_not_believed_again_while_slurm_gives_no_answer(tmp_path: Path) -> None:
    """An earlier `up` that failed left its pilots alive: a watch without Slurm's answer must not give them up."""
    world = World(tmp_path)
    world.transport.after = lambda script: _kill_after(script, world)
    with pytest.raises(Killed):
        world.up(ASKED)
    world.transport.after = lambda _: None
    programs = world.slurm.bin.rename(world.slurm.root / "elsewhere")
    assert world.failing_up(ASKED).code == "slurm-missing"
    programs.rename(world.slurm.bin)
    failed_then = _only(world).state().failure
    assert failed_then is not None

    def silent_for_a_minute() -> None:
        if len(world.clock.slept) == 1:
            world.slurm.set("squeue.down", "slurm_load_jobs error: Socket timed out on send/recv operation")
        if sum(world.clock.slept) > 60 and (world.slurm.root / "squeue.down").exists():
            world.slurm.unset("squeue.down")
            world.wake()

    world.clock.on_sleep = silent_for_a_minute
    world.up(ASKED)
    assert world.slurm.cancels() == []
    assert_one_annex_of_two_pilots(world)
    assert _only(world).state().failure is None


def test_a_lost_answer_of_which_only_one_pilot_is_found_is_uncertain(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.clock.on_sleep = lambda: None
    world.slurm.set("refuse.72", "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation")
    with pytest.raises(AnnexError) as raised:
        world.up(ASKED)
    assert raised.value.failure.code == "submit-uncertain"
    assert _only(world).state().job_ids == ("71",)
    assert not _only(world).state().ended
    assert world.slurm.states() == {"71": "PENDING"}


def _kill_after(script: str, world: World) -> None:
    if "sbatch --parsable" in script:
        raise Killed


def _forget_second(world: World) -> None:
    """As if the kill had come between the two pilots."""
    (world.directory(_only(world)) / "submit.2" / "answer").unlink()
    (world.directory(_only(world)) / "submit.2").rmdir()
    (world.slurm.root / "jobs" / "72").unlink()


def _only(world: World) -> Annex:
    [annex] = world.store.annexes()
    return annex


def assert_one_annex_of_two_pilots(world: World) -> None:
    assert world.slurm.submissions() == 2
    assert world.slurm.states() == {"71": "RUNNING", "72": "RUNNING"}
    living = [annex for annex in world.store.annexes() if not annex.state().ended]
    assert [annex.state().job_ids for annex in living] == [("71", "72")]
    assert {slot.batch_job_id for slot in world.pool.ads} == {"71", "72"}
