"""`siteannex logs NAME`."""

from __future__ import annotations

from typing import Annotated

import typer

EXAMPLES = """\b
Examples:
  siteannex logs expanse
  siteannex logs expanse --file StartLog --follow
"""


def logs(
    name: Annotated[str, typer.Argument(help="The annex.")],
    file: Annotated[str | None, typer.Option(help="One file: MasterLog, StartLog, slurm-123.out ...")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on printing what is added, until Ctrl-C.")] = False,
    login: Annotated[str | None, typer.Option(help="Your user name at the site.")] = None,
) -> None:
    """Print an annex's logs, live or archived."""
    from siteannex.annex.logs import follow_logs, read_logs
    from siteannex.cli.screen import make_screen, printable
    from siteannex.cli.wiring import Wiring
    from siteannex.failures import fail

    wiring = Wiring(make_screen(json_output=False), user=login)
    annex = wiring.store.latest(name)
    if annex is None:
        raise fail("annex-unknown", "", f"no annex named {name!r}")
    access = wiring.access(annex)
    if follow:
        for chunk in follow_logs(annex, access, wiring.clock, file):
            print(printable(chunk), end="", flush=True)
        return
    found = read_logs(annex, access, file)
    for title, text in found:
        print(printable(f"==> {title} <==\n{text.rstrip()}\n"))
    if not found:
        print(f"No {file or 'log'} of {name} at {annex.plan.request.site} yet.")
