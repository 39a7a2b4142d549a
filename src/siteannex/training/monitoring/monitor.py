"""What a person wants to know of a DAG that runs: by run and by epoch where it stands, how long, how much longer. Pure.

A `Monitor` keeps what it has told of each run and works out anew only those that new events touched, so that a look
costs what is new.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median

from siteannex.training.eventlog.text import Event
from siteannex.training.monitoring.fold import ENDED, Board, Job, State
from siteannex.training.monitoring.plan import Planned, planned_by_name

WAITING = "waiting"
"""Not submitted yet."""
_URGENCY = {
    State.RUNNING: 0,
    State.OUTPUT: 0,
    State.INPUT: 0,
    State.DISCONNECTED: 0,
    State.SUSPENDED: 0,
    State.HELD: 1,
    State.IDLE: 2,
    State.FAILED: 3,
    State.REMOVED: 4,
}


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One node: an epoch of a run, or a node of its own. Durations in seconds; None: not known."""

    node: str
    run: str
    epoch: int | None
    job_id: str
    state: str
    since: float | None
    target: str
    site: str
    host: str
    gpus: int
    gpu_model: str
    reason: str
    code: int | None
    attempts: int
    tries: int
    """Jobs that DAGMan submitted for it."""
    queue_s: float
    transfer_s: float
    execution_s: float
    evicted_s: float
    """Execution of attempts that did not complete."""
    submitted_at: float | None
    ended_at: float | None


@dataclass(frozen=True, slots=True)
class RunRow:
    """One training run: its counts and the node that matters now (`now` is the state's name if all is done)."""

    run: str
    epochs: int
    states: Mapping[str, int]
    current: NodeRow
    epoch_s: float | None
    """Median wall time of its completed epochs, from first submission to completion."""

    @property
    def completed(self) -> int:
        """How many epochs are done."""
        return self.states.get(State.COMPLETED, 0)


@dataclass(frozen=True, slots=True)
class Totals:
    """The whole DAG. Hours are GPU-hours but for `wall_s`."""

    runs: int
    nodes: int
    states: Mapping[str, int]
    good_hours: float
    lost_hours: float
    running_hours: float
    attempts: Mapping[str, int]
    wall_s: float
    eta_s: float | None


