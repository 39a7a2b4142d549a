"""The one way an annex ends: cancelled, seen to be over, removed, and looked for once more.

`down`, a failed `up`, a forgotten annex and what `sweep` finds all come through here, so that "ended" is only ever
recorded of what was seen to have ended. scancel's own word is not enough (it prints some errors and returns 0), nor is
one look.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from siteannex.annex.slurm_site import Sighting, SlurmSite
from siteannex.annex.store import Annex
from siteannex.errors import Evidence
from siteannex.failures import fail
from siteannex.model import BatchJob, BatchState
from siteannex.ports import Clock, View
from siteannex.units import format_duration, seconds_between

STOP_WAIT_S = 30.0
"""How long a stopped pilot may take to evict its jobs and clean up before it is cancelled."""
END_WAIT_S = 90.0
"""How long a cancelled pilot may take to end: Slurm's KillWait is 30 s by default, epilogs come on top."""
POLL_S = 1.0
POLL_PATIENT_S = 5.0


@dataclass(frozen=True, slots=True)
class Target:
    """What is to end: an annex, or what is left of one that nobody remembers."""

    annex_id: str
    site: str
    since: datetime
    """Its batch jobs are not older than this."""
    job_ids: tuple[str, ...] = ()
    leased: bool = False
    """A keeper may be there, and is ended before the pilots: else it could bring one back."""

    @classmethod
    def of(cls, annex: Annex) -> Target:
        """An annex as its events have it now."""
        request = annex.plan.request
        ids = annex.state().job_ids
        return cls(annex.plan.annex_id, request.site, annex.created_at(), ids, leased=request.lease is not None)


def end_now(annex: Target, access: SlurmSite, clock: Clock, view: View) -> tuple[BatchJob, ...]:
    """Cancel every pilot, known to us or not; leave nothing. AnnexError(release-incomplete) when something stays.

    All ends return the batch jobs as the site last told of them.
    """
    if annex.leased:
        access.withdraw_keeper(annex.annex_id)
    access.cancel_annex(annex.annex_id, annex.job_ids)
    return finish(annex, access, clock, view, patience_s=0.0)


def end_gently(annex: Target, access: SlurmSite, clock: Clock, view: View) -> tuple[BatchJob, ...]:
    """The same, but running pilots may first evict their jobs, save their logs and withdraw their ads."""
    alive = living(look(annex, access), annex)
    if pending := tuple(job.job_id for job in alive if job.state is BatchState.PENDING):
        access.cancel(pending)
    if running := tuple(job.job_id for job in alive if job.state is BatchState.RUNNING):
        access.stop(running)
    return finish(annex, access, clock, view, patience_s=STOP_WAIT_S if running else 0.0)


def finish(annex: Target, access: SlurmSite, clock: Clock, view: View, *, patience_s: float) -> tuple[BatchJob, ...]:
    """Wait for pilots that were told to end, cancel those that do not within `patience_s`, remove, look once more."""
    _wait_ended(annex, access, clock, view, patience_s)
    access.remove(annex.annex_id)
    sighting = look(annex, access)
    left = living(sighting, annex)
    if left or sighting.directory_left:  # a pilot of a command that was killed may appear late
        words = ", ".join(job.job_id for job in left) or "its directory is still there"
        raise fail("release-incomplete", annex.site, f"something is left at the site: {words}")
    return sighting.queue.jobs or ()


def ran_s(jobs: Iterable[BatchJob]) -> dict[str, float]:
    """Seconds that each job ran which has ended; one of which that is not told is left out."""
    return {
        job.job_id: seconds_between(job.start, job.end) if job.start and job.end else 0.0
        for job in jobs
        if job.state.ended and (job.end is not None or (job.start is None and job.state is BatchState.CANCELLED))
    }


def look(annex: Target, access: SlurmSite) -> Sighting:
    """What the site says of the annex now."""
    return access.observe(annex.annex_id, annex.since, annex.job_ids)


def living(sighting: Sighting, annex: Target) -> tuple[BatchJob, ...]:
    """Pilots that can still run or cost anything. AnnexError(release-incomplete) when Slurm could not say."""
    if sighting.queue.jobs is None:
        raise fail(
            "release-incomplete",
            annex.site,
            "Slurm could not say what of the annex runs",
            evidence=[Evidence.tail("squeue and sacct", sighting.queue.complaint)],
        )
    return tuple(job for job in sighting.queue.jobs if job.state.living)


def _wait_ended(annex: Target, access: SlurmSite, clock: Clock, view: View, patience_s: float) -> None:
    started, cancelled = clock.now(), patience_s <= 0
    while left := living(look(annex, access), annex):
        waited_s = seconds_between(started, clock.now())
        ids = tuple(job.job_id for job in left)
        if waited_s > patience_s and not cancelled:
            cancelled = True
            access.cancel_annex(annex.annex_id, ids)
            view.line("cancel", f"job {', '.join(ids)}: not ended by itself after {format_duration(waited_s)}")
        if waited_s > patience_s + END_WAIT_S:
            words = "\n".join(f"{job.job_id} {job.state_text} on {job.node}" for job in left)
            raise fail(
                "release-incomplete",
                annex.site,
                f"a pilot has not ended {format_duration(waited_s)} after it was asked to",
                evidence=[Evidence("squeue", words)],
            )
        view.live("stop", f"{len(left)} pilot(s) ending [{format_duration(waited_s)}]")
        clock.sleep(POLL_S)
