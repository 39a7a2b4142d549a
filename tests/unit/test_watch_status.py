"""Watching and telling: what is recorded once, what is shown, and a witness that cannot be asked."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from siteannex.annex.events import Event, What, fold
from siteannex.annex.slurm_site import SlurmSite
from siteannex.annex.status import Row, as_data, detail_lines, table, take_status
from siteannex.annex.store import Annex
from siteannex.annex.watch import Watcher, adopt, gather
from siteannex.errors import Stage
from siteannex.failures import fail, failure
from siteannex.model import BatchState, JobCounts, Witnesses
from tests.unit.samples import NOW, job, plan, slot
from tests.unit.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def submitted(world: World) -> Annex:
    annex, _ = world.up(wait=False)
    return annex


def access(world: World) -> SlurmSite:
    return SlurmSite(world.site, world.transport)


def status(world: World, *, remote: bool = False) -> Row:
    [row] = take_status(
        world.store.annexes(), world.store, world.pool, world.clock.now(), lambda _: access(world) if remote else None
    )
    return row


def cells(row: Row) -> dict[str, str]:
    header, [line] = table([row], NOW)
    return dict(zip(header, line, strict=True))


def test_every_stage_has_a_label() -> None:
    assert len({stage.label for stage in Stage}) == len(Stage)


def test_a_watch_records_each_stage_once_and_ends_when_ready(world: World) -> None:
    annex = submitted(world)
    before = len(annex.events())
    watcher = Watcher(annex, access(world), world.pool, world.clock, world.view)
    world.clock.on_sleep = lambda: world.wake() if len(world.clock.slept) > 5 else None
    verdict = watcher.until(lambda seen: seen.settled)
    assert verdict.stage is Stage.READY
    assert [event.stage for event in annex.events()[before:]] == [Stage.BATCH_JOB, Stage.BATCH_JOB, Stage.READY]
    assert [each.text for each in annex.state().queue] == ["RUNNING on c1"]
    assert ("queue", "PENDING, Resources [0 s]") in world.view.lives


def test_a_long_queue_is_looked_at_patiently(world: World) -> None:
    watcher = Watcher(submitted(world), access(world), world.pool, world.clock, world.view)
    world.clock.on_sleep = lambda: None
    asked: list[str] = []
    world.transport.before = lambda script: asked.append(script) if "squeue" in script else None
    verdict = watcher.until(lambda _: sum(world.clock.slept) > 300)
    assert verdict.stage is Stage.BATCH_JOB
    assert world.clock.slept[0] == 0.2, "short waits glance at the collector"
    assert world.clock.slept[-1] == 1.0, "long ones show that time passes"
    assert len(asked) < 20, "and the site is left in peace"


def test_a_pilots_steps_are_told_once_each(world: World) -> None:
    annex = submitted(world)
    line = {"at": NOW.isoformat(), "job": "71", "stage": "EP_START", "code": "ok", "text": "HTCondor up", "node": "c1"}
    (world.directory(annex) / "progress" / "71.jsonl").write_text(json.dumps(line) + "\n", encoding="utf-8")
    watcher = Watcher(annex, access(world), world.pool, world.clock, world.view)
    watcher.look()
    watcher.look()
    assert [text for label, text in world.view.lines if label == "ep"] == ["HTCondor up [0 s]"]


def test_a_collector_that_does_not_answer_is_not_asked_rather_than_empty(world: World) -> None:
    annex = submitted(world)
    world.pool.answers = False
    assert gather(annex, None, world.pool) == Witnesses()
    assert gather(annex, access(world), world.pool).slots is None


def test_jobs_found_by_name_are_recorded_once(world: World) -> None:
    annex = world.store.create(plan())
    seen = Witnesses(batch=(job("71"), job("72")), slots=(slot("71"), slot("73"), slot("")))
    adopt(annex, seen)
    adopt(annex, seen)
    assert annex.state().job_ids == ("71", "72", "73")
    assert len(annex.events()) == 2


def test_status_without_a_connection_shows_what_the_collector_knows(world: World) -> None:
    submitted(world)
    assert cells(status(world))["STAGE"] == "BATCH_JOB"
    world.wake()
    world.pool.counts["sweep1"] = JobCounts(waiting=2, running=1, held=1)
    shown = cells(status(world))
    assert (shown["ANNEX"], shown["SITE"], shown["STAGE"], shown["PILOTS"]) == ("sweep1", "lab", "READY", "1 running")
    assert shown["GPUS busy/all"] == "0/4 NVIDIA A100-SXM4-40GB"
    assert shown["JOBS run/wait"] == "1/2 (1 held)"


def test_status_with_a_connection_shows_the_queue(world: World) -> None:
    submitted(world)
    row = status(world, remote=True)
    assert cells(row)["STAGE"] == "QUEUE"
    assert cells(row)["PILOTS"] == "1 pending"
    assert "Resources" in cells(row)["NEXT"]
    assert any("job 71" in line and "PENDING (Resources)" in line for line in detail_lines(row, NOW))


def test_a_projected_start_is_remembered_also_when_it_comes_after_the_reason(world: World) -> None:
    annex = submitted(world)
    waiting = job(
        "71", BatchState.PENDING, name=annex.plan.annex_id, state_text="PENDING", reason="Resources", start=None
    )
    adopt(annex, Witnesses(batch=(waiting,)))
    assert annex.state().queue[0].start is None
    projected = world.clock.now() + timedelta(hours=1)
    adopt(annex, Witnesses(batch=(replace(waiting, start=projected),)))
    assert annex.state().queue[0].start == projected


def test_busy_gpus_are_counted_from_the_dynamic_slots(world: World) -> None:
    annex = submitted(world)
    world.wake()
    busy = slot(annex_id=annex.plan.annex_id, slot_type="Dynamic", gpus=1, job="12.0", state="Claimed")
    world.pool.ads.append(busy)
    row = status(world)
    assert cells(row)["GPUS busy/all"].startswith("1/4")
    assert any("job 12.0" in line for line in detail_lines(row, NOW))


def test_a_failed_annex_is_shown_failed_with_its_code_and_hint(world: World) -> None:
    annex = world.store.create(plan())
    told = failure("qos-invalid", "lab", "sbatch refused the pilot")
    annex.record_failure(told, ended=True)
    row = status(world)
    assert row.verdict.failure == told
    assert cells(row)["STAGE"] == "FAILED"
    assert cells(row)["NEXT"] == "qos-invalid"


def test_an_ended_annex_is_released_and_its_site_is_not_asked(world: World) -> None:
    annex = world.store.create(plan())
    annex.record(Stage.RELEASED, What.DONE, text="taken down")
    row = status(world, remote=True)
    assert (row.verdict.stage, row.verdict.text) == (Stage.RELEASED, "taken down")


def test_a_site_that_cannot_be_asked_is_told_and_the_rest_still_shown(world: World) -> None:
    submitted(world)
    world.wake()

    def broken(_: str) -> None:
        raise fail("link-broken", "lab", "the link broke")

    world.transport.before = broken
    row = status(world, remote=True)
    assert row.verdict.stage is Stage.READY
    assert row.trouble == "lab was not asked: the link broke"


def test_a_collector_that_cannot_be_asked_is_told(world: World) -> None:
    submitted(world)
    world.pool.answers = False
    assert "does not answer" in status(world).trouble


def test_the_end_is_slurms_when_asked_else_counted_from_ready(world: World) -> None:
    annex = submitted(world)
    annex.record(Stage.READY, What.SEEN)
    assert status(world).ends_at == NOW + timedelta(seconds=3600)


def test_everything_shown_is_json_too(world: World) -> None:
    submitted(world)
    world.wake()
    data = json.loads(json.dumps(as_data(status(world, remote=True))))
    assert (data["annex"], data["stage"], data["failure"]) == ("sweep1", "READY", None)
    [pilot] = data["pilots"]
    assert (pilot["job_id"], pilot["state"], pilot["node"]) == ("71", "RUNNING", "c1")
    assert pilot["slots"][0]["total_gpus"] == 4


def test_no_annexes_are_no_rows(world: World) -> None:
    assert take_status([], world.store, world.pool, NOW, lambda _: None) == []


def test_a_row_whose_pilots_all_wait_is_pending_and_a_mixed_one_is_not(world: World) -> None:
    submitted(world)
    row = status(world, remote=True)
    assert row.pending
    assert not replace(row, verdict=replace(row.verdict, pilots=())).pending


def test_status_shows_what_it_cannot_record(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.up(wait=False)
    world.wake()

    def no_space(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", no_space)
    before = world.latest().events()
    [row] = world.status(remote=True)
    assert row.verdict.stage is Stage.READY
    assert "what is seen now is not recorded" in row.trouble
    assert world.latest().events() == before
    monkeypatch.undo()
    [row] = world.status(remote=True)
    assert row.trouble == ""
    assert world.latest().state().ready_ids == ("71",)


def test_a_job_that_slurm_starts_again_was_not_ready_in_its_new_start(world: World) -> None:
    annex, verdict = world.up()
    assert verdict is not None
    assert annex.state().ready_ids == ("71",)
    world.slurm.job("71", annex.plan.annex_id, "PENDING", reason="BeginTime")
    row = status(world, remote=True)
    assert (row.stage_text, row.verdict.failure) == ("QUEUE", None)
    assert "starts again under the same id" in "".join(str(event.data.get("text")) for event in annex.events())
    assert (annex.state().ready_ids, annex.state().ready_at) == ((), None)
    world.slurm.job("71", annex.plan.annex_id, "FAILED", exit_code="1:0")
    assert status(world, remote=True).verdict.failure is not None, "its first start being ready does not excuse it"


def test_an_end_seen_at_the_site_is_known_later_without_a_connection(world: World) -> None:
    annex, _ = world.up()
    world.pool.ads.clear()
    world.slurm.job("71", annex.plan.annex_id, "PREEMPTED", node="c1")
    told = status(world, remote=True)
    assert "preempted: Slurm gave its node to other jobs" in told.verdict.text
    before = len(annex.events())
    later = status(world)
    assert (later.verdict.stage, later.verdict.text) == (Stage.RELEASED, told.verdict.text)
    status(world, remote=True)
    assert len(annex.events()) == before
    assert not annex.state().ended, "what is left at the site is still to be removed"


def test_events_of_another_version_with_odd_queues_and_ends_are_read() -> None:
    odd: list[dict[str, Any]] = [
        {"queue": "PENDING"},
        {"queue": [1, {"job_id": "71"}, {"job_id": 71, "text": "PENDING", "start": "soon"}]},
        {"ends": ["71"]},
        {"restarted": "71"},
        {"restarted": [71]},
    ]
    state = fold(Event(NOW, Stage.BATCH_JOB, What.SEEN, data) for data in odd)
    assert [(each.job_id, each.text, each.start) for each in state.queue] == [("71", "PENDING", None)]
    assert state.ends == {}
