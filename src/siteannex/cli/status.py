"""`siteannex status [NAME]`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from siteannex.annex.planning.demand import Wanted
    from siteannex.annex.status import Row
    from siteannex.cli.wiring import Wiring

EXAMPLES = """\b
Examples:
  siteannex status
  siteannex status lab --remote --json
"""


def status(
    name: Annotated[str | None, typer.Argument(help="One annex; default: all that live.")] = None,
    remote: Annotated[bool, typer.Option("--remote", help="Ask the batch system too (may need a login).")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Ended annexes too.")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Repeat every 5 seconds until Ctrl-C.")] = False,
) -> None:
    """Show annexes: stage, GPUs, time left, jobs.

    Without --remote no SSH is needed; with it the batch system is asked too. Below the table: what waits for annexes
    that are not up.
    """
    from siteannex.cli.screen import make_screen
    from siteannex.cli.wiring import Wiring

    wiring = Wiring(make_screen(json_output=json_output))
    while True:
        if watch and sys.stdout.isatty() and not json_output:
            print("\x1b[H\x1b[2J", end="")
            print(f"{wiring.clock.now().astimezone():%H:%M:%S}, every 5 s; Ctrl-C ends this and nothing else")
        rows = _rows(wiring, name, remote=remote, everything=everything)
        missing = _missing(rows, wiring) if name is None else ()
        _show(rows, missing, wiring, json_output=json_output, detailed=name is not None)
        sys.stdout.flush()
        if not watch:
            return
        wiring.clock.sleep(5)


def _rows(wiring: Wiring, name: str | None, *, remote: bool, everything: bool) -> list[Row]:
    from siteannex.annex.status import take_status
    from siteannex.failures import fail

    annexes = [annex for annex in wiring.store.annexes() if name is None or annex.name.lower() == name.lower()]
    if name is not None and not annexes:
        raise fail("annex-unknown", "", f"no annex named {name!r}")
    if name is not None and not everything:
        annexes = annexes[-1:]
    elif not everything:
        newest = {annex.name: annex for annex in annexes}
        annexes = [annex for annex in newest.values() if not annex.state().ended or annex.state().failure]
    access_of = wiring.access if remote else lambda _: None
    return take_status(annexes, wiring.store, wiring.pool, wiring.clock.now(), access_of)


def _missing(rows: list[Row], wiring: Wiring) -> tuple[Wanted, ...]:
    """Annexes that something waits for and that are not there; none when the AP does not answer (the rows say that)."""
    from siteannex.cli.feeding import wanted_beside
    from siteannex.errors import AnnexError

    try:
        return wanted_beside(rows, wiring)
    except AnnexError:
        return ()


def _show(rows: list[Row], missing: tuple[Wanted, ...], wiring: Wiring, *, json_output: bool, detailed: bool) -> None:
    import json

    from siteannex.annex.planning.demand import as_data as missing_data
    from siteannex.annex.planning.demand import waiting_text
    from siteannex.annex.status import advice, as_data, detail_lines, table
    from siteannex.cli.screen import printable
    from siteannex.cli.tables import print_table

    if json_output:
        print(json.dumps([*map(as_data, rows), *map(missing_data, missing)], indent=1))
        return
    if not rows:
        print("No annex is up." if missing else "No annex is up. Start one: siteannex up SITE --gpus N")
        for line in waiting_text(missing):
            print(printable(line))
        return
    header, cells = table(rows, wiring.clock.now())
    print_table(header, cells)
    for line in (*advice(rows, wiring.clock.now()), *waiting_text(missing)):
        print(printable(line))
    for line in detail_lines(rows[0], wiring.clock.now()) if detailed else ():
        print(printable(line))
