"""The one way an annex ends: cancelled, seen to be over, removed, and looked for once more.

`down`, a failed `up` and a forgotten annex all come through here, so that "ended" is only ever recorded of what was
seen to have ended. scancel's own word is not enough (it prints some errors and returns 0), nor is one look.
"""

from __future__ import annotations

from siteannex.annex.slurm_site import Sighting, SlurmSite
from siteannex.annex.store import Annex
from siteannex.errors import Evidence
from siteannex.failures import fail
from siteannex.model import BatchJob
from siteannex.ports import Clock, View
from siteannex.units import format_duration, seconds_between

STOP_WAIT_S = 30.0
"""How long a stopped pilot may take to evict its jobs and clean up before it is cancelled."""
END_WAIT_S = 90.0
"""How long a cancelled pilot may take to end: Slurm's KillWait is 30 s by default, epilogs come on top."""
POLL_S = 1.0
POLL_PATIENT_S = 5.0


def end_now(annex: Annex, access: SlurmSite, clock: Clock, view: View) -> None:
    """Cancel every pilot, known to us or not; leave nothing. AnnexError(release-incomplete) when something stays."""
    access.cancel_annex(annex.plan.annex_id, annex.state().job_ids)
    finish(annex, access, clock, view, patience_s=0.0)


def finish(annex: Annex, access: SlurmSite, clock: Clock, view: View, *, patience_s: float) -> None:
    """Wait for pilots that were told to end, cancel those that do not within `patience_s`, remove, look once more."""
    _wait_ended(annex, access, clock, view, patience_s)
    access.remove(annex.plan.annex_id)
    sighting = look(annex, access)
    left = living(sighting, annex)
    if left or sighting.directory_left:  # a pilot of a command that was killed may appear late
        words = ", ".join(job.job_id for job in left) or "its directory is still there"
        raise fail("release-incomplete", annex.plan.request.site, f"something is left at the site: {words}")


def look(annex: Annex, access: SlurmSite) -> Sighting:
    """What the site says of the annex now."""
    return access.observe(annex.plan.annex_id, annex.created_at(), annex.state().job_ids)


def living(sighting: Sighting, annex: Annex) -> tuple[BatchJob, ...]:
    """Pilots that can still run or cost anything. AnnexError(release-incomplete) when Slurm could not say."""
    if sighting.queue.jobs is None:
        raise fail(
            "release-incomplete",
            annex.plan.request.site,
            "Slurm could not say what of the annex runs",
            evidence=[Evidence.tail("squeue and sacct", sighting.queue.complaint)],
        )
    return tuple(job for job in sighting.queue.jobs if job.state.living)


def _wait_ended(annex: Annex, access: SlurmSite, clock: Clock, view: View, patience_s: float) -> None:
    started, cancelled = clock.now(), patience_s <= 0
    while left := living(look(annex, access), annex):
        waited_s = seconds_between(started, clock.now())
        ids = tuple(job.job_id for job in left)
        if waited_s > patience_s and not cancelled:
            cancelled = True
            access.cancel_annex(annex.plan.annex_id, ids)
            view.line("cancel", f"job {', '.join(ids)}: not ended by itself after {format_duration(waited_s)}")
        if waited_s > patience_s + END_WAIT_S:
            words = "\n".join(f"{job.job_id} {job.state_text} on {job.node}" for job in left)
            raise fail(
                "release-incomplete",
                annex.plan.request.site,
                f"a pilot has not ended {format_duration(waited_s)} after it was asked to",
                evidence=[Evidence("squeue", words)],
            )
        view.live("stop", f"{len(left)} pilot(s) ending [{format_duration(waited_s)}]")
        clock.sleep(POLL_S)
