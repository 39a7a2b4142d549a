"""`down`: drain, then cancel, then remove everything but the log archive, then make sure."""

from __future__ import annotations

from siteannex.annex.events import What
from siteannex.annex.slurm_site import Sighting, SlurmSite
from siteannex.annex.store import Annex
from siteannex.errors import Evidence, Stage
from siteannex.failures import fail
from siteannex.model import BatchJob, BatchState, Slot
from siteannex.ports import Clock, Pool, View
from siteannex.units import format_duration, seconds_between

STOP_WAIT_S = 30.0
"""How long a stopped pilot may take to evict its jobs and clean up before it is cancelled."""
END_WAIT_S = 90.0
"""How long a cancelled pilot may take to end: Slurm's KillWait is 30 s by default, epilogs come on top."""
POLL_S = 1.0
POLL_PATIENT_S = 5.0


def down(annex: Annex, access: SlurmSite, pool: Pool, clock: Clock, view: View, *, now: bool) -> None:
    """Take an annex down. With `now` running jobs are evicted; without, they finish first (and Ctrl-C leaves them)."""
    annex.record(Stage.DRAIN, What.BEGIN, now=now)
    annex_id, since = annex.plan.annex_id, annex.created_at()
    living = _living(access.observe(annex_id, since), annex)
    pending = tuple(job.job_id for job in living if job.state is BatchState.PENDING)
    running = tuple(job.job_id for job in living if job.state is not BatchState.PENDING)
    if pending:
        access.cancel(pending)
        view.line("cancel", f"pending job {', '.join(pending)}")
    if running and not now:
        access.drain(running)
        view.line("drain", f"job {', '.join(running)}: no new jobs; running jobs finish first (--now evicts them)")
        _wait_drained(annex, access, pool, clock, view)
    elif running:
        access.stop(running)
        view.line("stop", f"job {', '.join(running)}: running jobs are evicted")
    _wait_ended(annex, access, clock, view)
    access.release(annex_id, ())
    _make_sure(annex, access)
    annex.record(Stage.RELEASED, What.DONE, text="taken down")
    view.line("released", f"{annex.name}: no job, no process, no file at {access.site.name} but its log archive")


def forget(annex: Annex, view: View) -> None:
    """Close an annex that never submitted anything."""
    annex.record(Stage.RELEASED, What.DONE, text="taken down before anything was submitted")
    view.line("released", f"{annex.name}: nothing had been submitted")


def _living(sighting: Sighting, annex: Annex) -> tuple[BatchJob, ...]:
    if sighting.queue.jobs is None:
        raise fail(
            "release-incomplete",
            annex.plan.request.site,
            "Slurm could not say what of the annex runs; nothing was cancelled",
            evidence=[Evidence.tail("squeue and sacct", sighting.queue.complaint)],
        )
    return tuple(job for job in sighting.queue.jobs if job.state.living)


def _wait_drained(annex: Annex, access: SlurmSite, pool: Pool, clock: Clock, view: View) -> None:
    """Wait for running jobs to finish, however long that is: the walltime bounds it."""
    started = clock.now()
    while living := _living(access.observe(annex.plan.annex_id, annex.created_at()), annex):
        waited_s = seconds_between(started, clock.now())
        busy = [slot for slot in pool.slots(annex.plan.annex_id) if slot.job]
        view.live("drain", f"{_jobs_text(busy)}; {len(living)} pilot(s) still up [{format_duration(waited_s)}]")
        clock.sleep(POLL_S if waited_s < 30 else POLL_PATIENT_S)


def _jobs_text(busy: list[Slot]) -> str:
    if not busy:
        return "no job runs; EP ends"
    return f"{len(busy)} job{'s' if len(busy) > 1 else ''} still running ({', '.join(slot.job for slot in busy[:3])})"


def _wait_ended(annex: Annex, access: SlurmSite, clock: Clock, view: View) -> None:
    """Wait for the pilots to end by themselves, then cancel them, then give up and say what is left."""
    started, cancelled = clock.now(), False
    while living := _living(access.observe(annex.plan.annex_id, annex.created_at()), annex):
        waited_s = seconds_between(started, clock.now())
        ids = tuple(job.job_id for job in living)
        if waited_s > STOP_WAIT_S and not cancelled:
            cancelled = True
            access.cancel(ids)
            view.line("cancel", f"job {', '.join(ids)}: not ended by itself after {format_duration(waited_s)}")
        if waited_s > STOP_WAIT_S + END_WAIT_S:
            words = "\n".join(f"{job.job_id} {job.state_text} on {job.node}" for job in living)
            raise fail(
                "release-incomplete",
                annex.plan.request.site,
                f"a pilot has not ended {format_duration(waited_s)} after it was asked to",
                evidence=[Evidence("squeue", words)],
            )
        view.live("stop", f"{len(living)} pilot(s) ending [{format_duration(waited_s)}]")
        clock.sleep(POLL_S)


def _make_sure(annex: Annex, access: SlurmSite) -> None:
    """A pilot submitted by a command that was killed may appear late: look once more, after the removal."""
    sighting = access.observe(annex.plan.annex_id, annex.created_at())
    left = _living(sighting, annex)
    if left or sighting.directory_left:
        words = ", ".join(job.job_id for job in left) or "its directory is still there"
        raise fail("release-incomplete", annex.plan.request.site, f"something is left at the site: {words}")
