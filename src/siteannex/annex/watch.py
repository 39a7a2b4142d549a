"""Watching an annex: ask the witnesses, judge, tell, record; until nothing new can come."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime

from siteannex.annex.ending import ran_s
from siteannex.annex.events import AnnexState, What
from siteannex.annex.judging.judge import judge
from siteannex.annex.judging.seen import see
from siteannex.annex.judging.verdict import Verdict
from siteannex.annex.slurm_site import SlurmSite
from siteannex.annex.store import Annex
from siteannex.errors import AnnexError, Stage
from siteannex.model import BatchJob, BatchState, PilotReport, Witnesses
from siteannex.ports import Clock, Pool, View
from siteannex.scheduler.reasons import queue_text
from siteannex.units import format_duration, format_when, seconds_between

# Seconds between looks: quick while something is about to happen, patient in a long queue.
_QUICK = (0.4, 0.6, 1.0, 1.0, 2.0)
_PATIENT_S = 30.0
_SHORT_S, _GLANCE_S, _TICK_S = 2.0, 0.2, 1.0
"""Waits up to `_SHORT_S` are cut into glances at the collector, longer ones into ticks of the screen's clock."""
_STAMP_S = 120.0
"""How often the same word of the queue is recorded with its time, in seconds."""
_SILENCE_POLL_S = 10.0
"""How often a site that gives no answer is asked, in seconds."""


def gather(annex: Annex, access: SlurmSite | None, pool: Pool) -> Witnesses:
    """Ask the collector and, when there is a connection, the site. A witness that cannot be asked stays None."""
    try:
        slots = tuple(pool.slots(annex.plan.annex_id))
    except AnnexError:
        slots = None
    if access is None:
        return Witnesses(slots=slots)
    sighting = access.observe(annex.plan.annex_id, annex.created_at(), annex.state().job_ids)
    queue = sighting.queue
    return Witnesses(queue.jobs, sighting.reports, slots, queue.now, queue.complaint)


def adopt(annex: Annex, witnesses: Witnesses) -> None:
    """Record what the witnesses tell and our events do not know yet.

    Batch jobs that bear the annex's mark (a command was killed); jobs that Slurm starts anew under their id; and what
    the queue says, so that a later look without a connection can say it too.
    """
    state = annex.state()
    found = [job.job_id for job in witnesses.batch or ()] + [slot.batch_job_id for slot in witnesses.slots or ()]
    new = [job_id for job_id in dict.fromkeys(found) if job_id and job_id not in state.job_ids]
    if new:
        annex.record(Stage.SUBMIT, What.DONE, job_ids=new, adopted=True)
    now = annex.clock.now()
    sights = (see(job_id, state, witnesses, now) for job_id in state.ready_ids)
    restarted = [seen.job_id for seen in sights if seen.restarted and not seen.slots and not seen.said_ready]
    if restarted:
        words = f"job {', '.join(restarted)} was stopped by Slurm and starts again under the same id"
        annex.record(Stage.BATCH_JOB, What.SEEN, text=words, restarted=restarted)
    if queue := _queue_news(state, witnesses, now):
        text = "; ".join(dict.fromkeys(str(each["text"]) for each in queue))
        annex.record(Stage.BATCH_JOB, What.SEEN, text=text, queue=queue)


def remember_ends(annex: Annex, verdict: Verdict) -> None:
    """Record how pilots ended, once each: the next look may be without a connection to the site."""
    known = annex.state().ends
    over = [pilot for pilot in verdict.pilots if pilot.over and pilot.job_id not in known]
    ends = {pilot.job_id: pilot.text for pilot in over}
    if ends:
        ran = ran_s(pilot.job for pilot in over if pilot.job is not None)
        annex.record(Stage.DRAIN, What.SEEN, text="; ".join(dict.fromkeys(ends.values())), ends=ends, ran=ran)


def _queue_news(state: AnnexState, witnesses: Witnesses, now: datetime) -> list[dict[str, str | None]]:
    """Jobs of which the queue says something new, or said the same so long ago that it should be stamped again."""
    known = {each.job_id: each for each in state.queue}
    news = []
    for job in witnesses.batch or ():
        before, text = known.get(job.job_id), queue_text(job)
        waits = job.state is BatchState.PENDING
        if not waits and (before is None or before.text == text or not job.state.living):
            continue  # of a pilot that never waited the other stages tell
        start = job.start.isoformat() if waits and job.start else None
        projected = start is not None and before is not None and before.start is None
        if before is None or before.text != text or projected or seconds_between(before.at, now) > _STAMP_S:
            news.append({"job_id": job.job_id, "text": text, "start": start})
    return news


