"""What the witnesses say of one pilot, each statement given to the start of the batch job that it is about. Pure.

Slurm may start a job again under its id (preempted, its node failed, requeued by hand). The progress file and the
collector then still hold what the earlier start said: that is not news of this one.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from siteannex.annex.events import AnnexState
from siteannex.errors import Stage
from siteannex.failures import FAILURES
from siteannex.model import BatchJob, BatchState, PilotReport, Slot, Witnesses
from siteannex.units import seconds_between

_CLOCKS_S = 120.0
"""How far the clocks of a site's nodes may be apart; a report earlier than its job's start by more is not its own."""
_STAMP_S = 5.0
"""The same between two stamps of one clock: they carry whole seconds, and an ad is stamped when it arrives."""


@dataclass(frozen=True, slots=True)
class PilotSeen:
    """One pilot as the witnesses have it, and which of them could speak."""

    job_id: str
    job: BatchJob | None
    """None: not asked, or Slurm knows no such job."""
    reports: tuple[PilotReport, ...]
    """Of the present start, in order."""
    slots: tuple[Slot, ...]
    """Of the present start; never a failed pilot's ad."""
    failed_ad: Slot | None
    restarted: bool
    """An earlier start of the same job has left reports or ads."""
    ghost: bool
    """The collector still shows an ad of that earlier start."""
    known_ready: bool
    """Our events have seen its EP ready."""
    unheard_s: float
    """Since the newest ad's last update; 0 without one."""
    slurm_asked: bool
    reports_asked: bool
    collector_asked: bool
    complaint: str = ""
    """What Slurm said instead of an answer."""

    @property
    def last(self) -> PilotReport | None:
        """The pilot's last report."""
        return self.reports[-1] if self.reports else None

    @property
    def said_ready(self) -> bool:
        """True when it reported READY."""
        return any(report.stage == Stage.READY for report in self.reports)

    @property
    def ever_ready(self) -> bool:
        """True when its EP was right at some time of this start."""
        return self.known_ready or self.said_ready

    @property
    def bad(self) -> PilotReport | None:
        """The first failure it reported."""
        return next((report for report in self.reports if report.code != "ok" and report.code in FAILURES), None)


def see(job_id: str, state: AnnexState, witnesses: Witnesses, now: datetime) -> PilotSeen:
    """Put together what concerns one batch job. `now` is the AP's clock, `witnesses.site_now` the site's."""
    job = next((each for each in witnesses.batch or () if each.job_id == job_id), None)
    said = tuple(report for report in witnesses.reports or () if report.job_id == job_id)
    shown = tuple(slot for slot in witnesses.slots or () if slot.batch_job_id == job_id)
    reports = () if _is_past(latest := _latest_start(said), job) else latest
    ads = tuple(slot for slot in shown if not _is_ghost(slot, job, (witnesses.site_now or now) - now))
    slots = tuple(slot for slot in ads if not slot.failed_code)
    heard = [slot.last_heard for slot in slots if slot.last_heard is not None]
    waits_again = job is not None and job.state is BatchState.PENDING and job_id in state.ready_ids
    restarted = waits_again or len(ads) < len(shown) or len(reports) < len(said)
    return PilotSeen(
        job_id=job_id,
        job=job,
        reports=reports,
        slots=slots,
        failed_ad=next((ad for ad in ads if ad.failed_code in FAILURES), None),
        restarted=restarted,
        ghost=len(ads) < len(shown),
        known_ready=job_id in state.ready_ids and not waits_again,
        unheard_s=seconds_between(max(heard), now) if heard else 0.0,
        slurm_asked=witnesses.batch is not None,
        reports_asked=witnesses.reports is not None,
        collector_asked=witnesses.slots is not None,
        complaint=witnesses.complaint,
    )


def _latest_start(reports: tuple[PilotReport, ...]) -> tuple[PilotReport, ...]:
    """Every start of a pilot begins with its BATCH_JOB line."""
    begun = [at for at, report in enumerate(reports) if report.stage == Stage.BATCH_JOB and report.code == "ok"]
    return reports[begun[-1] :] if begun else reports


def _is_past(reports: tuple[PilotReport, ...], job: BatchJob | None) -> bool:
    """True when a job that waits or runs now has not said any of this: it was an earlier start."""
    if not reports or job is None or job.state.ended:
        return False
    if job.state is BatchState.PENDING:
        return True
    if job.start is None:
        return False
    last = reports[-1]
    certain = last.stage == Stage.RELEASED or (bool(job.node) and _short(last.node) != _short(job.node))
    return last.at < job.start - timedelta(seconds=0 if certain else _CLOCKS_S)


def _is_ghost(ad: Slot, job: BatchJob | None, ahead: timedelta) -> bool:
    """An ad outlives its EP for a quarter of an hour. `ahead`: the site's clock less the AP's."""
    if job is None or job.state.ended:
        return False
    if job.state is BatchState.PENDING:
        return True
    if job.start is None or ad.last_heard is None:
        return False
    return ad.last_heard + ahead < job.start - timedelta(seconds=_STAMP_S)


def _short(host: str) -> str:
    return host.partition(".")[0]
