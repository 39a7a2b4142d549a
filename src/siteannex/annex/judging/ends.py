"""How one pilot ended, in words and as a failure where its EP never was up. Pure.

An end has many fathers: the idle limit, the walltime, `down`, preemption, somebody's scancel, a dead node. Our events,
the pilot's last line and Slurm's state each know some of them.
"""

from __future__ import annotations

from siteannex.annex.events import AnnexState
from siteannex.annex.judging.seen import PilotSeen
from siteannex.annex.judging.verdict import PilotVerdict
from siteannex.errors import Evidence, Stage
from siteannex.failures import failure
from siteannex.model import BatchJob, BatchState
from siteannex.units import seconds_between

_ENDINGS = {
    BatchState.CANCELLED: "batch-job-cancelled",
    BatchState.TIMEOUT: "batch-job-timeout",
    BatchState.NODE_FAIL: "batch-job-node-failed",
    BatchState.OUT_OF_MEMORY: "batch-job-out-of-memory",
    BatchState.PREEMPTED: "batch-job-preempted",
}
_CAUSES = {
    BatchState.PREEMPTED: "preempted: Slurm gave its node to other jobs",
    BatchState.TIMEOUT: "walltime",
    BatchState.NODE_FAIL: "its node failed",
    BatchState.OUT_OF_MEMORY: "out of memory",
}
_AT_ONCE_S = 2.0


def released(seen: PilotSeen, state: AnnexState, site: str) -> PilotVerdict:
    """The pilot says it is over. While Slurm still holds its allocation it is not."""
    last, job = seen.last, seen.job
    assert last is not None
    text = cause(seen, state)
    if job is not None and job.state.living:
        return PilotVerdict(seen.job_id, Stage.DRAIN, f"ending: {text}", None, job)
    if seen.ever_ready:
        return PilotVerdict(seen.job_id, Stage.RELEASED, text, None, job)
    summary = f"the pilot ended before its EP was ready: {text}"
    evidence = [Evidence(f"pilot {seen.job_id} on {last.node}, {last.at.isoformat()}", last.text or "ended")]
    if job is not None:
        evidence.append(_slurm(job))
    code = _code(job) if job is not None and job.state in _ENDINGS else "batch-job-cancelled"
    what = failure(code, site, summary, evidence=evidence)
    return PilotVerdict(seen.job_id, what.stage, summary, what, job)


def ended(seen: PilotSeen, state: AnnexState, site: str) -> PilotVerdict:
    """Slurm says it is over, and the pilot said no word of it."""
    job = seen.job
    assert job is not None
    if seen.ever_ready or job.state is BatchState.COMPLETED:
        text = f"batch job {job.job_id} ended: {cause(seen, state)} ({words(job)})"
        return PilotVerdict(job.job_id, Stage.RELEASED, text, None, job)
    code = _code(job)
    evidence = [_slurm(job)]
    if (last := seen.last) is not None:
        evidence.append(Evidence(f"pilot {job.job_id}, its last line", f"{last.stage} {last.code} {last.text}"))
    what = failure(
        code,
        site,
        _SUMMARIES.get(code, "batch job {id} ended before its EP was up").format(
            id=job.job_id, who=job.cancelled_by, node=job.node or "its node"
        ),
        evidence=evidence,
    )
    return PilotVerdict(job.job_id, what.stage, what.summary, what, job)


_SUMMARIES = {
    "batch-job-cancelled-by-other": "batch job {id} was cancelled by {who} before its EP was up",
    "batch-job-launch-failed": "Slurm could not launch batch job {id} on {node}",
    "batch-job-node-failed": "{node} failed under batch job {id} before its EP was up",
    "batch-job-preempted": "batch job {id} was preempted before its EP was up",
}


def cause(seen: PilotSeen, state: AnnexState) -> str:
    """Why it ended, in a few words: ours first, then what Slurm did to it, then what the pilot says of itself."""
    if state.down is not None:
        return "taken down"
    job, said = seen.job, seen.last.text if seen.last is not None and seen.last.stage == Stage.RELEASED else ""
    if job is not None and job.state in _CAUSES:
        return _CAUSES[job.state]
    if job is not None and job.state is BatchState.CANCELLED:
        return f"cancelled at the site by {job.cancelled_by}" if job.cancelled_by else "cancelled at the site"
    return said or "it ended"


def words(job: BatchJob) -> str:
    """Slurm's words of an end: `CANCELLED by 1234, exit 0:15, node c1`."""
    return f"{job.state_text or job.state}, exit {job.exit_code or 'unknown'}, node {job.node or 'none'}"


def _slurm(job: BatchJob) -> Evidence:
    who = f", that is {job.cancelled_by}" if job.cancelled_by else ""
    reason = f", reason {job.reason}" if job.reason else ""
    return Evidence(f"Slurm, job {job.job_id}", f"{words(job)}{who}{reason}")


def _code(job: BatchJob) -> str:
    if _launch_failed(job):
        return "batch-job-launch-failed"
    if job.state is BatchState.CANCELLED and job.cancelled_by not in ("", "you"):
        return "batch-job-cancelled-by-other"
    return _ENDINGS.get(job.state, "batch-job-failed")


def _launch_failed(job: BatchJob) -> bool:
    """Slurm has a state and a reason for it; a job that may not be requeued it cancels as root in the same second
    (seen with 24.11: spool directory of the node read-only)."""
    if job.state_text.startswith("LAUNCH_FAILED") or job.reason.startswith("JobLaunchFailure"):
        return True
    at_once = job.start is not None and job.end is not None and seconds_between(job.start, job.end) < _AT_ONCE_S
    return job.state is BatchState.CANCELLED and job.cancelled_by.startswith("root") and bool(job.node) and at_once
