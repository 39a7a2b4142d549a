"""What Slurm may do to a pilot before its EP is up, from a scripted Slurm: the states the lab cannot bring about."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from siteannex.annex.status import as_data, table
from siteannex.annex.watch import Watcher
from siteannex.errors import Stage
from siteannex.model import Deadlines
from tests.faultbook import FaultRow
from tests.unit.samples import NOW, site
from tests.unit.world import World

NO_ANSWER = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def meets(world: World, state: str, *, reason: str = "", node: str = "c1", exit_code: str = "") -> None:
    """The pilot's job comes into a state at the first wait."""
    world.clock.on_sleep = lambda: world.slurm.job(
        "71", world.latest().plan.annex_id, state, node=node, reason=reason, exit_code=exit_code
    )


@pytest.mark.parametrize(
    ("state", "exit_code"),
    [
        pytest.param("FAILED", "127:0", marks=pytest.mark.fault("state FAILED", code="batch-job-failed")),
        pytest.param("RECONFIG_FAIL", "0:0", marks=pytest.mark.fault("state RECONFIG_FAIL", code="batch-job-failed")),
        pytest.param("COMPLETED", "0:0", marks=pytest.mark.fault("COMPLETED too early", code="batch-job-failed")),
        pytest.param("REVOKED", "0:0", marks=pytest.mark.fault("state REVOKED", code="batch-job-cancelled")),
        pytest.param("TIMEOUT", "0:0", marks=pytest.mark.fault("timeout", code="batch-job-timeout")),
        pytest.param("DEADLINE", "0:0", marks=pytest.mark.fault("state DEADLINE", code="batch-job-timeout")),
        pytest.param("BOOT_FAIL", "0:0", marks=pytest.mark.fault("state BOOT_FAIL", code="batch-job-node-failed")),
        pytest.param(
            "OUT_OF_MEMORY", "0:125", marks=pytest.mark.fault("out of memory", code="batch-job-out-of-memory")
        ),
        pytest.param(
            "LAUNCH_FAILED", "0:0", marks=pytest.mark.fault("state LAUNCH_FAILED", code="batch-job-launch-failed")
        ),
    ],
)
def test_a_pilot_that_ends_before_its_ep_is_up_is_told_in_slurms_words(
    world: World, fault: FaultRow, state: str, exit_code: str
) -> None:
    meets(world, state, exit_code=exit_code)
    failure = world.failing_up()
    fault.saw(failure)
    told = " ".join((failure.summary, *(item.text for item in failure.evidence)))
    assert state in told
    assert exit_code in told
    assert world.latest().state().ended


@pytest.mark.fault("cancelled with the own account", code="batch-job-cancelled")
def test_a_pilot_cancelled_with_ones_own_account_is_told_so(world: World, fault: FaultRow) -> None:
    meets(world, f"CANCELLED by {os.getuid()}")
    failure = world.failing_up()
    fault.saw(failure)
    assert "that is you" in failure.evidence[0].text


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        pytest.param("REQUEUE_HOLD", "", marks=pytest.mark.fault("requeued and held", code="pending-held")),
        pytest.param("SPECIAL_EXIT", "", marks=pytest.mark.fault("state SPECIAL_EXIT", code="pending-held")),
        pytest.param(
            "RESV_DEL_HOLD", "", marks=pytest.mark.fault("held: its reservation is gone", code="pending-held")
        ),
        pytest.param(
            "PENDING",
            "JobHoldMaxRequeue",
            marks=pytest.mark.fault("held: requeued too often", code="pending-held"),
        ),
    ],
)
def test_a_pilot_that_only_an_administrator_can_release_is_told_and_not_waited_for(
    world: World, fault: FaultRow, state: str, reason: str
) -> None:
    meets(world, state, reason=reason, node="")
    failure = world.failing_up()
    fault.saw(failure)
    assert "help desk" in failure.hint
    assert world.slurm.states() == {"71": "CANCELLED by 1000"} or state in failure.evidence[0].text


