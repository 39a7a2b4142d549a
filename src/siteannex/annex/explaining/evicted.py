"""Why an EP's end took a job with it: `down`, walltime, preemption, or a node that went away. Pure.

HTCondor knows that the startd evicted the job or was shut down, not why. The slot's name bears the batch job's id
(`slot1_1@ep4711@node`), and our events say what became of that pilot.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from siteannex.annex.bundle import drain_notice_s
from siteannex.annex.store import Annex
from siteannex.errors import Evidence
from siteannex.pool.ads import count_of, text_of
from siteannex.units import format_when

Ad = Mapping[str, object]

_EP = re.compile(r"@ep(\d+(?:_\d+)?)@")
_SIGTERM = 15


def evicted(job: Ad, annexes: Sequence[Annex], now: datetime) -> tuple[str, Evidence] | None:
    """What ended the job's last run, and HTCondor's words of it; None when it has not been stopped, or not on an EP.

    Also a job that "completed" by SIGTERM: where Slurm signals every process, a job that does not heed it dies before
    HTCondor can take it back.
    """
    found = _EP.search(text_of(job, "LastRemoteHost"))
    vacated = count_of(job, "LastVacateTime")
    struck = count_of(job, "CompletionDate") if count_of(job, "ExitSignal") == _SIGTERM else 0
    if found is None or not (vacated or struck):
        return None
    at = datetime.fromtimestamp(vacated or struck, UTC)
    pilot = found.group(1)
    reason = text_of(job, "VacateReason") or (f"killed by signal {_SIGTERM}" if struck else "no reason given")
    annex = next((each for each in reversed(annexes) if pilot in each.state().job_ids), None)
    seen = Evidence(f"HTCondor, {format_when(at, now)}", f"{reason}, on {text_of(job, 'LastRemoteHost')}")
    why = _why(annex, pilot, at, now) if annex is not None else f"batch job {pilot} is of no annex known here"
    return f"it was stopped there {format_when(at, now)}: {why}.", seen


def stranded(job: Ad, annexes: Sequence[Annex], now: datetime) -> tuple[str, Evidence] | None:
    """A job that HTCondor takes to be running on an EP it has lost: nobody told it that the pilot was killed.

    It then waits for the job's lease, 40 minutes by default, before it runs the job elsewhere. None when it has not
    lost the job.
    """
    found = _EP.search(text_of(job, "RemoteHost"))
    lost = count_of(job, "JobDisconnectedDate")
    if found is None or not lost:
        return None
    at, pilot = datetime.fromtimestamp(lost, UTC), found.group(1)
    annex = next((each for each in reversed(annexes) if pilot in each.state().job_ids), None)
    why = _why(annex, pilot, at, now) if annex is not None else f"batch job {pilot} is of no annex known here"
    lease = datetime.fromtimestamp(count_of(job, "LastJobLeaseRenewal") + count_of(job, "JobLeaseDuration"), UTC)
    until = f"it starts anew when its lease is over, {format_when(lease, now)}" if lease > now else "its lease is over"
    seen = Evidence("HTCondor", f"disconnected from {text_of(job, 'RemoteHost')} {format_when(at, now)}")
    return f"{why}; HTCondor waits for the EP to come back: {until}.", seen


def _why(annex: Annex, pilot: str, at: datetime, now: datetime) -> str:
    state, name = annex.state(), annex.name
    if state.down is not None and state.down <= at + timedelta(seconds=1):
        return f"you took {name} down {format_when(state.down, now)} (siteannex down)"
    if pilot in state.ends:
        return f"the pilot of {name} ended: {state.ends[pilot]}"
    if state.end_text:
        return f"{name} ended: {state.end_text}"
    walltime = timedelta(seconds=annex.plan.walltime_s - 2 * drain_notice_s(annex.plan))
    if state.ready_at is not None and at >= state.ready_at + walltime:
        return f"the walltime of {name} was over"
    return (
        f"not by siteannex, so the site stopped the pilot of {name} (preempted, cancelled or its node failed): "
        f"siteannex why {name} --remote says which"
    )
