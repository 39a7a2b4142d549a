"""From the events of a log to where every job, attempt and node stands. A fold: no clock, no files.

Words: an **attempt** is one execution of a job, from its event 001 to the event that ends it. It is *completed* (005,
return value 0), *failed* (005, anything else), *aborted* (009, or 004 and 009 together), *held* (012, or 004 and 012
together), *evicted* (004, 007 or 024 alone), or *unknown* (the log has another start and no end). GPU-hours are
execution time x GPUs; **good** ones are those of completed attempts, **lost** those of the others. A log does not say
how much of an evicted attempt a checkpoint saved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from siteannex.training.eventlog.details import End, end_of, hold_of, node_of, reason_of, start_of, transfer_of
from siteannex.training.eventlog.text import Event, Kind
from siteannex.training.monitoring.plan import Planned

_TOGETHER_S = 60.0
"""HTCondor writes what ends an attempt as several events (004, then 009 or 012) within a minute."""
TRANSFER_QUEUED = "waits in the access point's transfer queue"
"""The reason of a job that is to transfer files and is not let yet."""
_SIZES = Kind.IMAGE_SIZE


class State(StrEnum):
    """Where a job is."""

    IDLE = "idle"
    INPUT = "transferring in"
    RUNNING = "running"
    OUTPUT = "transferring out"
    SUSPENDED = "suspended"
    DISCONNECTED = "disconnected"
    HELD = "held"
    COMPLETED = "completed"
    FAILED = "failed"
    REMOVED = "removed"


ENDED = frozenset([State.COMPLETED, State.FAILED, State.REMOVED])


@dataclass(slots=True)
class Attempt:
    """One execution. Times are Unix seconds; `started_at` is None when the log lost its start."""

    job_id: str
    node: str
    site: str
    """Where it really ran, as the EP said; else the host's domain, else its name. Never the targeted site."""
    host: str
    gpus: int
    model: str
    started_at: float | None
    transfer_at: float | None = None
    output_at: float | None = None
    ended_at: float | None = None
    outcome: str = "running"
    reason: str = ""
    code: int | None = None
    subcode: int | None = None
    sent_bytes: int = 0
    received_bytes: int = 0
    slot: str = ""
    annex: str = ""
    batch_job: str = ""
    told_s: float = 0.0
    """HTCondor's own TimeExecute, for an attempt whose start is lost."""

    def execution_s(self, now: float) -> float:
        """Seconds from start to end, or until now; a clock that was set back makes none of them negative."""
        if self.started_at is None:
            return self.told_s
        return max(0.0, (now if self.ended_at is None else self.ended_at) - self.started_at)

    def gpu_hours(self, now: float) -> float:
        """Execution time x GPUs."""
        return self.execution_s(now) * self.gpus / 3600


@dataclass(slots=True)
class Job:
    """One HTCondor job and its attempts."""

    job_id: str
    node: str
    submitted_at: float | None
    state: State = State.IDLE
    since: float = 0.0
    seen_at: float = 0.0
    """The last event."""
    reason: str = ""
    code: int | None = None
    transfer_at: float | None = None
    attempts: list[Attempt] = field(default_factory=list)
    never_started: int = 0
    """Transfers of input after which no execution began."""

    @property
    def open(self) -> Attempt | None:
        """The attempt that runs."""
        return self.attempts[-1] if self.attempts and self.attempts[-1].outcome == "running" else None


