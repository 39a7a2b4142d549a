"""Where an annex stands and how it got there: its events and the witnesses, stage by stage, then what comes next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from typing import Any

from siteannex.annex.bundle import drain_notice_s
from siteannex.annex.events import Event, What, failure_from_data, failure_to_data
from siteannex.annex.explaining.waiting import Waiting, explain_waiting
from siteannex.annex.judging.judge import judge
from siteannex.annex.judging.verdict import PilotVerdict, Verdict, confidence_text
from siteannex.annex.planning.plan import plan_annex
from siteannex.annex.slurm_site import SlurmSite
from siteannex.annex.store import Annex
from siteannex.annex.texts import plan_text
from siteannex.annex.watch import adopt, gather, remember_ends
from siteannex.errors import AnnexError, Evidence, Stage, StageFailure
from siteannex.failures import FAILURES
from siteannex.model import BatchState, JobCounts, PilotReport, Plan, Witnesses
from siteannex.ports import Clock, Command, Pool
from siteannex.scheduler import slurm
from siteannex.scheduler.starts import Outlook, read_outlook, starts_script
from siteannex.site.schema import Site
from siteannex.units import format_bytes, format_duration, format_when, seconds_between


@dataclass(frozen=True, slots=True)
class Told:
    """One thing that happened, at its moment, with what was seen."""

    at: datetime
    label: str
    text: str
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True, slots=True)
class AnnexStory:
    """The answer about one annex."""

    annex: Annex
    head: str
    verdict: Verdict
    told: tuple[Told, ...]
    now: tuple[str, ...] = ()
    """What each witness says at this moment."""
    waiting: tuple[Waiting, ...] = ()
    so: tuple[str, ...] = ()
    do: tuple[str, ...] = ()
    outlook: Outlook = field(default_factory=Outlook)


def why_annex(
    annex: Annex, pool: Pool, clock: Clock, access: SlurmSite | None, *, asked_why_not: str = ""
) -> AnnexStory:
    """Ask every witness that can be asked and put the story together. `asked_why_not`: why the site is not asked."""
    trouble, now = asked_why_not, clock.now()
    try:
        witnesses = gather(annex, access, pool)
    except AnnexError as problem:
        trouble = problem.failure.summary
        access, witnesses = None, gather(annex, None, pool)
    state = annex.state()
    if not state.ended:
        adopt(annex, witnesses)
        state = annex.state()
    verdict = judge(annex.plan, state, witnesses, now)
    if witnesses.batch is not None and not state.ended:
        remember_ends(annex, verdict)
    if state.ended:
        text = state.failure.summary if state.failure else state.end_text
        verdict = Verdict(state.failure.stage if state.failure else Stage.RELEASED, text, (), state.failure)
    pending = [pilot for pilot in verdict.pilots if pilot.job and pilot.job.state is BatchState.PENDING]
    outlook = ask_outlook(annex.plan, access, pending, now.date()) if access is not None and pending else Outlook()
    waiting = tuple(explain_waiting(annex.plan, pilot, outlook, now) for pilot in pending)
    return AnnexStory(
        annex=annex,
        head=_head(annex, verdict, waiting, now),
        verdict=verdict,
        told=(*story(annex.plan, annex.events(), witnesses.reports or ()), *_seen_now(verdict, state.failure, now)),
        now=_witnesses(annex, pool, witnesses, verdict, trouble, ended=state.ended, now=now),
        waiting=waiting,
        so=_so(verdict, waiting),
        do=_do(annex, verdict, waiting, now),
        outlook=outlook,
    )


def _seen_now(verdict: Verdict, recorded: StageFailure | None, now: datetime) -> tuple[Told, ...]:
    """A failure that the witnesses show and no event tells yet."""
    found = verdict.failure
    if found is None or (recorded is not None and recorded.code == found.code):
        return ()
    return (Told(now, found.stage.label, f"FAILED: {found.code}: {found.summary}", found.evidence),)


def ask_outlook(plan: Plan, access: SlurmSite, pending: Sequence[PilotVerdict], today: date) -> Outlook:
    """One round trip. What cannot be asked is not known: the story goes on without it."""
    tries = {
        other.partition: slurm.submit_options(
            other, access.site.partitions[other.partition], drain_notice_s=drain_notice_s(other)
        )
        for other in alternatives(plan, access.site, today)
    }
    script = starts_script([pilot.job_id for pilot in pending], plan.partition, tries)
    try:
        return read_outlook(access.transport.run([Command(script)])[0].stdout)
    except AnnexError:
        return Outlook()


def alternatives(plan: Plan, site: Site, today: date) -> list[Plan]:
    """The same request on each other partition of the site that fits it."""
    found = []
    for name in site.partitions:
        if name != plan.partition:
            try:
                found.append(
                    plan_annex(replace(plan.request, partition=name), site, annex_id=plan.annex_id, today=today)
                )
            except AnnexError:
                continue
    return found


def story(plan: Plan, events: list[Event], reports: tuple[PilotReport, ...] = ()) -> tuple[Told, ...]:
    """Events and pilots' reports in the order they happened; what only repeats is left out. Pure."""
    reported = [report.text for report in reports if report.text]
    told = [
        line
        for event, after in zip(events, [*events[1:], None], strict=True)
        for line in _event(plan, event, after)
        if event.what is not What.SEEN or not any(text in line.text for text in reported)
    ]
    told += [
        Told(
            report.at,
            "pilot",
            f"{report.job_id} {report.stage} {report.code}: {report.text}"
            + (f" ({report.node})" if report.node else ""),
        )
        for report in reports
    ]
    told = [line for line, before in zip(told, [None, *told[:-1]], strict=True) if not _repeats(line, before)]
    # Reports carry whole seconds: within one second what we did stands before what a pilot did.
    return tuple(sorted(told, key=lambda line: (line.at.replace(microsecond=0), line.label == "pilot")))


