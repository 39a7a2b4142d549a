"""One pure function says where an annex is: `judge(plan, state, witnesses, now)`.

Three witnesses: the batch system, the pilot's own reports, the collector's ads; beside them our events. Each may be
silent (None: not asked or no answer) and each may be wrong alone: a broken EP holds its allocation as RUNNING, a dead
EP's ad stays in the collector for a while.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from siteannex.annex.events import AnnexState
from siteannex.annex.judging.accord import accord
from siteannex.annex.judging.ends import ended, released
from siteannex.annex.judging.seen import PilotSeen, see
from siteannex.annex.judging.verdict import PilotVerdict, Verdict
from siteannex.errors import Evidence, Stage, StageFailure
from siteannex.failures import FAILURES, failure
from siteannex.model import BatchJob, BatchState, Deadlines, PilotReport, Plan, Slot, Witnesses
from siteannex.scheduler.reasons import explain_reason, queue_text
from siteannex.units import format_duration, format_memory, seconds_between


def judge(plan: Plan, state: AnnexState, witnesses: Witnesses, now: datetime) -> Verdict:
    """Say where the annex is and, when witnesses disagree, what that means. Shapes: one PilotVerdict a job id."""
    found = (job.job_id for job in witnesses.batch or ())
    ids = tuple(dict.fromkeys((*state.job_ids, *found, *(slot.batch_job_id for slot in witnesses.slots or ()))))
    pilots = tuple(_judge_pilot(job_id, plan, state, witnesses, now) for job_id in ids)
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
        ready = sum(pilot.ready for pilot in living)
        text = lead.text if plan.pilots == 1 else f"{ready} of {plan.pilots} pilots ready; {lead.text}"
        return _by(lead, Verdict(lead.stage, text, pilots))
    failed = [pilot for pilot in pilots if pilot.failure is not None]
    costly = [pilot for pilot in failed if pilot.job is not None and pilot.job.state.living]
    told = next(iter(costly or (() if state.ready_ids else failed)), None)
    if told is not None:  # also after READY, while it holds an allocation: it is not over
        return _by(told, Verdict(told.stage, told.text, pilots, told.failure))
    last = failed[0] if failed else healthy[-1]
    return _by(last, Verdict(Stage.RELEASED, last.text, pilots))


def _by(pilot: PilotVerdict, verdict: Verdict) -> Verdict:
    return replace(verdict, confidence=pilot.confidence, doubt=pilot.doubt)


def _judge_pilot(job_id: str, plan: Plan, state: AnnexState, witnesses: Witnesses, now: datetime) -> PilotVerdict:
    seen = see(job_id, state, witnesses, now)
    there = witnesses.site_now or now
    confidence, doubt = accord(seen, plan.deadlines)
    return replace(_where(seen, plan, state, now, there), confidence=confidence, doubt=doubt)


def _where(seen: PilotSeen, plan: Plan, state: AnnexState, now: datetime, there: datetime) -> PilotVerdict:
    """The witnesses in the order in which they are believed. `there`: the site's clock, for the site's times."""
    job, site, limits = seen.job, plan.request.site, plan.deadlines
    stale = bool(seen.slots) and seen.unheard_s > limits.unheard_s
    if seen.bad is not None:
        return _failed(seen.job_id, _reported(seen.bad, seen.reports, site), job)
    if seen.failed_ad is not None:
        return _failed(seen.job_id, _advertised(seen.failed_ad, site), job)
    if seen.last is not None and seen.last.stage == Stage.RELEASED:
        return released(seen, state, site)
    if job is not None and job.state.ended:
        return ended(seen, state, site)
    if job is None and seen.slurm_asked and (not seen.slots or stale):
        return _unknown_to_slurm(seen, state, now, site, limits)
    if stale:
        return _unheard(seen, site)
    if seen.slots:
        draining = any(slot.draining for slot in seen.slots) or (
            seen.last is not None and seen.last.stage == Stage.DRAIN
        )
        return _joined(seen.job_id, job, seen.slots, plan, draining=draining)
    if job is None:
        return _unseen(seen, state, now, plan)
    if job.state is BatchState.PENDING:
        return _pending(job, site, restarted=seen.restarted)
    return _starting(seen, job, site, there, limits)


def _failed(job_id: str, what: StageFailure, job: BatchJob | None) -> PilotVerdict:
    return PilotVerdict(job_id, what.stage, what.summary, what, job)


def _reported(bad: PilotReport, reports: tuple[PilotReport, ...], site: str) -> StageFailure:
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


def _steps(reports: tuple[PilotReport, ...], until: PilotReport) -> str:
    done = reports[: reports.index(until)]
    return "\n".join(f"{report.at:%H:%M:%S} {report.stage} {report.code} {report.text}" for report in done)


def _unknown_to_slurm(seen: PilotSeen, state: AnnexState, now: datetime, site: str, limits: Deadlines) -> PilotVerdict:
    job_id = seen.job_id
    if state.submitted_at is not None and seconds_between(state.submitted_at, now) < limits.lost_s:
        return PilotVerdict(job_id, Stage.BATCH_JOB, f"job {job_id} submitted; Slurm does not show it yet")
    if seen.ever_ready:
        why = "taken down" if state.down is not None else "Slurm no longer knows it"
        return PilotVerdict(job_id, Stage.RELEASED, f"batch job {job_id} ended; {why}")
    evidence = [Evidence("squeue and sacct", f"no line for job {job_id}")]
    if seen.complaint:
        evidence.append(Evidence.tail("Slurm", seen.complaint))
    if (last := seen.last) is not None:
        evidence.append(Evidence(f"pilot {job_id}, its last line", f"{last.stage} {last.code} {last.text}"))
    summary = f"Slurm no longer knows job {job_id} and its EP was never seen"
    return _failed(job_id, failure("batch-job-lost", site, summary, evidence=evidence), None)


def _unheard(seen: PilotSeen, site: str) -> PilotVerdict:
    """Its ad is older than an EP's that lives. Only with Slurm's word that the job still runs is that a failure."""
    job, since = seen.job, format_duration(seen.unheard_s)
    if job is None:
        text = f"not heard since {since}: the node may be gone (status --remote asks Slurm)"
        return PilotVerdict(seen.job_id, Stage.DRAIN, text, None, None, seen.slots)
    return _vanished(seen, job, site, f"its EP was last heard {since} ago", seen.slots)


def _vanished(seen: PilotSeen, job: BatchJob, site: str, words: str, slots: tuple[Slot, ...] = ()) -> PilotVerdict:
    where = f"Slurm says RUNNING on {job.node or 'its node'}"
    evidence = [Evidence(f"squeue, job {job.job_id}", f"{job.state_text or job.state} on {job.node}")]
    evidence.append(Evidence("collector", f"last heard: {_stamps(slots)}" if slots else "no ad of it"))
    if (last := seen.last) is not None:
        evidence.append(Evidence(f"pilot {job.job_id}, its last line", f"{last.stage} {last.code} {last.text}"))
    what = failure("ep-vanished", site, f"{where}, and {words}", evidence=evidence)
    return PilotVerdict(job.job_id, what.stage, what.summary, what, job, slots)


def _stamps(slots: tuple[Slot, ...]) -> str:
    heard = max(slot.last_heard for slot in slots if slot.last_heard is not None)
    return f"{slots[0].name} {heard.astimezone():%H:%M:%S}"


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


def _unseen(seen: PilotSeen, state: AnnexState, now: datetime, plan: Plan) -> PilotVerdict:
    """Slurm was not asked or gave no answer, and no ad is there: say what the events said, no more."""
    job_id = seen.job_id
    since = state.ready_at if job_id in state.ready_ids else None
    start = since or state.submitted_at
    longest_s = plan.walltime_s if since else plan.walltime_s + plan.deadlines.queue_s
    if start is not None and seconds_between(start, now) > longest_s:
        return PilotVerdict(job_id, Stage.RELEASED, "walltime is over")
    if job_id in state.ends:
        return PilotVerdict(job_id, Stage.RELEASED, state.ends[job_id])
    asked = f"Slurm gives no answer ({_first_line(seen.complaint)})" if seen.complaint else ""
    if since is not None:
        text = "its EP has left the collector"
        return PilotVerdict(job_id, Stage.DRAIN, f"{text}; {asked}" if asked else f"{text} (status --remote says why)")
    remembered = next((each for each in state.queue if each.job_id == job_id), None)
    if remembered is not None:
        ago = format_duration(seconds_between(remembered.at, now))
        text = f"{remembered.text} (seen {ago} ago)" + (f"; {asked}" if asked else "")
        return PilotVerdict(job_id, Stage.BATCH_JOB, text, remembered=remembered)
    text = f"job {job_id} submitted; its EP is not seen yet"
    return PilotVerdict(
        job_id, Stage.BATCH_JOB, f"{text}; {asked}" if asked else f"{text} (status --remote asks Slurm)"
    )


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _pending(job: BatchJob, site: str, *, restarted: bool) -> PilotVerdict:
    reason = explain_reason(job.reason)
    held = reason.held or ("admin" if "HOLD" in job.state_text or "SPECIAL_EXIT" in job.state_text else "")
    seen = [Evidence(f"squeue, job {job.job_id}", f"{job.state_text or job.state}, reason {job.reason or 'none'}")]
    again = "was stopped by Slurm and waits to start again under the same id" if restarted else ""
    if held == "launch":
        summary = f"Slurm could not launch job {job.job_id} on its node and holds it"
        return _failed(job.job_id, failure("batch-job-launch-failed", site, summary, evidence=seen), job)
    if held == "admin":
        summary = f"job {job.job_id} is held: {reason.text if reason.held else 'only an administrator can release it'}"
        return _failed(job.job_id, failure("pending-held", site, summary, evidence=seen), job)
    if reason.hopeless and held != "user":
        summary = f"job {job.job_id} can never start: {reason.text}"
        return _failed(job.job_id, failure("pending-forever", site, summary, evidence=seen), job)
    release = reason.todo.replace("JOB", job.job_id)
    text = queue_text(job) + (f": {reason.text} ({release})" if held == "user" else "")
    return PilotVerdict(job.job_id, Stage.BATCH_JOB, f"{text}; it {again}" if again else text, None, job)


def _starting(seen: PilotSeen, job: BatchJob, site: str, there: datetime, limits: Deadlines) -> PilotVerdict:
    running_s = seconds_between(job.start, there) if job.start else 0.0
    where, last = f"RUNNING on {job.node}" if job.node else "RUNNING", seen.last
    if last is None:
        if running_s <= limits.ep_start_s:
            return PilotVerdict(job.job_id, Stage.BATCH_JOB, where, None, job)
        summary = f"job {job.job_id} is {where} for {format_duration(running_s)} and its pilot has written nothing"
        what = failure("ep-start-silent", site, summary, evidence=[Evidence("squeue", where)])
        return _failed(job.job_id, what, job)
    stage = _stage_of(last)
    waited_s = seconds_between(last.at, there)
    if stage.order >= Stage.AP_CONNECT.order and seen.collector_asked and waited_s > limits.join_s:
        if seen.ever_ready:
            return _vanished(seen, job, site, "the collector has no ad of its EP any more")
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
        evidence = [Evidence(f"pilot {job.job_id}, its last line", f"{last.stage} {last.code} {last.text}")]
        return _failed(job.job_id, failure("ep-start-silent", site, summary, evidence=evidence), job)
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
