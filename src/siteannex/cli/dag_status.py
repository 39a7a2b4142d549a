"""`siteannex dag status`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from datetime import tzinfo

    from siteannex.training.eventlog.reader import EventLog
    from siteannex.training.monitoring.monitor import Monitor, NodeRow, RunRow
    from siteannex.training.monitoring.plan import Planned
    from siteannex.training.monitoring.text import LogHealth

EXAMPLES = """\b
Examples:
  siteannex dag status --watch
  siteannex dag status --log experiment.dag.nodes.log --run r03
"""
REFRESH_S = 5.0
MOST_ASKED = 3
"""Idle jobs that the access point is asked about."""
_HEAD_ROWS = 14
_REASON = 240


def status(
    where: Annotated[
        Path | None, typer.Argument(help="A directory with a DAG, or the DAG; default: the one submitted last.")
    ] = None,
    log: Annotated[Path | None, typer.Option("--log", help="Read this event log alone.")] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Keep it on the screen until Ctrl-C.")] = False,
    run: Annotated[str | None, typer.Option("--run", help="Every epoch of one run.")] = None,
    zone: Annotated[
        str | None, typer.Option("--timezone", help="Of the log's times, as America/Chicago; default: this machine's.")
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print as JSON: every run, node and attempt.")] = False,
    csv_output: Annotated[bool, typer.Option("--csv", help="Print as CSV, one line a node.")] = False,
) -> None:
    """Show how a DAG's runs stand: epochs, sites, GPUs, what is held or idle and why, GPU-hours, time left."""
    from siteannex.training.monitoring.monitor import Monitor

    if sum([watch, json_output, csv_output]) > 1:
        raise typer.BadParameter("choose one of --watch, --json and --csv")
    dag, found = (None, log) if log is not None else _found(where)
    if not found.exists() and dag is None:
        raise typer.BadParameter(f"there is no file {found}", param_hint="--log")
    monitor = Monitor(_plan(dag) if dag is not None else {})
    beside = _dagmans(dag) if dag is not None and _dagmans(dag) != found else None
    with _opened(found, _zone(zone)) as reading, _opened(beside or found, _zone(zone)) as scripts:
        view = _View(monitor, reading, run, ask=log is None, scripts=scripts if beside else None)
        view.refresh()
        if run is not None and not monitor.nodes_of(run):
            raise typer.BadParameter(f"no run is called {run}; there are {_some(monitor.runs())}", param_hint="--run")
        if json_output:
            _print_json(view)
        elif csv_output:
            from siteannex.training.monitoring.text import as_csv

            print(as_csv(monitor), end="")
        elif watch and sys.stdout.isatty():
            _watch(view)
        else:
            for line in view.lines(height=None):
                print(line)


def _zone(name: str | None) -> tzinfo:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    from siteannex.training.eventlog.reader import machine_zone

    if name is None:
        return machine_zone()
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError) as problem:
        raise typer.BadParameter(f"{name} is no time zone; write one like America/Chicago or UTC") from problem


def _opened(path: Path, zone: tzinfo) -> EventLog:
    from siteannex.training.eventlog.reader import EventLog

    return EventLog(path, zone)


def _some(rows: Sequence[RunRow]) -> str:
    names = [row.run for row in rows]
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _found(where: Path | None) -> tuple[Path, Path]:
    """The DAG and its log: of what was submitted last, of a directory, or of a DAG file."""
    if where is None:
        where = _submitted_last() or Path()
    if where.is_dir():
        dags = sorted(where.glob("*.dag.nodes.log"), key=lambda path: path.stat().st_mtime)
        if not dags:
            raise typer.BadParameter(
                f"no DAG has run in {where.resolve()} (no *.dag.nodes.log); give its directory, the .dag or --log FILE"
            )
        where = Path(str(dags[-1]).removesuffix(".nodes.log"))
    if not where.is_file():
        raise typer.BadParameter(f"there is no DAG {where}")
    from siteannex.training.provenance.ap_collect import job_log

    return where, job_log(where.with_suffix("")) or _dagmans(where)


def _dagmans(dag: Path) -> Path:
    """DAGMan's own log of its nodes: without transfers, but with what POST scripts returned."""
    return dag.with_name(f"{dag.name}.nodes.log")


