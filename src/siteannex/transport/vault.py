"""The sessions the holder keeps: who is logged in where, since when, until when, and why a session ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from siteannex.failures import fail
from siteannex.transport.messages import SessionInfo
from siteannex.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from siteannex.site.schema import Site
    from siteannex.transport.ssh import SshTransport


def address(site: Site) -> str:
    """`host:port` of a site file: a session opened for another address is not this site's."""
    return f"{site.login.host}:{site.login.port}"


@dataclass(slots=True)
class _Held:
    transport: SshTransport
    address: str
    idle_s: float
    since: datetime
    used: float = field(default_factory=time.monotonic)
    users: int = 0

    def info(self) -> SessionInfo:
        idle = 0.0 if self.users else time.monotonic() - self.used
        until = datetime.now(UTC) + timedelta(seconds=self.idle_s - idle)
        return SessionInfo(
            site=self.transport.site,
            login=self.transport.login,
            address=self.address,
            since=self.since,
            idle_until=until,
            channels_opened=self.transport.opened_channels,
            authentications=self.transport.authentications,
        )


class Vault:
    """All held sessions, one a site. Safe for many threads."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._held: dict[str, _Held] = {}
        self._ended: dict[str, str] = {}
        self._lock = threading.Lock()

    @property
    def empty(self) -> bool:
        """True when no session is held."""
        return not self._held

    def add(self, transport: SshTransport, site: Site) -> SessionInfo:
        """Keep a new session; an older one of the same site is ended."""
        held = _Held(transport, address(site), float(site.session.idle), datetime.now(UTC))
        with self._lock:
            older = self._held.pop(site.name, None)
            self._held[site.name] = held
            self._ended.pop(site.name, None)
        if older is not None:
            older.transport.close()
        return held.info()

    def infos(self) -> tuple[SessionInfo, ...]:
        """All sessions whose connection still stands."""
        self.sweep()
        with self._lock:
            return tuple(held.info() for _, held in sorted(self._held.items()))

    def find(self, site: Site, user: str | None) -> SessionInfo | None:
        """The session that serves this site file and, when one is named, this user."""
        for info in self.infos():
            if matches(info, site, user):
                return info
        return None

    @contextmanager
    def use(self, site: str, login: str) -> Iterator[SshTransport]:
        """A session for the length of one request; the idle clock starts anew afterwards.

        Raises AnnexError(session-needed), saying why when the session has ended.
        """
        with self._lock:
            held = self._held.get(site)
            if held is None or held.transport.login != login:
                why = self._ended.get(site, "no session is held")
                raise fail("session-needed", site, f"no session for {login}: {why}")
            held.users += 1
        try:
            yield held.transport
        finally:
            with self._lock:
                held.users -= 1
                held.used = time.monotonic()

    def end(self, site: str | None) -> tuple[str, ...]:
        """End one site's session, or all; the names of those that were held."""
        with self._lock:
            names = [name for name in self._held if site is None or name == site]
        for name in names:
            self._drop(name, "it was ended by siteannex logout")
        return tuple(sorted(names))

    def sweep(self) -> None:
        """End sessions that are idle for too long, and forget those whose connection has gone."""
        now = time.monotonic()
        with self._lock:
            gone = [name for name, held in self._held.items() if not held.transport.alive]
            idle = [
                name
                for name, held in self._held.items()
                if name not in gone and not held.users and now - held.used > held.idle_s
            ]
        stamp = datetime.now().astimezone().strftime("%H:%M")
        for name in gone:
            self._drop(name, f"the connection was lost (noticed at {stamp})")
        for name in idle:
            self._drop(name, f"it was not used for {format_duration(self._held[name].idle_s)}")

    def _drop(self, name: str, why: str) -> None:
        with self._lock:
            held = self._held.pop(name, None)
            self._ended[name] = why
        if held is not None:
            self._log(f"session ended: {name}: {why}")
            with suppress(OSError):
                held.transport.close()


def matches(info: SessionInfo, site: Site, user: str | None) -> bool:
    """Does a session serve this site file and, when one is named, this user?"""
    if info.site != site.name or info.address != address(site):
        return False
    return user is None or info.login.startswith(f"{user}@")