def _repeats(line: Told, before: Told | None) -> bool:
    """The queue's word is recorded again and again with its time; the story needs it once."""
    return before is not None and (line.label, line.text) == (before.label, before.text) and line.label == "batch"


def _event(plan: Plan, event: Event, after: Event | None) -> list[Told]:
    data = event.data
    if event.what is What.FAILED:
        failure = failure_from_data(data.get("failure"))
        text = f"FAILED: {failure.code}: {failure.summary}" if failure else "FAILED"
        return [Told(event.at, event.stage.label, text, failure.evidence if failure else ())]
    if event.what is What.BEGIN:
        if event.stage is Stage.DRAIN:
            return [Told(event.at, event.stage.label, "siteannex down")]
        if after is not None:
            return []
        return [Told(event.at, event.stage.label, "begun, and not done yet: at work, or interrupted there")]
    text = _EVENT_TEXTS[event.stage](data) if event.stage in _EVENT_TEXTS else str(data.get("text", ""))
    if event.stage is Stage.PLAN:
        text = plan_text(plan)
    return [Told(event.at, event.stage.label, text or "done")]


def _packed(data: Mapping[str, Any]) -> str:
    size = data.get("size")
    return f"EP {data.get('version', '')}" + (f", {format_bytes(size)}" if isinstance(size, int) else "")


def _shipped(data: Mapping[str, Any]) -> str:
    sent = data.get("bytes_sent")
    return f"EP software {format_bytes(sent)}" if isinstance(sent, int) and sent else "EP software was there already"


def _submitted(data: Mapping[str, Any]) -> str:
    ids = ", ".join(map(str, data.get("job_ids") or [])) or "none"
    return f"job {ids} found at the site" if data.get("adopted") else f"job {ids}"


_EVENT_TEXTS = {
    Stage.PACK: _packed,
    Stage.CONNECT: lambda data: f"logged in as {data.get('login', '')}",
    Stage.SHIP: _shipped,
    Stage.SUBMIT: _submitted,
}


def _head(annex: Annex, verdict: Verdict, waiting: tuple[Waiting, ...], now: datetime) -> str:
    title = f"{annex.name} ({annex.plan.annex_id})"
    if verdict.failure is not None:
        return f"{title}: FAILED at {verdict.failure.stage.label}: {verdict.failure.code}: {verdict.failure.summary}"
    if waiting and all(pilot.job and pilot.job.state is BatchState.PENDING for pilot in _living(verdict)):
        since = next((event.at for event in annex.events() if event.stage is Stage.SUBMIT), now)
        return f"{title}: in the queue for {format_duration(seconds_between(since, now))}; {waiting[0].short}"
    return f"{title}: {verdict.stage}, {verdict.text}"


