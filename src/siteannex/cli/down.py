"""`siteannex down NAME...`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from siteannex.cli.wiring import Wiring

EXAMPLES = """\b
Examples:
  siteannex down expanse
  siteannex down --all --now
"""


def down(
    names: Annotated[list[str] | None, typer.Argument(help="Annexes to take down.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every annex that lives.")] = False,
    now: Annotated[bool, typer.Option("--now", help="Evict running jobs instead of letting them finish.")] = False,
    purge: Annotated[bool, typer.Option("--purge", help="Remove log archives and the EP software too.")] = False,
    login: Annotated[str | None, typer.Option(help="Your user name at the site.")] = None,
) -> None:
    """Take annexes down: pending pilots too. Nothing stays at the site but a log archive."""
    from siteannex.cli.screen import make_screen
    from siteannex.cli.wiring import Wiring

    wiring = Wiring(make_screen(json_output=False), user=login)
    living = list(dict.fromkeys(annex.name for annex in wiring.store.annexes() if not annex.state().ended))
    chosen = living if everything else list(names or ())
    if not chosen and not everything:
        raise typer.BadParameter("name an annex, or say --all")
    if not chosen:
        wiring.screen.line("down", "no annex is up")
    for name in chosen:
        _down_one(name, wiring, now=now, purge=purge)


def _down_one(name: str, wiring: Wiring, *, now: bool, purge: bool) -> None:
    from siteannex.annex import down as taking_down
    from siteannex.failures import fail

    annex = wiring.store.living(name)
    if annex is None:
        latest = wiring.store.latest(name)
        if latest is None:
            raise fail("annex-unknown", "", f"no annex named {name!r}")
        wiring.screen.line("down", f"{name} has ended already: {latest.state().end_text or 'it failed'}")
        return
    with wiring.store.lock(name, annex.plan.request.site):
        if not annex.state().submit_begun:
            taking_down.forget(annex, wiring.screen)
            return
        access = wiring.access(annex)
        taking_down.down(annex, access, wiring.pool, wiring.clock, wiring.screen, now=now)
        if purge:
            access.purge(annex.plan.annex_id)
            wiring.screen.line("purged", f"{name}: its log archive and the EP software at {access.site.name}")