def _submitted_last() -> Path | None:
    from siteannex.cli.screen import WallClock
    from siteannex.training.experiment.submission import Records
    from siteannex.transport.places import Places

    records = Records(Places.from_environment().state, WallClock())
    known = [(each.cluster or 0, Path(each.dag)) for each in records.all() if Path(each.dag).is_file()]
    return max(known)[1] if known else None


def _plan(dag: Path) -> dict[str, Planned]:
    """From the manifest beside the DAG, else from the DAG; and what the newest rescue file says is done."""
    from siteannex.training.dag.dagfile import load_text
    from siteannex.training.dag.daggraph import read_graph
    from siteannex.training.monitoring.plan import plan_of_graph, plan_of_manifest, with_done

    manifest = dag.with_suffix(".manifest.jsonl")
    plan = plan_of_manifest(load_text(manifest)) if manifest.is_file() else {}
    plan = plan or plan_of_graph(read_graph(load_text(dag)))
    rescues = sorted(dag.parent.glob(f"{dag.name}.rescue[0-9][0-9][0-9]"))
    if not rescues:
        return plan
    return with_done(plan, read_graph(load_text(rescues[-1]), known=frozenset(plan)).done)


class _View:
    """One screenful, and what it costs to make the next one."""

    def __init__(
        self, monitor: Monitor, log: EventLog, run: str | None, *, ask: bool, scripts: EventLog | None = None
    ) -> None:
        """`scripts`: DAGMan's own log, where `log` is the jobs', which has no POST scripts."""
        self.monitor, self._log, self._run, self._ask, self._scripts = monitor, log, run, ask, scripts
        self._answers: dict[str, str] = {}

    def refresh(self) -> None:
        """Read what is new."""
        from siteannex.training.eventlog.text import Kind

        for batch in self._log.read():
            if batch.anew:
                self.monitor.begin()
            self.monitor.take(batch.events)
        for batch in self._scripts.read() if self._scripts else ():
            self.monitor.take(event for event in batch.events if event.number == Kind.POST_SCRIPT_TERMINATED)

    def moment(self) -> float:
        """Now; or the log's last event, when it has been silent too long to say what runs."""
        import time

        from siteannex.training.monitoring.text import silent

        last = self.monitor.board.last_at
        return last if silent(last, time.time()) else time.time()

    def health(self) -> LogHealth:
        """What was wrong with the log."""
        from siteannex.training.monitoring.text import LogHealth

        log = self._log
        return LogHealth(str(log.path), log.damaged, log.damage, log.unknown, log.steps_back, log.notes)

    def lines(self, height: int | None) -> list[str]:
        """The screen; no more lines than `height`."""
        import time

        from siteannex.cli.screen import LABEL_WIDTH, printable
        from siteannex.cli.tables import table
        from siteannex.training.monitoring import text

        monitor, last = self.monitor, self.monitor.board.last_at
        now = self.moment()
        head = text.head_lines(monitor.totals(now), self.health(), last, time.time())
        if self._run is not None:
            shown = table(text.NODE_HEADER, text.node_cells(monitor.nodes_of(self._run))).splitlines()
            notes = _run_notes(monitor.nodes_of(self._run))
        else:
            rows = text.urgent_first(monitor.runs())
            most = len(rows) if height is None else max(1, height - _HEAD_ROWS - 1)
            shown = table(text.RUN_HEADER, text.run_cells(monitor, rows[:most], now)).splitlines()
            if len(rows) > most:
                shown.append(f"and {len(rows) - most} runs more: --run NAME, --csv or --json show any")
            notes = [*self._trouble(rows), *self._idle(rows), *(self._annexes() if self._ask else [])]
        told = [f"{label:<{LABEL_WIDTH}}{printable(each)}" for label, each in [*head, *notes]]
        return [*told, "", *shown]

    def _trouble(self, rows: Sequence[RunRow]) -> list[tuple[str, str]]:
        import textwrap

        from siteannex.pool.hold_codes import hold_meaning
        from siteannex.training.monitoring.text import trouble_lines

        lines = []
        for node, count in trouble_lines(rows)[:4]:
            also = f" (and {count - 1} runs more)" if count > 1 else ""
            first = textwrap.shorten(
                node.reason.partition("\n")[0] or "no reason in the log", _REASON, placeholder=" ..."
            )
            lines.append((node.state.split()[0], f"{node.node}, job {node.job_id}{also}: {first}"))
            if node.code is not None:
                known = hold_meaning(node.code, 0)
                lines.append(("do", f"{known.meaning}. {known.todo.replace('JOB', node.job_id)}".strip()))
        return lines

    def _idle(self, rows: Sequence[RunRow]) -> list[tuple[str, str]]:
        """Why the longest idle jobs wait, as `siteannex why` says it; each is asked about once."""
        from siteannex.training.monitoring.fold import State

        idle = [row.current for row in rows if row.current.state == State.IDLE and row.current.job_id]
        if not idle or not self._ask:
            return []
        idle.sort(key=lambda node: node.since or 0.0)
        told: dict[str, list[str]] = {}
        for node in idle[:MOST_ASKED]:
            if node.job_id not in self._answers:
                self._answers[node.job_id] = _why(node.job_id)
            told.setdefault(self._answers[node.job_id].partition(": ")[2], []).append(node.job_id)
        lines = [("idle", f"{', '.join(jobs)}: {why}") for why, jobs in told.items() if why]
        return [*lines, ("do", f"siteannex why {idle[0].job_id}")]

    def _annexes(self) -> list[tuple[str, str]]:
        """The annexes that live, a line each."""
        from siteannex.annex.status import table as cells_of
        from siteannex.annex.status import take_status
        from siteannex.cli.screen import make_screen
        from siteannex.cli.wiring import Wiring
        from siteannex.errors import AnnexError

        try:
            wiring = Wiring(make_screen(json_output=True))
            annexes = {annex.name: annex for annex in wiring.store.annexes()}
            living = [annex for annex in annexes.values() if not annex.state().ended or annex.state().failure]
            rows = take_status(living, wiring.store, wiring.pool, wiring.clock.now(), lambda _: None) if living else []
        except AnnexError as problem:
            return [("annex", problem.failure.summary)]
        _, cells = cells_of(rows, wiring.clock.now())
        return [("annex", f"{name}: {stage}, {gpus} GPUs busy, {left} left; {then}")
                for name, _, stage, _, gpus, left, _, then in cells]  # fmt: skip


