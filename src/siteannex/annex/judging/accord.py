"""Whether the witnesses agree on one pilot; if not, who is silent, or who contradicts whom. Pure."""

from __future__ import annotations

from siteannex.annex.judging.seen import PilotSeen
from siteannex.annex.judging.verdict import Confidence
from siteannex.errors import Stage
from siteannex.model import BatchState, Deadlines
from siteannex.units import format_duration


def accord(seen: PilotSeen, limits: Deadlines) -> tuple[Confidence, str]:
    """How far the witnesses bear out what is said of this pilot, and the reason when they do not, in words."""
    if dispute := _dispute(seen, limits):
        return Confidence.DISPUTED, dispute
    silent = "; ".join(_silent(seen))
    return (Confidence.PARTIAL, silent) if silent else (Confidence.AGREED, "")


def _dispute(seen: PilotSeen, limits: Deadlines) -> str:
    job, last = seen.job, seen.last
    fresh = bool(seen.slots) and seen.unheard_s <= limits.unheard_s
    if seen.ghost:
        return "the collector still shows an EP of this job's earlier start; Slurm has started it anew and is believed"
    if job is None:
        if seen.slurm_asked and fresh:
            return f"Slurm shows no job {seen.job_id} and the collector hears its EP: the EP is believed"
        return ""
    where = f"Slurm says {job.state_text or job.state}" + (f" on {job.node}" if job.node else "")
    if job.state.ended and fresh:
        return f"{where}, and the collector still shows its EP: Slurm is believed, an ad outlives its EP"
    if job.state is not BatchState.RUNNING:
        return ""
    if last is not None and last.stage == Stage.RELEASED:
        return f"{where}, and its pilot says it has ended ({last.text}): Slurm follows in a moment"
    if seen.collector_asked and not fresh and seen.ever_ready:
        heard = f"for {format_duration(seen.unheard_s)}" if seen.slots else "any more"
        return f"{where}, and the collector has not heard its EP {heard}: the node or its network is gone, or the EP"
    return ""


def _silent(seen: PilotSeen) -> list[str]:
    job = seen.job
    if job is not None and job.state is not BatchState.RUNNING:
        return []  # of a job that waits or has ended nobody else has anything to say
    words = []
    if not seen.slurm_asked:
        words.append("Slurm gives no answer" if seen.reports_asked else "the site was not asked")
    if not seen.collector_asked:
        words.append("the collector does not answer")
    elif job is not None and seen.reports_asked and not seen.reports and not seen.slots:
        words.append("its pilot has reported nothing yet")
    return words