@dataclass(slots=True)
class Board:
    """All that a log has said so far."""

    plan: Mapping[str, Planned] = field(default_factory=dict)
    jobs: dict[tuple[int, int], Job] = field(default_factory=dict)
    nodes: dict[str, list[Job]] = field(default_factory=dict)
    """By DAG node (or `job 12.0` where the log names none) its jobs, the last try last."""
    post: dict[str, int] = field(default_factory=dict)
    """By node what its POST script returned."""
    outcomes: Counter[str] = field(default_factory=Counter)
    closed_hours: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """By (site, GPU model, outcome) the GPU-hours of ended attempts."""
    running: dict[str, Attempt] = field(default_factory=dict)
    first_at: float = 0.0
    last_at: float = 0.0
    stray: int = 0
    """Events of a job that had ended, or said twice."""

    def take(self, events: Iterable[Event]) -> set[str]:
        """Fold events in; the nodes they touched."""
        touched: set[str] = set()
        for event in events:
            job = self.jobs.get((event.cluster, event.proc))
            if event.number == _SIZES:
                if job is not None:
                    job.seen_at = event.at
                continue
            act = _ACTS.get(event.number)
            if act is None:
                continue
            self.last_at = event.at
            self.first_at = self.first_at or event.at
            if job is None:
                job = self._new(event)
            elif event.number == Kind.SUBMIT:
                self.stray += 1
                continue
            if job.state in ENDED and event.number != Kind.POST_SCRIPT_TERMINATED:
                self.stray += 1
                continue
            act(self, job, event)
            job.seen_at = event.at
            touched.add(job.node)
        return touched

    def _new(self, event: Event) -> Job:
        """A job is known from its first event, even if the log has lost its submission."""
        job_id = f"{event.cluster}.{event.proc}"
        node = node_of(event) or f"job {job_id}"
        job = Job(job_id, node, event.at if event.number == Kind.SUBMIT else None, since=event.at)
        self.jobs[event.cluster, event.proc] = job
        self.nodes.setdefault(node, []).append(job)
        return job

    def start(self, job: Job, event: Event) -> None:
        """An execution begins."""
        told = start_of(event)
        if (open_ := job.open) is not None:
            if (open_.host, open_.started_at) == (told.host, event.at):
                self.stray += 1
                return
            self.close(job, job.seen_at, "unknown")
        site = told.site or told.host.partition(".")[2] or told.host or told.slot
        attempt = Attempt(job.job_id, job.node, site, told.host, told.gpus, told.model, event.at, job.transfer_at)
        attempt.slot, attempt.annex, attempt.batch_job = told.slot, told.annex, told.batch_job
        job.attempts.append(attempt)
        job.transfer_at = None
        self.running[job.job_id] = attempt
        self.move(job, State.RUNNING, event.at)

    def close(self, job: Job, at: float, outcome: str, end: End | None = None, reason: str = "") -> Attempt | None:
        """An execution ends, or what ended a minute ago is told more exactly."""
        attempt = job.open
        if attempt is None:
            last = job.attempts[-1] if job.attempts else None
            recent = last is not None and last.ended_at is not None and abs(at - last.ended_at) <= _TOGETHER_S
            if last is None or not recent or last.outcome != "evicted" or job.transfer_at is not None:
                return None
            self._count(last, -1)
            attempt = last
        else:
            attempt.ended_at = at
            self.running.pop(job.job_id, None)
        attempt.outcome = outcome
        _fill(attempt, end, reason)
        self._count(attempt, 1)
        return attempt

    def _count(self, attempt: Attempt, sign: int) -> None:
        self.outcomes[attempt.outcome] += sign
        hours = sign * attempt.gpu_hours(attempt.ended_at or 0.0)
        self.closed_hours[attempt.site, attempt.model, attempt.outcome] += hours  # type: ignore[assignment]

    def lost_start(self, job: Job, event: Event, end: End, outcome: str) -> None:
        """An end whose start the log has lost: HTCondor's table still says how long it ran and on what."""
        busy, gpus = end.usage.get("TimeExecute (s)"), end.usage.get("GPUs")
        count = int(gpus.allocated) if gpus and gpus.allocated.isdecimal() else 0
        attempt = Attempt(job.job_id, job.node, "", "", count, "", None)
        attempt.told_s = float(busy.usage) if busy and busy.usage.isdecimal() else 0.0
        attempt.ended_at, attempt.outcome = event.at, outcome
        _fill(attempt, end, "")
        job.attempts.append(attempt)
        self._count(attempt, 1)

    def move(self, job: Job, state: State, at: float, reason: str = "", code: int | None = None) -> None:
        """A job changes its state; one that stays where it is keeps its time."""
        if job.state != state:
            job.since = at
        job.state, job.reason, job.code = state, reason, code


def _fill(attempt: Attempt, end: End | None, reason: str) -> None:
    if end is not None:
        attempt.code = attempt.code if end.code is None else end.code
        attempt.subcode = attempt.subcode if end.subcode is None else end.subcode
        attempt.sent_bytes, attempt.received_bytes = end.sent_bytes, end.received_bytes
        reason = reason or end.reason
    attempt.reason = reason or attempt.reason


