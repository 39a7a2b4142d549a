"""`siteannex login`, `logout`, `sessions`: connections kept so that the phone rings once."""

from __future__ import annotations

from typing import Annotated

import typer

LOGIN_EXAMPLES = """\b
Examples:
  siteannex login expanse
  siteannex login lab --login alice --store-password
"""
LOGOUT_EXAMPLES = """\b
Examples:
  siteannex logout expanse
  siteannex logout --all
"""
SESSIONS_EXAMPLES = """\b
Examples:
  siteannex sessions
  siteannex sessions --json
"""


def login(
    site: Annotated[str, typer.Argument(help="A site's name.")],
    user: Annotated[str | None, typer.Option("--login", help="Your user name at the site.")] = None,
    store_password: Annotated[
        bool, typer.Option("--store-password", help="Ask for the password once and keep it in the keyring.")
    ] = False,
) -> None:
    """Log in to a site and keep the session."""
    from siteannex.cli.screen import make_screen
    from siteannex.cli.wiring import Wiring

    wiring = Wiring(make_screen(json_output=False), user=user)
    facts = wiring.site(site)
    if store_password:
        wiring.store_password(facts)
    wiring.connect(facts).close()
    wiring.screen.line("connect", f"{site}: session held (siteannex logout {site} ends it)")


def logout(
    site: Annotated[str | None, typer.Argument(help="A site's name.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every session.")] = False,
) -> None:
    """End held sessions. Annexes live on."""
    from siteannex.transport.places import Places
    from siteannex.transport.sessions import close_session

    if site is None and not everything:
        raise typer.BadParameter("name a site, or say --all")
    closed = close_session(None if everything else site, places=Places.from_environment())
    print(f"ended: {', '.join(closed)}" if closed else "no session was held")


def sessions(
    json_output: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """List held sessions."""
    import json
    from dataclasses import asdict
    from datetime import UTC, datetime

    from siteannex.cli.tables import print_table
    from siteannex.transport.places import Places
    from siteannex.transport.sessions import list_sessions
    from siteannex.units import format_when

    held = list_sessions(places=Places.from_environment())
    if json_output:
        print(json.dumps([asdict(session) for session in held], indent=1, default=str))
        return
    if not held:
        print("No session is held. siteannex login SITE opens one.")
        return
    now = datetime.now(UTC)
    rows = [
        (one.site, one.login, format_when(one.since, now), format_when(one.idle_until, now), str(one.channels_opened))
        for one in held
    ]
    print_table(("SITE", "LOGIN", "SINCE", "UNTIL (without use)", "CHANNELS"), rows)
