"""What no witnesses whatever may make of an annex: an exception, a READY without its EP, an end that still costs."""

from __future__ import annotations

from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from siteannex.annex.events import AnnexState, QueueSeen
from siteannex.annex.judging.judge import judge
from siteannex.annex.judging.verdict import Confidence
from siteannex.errors import Stage
from siteannex.failures import FAILURES, failure
from siteannex.model import BatchState, PilotShape, Plan, Witnesses
from tests.unit.samples import NOW, job, plan, report, slot

ids = st.sampled_from(["71", "72", ""])
moments = st.integers(-4000, 4000).map(lambda seconds: NOW + timedelta(seconds=seconds))
maybe_moments: st.SearchStrategy[datetime | None] = st.none() | moments
jobs = st.builds(
    lambda job_id, state, reason, node, start: job(job_id, state, reason=reason, node=node, start=start),
    ids,
    st.sampled_from(BatchState),
    st.sampled_from(["", "Priority", "PartitionTimeLimit", "JobHeldAdmin", "JobHeldUser", "BeginTime"]) | st.text(),
    st.sampled_from(["", "c1"]),
    maybe_moments,
)
reports = st.builds(
    lambda stage, code, job_id, seconds: report(stage, code, job_id=job_id, seconds_ago=seconds),
    st.sampled_from([str(stage) for stage in Stage]) | st.text(),
    st.sampled_from(["ok", *FAILURES]) | st.text(),
    ids,
    st.integers(-4000, 4000),
)
slots = st.builds(
    lambda job_id, kind, gpus, cpus, memory, code: slot(
        job_id, slot_type=kind, total_gpus=gpus, total_cpus=cpus, total_memory_mib=memory, failed_code=code
    ),
    ids,
    st.sampled_from(["Partitionable", "Dynamic", "Static"]),
    st.integers(0, 4),
    st.sampled_from([0, 4, 8]),
    st.sampled_from([0, 16384, 32768]),
    st.sampled_from(["", "gpus-missing", "no-such-code"]),
)
states = st.builds(
    lambda stage, ready_at, **rest: AnnexState(
        stage=stage, ready_at=ready_at or (NOW if stage is Stage.READY else None), **rest
    ),
    st.sampled_from(Stage),
    maybe_moments,
    begun=st.none() | st.sampled_from(Stage),
    job_ids=st.lists(ids, unique=True).map(tuple),
    ready_ids=st.lists(ids, unique=True).map(tuple),
    down=maybe_moments,
    queue=st.lists(st.builds(QueueSeen, ids, st.sampled_from(["PENDING, Priority", "RUNNING"]), moments)).map(tuple),
    failure=st.none() | st.sampled_from(sorted(FAILURES)).map(lambda code: failure(code, "lab", "x")),
    ended=st.booleans(),
)
plans = st.builds(
    lambda pilots, gpus: plan(pilots=pilots, shape=PilotShape(gpus, "a100" if gpus else None, 8, 32768)),
    st.integers(1, 3),
    st.integers(0, 2),
)


witnesses = st.builds(
    Witnesses,
    st.none() | st.lists(jobs, max_size=3, unique_by=lambda each: each.job_id).map(tuple),
    st.none() | st.lists(reports, max_size=4).map(tuple),
    st.none() | st.lists(slots, max_size=4).map(tuple),
    maybe_moments,
    st.sampled_from(["", "slurm_load_jobs error: Socket timed out"]),
)


@given(plans, states, witnesses, moments)
def test_ready_means_a_living_pilot_with_an_ep_of_enough_gpus(
    planned: Plan, state: AnnexState, seen: Witnesses, now: datetime
) -> None:
    verdict = judge(planned, state, seen, now)
    for pilot in verdict.pilots:
        if pilot.stage is Stage.READY and pilot.failure is None:
            assert max(each.total_gpus for each in pilot.slots) >= planned.shape.gpus
            assert all(each.batch_job_id == pilot.job_id and not each.failed_code for each in pilot.slots)
            assert pilot.job is None or pilot.job.state.living
    if verdict.stage is Stage.READY and verdict.failure is None and verdict.pilots:
        assert verdict.ready


@given(plans, states, witnesses, moments)
def test_an_annex_is_over_only_when_no_pilot_can_cost_any_more(
    planned: Plan, state: AnnexState, seen: Witnesses, now: datetime
) -> None:
    verdict = judge(planned, state, seen, now)
    if verdict.stage is Stage.RELEASED and verdict.failure is None:
        said = {each.job_id for each in seen.reports or () if each.stage == Stage.RELEASED}
        assert all(each.state.ended or each.job_id in said for each in seen.batch or ())


@given(plans, states, witnesses, moments)
def test_every_known_pilot_has_a_verdict_and_every_failure_is_in_the_catalogue(
    planned: Plan, state: AnnexState, seen: Witnesses, now: datetime
) -> None:
    verdict = judge(planned, state, seen, now)
    judged = [pilot.job_id for pilot in verdict.pilots]
    assert len(set(judged)) == len(judged)
    assert {*state.job_ids, *(each.job_id for each in seen.batch or ())} <= set(judged)
    for told in (verdict.failure, *(pilot.failure for pilot in verdict.pilots)):
        assert told is None or told.code in FAILURES
    assert all(pilot.text or pilot.failure or pilot.job for pilot in verdict.pilots)


@given(plans, states, witnesses, moments)
def test_a_witness_that_was_not_asked_never_makes_a_pilot_lost(
    planned: Plan, state: AnnexState, seen: Witnesses, now: datetime
) -> None:
    verdict = judge(planned, state, Witnesses(None, seen.reports, seen.slots), now)
    reported = {each.code for each in seen.reports or ()} | {each.failed_code for each in seen.slots or ()}
    if "batch-job-lost" not in reported and verdict.pilots:
        assert verdict.failure is None or verdict.failure.code != "batch-job-lost"


@given(plans, states, witnesses, moments)
def test_a_doubt_is_told_in_words_and_silence_is_never_agreement(
    planned: Plan, state: AnnexState, seen: Witnesses, now: datetime
) -> None:
    for pilot in judge(planned, state, seen, now).pilots:
        assert bool(pilot.doubt) is (pilot.confidence is not Confidence.AGREED)
        if seen.batch is None or (seen.slots is None and pilot.stage is Stage.READY):
            assert pilot.confidence is not Confidence.AGREED


@given(plans, states, witnesses, moments)
def test_a_job_that_waits_is_never_taken_for_an_ep(
    planned: Plan, state: AnnexState, seen: Witnesses, now: datetime
) -> None:
    for pilot in judge(planned, state, seen, now).pilots:
        if pilot.job is not None and pilot.job.state is BatchState.PENDING:
            assert pilot.stage is Stage.BATCH_JOB
            assert pilot.slots == ()