def _living(verdict: Verdict) -> list[PilotVerdict]:
    return [pilot for pilot in verdict.pilots if not pilot.over and pilot.failure is None]


def _witnesses(
    annex: Annex, pool: Pool, witnesses: Witnesses, verdict: Verdict, trouble: str, *, ended: bool, now: datetime
) -> tuple[str, ...]:
    if ended:
        return ()
    lines = []
    if witnesses.batch is None:
        said = "; ".join(line for line in witnesses.complaint.splitlines() if line.strip())
        silent = f"Slurm: it gives no answer{f' ({said})' if said else ''}"
        lines.append(f"Slurm: not asked ({trouble})" if trouble else silent)
    for job in witnesses.batch or ():
        reason = f", reason {job.reason}" if job.reason else ""
        node = f" on {job.node}" if job.node else ""
        ends = f", ends {format_when(job.end, now)}" if job.end and job.state is BatchState.RUNNING else ""
        lines.append(f"Slurm: job {job.job_id} {job.state_text or job.state}{node}{reason}{ends}")
    if witnesses.slots is None:
        lines.append("collector: it does not answer")
    whole = [slot for slot in witnesses.slots or () if slot.slot_type != "Dynamic"]
    if witnesses.slots is not None and not whole:
        lines.append("collector: no ad of this annex")
    for slot in whole:
        heard = f", heard {format_when(slot.last_heard, now)}" if slot.last_heard else ""
        lines.append(f"collector: {slot.name} {slot.failed_code or f'{slot.state}/{slot.activity}'}{heard}")
    lines.append(confidence_text(verdict.confidence, verdict.doubt))
    return (*lines, *_jobs(annex, pool))


def _jobs(annex: Annex, pool: Pool) -> tuple[str, ...]:
    try:
        counts: JobCounts = pool.job_counts([annex.name])[annex.name]
    except AnnexError:
        return ()
    held = f", {counts.held} held" if counts.held else ""
    return (f"your jobs for it: {counts.running} running, {counts.waiting} waiting{held}",)


def _so(verdict: Verdict, waiting: tuple[Waiting, ...]) -> tuple[str, ...]:
    if verdict.failure is not None and not waiting:
        known = FAILURES.get(verdict.failure.code)
        return (known.meaning,) if known is not None else ()
    return tuple(dict.fromkeys(text for pilot in waiting for text in pilot.so))


def _do(annex: Annex, verdict: Verdict, waiting: tuple[Waiting, ...], now: datetime) -> tuple[str, ...]:
    if waiting:
        return tuple(dict.fromkeys(text for pilot in waiting for text in pilot.do))
    if verdict.failure is not None:
        return (verdict.failure.hint,) if verdict.failure.hint else ()
    if verdict.stage is Stage.READY:
        return (f'new jobs reach it with MY.TargetAnnexName = "{annex.name}"; why JOB says why one does not run',)
    if verdict.stage is Stage.RELEASED:
        return ("bring it up again with the same siteannex up",)
    return (f"siteannex status {annex.name} --watch follows it; siteannex down {annex.name} ends it",)


def as_data(told: AnnexStory) -> dict[str, Any]:
    """Everything the screen has, as JSON values."""
    verdict = told.verdict
    return {
        "annex": told.annex.name,
        "annex_id": told.annex.plan.annex_id,
        "head": told.head,
        "stage": str(verdict.stage),
        "text": verdict.text,
        "confidence": str(verdict.confidence),
        "doubt": verdict.doubt,
        "failure": failure_to_data(verdict.failure) if verdict.failure else None,
        "story": [
            {
                "at": line.at.isoformat(),
                "label": line.label,
                "text": line.text,
                "evidence": [{"source": each.source, "text": each.text} for each in line.evidence],
            }
            for line in told.told
        ],
        "now": list(told.now),
        "waiting": [each.as_data() for each in told.waiting],
        "would_start": {
            name: {"start": trial.start.isoformat() if trial.start else None, "text": trial.text}
            for name, trial in told.outlook.trials.items()
        },
        "so": list(told.so),
        "do": list(told.do),
    }