def _submitted(_: Board, job: Job, event: Event) -> None:
    job.submitted_at = event.at


def _started(board: Board, job: Job, event: Event) -> None:
    board.start(job, event)


def _evicted(board: Board, job: Job, event: Event) -> None:
    end = end_of(event)
    if board.close(job, event.at, "evicted", end) is None and job.transfer_at is not None:
        job.never_started += 1
    job.transfer_at = None
    board.move(job, State.IDLE, event.at, end.reason, end.code)


def _lost(board: Board, job: Job, event: Event) -> None:
    reason = reason_of(event)
    if board.close(job, event.at, "evicted", reason=reason) is None and job.transfer_at is not None:
        job.never_started += 1
    job.transfer_at = None
    board.move(job, State.IDLE, event.at, reason.partition("\n")[0])


def _terminated(board: Board, job: Job, event: Event) -> None:
    end = end_of(event)
    unsaid = end.value is None and end.signal is None
    outcome = "completed" if end.value == 0 else "unknown" if unsaid else "failed"
    if board.close(job, event.at, outcome, end) is None:
        board.lost_start(job, event, end, outcome)
    how = "how it ended is not in the log" if unsaid else f"return value {end.value}"
    how = f"signal {end.signal}" if end.signal is not None else how
    if job.attempts[-1].outcome == "failed":
        job.attempts[-1].reason = job.attempts[-1].reason or how
    done = outcome == "completed"
    board.move(job, State.COMPLETED if done else State.FAILED, event.at, "" if done else how)


def _aborted(board: Board, job: Job, event: Event) -> None:
    reason = reason_of(event)
    board.close(job, event.at, "aborted", reason=reason)
    board.move(job, State.REMOVED, event.at, reason)


def _held(board: Board, job: Job, event: Event) -> None:
    hold = hold_of(event)
    attempt = board.close(job, event.at, "held", reason=hold.reason)
    if attempt is not None:
        attempt.code, attempt.subcode = hold.code, hold.subcode
    elif job.transfer_at is not None:
        job.never_started += 1
    job.transfer_at = None
    board.move(job, State.HELD, event.at, hold.reason, hold.code)


def _released(board: Board, job: Job, event: Event) -> None:
    board.move(job, State.IDLE, event.at)


def _transfer(board: Board, job: Job, event: Event) -> None:
    what, attempt = transfer_of(event), job.open
    waits = TRANSFER_QUEUED if what.endswith("queued") else ""
    if what in ("input queued", "input") and attempt is None:
        job.transfer_at = job.transfer_at or event.at
        board.move(job, State.INPUT, event.at, waits)
    elif what.startswith("output") and attempt is not None:
        attempt.output_at = attempt.output_at or event.at
        board.move(job, State.OUTPUT, event.at, waits)


def _to(state: State) -> Callable[[Board, Job, Event], None]:
    def act(board: Board, job: Job, event: Event) -> None:
        board.move(job, state, event.at, reason_of(event) if state == State.DISCONNECTED else "")

    return act


def _skipped(board: Board, job: Job, event: Event) -> None:
    board.move(job, State.COMPLETED, event.at, "skipped")


def _post(board: Board, job: Job, event: Event) -> None:
    value = end_of(event).value
    board.post[node_of(event) or job.node] = 1 if value is None else value


_ACTS: Mapping[int, Callable[[Board, Job, Event], None]] = {
    Kind.SUBMIT: _submitted,
    Kind.EXECUTE: _started,
    Kind.JOB_EVICTED: _evicted,
    Kind.JOB_TERMINATED: _terminated,
    Kind.SHADOW_EXCEPTION: _lost,
    Kind.JOB_RECONNECT_FAILED: _lost,
    Kind.JOB_ABORTED: _aborted,
    Kind.JOB_SUSPENDED: _to(State.SUSPENDED),
    Kind.JOB_UNSUSPENDED: _to(State.RUNNING),
    Kind.JOB_HELD: _held,
    Kind.JOB_RELEASED: _released,
    Kind.JOB_DISCONNECTED: _to(State.DISCONNECTED),
    Kind.JOB_RECONNECTED: _to(State.RUNNING),
    Kind.FILE_TRANSFER: _transfer,
    Kind.POST_SCRIPT_TERMINATED: _post,
    Kind.DATAFLOW_JOB_SKIPPED: _skipped,
}