class Watcher:
    """One watch of one annex: remembers what was already told."""

    def __init__(
        self,
        annex: Annex,
        access: SlurmSite | None,
        pool: Pool,
        clock: Clock,
        view: View,
        hint: Callable[[Verdict], str] = lambda _: "",
    ) -> None:
        self._annex, self._access, self._pool, self._clock, self._view = annex, access, pool, clock, view
        self._hint = hint
        self._hinted: tuple[str, ...] | None = None
        self._started = clock.now()
        self._told: set[PilotReport] = set()
        self._recorded: tuple[Stage, tuple[str, ...]] | None = None
        self._silent_since: datetime | None = None
        self._unanswered = False
        self._waits: list[float] = list(_QUICK)

    def look(self) -> Verdict:
        """Ask once, judge, tell what is new, record a stage reached."""
        witnesses = gather(self._annex, self._access, self._pool)
        adopt(self._annex, witnesses)
        self._unanswered = self._access is not None and witnesses.batch is None
        verdict = judge(self._annex.plan, self._annex.state(), witnesses, self._clock.now())
        for report in witnesses.reports or ():
            self._tell_report(report)
        self._record(verdict)
        return verdict

    def until(self, enough: Callable[[Verdict], bool]) -> Verdict:
        """Look again and again until it is `enough`; returns the last verdict."""
        started = self._clock.now()
        while True:
            if (verdict := self._patient_look()) is None:
                continue
            if enough(verdict):
                return verdict
            self._tell_hint(verdict)
            self._wait(verdict, started, self._next_wait(verdict))

    def _wait(self, verdict: Verdict, started: datetime, seconds: float) -> None:
        """Wait until the next look, showing that time passes; a short wait ends when a slot joins.

        Only our own collector is asked meanwhile, so that READY is told at once and the site is left in peace.
        """
        label = "queue" if _pending(verdict) else verdict.stage.label
        joined = sum(len(pilot.slots) for pilot in verdict.pilots)
        step = _GLANCE_S if seconds <= _SHORT_S else _TICK_S
        for _ in range(math.ceil(seconds / step)):
            waited_s = seconds_between(started, self._clock.now())
            self._view.live(label, f"{verdict.text}{self._projection(verdict)} [{format_duration(waited_s)}]")
            self._clock.sleep(step)
            if step == _GLANCE_S and self._slots() > joined:
                return

    def _tell_hint(self, verdict: Verdict) -> None:
        """Of a pilot that waits for more than a few seconds, once for each reason: what a person could do about it."""
        reasons = tuple(job.reason for job in _jobs(verdict))
        if self._waits or not _pending(verdict) or reasons == self._hinted:
            return
        self._hinted = reasons
        if hint := self._hint(verdict):
            self._view.line("queue", f"{verdict.text}{self._projection(verdict)}. {hint}")
            self._view.line("", f"Ctrl-C leaves it queued; siteannex status {self._annex.name} shows it.")

    def _slots(self) -> int:
        try:
            return len(self._pool.slots(self._annex.plan.annex_id))
        except AnnexError:
            return 0

    def _patient_look(self) -> Verdict | None:
        """A look, or None when the site gives no answer just now: one slow squeue is no reason to give up."""
        try:
            verdict = self.look()
        except AnnexError as problem:
            self._silent_since = self._silent_since or self._clock.now()
            silent_s = seconds_between(self._silent_since, self._clock.now())
            if problem.failure.code != "remote-timeout" or silent_s > self._annex.plan.deadlines.silent_s:
                raise
            self._view.live("wait", f"the site gives no answer [{format_duration(silent_s)}]")
            self._clock.sleep(_SILENCE_POLL_S)
            return None
        self._silent_since = None
        return verdict

    def _tell_report(self, report: PilotReport) -> None:
        if report in self._told:
            return
        self._told.add(report)
        stage = Stage(report.stage) if report.stage in set(Stage) else None
        if report.code == "ok" and stage is not None and stage not in (Stage.READY, Stage.RELEASED):
            which = f"job {report.job_id}: " if self._annex.plan.pilots > 1 else ""
            after = format_duration(seconds_between(self._started, self._clock.now()))
            self._view.line(stage.label, f"{which}{report.text} [{after}]")

    def _record(self, verdict: Verdict) -> None:
        ready = tuple(pilot.job_id for pilot in verdict.pilots if pilot.ready)
        if verdict.failure is None and verdict.pilots and verdict.stage is not Stage.RELEASED:
            if self._recorded != (verdict.stage, ready):
                if verdict.stage is not Stage.BATCH_JOB or not self._annex.state().queue:  # else the queue told it
                    self._annex.record(verdict.stage, What.SEEN, text=verdict.text, ready=list(ready))
                self._waits = list(_QUICK)
            self._recorded = (verdict.stage, ready)

    def _next_wait(self, verdict: Verdict) -> float:
        if self._waits:
            return self._waits.pop(0)
        if self._unanswered:
            return _SILENCE_POLL_S
        return _PATIENT_S if _pending(verdict) and self._access is not None else 2.0

    def _projection(self, verdict: Verdict) -> str:
        starts = [job.start for job in _jobs(verdict) if job.state is BatchState.PENDING and job.start is not None]
        return f"; Slurm projects {format_when(min(starts), self._clock.now())}" if starts else ""


def _jobs(verdict: Verdict) -> list[BatchJob]:
    return [pilot.job for pilot in verdict.pilots if pilot.job is not None]


def _pending(verdict: Verdict) -> bool:
    jobs = _jobs(verdict)
    return bool(jobs) and all(job.state is BatchState.PENDING for job in jobs)
