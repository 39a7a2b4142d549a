"""One pure function says where an annex is: `judge(plan, state, witnesses, now)`.

Three witnesses: the batch system, the pilot's own reports, the collector's ads; beside them our events. Each may be
silent (None: not asked or no answer) and each may be wrong alone: a broken EP holds its allocation as RUNNING, a dead
EP's ad stays in the collector for a while.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from siteannex.annex.events import AnnexState
from siteannex.errors import Evidence, Stage, StageFailure
from siteannex.failures import FAILURES, failure
from siteannex.model import BatchJob, BatchState, Deadlines, PilotReport, Plan, Slot, Witnesses
from siteannex.scheduler.slurm import HOPELESS_REASONS
from siteannex.units import format_duration, format_memory, seconds_between


@dataclass(frozen=True, slots=True)
class PilotVerdict:
    """Where one pilot is. `failure` is set when it will not come up, or came up wrong."""

    job_id: str
    stage: Stage
    text: str
    failure: StageFailure | None = None
    job: BatchJob | None = None
    slots: tuple[Slot, ...] = ()

    @property
    def over(self) -> bool:
        """True when this pilot can no longer run anything."""
        return self.stage is Stage.RELEASED


@dataclass(frozen=True, slots=True)
class Verdict:
    """Where the whole annex is: its most advanced living pilot decides."""

    stage: Stage
    text: str
    pilots: tuple[PilotVerdict, ...]
    failure: StageFailure | None = None

    @property
    def ready(self) -> int:
        """Pilots whose EP is up and right."""
        return sum(pilot.stage is Stage.READY for pilot in self.pilots)

    @property
    def settled(self) -> bool:
        """True when waiting longer brings nothing new: all ready, or failed, or over."""
        return bool(self.pilots) and all(
            pilot.stage in (Stage.READY, Stage.DRAIN, Stage.RELEASED) or pilot.failure for pilot in self.pilots
        )


def judge(plan: Plan, state: AnnexState, witnesses: Witnesses, now: datetime) -> Verdict:
    """Say where the annex is and, when witnesses disagree, what that means. Shapes: one PilotVerdict a job id."""
    known = {job.job_id: job for job in witnesses.batch or ()}
    ids = tuple(dict.fromkeys((*state.job_ids, *known, *(slot.batch_job_id for slot in witnesses.slots or ()))))
    pilots = tuple(_judge_pilot(job_id, known.get(job_id), plan, state, witnesses, now) for job_id in ids)
    if not pilots:
        return _without_pilots(state)
    return _whole(plan, state, pilots)


def _without_pilots(state: AnnexState) -> Verdict:
    if state.failure is not None:
        return Verdict(state.failure.stage, state.failure.summary, (), state.failure)
    if state.ended:
        return Verdict(Stage.RELEASED, state.end_text or "released", ())
    if state.begun is not None:
        return Verdict(state.begun, f"interrupted at {state.begun}: run the same up again to go on, or down", ())
    return Verdict(state.stage, "not submitted yet: run the same up again to go on, or down", ())


def _whole(plan: Plan, state: AnnexState, pilots: tuple[PilotVerdict, ...]) -> Verdict:
    healthy = [pilot for pilot in pilots if pilot.failure is None]
    living = [pilot for pilot in healthy if not pilot.over]
    if living:
        lead = max(living, key=lambda pilot: pilot.stage.order)
        ready = sum(pilot.stage is Stage.READY for pilot in living)
        text = lead.text if plan.pilots == 1 else f"{ready} of {plan.pilots} pilots ready; {lead.text}"
        return Verdict(lead.stage, text, pilots)
    failed = [pilot for pilot in pilots if pilot.failure is not None]
    costly = [pilot for pilot in failed if pilot.job is not None and pilot.job.state.living]
    told = next(iter(costly or (() if state.ready_ids else failed)), None)
    if told is not None:  # also after READY, while it holds an allocation: it is not over
        return Verdict(told.stage, told.text, pilots, told.failure)
    last = failed[0] if failed else healthy[-1]
    return Verdict(Stage.RELEASED, last.text, pilots)


def _judge_pilot(
    job_id: str,
    job: BatchJob | None,
    plan: Plan,
    state: AnnexState,
    witnesses: Witnesses,
    now: datetime,
) -> PilotVerdict:
    limits = plan.deadlines
    ads = tuple(slot for slot in witnesses.slots or () if slot.batch_job_id == job_id)
    slots = tuple(slot for slot in ads if not slot.failed_code)
    reports = [report for report in witnesses.reports or () if report.job_id == job_id]
    bad = next((report for report in reports if report.code != "ok" and report.code in FAILURES), None)
    last = reports[-1] if reports else None
    ever_ready = job_id in state.ready_ids or any(report.stage == Stage.READY for report in reports)
    site, there = plan.request.site, witnesses.site_now or now
    if bad is not None:
        return _failed(job_id, _reported(bad, reports, site), job)
    if (sign := next((ad for ad in ads if ad.failed_code in FAILURES), None)) is not None:
        return _failed(job_id, _advertised(sign, site), job)
    if last is not None and last.stage == Stage.RELEASED:
        return _released(job_id, job, last, site, ever_ready=ever_ready)
    if job is not None and job.state.ended:
        return _ended(job, site, ever_ready=ever_ready)
    unheard = _unheard_s(slots, now)
    if job is None and witnesses.batch is not None and (not slots or unheard > limits.unheard_s):
        return _unknown_to_slurm(job_id, state, now, site, limits, ever_ready=ever_ready)
    if slots and unheard > limits.unheard_s:
        text = f"not heard since {format_duration(unheard)}: the node may be gone (status --remote asks Slurm)"
        return PilotVerdict(job_id, Stage.DRAIN, text, None, job, slots)
    if slots:
        draining = any(slot.draining for slot in slots) or (last is not None and last.stage == Stage.DRAIN)
        return _joined(job_id, job, slots, plan, draining=draining)
    if job is None:
        return _unseen(job_id, state, now, plan)
    if job.state is BatchState.PENDING:
        return _pending(job, site)
    return _starting(job, last, site, there, limits, asked=witnesses.slots is not None)


def _failed(job_id: str, what: StageFailure, job: BatchJob | None) -> PilotVerdict:
    return PilotVerdict(job_id, what.stage, what.summary, what, job)


def _reported(bad: PilotReport, reports: list[PilotReport], site: str) -> StageFailure:
    node = bad.node or "the node"
    return failure(
        bad.code,
        site,
        f"{node}: {bad.text}" if bad.text else f"{FAILURES[bad.code].meaning.rstrip('.')} ({node})",
        evidence=[
            Evidence.tail(f"pilot {bad.job_id} on {node}, {bad.at.astimezone():%H:%M:%S}", bad.seen or bad.text),
            *([Evidence.tail("steps before it", _steps(reports, bad))] if reports[0] is not bad else []),
        ],
    )


def _advertised(ad: Slot, site: str) -> StageFailure:
    """A pilot that could not become an EP says so in an ad, for those who have no connection to the site."""
    summary = f"{ad.machine}: {ad.failed_text or FAILURES[ad.failed_code].meaning}"
    seen = Evidence.tail(f"ad of {ad.name}", ad.failed_seen or ad.failed_text)
    return failure(ad.failed_code, site, summary, evidence=[seen])


def _steps(reports: list[PilotReport], until: PilotReport) -> str:
    done = reports[: reports.index(until)]
    return "\n".join(f"{report.at:%H:%M:%S} {report.stage} {report.code} {report.text}" for report in done)


_ENDINGS = {
    BatchState.CANCELLED: "batch-job-cancelled",
    BatchState.TIMEOUT: "batch-job-timeout",
    BatchState.NODE_FAIL: "batch-job-node-failed",
    BatchState.OUT_OF_MEMORY: "batch-job-out-of-memory",
    BatchState.PREEMPTED: "batch-job-preempted",
}


def _released(job_id: str, job: BatchJob | None, last: PilotReport, site: str, *, ever_ready: bool) -> PilotVerdict:
    """The pilot says it is over. While Slurm still holds its allocation it is not."""
    text = last.text or "ended"
    if job is not None and job.state.living:
        return PilotVerdict(job_id, Stage.DRAIN, f"ending: {text}", None, job)
    if ever_ready:
        return PilotVerdict(job_id, Stage.RELEASED, text, None, job)
    summary = f"the pilot ended before its EP was ready: {text}"
    seen = [Evidence(f"pilot {job_id} on {last.node}, {last.at.isoformat()}", text)]
    return _failed(job_id, failure("batch-job-cancelled", site, summary, evidence=seen), job)


def _ended(job: BatchJob, site: str, *, ever_ready: bool) -> PilotVerdict:
    words = f"{job.state_text or job.state}, exit {job.exit_code or 'unknown'}, node {job.node or 'none'}"
    if ever_ready or job.state is BatchState.COMPLETED:
        return PilotVerdict(job.job_id, Stage.RELEASED, f"batch job {job.job_id} ended: {words}", None, job)
    what = failure(
        _ENDINGS.get(job.state, "batch-job-failed"),
        site,
        f"batch job {job.job_id} ended before its EP was up",
        evidence=[Evidence(f"Slurm, job {job.job_id}", words + (f", reason {job.reason}" if job.reason else ""))],
    )
    return _failed(job.job_id, what, job)


def _unheard_s(slots: tuple[Slot, ...], now: datetime) -> float:
    heard = [slot.last_heard for slot in slots if slot.last_heard is not None]
    return seconds_between(max(heard), now) if heard else 0.0


def _unknown_to_slurm(
    job_id: str, state: AnnexState, now: datetime, site: str, limits: Deadlines, *, ever_ready: bool
) -> PilotVerdict:
    if state.submitted_at is not None and seconds_between(state.submitted_at, now) < limits.lost_s:
        return PilotVerdict(job_id, Stage.BATCH_JOB, f"job {job_id} submitted; Slurm does not show it yet")
    if ever_ready:
        return PilotVerdict(job_id, Stage.RELEASED, f"batch job {job_id} ended; Slurm no longer knows it")
    what = failure(
        "batch-job-lost",
        site,
        f"Slurm no longer knows job {job_id} and its EP was never seen",
        evidence=[Evidence("squeue and sacct", f"no line for job {job_id}")],
    )
    return _failed(job_id, what, None)


def _joined(job_id: str, job: BatchJob | None, slots: tuple[Slot, ...], plan: Plan, *, draining: bool) -> PilotVerdict:
    whole = next((slot for slot in slots if slot.slot_type != "Dynamic"), slots[0])
    shape, site = plan.shape, plan.request.site
    # An EP may lawfully report a little less memory than Slurm granted; a tenth less is a wrong node or setting.
    if whole.total_gpus < shape.gpus:
        code, seen = "gpus-missing", f"{whole.total_gpus} GPUs, {shape.gpus} asked"
    elif whole.total_cpus < shape.cpus:
        code, seen = "cpus-missing", f"{whole.total_cpus} CPUs, {shape.cpus} asked"
    elif whole.total_memory_mib < shape.memory_mib * 0.9:
        code = "memory-missing"
        seen = f"{format_memory(whole.total_memory_mib)}, {format_memory(shape.memory_mib)} asked"
    else:
        text = f"{whole.machine}: {whole.total_gpus} x {whole.gpu_model}" if shape.gpus else f"{whole.machine}"
        return PilotVerdict(job_id, Stage.DRAIN if draining else Stage.READY, text, None, job, slots)
    what = failure(
        code, site, f"the EP on {whole.machine} has {seen}", evidence=[Evidence(f"ad of {whole.name}", seen)]
    )
    return PilotVerdict(job_id, Stage.EP_CONFIG, what.summary, what, job, slots)


def _unseen(job_id: str, state: AnnexState, now: datetime, plan: Plan) -> PilotVerdict:
    """Neither Slurm was asked nor an ad is there: say what the events said, no more."""
    since = state.ready_at if job_id in state.ready_ids else None
    start = since or state.submitted_at
    longest_s = plan.walltime_s if since else plan.walltime_s + plan.deadlines.queue_s
    if start is not None and seconds_between(start, now) > longest_s:
        return PilotVerdict(job_id, Stage.RELEASED, "walltime is over")
    if since is not None:
        return PilotVerdict(job_id, Stage.DRAIN, "its EP has left the collector (status --remote says why)")
    text = f"job {job_id} submitted; its EP is not seen yet (status --remote asks Slurm)"
    return PilotVerdict(job_id, Stage.BATCH_JOB, text)


def _pending(job: BatchJob, site: str) -> PilotVerdict:
    if job.reason in HOPELESS_REASONS:
        what = failure(
            "pending-forever",
            site,
            f"job {job.job_id} can never start: {HOPELESS_REASONS[job.reason]}",
            evidence=[Evidence(f"squeue, job {job.job_id}", f"PENDING, reason {job.reason}")],
        )
        return _failed(job.job_id, what, job)
    return PilotVerdict(job.job_id, Stage.BATCH_JOB, f"PENDING, {job.reason or 'no reason given yet'}", None, job)


def _starting(
    job: BatchJob, last: PilotReport | None, site: str, now: datetime, limits: Deadlines, *, asked: bool
) -> PilotVerdict:
    running_s = seconds_between(job.start, now) if job.start else 0.0
    where = f"RUNNING on {job.node}" if job.node else "RUNNING"
    if last is None:
        if running_s <= limits.ep_start_s:
            return PilotVerdict(job.job_id, Stage.BATCH_JOB, where, None, job)
        summary = f"job {job.job_id} is {where} for {format_duration(running_s)} and its pilot has written nothing"
        what = failure("ep-start-silent", site, summary, evidence=[Evidence("squeue", where)])
        return _failed(job.job_id, what, job)
    stage = _stage_of(last)
    waited_s = seconds_between(last.at, now)
    if stage.order >= Stage.AP_CONNECT.order and asked and waited_s > limits.join_s:
        what = failure(
            "ep-not-seen",
            site,
            f"Slurm says {where}, the pilot reported {last.stage} ok {format_duration(waited_s)} ago, "
            "and the collector has no ad of it",
            evidence=[Evidence(f"pilot {job.job_id}", f"{last.stage} {last.code} {last.text}")],
        )
        return _failed(job.job_id, what, job)
    if stage.order < Stage.AP_CONNECT.order and waited_s > limits.step_s:
        summary = f"job {job.job_id} is {where} and its pilot has written nothing for {format_duration(waited_s)}"
        seen = [Evidence(f"pilot {job.job_id}, its last line", f"{last.stage} {last.code} {last.text}")]
        return _failed(job.job_id, failure("ep-start-silent", site, summary, evidence=seen), job)
    shown, doing = _UNDER_WAY.get(stage, _UNDER_WAY[Stage.AP_CONNECT])
    return PilotVerdict(job.job_id, shown, doing.format(node=job.node or "the node"), None, job)


# After a step is reported the next one is under way.
_UNDER_WAY = {
    Stage.BATCH_JOB: (Stage.EP_START, "{node} unpacks and checks the EP"),
    Stage.EP_START: (Stage.AP_CONNECT, "{node} tries to reach the AP"),
    Stage.AP_CONNECT: (Stage.AP_CONNECT, "HTCondor starts on {node}; the collector has not seen it yet"),
}


def _stage_of(report: PilotReport) -> Stage:
    return Stage(report.stage) if report.stage in set(Stage) else Stage.BATCH_JOB
