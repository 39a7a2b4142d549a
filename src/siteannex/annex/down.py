"""`down`: drain, then cancel, then remove everything but the log archive, then make sure."""

from __future__ import annotations

from contextlib import suppress

from siteannex.annex.ending import POLL_PATIENT_S, POLL_S, STOP_WAIT_S, Target, finish, living, look, ran_s
from siteannex.annex.events import What
from siteannex.annex.slurm_site import SlurmSite
from siteannex.annex.store import Annex, Store
from siteannex.errors import AnnexError, Stage
from siteannex.model import BatchState, Slot
from siteannex.ports import Clock, Pool, View
from siteannex.units import format_duration, seconds_between

POLL_LONG_S = 30.0


def down(annex: Annex, access: SlurmSite, store: Store, pool: Pool, clock: Clock, view: View, *, now: bool) -> None:
    """Take an annex down. With `now` running jobs are evicted; without, they finish first (and Ctrl-C leaves them).

    The annex's name is held only while something is done, not while waiting: `down --now` may overtake a `down`.
    """
    site = annex.plan.request.site
    with store.lock(annex.name, site):
        annex.record(Stage.DRAIN, What.BEGIN, now=now)
        draining = _tell_pilots(annex, access, view, now=now)
    if draining:
        _wait_drained(annex, access, pool, clock, view)
    with store.lock(annex.name, site):
        jobs = finish(Target.of(annex), access, clock, view, patience_s=STOP_WAIT_S)
        with suppress(AnnexError):  # what a pilot that was killed has left there ends by itself in minutes
            pool.withdraw_ads(annex.plan.annex_id)
        annex.record(Stage.RELEASED, What.DONE, text="taken down", ran=ran_s(jobs))
    was_ready = any(event.stage is Stage.READY for event in annex.events())
    left = " but its log archive" if was_ready else ""
    view.line("released", f"{annex.name}: no job, no process, no file at {access.site.name}{left}")


def forget(annex: Annex, view: View) -> None:
    """Close an annex that never submitted anything."""
    annex.record(Stage.RELEASED, What.DONE, text="taken down before anything was submitted")
    view.line("released", f"{annex.name}: nothing had been submitted")


def dismiss(annex: Annex, view: View) -> None:
    """Close a failed annex of which nothing is left, so that status shows it no more."""
    what = annex.state().failure
    annex.record(Stage.RELEASED, What.DONE, text=f"failed: {what.code}" if what else "failed")
    view.line("down", f"{annex.name} had failed and left nothing; status shows it no more")


def _tell_pilots(annex: Annex, access: SlurmSite, view: View, *, now: bool) -> bool:
    """Cancel pending pilots, drain or stop running ones; True when some drain."""
    target = Target.of(annex)
    if target.leased:
        access.withdraw_keeper(target.annex_id)
        view.line("keeper", "lease withdrawn, keeper gone: no pilot comes back")
    alive = living(look(target, access), target)
    pending = tuple(job.job_id for job in alive if job.state is BatchState.PENDING)
    running = tuple(job.job_id for job in alive if job.state is not BatchState.PENDING)
    if pending:
        access.cancel(pending)
        view.line("cancel", f"pending job {', '.join(pending)}")
    if running and now:
        access.stop(running)
        view.line("stop", f"job {', '.join(running)}: running jobs are evicted")
    elif running:
        access.drain(running)
        view.line("drain", f"job {', '.join(running)}: no new jobs; running jobs finish first (--now evicts them)")
    return bool(running) and not now


def _wait_drained(annex: Annex, access: SlurmSite, pool: Pool, clock: Clock, view: View) -> None:
    """Wait for running jobs to finish, however long that is: the walltime bounds it."""
    started, target = clock.now(), Target.of(annex)
    while alive := living(look(target, access), target):
        waited_s = seconds_between(started, clock.now())
        view.live("drain", f"{_jobs_text(annex, pool)}; {len(alive)} pilot(s) still up [{format_duration(waited_s)}]")
        clock.sleep(POLL_S if waited_s < 30 else POLL_PATIENT_S if waited_s < 300 else POLL_LONG_S)


def _jobs_text(annex: Annex, pool: Pool) -> str:
    try:
        busy: list[Slot] = [slot for slot in pool.slots(annex.plan.annex_id) if slot.job]
    except AnnexError:
        return "the collector does not say what runs"
    if not busy:
        return "no job runs; EP ends"
    return f"{len(busy)} job{'s' if len(busy) > 1 else ''} still running ({', '.join(slot.job for slot in busy[:3])})"