@pytest.mark.fault("held by its user", code="-")
def test_a_pilot_held_by_its_own_user_is_told_how_to_release_it_and_kept(world: World, fault: FaultRow) -> None:
    annex, _ = world.up(wait=False)
    world.slurm.job("71", annex.plan.annex_id, "PENDING", reason="JobHeldUser")
    [row] = world.status(remote=True)
    assert row.verdict.failure is None
    assert "scontrol release 71" in row.verdict.text
    assert world.slurm.cancels() == []
    fault.no_failure(row.verdict.stage)


@pytest.mark.fault("job purged from squeue, accounting off", code="batch-job-lost")
def test_a_purged_job_without_accounting_is_lost_after_the_sites_own_deadline(world: World, fault: FaultRow) -> None:
    world.site = site(deadlines={"lost": "20s"})
    world.slurm.set("sacct.off")
    world.slurm.set("purged")
    meets(world, "FAILED")
    failure = world.failing_up()
    fault.saw(failure)
    assert "Slurm accounting storage is disabled" in failure.evidence[1].text
    assert 20 <= sum(world.clock.slept) < Deadlines().lost_s


@pytest.mark.fault("squeue unavailable for minutes", code="-")
def test_a_queue_that_gives_no_answer_for_minutes_is_said_and_outlived(world: World, fault: FaultRow) -> None:
    annex, _ = world.up(wait=False)
    watcher = Watcher(annex, world.access(), world.pool, world.clock, world.view)
    world.clock.on_sleep = lambda: None
    assert "PENDING, Resources" in watcher.look().text
    world.slurm.set("squeue.down", NO_ANSWER)
    silent = watcher.look()
    assert silent.failure is None
    assert "PENDING, Resources (seen 0 s ago); Slurm gives no answer (slurm_load_jobs error" in silent.text
    assert silent.doubt == "Slurm gives no answer"

    def comes_back() -> None:
        if sum(world.clock.slept) > 400 and (world.slurm.root / "squeue.down").exists():
            world.slurm.unset("squeue.down")
            world.wake()

    world.clock.on_sleep = comes_back
    verdict = watcher.until(lambda seen: seen.settled)
    assert (verdict.stage, verdict.failure) == (Stage.READY, None)
    assert sum(world.clock.slept) > 400
    fault.no_failure(Stage.BATCH_JOB)


def test_status_without_a_connection_shows_what_the_queue_last_said_and_when(world: World) -> None:
    annex, _ = world.up(wait=False)
    world.slurm.job("71", annex.plan.annex_id, "PENDING", reason="Priority")
    world.status(remote=True)
    world.clock.on_sleep = lambda: None
    world.clock.sleep(720)
    [row] = world.status()
    header, [cells] = table([row], NOW)
    shown = dict(zip(header, cells, strict=True))
    assert (shown["STAGE"], shown["PILOTS"]) == ("QUEUE", "1 pending")
    [row] = world.status()
    assert row.verdict.text == "PENDING, Priority (seen 12 m ago)"
    assert as_data(row)["pilots"][0]["queue_seen"] == {
        "text": "PENDING, Priority",
        "at": NOW.isoformat(),
        "start": None,
    }
    assert as_data(row)["confidence"] == "partial"
    world.start("71")
    world.pool.ads.clear()
    world.status(remote=True)
    [row] = world.status()
    assert row.verdict.text.startswith("RUNNING on c1 (seen 0 s ago)")


def test_the_queues_word_is_recorded_once_and_stamped_again_only_now_and_then(world: World) -> None:
    annex, _ = world.up(wait=False)
    before = len(annex.events())
    watcher = Watcher(annex, world.access(), world.pool, world.clock, world.view)
    world.clock.on_sleep = lambda: None
    watcher.until(lambda _: sum(world.clock.slept) > 600)
    assert len(annex.events()) - before <= 1 + 600 / 120
    [seen] = annex.state().queue
    assert (world.clock.now() - seen.at).total_seconds() <= 150