@dataclass(slots=True)
class Monitor:
    """A board, and what is told of it."""

    plan: Mapping[str, Planned] = field(default_factory=dict)
    board: Board = field(init=False)
    _of_run: dict[str, list[str]] = field(default_factory=dict)
    _rows: dict[str, RunRow] = field(default_factory=dict)
    _states: Counter[str] = field(default_factory=Counter)
    _stale: set[str] = field(default_factory=set)
    _epoch_s: dict[str, float] = field(default_factory=dict)
    worked_out: int = 0
    """Runs worked out so far: the cost of looks."""

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Forget every event."""
        self.board = Board(self.plan)
        self._of_run, self._rows, self._states, self._epoch_s = {}, {}, Counter(), {}
        for name, planned in self.plan.items():
            self._of_run.setdefault(planned.run, []).append(name)
        self._stale = set(self._of_run)

    def take(self, events: Iterable[Event]) -> None:
        """Fold new events in."""
        for name in self.board.take(events):
            run = self._planned(name).run
            if name not in self.plan and name not in (names := self._of_run.setdefault(run, [])):
                names.append(name)
            self._stale.add(run)

    def _planned(self, name: str) -> Planned:
        return self.plan.get(name) or planned_by_name(name)

    def runs(self) -> list[RunRow]:
        """Every run; in the order of the DAG, those it does not name behind."""
        for run in self._stale:
            before = self._rows.get(run)
            if before is not None:
                self._states.subtract(before.states)
            row = self._work_out(run)
            self._rows[run] = row
            self._states.update(row.states)
            if row.epoch_s is not None:
                self._epoch_s[run] = row.epoch_s
            self.worked_out += 1
        self._stale = set()
        return [self._rows[run] for run in self._of_run]

    def nodes_of(self, run: str) -> list[NodeRow]:
        """A run's nodes by epoch; empty when there is no such run."""
        rows = [self._node(name) for name in self._of_run.get(run, ())]
        return sorted(rows, key=lambda row: (row.epoch is None, row.epoch or 0))

    def _work_out(self, run: str) -> RunRow:
        rows = self.nodes_of(run)
        states = Counter(row.state for row in rows)
        spans = [
            row.ended_at - row.submitted_at
            for row in rows
            if row.state == State.COMPLETED and row.submitted_at is not None and row.ended_at is not None
        ]
        spans = [span for span in spans if span > 0]
        return RunRow(run, len(rows), states, _current(rows), median(spans) if spans else None)

    def _node(self, name: str) -> NodeRow:
        planned = self._planned(name)
        jobs = self.board.nodes.get(name, [])
        if not jobs:
            state = str(State.COMPLETED) if planned.done else WAITING
            return NodeRow(
                name, planned.run, planned.epoch, "", state, None, planned.site, "", "", 0, "",
                "done before this log" if planned.done else "", None, 0, 0, 0.0, 0.0, 0.0, 0.0, None, None,
            )  # fmt: skip
        job = jobs[-1]
        last = next((each.attempts[-1] for each in reversed(jobs) if each.attempts), None)
        state, reason = _after_post(job, self.board.post.get(name))
        now = self.board.last_at
        queue, transfer, good, bad = _parts(jobs, now)
        return NodeRow(
            node=name,
            run=planned.run,
            epoch=planned.epoch,
            job_id=job.job_id,
            state=state,
            since=job.since,
            target=planned.site,
            site=last.site if last else "",
            host=last.host if last else "",
            gpus=last.gpus if last else 0,
            gpu_model=last.model if last else "",
            reason=reason,
            code=job.code,
            attempts=sum(len(each.attempts) for each in jobs),
            tries=len(jobs),
            queue_s=queue,
            transfer_s=transfer,
            execution_s=good,
            evicted_s=bad,
            submitted_at=next((each.submitted_at for each in jobs if each.submitted_at is not None), None),
            ended_at=job.since if job.state in ENDED else None,
        )

    def epoch_s(self, run: str) -> float | None:
        """How long an epoch of this run takes: its own median, else that of all runs, None before any was done."""
        own = self._epoch_s.get(run)
        if own is not None or not self._epoch_s:
            return own
        return median(self._epoch_s.values())

    def eta_s(self, row: RunRow, now: float) -> float | None:
        """Seconds until a run is done if its epochs go on as they went; None: nothing was measured, or it is stuck."""
        left = row.epochs - row.completed
        if left == 0:
            return 0.0
        each = self.epoch_s(row.run)
        if each is None or row.current.state in (State.HELD, State.FAILED, State.REMOVED):
            return None
        begun = row.current.submitted_at
        spent = 0.0 if begun is None or row.current.state == WAITING else max(0.0, now - begun)
        return max(0.0, each - spent) + each * (left - 1)

    def totals(self, now: float) -> Totals:
        """The whole DAG."""
        rows = self.runs()
        board = self.board
        hours = dict.fromkeys((True, False), 0.0)
        for (_, _, outcome), some in board.closed_hours.items():
            hours[outcome == "completed"] += some
        alive = any(self._states[state] for state in State if state not in ENDED)
        left = [eta for row in rows if (eta := self.eta_s(row, now)) is not None] if alive else []
        return Totals(
            runs=len(rows),
            nodes=sum(row.epochs for row in rows),
            states={state: count for state, count in self._states.items() if count},
            good_hours=hours[True],
            lost_hours=hours[False],
            running_hours=sum(attempt.gpu_hours(now) for attempt in board.running.values()),
            attempts={
                **{name: count for name, count in board.outcomes.items() if count},
                "running": len(board.running),
            },
            wall_s=max(0.0, board.last_at - board.first_at),
            eta_s=max(left) if left else None,
        )


def _current(rows: list[NodeRow]) -> NodeRow:
    """The node that matters now: what is under way, else what went wrong, else the next, else the last done."""
    under_way = [row for row in rows if row.state in _URGENCY]
    if under_way:
        return min(under_way, key=lambda row: (_URGENCY[State(row.state)], -(row.epoch or 0)))
    waiting = next((row for row in rows if row.state == WAITING), None)
    return waiting or rows[-1]


def _after_post(job: Job, post: int | None) -> tuple[str, str]:
    """DAGMan goes by the POST script where a node has one."""
    if post is None or job.state not in ENDED:
        return str(job.state), job.reason
    if post == 0:
        return str(State.COMPLETED), job.reason
    return str(State.FAILED), f"its POST script returned {post}"


def _parts(jobs: list[Job], now: float) -> tuple[float, float, float, float]:
    """Seconds in the queue, transferring, executing in vain or not: of all attempts of a node."""
    queue = transfer = good = bad = 0.0
    for job in jobs:
        free = job.submitted_at
        for attempt in job.attempts:
            begun = attempt.transfer_at or attempt.started_at
            if begun is not None and free is not None:
                queue += max(0.0, begun - free)
            if attempt.transfer_at is not None and attempt.started_at is not None:
                transfer += max(0.0, attempt.started_at - attempt.transfer_at)
            spent = attempt.execution_s(now)
            if attempt.outcome in ("completed", "running"):
                good += spent
            else:
                bad += spent
            if attempt.output_at is not None:
                transfer += max(0.0, (attempt.ended_at or now) - attempt.output_at)
            free = attempt.ended_at
        if free is not None and job.state == State.IDLE:
            queue += max(0.0, now - free)
    return queue, transfer, good, bad
