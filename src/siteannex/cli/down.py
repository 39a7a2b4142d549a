"""`siteannex down NAME...`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from siteannex.errors import AnnexError

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
    """Take annexes down.

    Running jobs finish first, unless --now. Pending pilots are cancelled. Only a log archive stays at the site.
    """
    from siteannex.cli.screen import make_screen
    from siteannex.cli.wiring import Wiring

    wiring = Wiring(make_screen(json_output=False), user=login)
    living = list(dict.fromkeys(annex.name for annex in wiring.store.annexes() if not annex.state().ended))
    chosen = living if everything else list(names or ())
    if not chosen and not everything:
        raise typer.BadParameter("name an annex, or say --all")
    if not chosen:
        wiring.screen.line("down", "no annex is up")
    troubles = [trouble for name in chosen if (trouble := _down_one(name, wiring, now=now, purge=purge)) is not None]
    if troubles:
        raise troubles[0]


def _down_one(name: str, wiring: Wiring, *, now: bool, purge: bool) -> AnnexError | None:
    """Take one annex down; a failure is shown and returned, so that the others are taken down all the same."""
    try:
        _take_down(name, wiring, now=now, purge=purge)
    except AnnexError as problem:
        wiring.screen.line("down", f"{name}: {problem.failure.code}: {problem.failure.summary}")
        return problem
    return None


def _take_down(name: str, wiring: Wiring, *, now: bool, purge: bool) -> None:
    from siteannex.annex import down as taking_down
    from siteannex.failures import fail

    latest = wiring.store.latest(name)
    if latest is None:
        raise fail("annex-unknown", "", f"no annex named {name!r}")
    annex = wiring.store.living(name)
    if annex is None and latest.state().failure is not None:
        taking_down.dismiss(latest, wiring.screen)
    elif annex is None:
        wiring.screen.line("down", f"{name} has ended already: {latest.state().end_text or 'it failed'}")
    elif not annex.state().submit_begun:
        with wiring.store.lock(name, annex.plan.request.site):
            taking_down.forget(annex, wiring.screen)
    else:
        access = wiring.access(annex)
        taking_down.down(annex, access, wiring.store, wiring.pool, wiring.clock, wiring.screen, now=now)
    if purge:
        access = wiring.access(latest)
        access.purge(latest.plan.annex_id)
        wiring.screen.line("purged", f"{name}: its log archive at {access.site.name}, and the EP software if unused")
