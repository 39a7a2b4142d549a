"""Where an annex is, by its witnesses: one row a situation, and what no witnesses whatever may make of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from siteannex.annex.events import AnnexState, QueueSeen
from siteannex.annex.judging.judge import judge
from siteannex.annex.judging.verdict import Confidence, Verdict
from siteannex.errors import Evidence, Stage
from siteannex.failures import FAILURES, failure
from siteannex.model import BatchJob, BatchState, Deadlines, PilotReport, PilotShape, Plan, Slot, Witnesses
from siteannex.scheduler.reasons import HOPELESS_REASONS
from tests.unit.samples import NOW, ago, job, plan, report, slot

SUBMITTED = AnnexState(stage=Stage.SUBMIT, job_ids=("71",), submit_begun=True, submitted_at=ago(700))
WAS_READY = AnnexState(
    stage=Stage.READY,
    job_ids=("71",),
    submit_begun=True,
    submitted_at=ago(700),
    ready_at=ago(600),
    ready_ids=("71",),
)
PLANNED = plan()
STARTED = report("EP_START", seconds_ago=3)


@dataclass(frozen=True)
class Row:
    """A situation and what must be said of it."""

    stage: Stage
    code: str | None = None
    says: str = ""
    batch: tuple[BatchJob, ...] | None = (job(),)
    reports: tuple[PilotReport, ...] | None = ()
    slots: tuple[Slot, ...] | None = ()
    state: AnnexState = SUBMITTED
    plan: Plan = PLANNED


PENDING = job(state=BatchState.PENDING, reason="Priority", node="", start=None)
FEW_GPUS = slot(total_gpus=1, gpus=1)
SMALL = slot(total_memory_mib=16384)
FEW_CPUS = slot(total_cpus=4)
CPU_PLAN = plan(shape=PilotShape(0, None, 8, 32768))

TABLE = {
    "submitted, nobody asked": Row(Stage.BATCH_JOB, says="status --remote asks Slurm", batch=None, slots=None),
    "submitted, only the collector asked": Row(Stage.BATCH_JOB, says="not seen yet", batch=None),
    "pending": Row(Stage.BATCH_JOB, says="PENDING, Priority", batch=(PENDING,)),
    "pending without a reason": Row(
        Stage.BATCH_JOB, says="no reason given yet", batch=(job(state=BatchState.PENDING),)
    ),
    "pending for ever": Row(
        Stage.BATCH_JOB,
        "pending-forever",
        "can never start: the walltime is longer than the partition allows",
        batch=(job(state=BatchState.PENDING, reason="PartitionTimeLimit"),),
    ),
    "running, pilot silent for a moment": Row(Stage.BATCH_JOB, says="RUNNING on c1"),
    "running, start unknown": Row(Stage.BATCH_JOB, says="RUNNING", batch=(job(start=None, node=""),)),
    "running, pilot silent too long": Row(
        Stage.EP_START, "ep-start-silent", "written nothing", batch=(job(start=ago(181)),)
    ),
    "pilot starts its EP": Row(Stage.AP_CONNECT, says="c1 tries to reach the AP", reports=(STARTED,)),
    "pilot connects": Row(Stage.AP_CONNECT, reports=(STARTED, report("AP_CONNECT", seconds_ago=2))),
    "pilot says READY and the collector shows nothing yet": Row(Stage.AP_CONNECT, reports=(report("READY"),)),
    "pilot connected long ago and the collector shows nothing": Row(
        Stage.AP_CONNECT,
        "ep-not-seen",
        "the collector has no ad of it",
        reports=(report("AP_CONNECT", seconds_ago=181),),
        batch=(job(start=ago(190)),),
    ),
    "pilot connected long ago and the collector was not asked": Row(
        Stage.AP_CONNECT, reports=(report("AP_CONNECT", seconds_ago=181),), slots=None, batch=(job(start=ago(190)),)
    ),
    "pilot reports a stage this version does not know": Row(Stage.EP_START, reports=(report("LUNCH"),)),
    "pilot reports a failure": Row(
        Stage.AP_CONNECT,
        "collector-unreachable",
        "c1: timed out after 20 s",
        reports=(STARTED, report("AP_CONNECT", "collector-unreachable", "timed out after 20 s")),
    ),
    "pilot reported a failure and Slurm shows the job as failed": Row(
        Stage.EP_START,
        "scratch-unusable",
        reports=(report("EP_START", "scratch-unusable"),),
        batch=(job(state=BatchState.FAILED),),
    ),
    "pilot advertises its failure": Row(
        Stage.EP_CONFIG,
        "gpus-missing",
        batch=None,
        slots=(slot(failed_code="gpus-missing", failed_text="Slurm granted 2, discovery sees 0"),),
    ),
    "joined": Row(Stage.READY, says="c1: 2 x NVIDIA A100-SXM4-40GB", slots=(slot(),), reports=(STARTED,)),
    "joined, Slurm not asked": Row(Stage.READY, batch=None, slots=(slot(),)),
    "joined, Slurm not able to answer": Row(Stage.READY, batch=None, slots=(slot(),), state=WAS_READY),
    "joined with a busy dynamic slot beside it": Row(
        Stage.READY, slots=(slot(slot_type="Dynamic", total_gpus=0, total_cpus=0), slot())
    ),
    "joined with a little less memory than granted": Row(Stage.READY, slots=(slot(total_memory_mib=30000),)),
    "joined without GPUs as asked": Row(Stage.READY, says="c1", slots=(slot(total_gpus=0),), plan=CPU_PLAN),
    "too few GPUs": Row(Stage.EP_CONFIG, "gpus-missing", "has 1 GPUs, 2 asked", slots=(FEW_GPUS,)),
    "too little memory": Row(Stage.EP_CONFIG, "memory-missing", "16 GB, 32 GB asked", slots=(SMALL,)),
    "too few CPUs": Row(Stage.EP_CONFIG, "cpus-missing", "4 CPUs, 8 asked", slots=(FEW_CPUS,)),
    "draining": Row(Stage.DRAIN, slots=(slot(),), reports=(report("READY"), report("DRAIN")), state=WAS_READY),
    "ended as it should": Row(
        Stage.RELEASED,
        says="idle",
        batch=(job(state=BatchState.COMPLETED),),
        reports=(report("READY"), report("RELEASED", text="idle")),
        state=WAS_READY,
    ),
    "says it ended while Slurm still holds its allocation": Row(
        Stage.DRAIN, says="ending: idle", reports=(report("READY"), report("RELEASED", text="idle")), state=WAS_READY
    ),
    "told to end before it was ready": Row(
        Stage.BATCH_JOB,
        "batch-job-cancelled",
        "before its EP was ready",
        batch=(job(state=BatchState.COMPLETED),),
        reports=(report("BATCH_JOB"), report("RELEASED", text="cancelled")),
    ),
    "just submitted, one empty answer of Slurm": Row(
        Stage.BATCH_JOB, says="does not show it yet", batch=(), state=replace(SUBMITTED, submitted_at=ago(20))
    ),
    "its ad is old and Slurm was not asked": Row(
        Stage.DRAIN, says="not heard since", batch=None, slots=(slot(last_heard=ago(600)),), state=WAS_READY
    ),
    "an empty answer of Slurm, its ad fresh": Row(Stage.READY, batch=(), slots=(slot(last_heard=ago(5)),)),
    "draining, by its ad alone": Row(Stage.DRAIN, batch=None, slots=(slot(draining=True),), state=WAS_READY),
    "stuck while it unpacks": Row(
        Stage.EP_START,
        "ep-start-silent",
        "written nothing for",
        reports=(report("BATCH_JOB", seconds_ago=700),),
        batch=(job(start=ago(710)),),
    ),
    "READY by its own report, then over walltime": Row(
        Stage.RELEASED, batch=(job(state=BatchState.TIMEOUT),), reports=(report("READY"),)
    ),
    "ended as it should, its ad still there": Row(
        Stage.RELEASED, reports=(report("RELEASED", text="idle"),), slots=(slot(),), batch=(), state=WAS_READY
    ),
    "ended in Slurm, its ad still there": Row(
        Stage.RELEASED, batch=(job(state=BatchState.TIMEOUT),), slots=(slot(),), state=WAS_READY
    ),
    "left the collector, Slurm not asked": Row(Stage.DRAIN, says="left the collector", batch=None, state=WAS_READY),
    "left the collector, walltime over": Row(
        Stage.RELEASED,
        says="walltime is over",
        batch=None,
        state=replace(WAS_READY, ready_at=ago(3601)),
    ),
    "Slurm no longer knows it, never seen": Row(Stage.BATCH_JOB, "batch-job-lost", "no longer knows job 71", batch=()),
    "Slurm no longer knows it, was ready": Row(Stage.RELEASED, says="no longer knows it", batch=(), state=WAS_READY),
    "ready, its EP unheard too long, Slurm says it runs": Row(
        Stage.READY,
        "ep-vanished",
        "Slurm says RUNNING on c1, and its EP was last heard 10 m ago",
        batch=(job(start=ago(900)),),
        slots=(slot(last_heard=ago(600)),),
        state=WAS_READY,
    ),
    "ready by its report, its ad gone, Slurm says it runs": Row(
        Stage.READY,
        "ep-vanished",
        "the collector has no ad of its EP any more",
        batch=(job(start=ago(900)),),
        reports=(report("READY", seconds_ago=800),),
    ),
    "held by an administrator": Row(
        Stage.BATCH_JOB,
        "pending-held",
        "an administrator holds the job",
        batch=(job(state=BatchState.PENDING, reason="JobHeldAdmin"),),
    ),
    "held by its user": Row(
        Stage.BATCH_JOB,
        says="at the site: scontrol release 71",
        batch=(job(state=BatchState.PENDING, reason="JobHeldUser"),),
    ),
    "held after a launch that failed": Row(
        Stage.BATCH_JOB,
        "batch-job-launch-failed",
        "could not launch job 71",
        batch=(job(state=BatchState.PENDING, reason="launch failed requeued held"),),
    ),
    "requeued, what its earlier start said is over": Row(
        Stage.BATCH_JOB,
        says="PENDING, BeginTime; it was stopped by Slurm and waits to start again",
        batch=(job(state=BatchState.PENDING, reason="BeginTime"),),
        reports=(report("BATCH_JOB"), report("READY"), report("RELEASED", text="preempted")),
        slots=(slot(),),
        state=WAS_READY,
    ),
    "started again, nothing said yet": Row(
        Stage.BATCH_JOB,
        says="RUNNING on c1",
        batch=(job(start=ago(3)),),
        reports=(report("BATCH_JOB"), report("READY", seconds_ago=100), report("RELEASED", seconds_ago=90)),
        slots=(slot(last_heard=ago(90)),),
        state=SUBMITTED,
    ),
    "started again on another node after its first one died": Row(
        Stage.BATCH_JOB,
        says="RUNNING on c2",
        batch=(job(start=ago(10), node="c2"),),
        reports=(report("BATCH_JOB", seconds_ago=100), report("AP_CONNECT", seconds_ago=12)),
    ),
    "started again and failed before it was ready": Row(
        Stage.EP_START,
        "scratch-unusable",
        batch=(job(start=ago(10)),),
        reports=(
            report("BATCH_JOB", seconds_ago=100),
            report("READY", seconds_ago=90),
            report("RELEASED", seconds_ago=80),
            report("BATCH_JOB", seconds_ago=9),
            report("EP_START", "scratch-unusable"),
        ),
    ),
    "its first start failed, its second is ready": Row(
        Stage.READY,
        batch=(job(start=ago(10)),),
        reports=(
            report("BATCH_JOB", seconds_ago=100),
            report("EP_START", "scratch-unusable", seconds_ago=99),
            report("RELEASED", text="failed: scratch-unusable", seconds_ago=98),
            report("BATCH_JOB", seconds_ago=9),
            report("READY"),
        ),
        slots=(slot(),),
    ),
    "preempted after it was ready": Row(
        Stage.RELEASED,
        says="preempted: Slurm gave its node to other jobs",
        batch=(job(state=BatchState.PREEMPTED),),
        reports=(report("BATCH_JOB"), report("READY"), report("RELEASED", text="cancelled")),
        state=WAS_READY,
    ),
    "cancelled by another after it was ready": Row(
        Stage.RELEASED,
        says="cancelled at the site by root (uid 0)",
        batch=(job(state=BatchState.CANCELLED, cancelled_by="root (uid 0)"),),
        reports=(report("BATCH_JOB"), report("READY"), report("RELEASED", text="cancelled")),
        state=WAS_READY,
    ),
    "taken down after it was ready": Row(
        Stage.RELEASED,
        says="taken down",
        batch=(job(state=BatchState.CANCELLED, cancelled_by="you"),),
        reports=(report("BATCH_JOB"), report("READY"), report("RELEASED", text="cancelled")),
        state=replace(WAS_READY, down=ago(30)),
    ),
    "cancelled by another before its EP was up": Row(
        Stage.BATCH_JOB,
        "batch-job-cancelled-by-other",
        "cancelled by root (uid 0)",
        batch=(job(state=BatchState.CANCELLED, cancelled_by="root (uid 0)"),),
    ),
    "cancelled by root in the second it started": Row(
        Stage.BATCH_JOB,
        "batch-job-launch-failed",
        "could not launch batch job 71 on c1",
        batch=(job(state=BatchState.CANCELLED, cancelled_by="root (uid 0)", start=ago(5), end=ago(5)),),
    ),
    "last heard of in the queue, nobody asked": Row(
        Stage.BATCH_JOB,
        says="PENDING, Priority (seen 12 m ago)",
        batch=None,
        slots=(),
        state=replace(SUBMITTED, queue=(QueueSeen("71", "PENDING, Priority", ago(720)),)),
    ),
    "state unknown to us": Row(Stage.BATCH_JOB, batch=(job(state=BatchState.UNKNOWN),)),
    "found in Slurm by name only": Row(Stage.BATCH_JOB, says="RUNNING", state=AnnexState(submit_begun=True)),
    "found at the collector by its id only": Row(
        Stage.READY, batch=None, slots=(slot(),), state=AnnexState(submit_begun=True)
    ),
}


def judged(row: Row) -> Verdict:
    return judge(row.plan, row.state, Witnesses(row.batch, row.reports, row.slots), NOW)


@pytest.mark.parametrize("row", TABLE.values(), ids=TABLE.keys())
def test_the_verdict_is_what_the_situation_is(row: Row) -> None:
    verdict = judged(row)
    assert verdict.stage is row.stage
    assert (verdict.failure.code if verdict.failure else None) == row.code
    assert row.says in verdict.text
    if verdict.failure is not None:
        assert verdict.failure.evidence
        assert verdict.settled


ENDINGS = {
    BatchState.FAILED: "batch-job-failed",
    BatchState.CANCELLED: "batch-job-cancelled",
    BatchState.TIMEOUT: "batch-job-timeout",
    BatchState.NODE_FAIL: "batch-job-node-failed",
    BatchState.OUT_OF_MEMORY: "batch-job-out-of-memory",
    BatchState.PREEMPTED: "batch-job-preempted",
}


@pytest.mark.parametrize(("state", "code"), ENDINGS.items())
def test_a_pilot_that_ended_before_its_ep_was_up_failed_with_slurms_words(state: BatchState, code: str) -> None:
    ended = job(state=state, state_text=f"{state} by 1234", exit_code="127:0", reason="NonZeroExitCode")
    verdict = judged(Row(Stage.BATCH_JOB, batch=(ended,)))
    assert verdict.failure is not None
    assert (verdict.stage, verdict.failure.code) == (Stage.BATCH_JOB, code)
    assert verdict.failure.evidence == (
        Evidence("Slurm, job 71", f"{state} by 1234, exit 127:0, node c1, reason NonZeroExitCode"),
    )


@pytest.mark.parametrize("state", [state for state in BatchState if state.ended])
def test_a_pilot_that_ended_after_its_ep_was_up_is_released(state: BatchState) -> None:
    verdict = judged(Row(Stage.RELEASED, batch=(job(state=state),), state=WAS_READY))
    assert (verdict.stage, verdict.failure) == (Stage.RELEASED, None)
    assert "batch job 71 ended" in verdict.text


def test_every_ending_has_a_row_above() -> None:
    assert {state for state in BatchState if state.ended} == {*ENDINGS, BatchState.COMPLETED}


@pytest.mark.parametrize("reason", HOPELESS_REASONS)
def test_every_hopeless_reason_is_told_in_words(reason: str) -> None:
    verdict = judged(Row(Stage.BATCH_JOB, batch=(job(state=BatchState.PENDING, reason=reason),)))
    assert verdict.failure is not None
    assert HOPELESS_REASONS[reason] in verdict.failure.summary
    assert reason in verdict.failure.evidence[0].text


@pytest.mark.parametrize("code", sorted(FAILURES))
def test_whatever_code_a_pilot_reports_is_the_verdict_with_its_steps(code: str) -> None:
    stage = FAILURES[code].stage
    verdict = judged(Row(stage, reports=(STARTED, report(str(stage), code, "what the pilot saw"))))
    assert verdict.failure is not None
    assert (verdict.failure.code, verdict.failure.stage) == (code, stage)
    assert verdict.failure.evidence[0].text == "what the pilot saw"
    assert "EP_START ok" in verdict.failure.evidence[1].text


SURE = {
    "all three say so": (Row(Stage.READY, slots=(slot(),), reports=(STARTED,)), Confidence.AGREED, ""),
    "waiting, of which only Slurm can know": (Row(Stage.BATCH_JOB, batch=(PENDING,)), Confidence.AGREED, ""),
    "the site was not asked": (
        Row(Stage.READY, batch=None, reports=None, slots=(slot(),)),
        Confidence.PARTIAL,
        "the site was not asked",
    ),
    "Slurm gave no answer": (Row(Stage.READY, batch=None, slots=(slot(),)), Confidence.PARTIAL, "no answer"),
    "the collector does not answer": (
        Row(Stage.AP_CONNECT, reports=(STARTED,), slots=None),
        Confidence.PARTIAL,
        "the collector does not answer",
    ),
    "the pilot is silent": (Row(Stage.BATCH_JOB), Confidence.PARTIAL, "reported nothing yet"),
    "Slurm runs it, the collector hears nothing": (
        Row(Stage.READY, batch=(job(start=ago(900)),), slots=(slot(last_heard=ago(600)),), state=WAS_READY),
        Confidence.DISPUTED,
        "Slurm says RUNNING on c1, and the collector has not heard its EP for 10 m",
    ),
    "Slurm says it ended, its ad is fresh": (
        Row(Stage.RELEASED, batch=(job(state=BatchState.TIMEOUT),), slots=(slot(),), state=WAS_READY),
        Confidence.DISPUTED,
        "an ad outlives its EP",
    ),
    "Slurm does not know it, its ad is fresh": (
        Row(Stage.READY, batch=(), slots=(slot(),)),
        Confidence.DISPUTED,
        "the EP is believed",
    ),
    "requeued, its ad is fresh": (
        Row(Stage.BATCH_JOB, batch=(PENDING,), slots=(slot(),), state=WAS_READY),
        Confidence.DISPUTED,
        "an EP of this job's earlier start",
    ),
    "the pilot has ended, Slurm not yet": (
        Row(Stage.DRAIN, reports=(report("READY"), report("RELEASED", text="idle")), state=WAS_READY),
        Confidence.DISPUTED,
        "its pilot says it has ended (idle)",
    ),
}


@pytest.mark.parametrize(("row", "confidence", "doubt"), SURE.values(), ids=SURE.keys())
def test_a_verdict_says_how_far_the_witnesses_bear_it_out(row: Row, confidence: Confidence, doubt: str) -> None:
    verdict = judged(row)
    assert verdict.stage is row.stage
    assert (verdict.confidence, verdict.pilots[0].confidence) == (confidence, confidence)
    assert doubt in verdict.doubt
    assert bool(verdict.doubt) is (confidence is not Confidence.AGREED)


def test_deadlines_can_be_longer_at_a_slow_site() -> None:
    silent = Witnesses((job(start=ago(300)),), (), ())
    assert judge(plan(), SUBMITTED, silent, NOW).failure is not None
    assert judge(plan(deadlines=Deadlines(ep_start_s=600)), SUBMITTED, silent, NOW).failure is None


def test_a_clock_that_is_ahead_at_the_site_is_not_a_deadline_missed() -> None:
    early = Witnesses((job(start=NOW + timedelta(hours=1)),), (), ())
    assert judge(plan(), SUBMITTED, early, NOW).failure is None


@pytest.mark.parametrize("minutes", [-10, 0, 10])
def test_a_sites_times_are_compared_with_the_sites_own_clock(minutes: int) -> None:
    there = NOW + timedelta(minutes=minutes)

    def said(job_s: float, *steps: tuple[str, float]) -> str:
        reports = tuple(replace(report(stage), at=there - timedelta(seconds=s)) for stage, s in steps)
        seen = Witnesses((job(start=there - timedelta(seconds=job_s)),), reports, (), there)
        verdict = judge(plan(), SUBMITTED, seen, NOW)
        return verdict.failure.code if verdict.failure else str(verdict.stage)

    assert said(170) == "BATCH_JOB"
    assert said(190) == "ep-start-silent"
    assert said(600, ("BATCH_JOB", 590)) == "EP_START"
    assert said(700, ("BATCH_JOB", 610)) == "ep-start-silent"
    assert said(300, ("AP_CONNECT", 170)) == "AP_CONNECT"
    assert said(300, ("AP_CONNECT", 190)) == "ep-not-seen"


def test_without_pilots_the_events_speak() -> None:
    refused = failure("account-invalid", "lab", "sbatch refused the pilot")
    nothing = Witnesses((), (), ())
    cases = [
        (AnnexState(failure=refused, ended=True), Stage.SUBMIT, "sbatch refused", refused),
        (AnnexState(ended=True, end_text="taken down"), Stage.RELEASED, "taken down", None),
        (AnnexState(begun=Stage.SHIP), Stage.SHIP, "interrupted at SHIP", None),
        (AnnexState(stage=Stage.PACK), Stage.PACK, "not submitted yet", None),
    ]
    for state, stage, says, told in cases:
        verdict = judge(plan(), state, nothing, NOW)
        assert (verdict.stage, verdict.failure, verdict.pilots) == (stage, told, ())
        assert says in verdict.text
        assert not verdict.settled


TWO = plan(pilots=2)
BOTH = AnnexState(stage=Stage.SUBMIT, job_ids=("71", "72"), submit_begun=True)


def two(*jobs: BatchJob, slots: tuple[Slot, ...] = (), state: AnnexState = BOTH) -> Verdict:
    return judge(TWO, state, Witnesses(jobs, (), slots), NOW)


def test_one_pilot_of_two_is_ready_while_the_other_waits() -> None:
    verdict = two(job(), job("72", BatchState.PENDING, reason="Priority"), slots=(slot(),))
    assert (verdict.stage, verdict.ready, verdict.settled) == (Stage.READY, 1, False)
    assert verdict.text.startswith("1 of 2 pilots ready; ")


def test_one_pilot_of_two_that_fails_leaves_the_other_ready_and_is_told() -> None:
    verdict = two(job(), job("72", BatchState.FAILED), slots=(slot(),))
    assert (verdict.stage, verdict.failure, verdict.ready, verdict.settled) == (Stage.READY, None, 1, True)
    assert [pilot.failure.code if pilot.failure else None for pilot in verdict.pilots] == [None, "batch-job-failed"]


def test_one_pilot_of_two_that_fails_while_the_other_waits_is_no_failure_of_the_annex_yet() -> None:
    verdict = two(job("71", BatchState.PENDING, reason="Priority"), job("72", BatchState.NODE_FAIL))
    assert (verdict.stage, verdict.failure, verdict.settled) == (Stage.BATCH_JOB, None, False)


def test_two_pilots_that_fail_are_a_failure() -> None:
    verdict = two(job("71", BatchState.FAILED), job("72", BatchState.FAILED))
    assert verdict.failure is not None
    assert (verdict.failure.code, verdict.settled) == ("batch-job-failed", True)


def test_a_pilot_that_can_never_start_is_told_after_the_other_one_ended() -> None:
    state = AnnexState(stage=Stage.READY, job_ids=("71", "72"), ready_at=ago(600))
    hopeless = job("72", BatchState.PENDING, reason="PartitionTimeLimit")
    verdict = two(job("71", BatchState.COMPLETED), hopeless, state=state)
    assert verdict.stage is Stage.BATCH_JOB
    assert verdict.failure is not None
    assert verdict.failure.code == "pending-forever"
