"""`siteannex sweep [SITE...]`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from siteannex.errors import AnnexError

if TYPE_CHECKING:
    from siteannex.annex.slurm_site import SlurmSite
    from siteannex.annex.sweeping.sweep import Found, Ground
    from siteannex.cli.wiring import Wiring

EXAMPLES = """\b
Examples:
  siteannex sweep expanse
  siteannex sweep --yes
"""


def sweep(
    sites: Annotated[
        list[str] | None, typer.Argument(help="Sites to look at, logging in if needed; default: those with a session.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Remove what is found without asking.")] = False,
    login: Annotated[str | None, typer.Option(help="Your user name at the site.")] = None,
    json_output: Annotated[
        bool, typer.Option("--json", help="Print as JSON; nothing is removed without --yes.")
    ] = False,
) -> None:
    """Find what annexes have left behind, and remove it.

    Batch jobs, directories with their tokens, ads, sockets and records that belong to no living annex. What may be
    somebody else's, such as another access point's annexes of yours, is shown and never touched.
    """
    from siteannex.annex.sweeping.sweep import as_data, look, remove
    from siteannex.cli.screen import make_screen
    from siteannex.cli.wiring import Wiring

    wiring = Wiring(make_screen(json_output=json_output), user=login)
    ground = _ground(wiring)
    accesses = _accesses(wiring, list(sites or ()))
    found = look(accesses, ground)
    not_asked = _not_asked(wiring, accesses)
    if not json_output:
        _show(found, not_asked, [access.site.name for access in accesses])
    agreed = bool(found.removable) and (yes or (not json_output and _agreed(found)))
    failures = remove(found, accesses, ground) if agreed else []
    if json_output:
        import json

        from siteannex.annex.events import failure_to_data
        from siteannex.cli.failure_view import exit_code

        done = {"removed": agreed, "failures": [failure_to_data(each) for each in failures], "not_asked": not_asked}
        print(json.dumps({**as_data(found), **done}, indent=1))
        if failures:
            raise typer.Exit(exit_code(failures[0].stage))
    elif failures:
        raise AnnexError(failures[0])


def _ground(wiring: Wiring) -> Ground:
    from siteannex.annex.sweeping.sweep import Ground
    from siteannex.transport.leftovers import leftovers

    return Ground(
        store=wiring.store,
        pool=wiring.pool,
        board=wiring.pool,
        clock=wiring.clock,
        view=wiring.screen,
        local=lambda: leftovers(wiring.places),
    )


def _accesses(wiring: Wiring, names: list[str]) -> list[SlurmSite]:
    """The named sites, logging in; without names those to which a session is open."""
    from siteannex.annex.slurm_site import SlurmSite
    from siteannex.transport.sessions import list_sessions

    if names:
        sites = [wiring.site(name) for name in dict.fromkeys(names)]
        return [SlurmSite(site, wiring.connect(site)) for site in sites]
    known = {site.name: site for site in wiring.sites()}
    found = []
    for session in list_sessions(places=wiring.places):
        site = known.get(session.site)
        held = wiring.held(site, session.login.rpartition("@")[0] or None) if site is not None else None
        if site is not None and held is not None:
            found.append(SlurmSite(site, held))
    return found


def _not_asked(wiring: Wiring, accesses: list[SlurmSite]) -> list[str]:
    """Sites that annexes of ours were ever at, and that were not asked now."""
    asked = {access.site.name for access in accesses}
    return sorted({annex.plan.request.site for annex in wiring.store.annexes()} - asked)


def _show(found: Found, not_asked: list[str], asked: list[str]) -> None:
    from siteannex.cli.screen import printable
    from siteannex.cli.tables import print_table

    others = [each for each in found.findings if not each.removable]
    for title, things in (("Left behind:", found.removable), ("Not touched:", others)):
        if things:
            print(title)
            print_table(
                ("PLACE", "WHAT", "ANNEX", "WHY"),
                [(each.place, each.what, each.annex_id or "-", each.why) for each in things],
            )
    for trouble in found.troubles:
        print(printable(trouble))
    if not found.removable:
        places = ["on this machine", *([f"at {', '.join(asked)}"] if asked else [])]
        print(f"Nothing is left behind {' and '.join(places)}.")
    if found.living:
        print(f"{found.living} living annex{'es are' if found.living > 1 else ' is'} left alone: siteannex status")
    if not_asked:
        print(f"Not asked, no session is open: {', '.join(not_asked)}. siteannex sweep {not_asked[0]} logs in.")


def _agreed(found: Found) -> bool:
    if not sys.stdin.isatty():
        print("Nothing is removed: say --yes.")
        return False
    count = len(found.removable)
    answer = input(f"Remove {'it' if count == 1 else f'these {count}'}? (yes/no) [no] ")
    if answer.strip().lower() in ("yes", "y"):
        return True
    print("Nothing is removed.")
    return False
