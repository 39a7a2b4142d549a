"""How the rest of siteannex gets a connection: a held session when there is one, a login when that is allowed.

Importing this module is cheap; the SSH library is loaded only where a login happens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from siteannex.errors import Secret
from siteannex.failures import fail
from siteannex.ports import Prompter, Transport
from siteannex.transport import messages as m
from siteannex.transport.held import HeldTransport, ask_holder, log_in
from siteannex.transport.places import Places
from siteannex.transport.vault import matches

if TYPE_CHECKING:
    from siteannex.site.schema import Site

SessionInfo = m.SessionInfo


def open_transport(
    site: Site,
    *,
    user: str | None,
    prompter: Prompter,
    stored_password: Secret | None = None,
    allow_login: bool = True,
    places: Places,
) -> Transport:
    """A connection to a site's login host.

    A held session serves when it was opened for this address and, if one is named, this user. Otherwise a login: by
    the session holder, which keeps it, or in this process when the site forbids kept sessions. Raises AnnexError:
    session-needed when a login would be needed and is not allowed; whatever step of the login failed.
    """
    if site.login.transport == "openssh":
        from siteannex.transport.openssh import open_master

        return open_master(site, user=user, prompter=prompter, allow_login=allow_login, places=places)
    if site.session.persist and (held := held_transport(site, user=user, places=places)) is not None:
        return held
    if not allow_login:
        raise fail("session-needed", site.name, f"no session is held for {site.name}")
    if site.session.persist:
        return log_in(site, user=user, prompter=prompter, stored_password=stored_password, places=places)
    from siteannex.transport.ssh import connect

    return connect(site, user=user, prompter=prompter, stored_password=stored_password, places=places)


def held_transport(site: Site, *, user: str | None, places: Places) -> HeldTransport | None:
    """The held session that serves this site and user, or None. Asks nobody, opens nothing."""
    for session in list_sessions(places=places):
        if matches(session, site, user):
            return HeldTransport(session, places)
    return None


def list_sessions(*, places: Places) -> list[SessionInfo]:
    """Every held session, by site."""
    from siteannex.transport.openssh import master_sessions

    reply = ask_holder(m.SessionsRequest(), places)
    held = reply.sessions if isinstance(reply, m.SessionList) else ()
    return sorted([*held, *master_sessions(places)], key=lambda session: session.site)


def close_session(site: str | None, *, places: Places) -> list[str]:
    """End the session of one site, or (None) all sessions and the holder; the names of the sites that had one."""
    from siteannex.transport.openssh import close_masters

    ended = close_masters(site, places)
    reply = ask_holder(m.LogoutRequest(site), places, site or "")
    if isinstance(reply, m.LoggedOut):
        ended += reply.sites
    return sorted(ended)
