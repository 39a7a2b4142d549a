"""A `Monitor` as text, JSON and CSV. Pure: the moment, the width and the number of rows are given."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from siteannex.training.eventlog.text import Damage
from siteannex.training.monitoring.fold import TRANSFER_QUEUED, State
from siteannex.training.monitoring.monitor import WAITING, Monitor, NodeRow, RunRow, Totals
from siteannex.units import format_duration

ORDER = (*(str(state) for state in State), WAITING)
SILENT_S = 3 * 86400.0
_BAR = 10
_FIRST = {State.HELD: 0, State.FAILED: 1, State.REMOVED: 1, State.IDLE: 3, WAITING: 4, State.COMPLETED: 5}
_UNDER_WAY = 2
RUN_HEADER = ("RUN", "EPOCHS DONE", "NOW", "JOB", "STATE", "FOR", "TARGET", "RUNS AT", "GPU", "LEFT")
NODE_HEADER = ("EPOCH", "JOB", "STATE", "RAN AT", "GPU", "QUEUE", "TRANSFER", "RUN", "LOST", "ATTEMPTS")


@dataclass(frozen=True, slots=True)
class LogHealth:
    """What was wrong with a log while it was read."""

    path: str
    damaged: int = 0
    damage: Sequence[Damage] = ()
    unknown: int = 0
    steps_back: int = 0
    notes: Sequence[str] = ()


def head_lines(totals: Totals, health: LogHealth, last_at: float, now: float) -> list[tuple[str, str]]:
    """(label, text): totals, then what the reader has to say of the log."""
    lines = [("epochs", f"{counted(totals.states)}; {totals.runs} runs, {totals.nodes} nodes")]
    lost = {name: count for name, count in totals.attempts.items() if name not in ("completed", "running") and count}
    why = f" ({', '.join(f'{count} {name}' for name, count in sorted(lost.items()))})" if lost else ""
    now_running = f", {totals.running_hours:.1f} running" if totals.attempts.get("running") else ""
    lines.append(
        (
            "gpu-h",
            f"{totals.good_hours:.1f} good, {totals.lost_hours:.1f} lost{why}{now_running}",
        )
    )
    eta = "" if totals.eta_s is None else f"; about {format_duration(totals.eta_s)} left at the pace measured"
    lines.append(("time", f"{format_duration(totals.wall_s)} since the first job{eta}"))
    ago = "" if not last_at else f": last event {format_duration(max(0.0, now - last_at))} ago"
    ago += "; all below is as of then" if silent(last_at, now) else ""
    lines.append(("log", f"{health.path}{ago}"))
    if health.damaged:
        worst = health.damage[0]
        more = f", and {health.damaged - 1} more" if health.damaged > 1 else ""
        lines.append(("damage", f"{worst.length} bytes at {worst.offset}: {worst.what}{more}; the rest was read"))
    if health.unknown:
        lines.append(("note", f"{health.unknown} events of a kind that this version does not know were passed over"))
    if health.steps_back:
        lines.append(("note", f"the clock went back {health.steps_back} times: durations across that are too short"))
    lines += [("note", note) for note in health.notes]
    return lines


def silent(last_at: float, now: float) -> bool:
    """Whether nothing was heard for so long that what ran then need not run now."""
    return 0.0 < last_at < now - SILENT_S


def counted(states: Mapping[str, int]) -> str:
    """`42 completed, 5 running`, in one order always."""
    return ", ".join(f"{states[state]} {state}" for state in ORDER if states.get(state)) or "none"


def run_cells(monitor: Monitor, rows: Iterable[RunRow], now: float) -> list[tuple[str, ...]]:
    """The table of runs."""
    return [_run_cells(monitor, row, now) for row in rows]


def _run_cells(monitor: Monitor, row: RunRow, now: float) -> tuple[str, ...]:
    node = row.current
    filled = _BAR * row.completed // row.epochs
    eta = monitor.eta_s(row, now)
    return (
        row.run,
        f"[{'#' * filled}{'-' * (_BAR - filled)}] {row.completed}/{row.epochs}",
        node.node if node.epoch is None else f"epoch {node.epoch}",
        node.job_id or "-",
        _state(node),
        "-" if node.since is None or node.state in _FINISHED else format_duration(now - node.since),
        node.target or "-",
        node.site or "-",
        _gpu(node),
        "-" if eta is None or row.completed == row.epochs else format_duration(eta),
    )


_FINISHED = (State.COMPLETED, WAITING)


def _state(node: NodeRow) -> str:
    if node.reason == TRANSFER_QUEUED:
        return f"{node.state} (queued)"
    return f"held ({node.code})" if node.state == State.HELD and node.code is not None else node.state


def _gpu(node: NodeRow) -> str:
    model = node.gpu_model.removeprefix("NVIDIA ").removeprefix("Tesla ")
    return f"{node.gpus} x {model}" if model else str(node.gpus or "-")


def urgent_first(rows: Sequence[RunRow]) -> list[RunRow]:
    """Held and failed runs, those that run, those that wait; within each as the DAG has them."""
    return sorted(rows, key=lambda row: _FIRST.get(row.current.state, _UNDER_WAY))


def trouble_lines(rows: Sequence[RunRow]) -> list[tuple[NodeRow, int]]:
    """Held, failed and removed nodes that matter now, one for each reason, and how many runs share it."""
    groups: dict[tuple[str, str], list[NodeRow]] = {}
    for row in rows:
        node = row.current
        if node.state in (State.HELD, State.FAILED, State.REMOVED):
            groups.setdefault((node.state, node.reason.partition("\n")[0][:60]), []).append(node)
    return [(nodes[0], len(nodes)) for nodes in groups.values()]


def node_cells(rows: Iterable[NodeRow]) -> list[tuple[str, ...]]:
    """The table of one run."""
    return [
        (
            node.node if node.epoch is None else str(node.epoch),
            node.job_id or "-",
            _state(node),
            node.site or node.target or "-",
            _gpu(node),
            *(_span(each) for each in (node.queue_s, node.transfer_s, node.execution_s, node.evicted_s)),
            f"{node.attempts}" + (f" in {node.tries} jobs" if node.tries > 1 else ""),
        )
        for node in rows
    ]


def _span(seconds: float) -> str:
    return format_duration(seconds) if seconds else "-"


def as_data(monitor: Monitor, health: LogHealth, now: float) -> dict[str, Any]:
    """All that the screen has, and every node and attempt. Times are Unix seconds."""
    runs = monitor.runs()
    board = monitor.board
    hours: list[dict[str, Any]] = [
        {"site": site, "gpu_model": model, "outcome": outcome, "gpu_hours": round(some, 4)}
        for (site, model, outcome), some in sorted(board.closed_hours.items())
    ]
    return {
        "log": {**asdict(health), "damage": [each._asdict() for each in health.damage], "last_event": board.last_at},
        "totals": asdict(monitor.totals(now)),
        "gpu_hours": hours,
        "runs": [
            {
                "run": row.run,
                "epochs": row.epochs,
                "completed": row.completed,
                "states": dict(row.states),
                "now": row.current.node,
                "epoch_s": row.epoch_s,
                "eta_s": monitor.eta_s(row, now),
                "nodes": [asdict(node) for node in monitor.nodes_of(row.run)],
            }
            for row in runs
        ],
        "attempts": [asdict(attempt) for job in board.jobs.values() for attempt in job.attempts],
    }


def as_csv(monitor: Monitor) -> str:
    """One line a node."""
    out = io.StringIO()
    names = list(NodeRow.__dataclass_fields__)
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    for row in monitor.runs():
        for node in monitor.nodes_of(row.run):
            writer.writerow(["" if (value := getattr(node, name)) is None else value for name in names])
    return out.getvalue()