def _run_notes(nodes: Sequence[NodeRow]) -> list[tuple[str, str]]:
    return [
        (node.state.split()[0], f"{node.node}, job {node.job_id}: {node.reason.partition(chr(10))[0]}")
        for node in nodes
        if node.reason and node.state in ("held", "failed", "removed", "idle")
    ]


def _why(job_id: str) -> str:
    """One sentence of `siteannex why JOB`, empty when the access point does not answer."""
    from siteannex.annex.explaining.why_job import why_job
    from siteannex.cli.screen import make_screen
    from siteannex.cli.why import desk_of
    from siteannex.cli.wiring import Wiring
    from siteannex.errors import AnnexError

    try:
        return why_job(job_id, desk_of(Wiring(make_screen(json_output=True)))).conclusion.head
    except AnnexError:
        return ""


def _print_json(view: _View) -> None:
    import json

    from siteannex.training.monitoring.text import as_data

    print(json.dumps(as_data(view.monitor, view.health(), view.moment()), indent=1))


def _watch(view: _View) -> None:
    """A screen that stays: redrawn every five seconds, left as it is at Ctrl-C."""
    import time
    from datetime import UTC, datetime

    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(highlight=False)

    def drawn() -> Text:
        head = (
            f"{datetime.now(UTC).astimezone():%H:%M:%S}, every {REFRESH_S:g} s; Ctrl-C ends this view and nothing else"
        )
        lines = [head, *view.lines(height=console.height - 1)]
        return Text("\n".join(line[: console.width - 1] for line in lines[: console.height - 1]), no_wrap=True)

    with Live(drawn(), console=console, auto_refresh=False, screen=False, vertical_overflow="crop") as live:
        while True:
            time.sleep(REFRESH_S)
            view.refresh()
            live.update(drawn(), refresh=True)
