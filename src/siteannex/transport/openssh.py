"""`transport: openssh`: the `ssh` program with a control master, for what paramiko cannot do (FIDO keys, GSSAPI, ...).

ssh asks its questions at the user's own terminal. The master process keeps the connection, so it is its own holder;
its control socket lies in our private runtime directory under a short name of our own making.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import subprocess
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from siteannex.errors import AnnexError, Evidence
from siteannex.failures import fail
from siteannex.ports import Prompter
from siteannex.transport.channels import ByteChannel, PipeChannel
from siteannex.transport.messages import SessionInfo
from siteannex.transport.places import Places
from siteannex.transport.prompts import account_trouble, closing_words
from siteannex.transport.remote import ShellTransport
from siteannex.transport.vault import address
from siteannex.transport.wire import check_length, private_directory

if TYPE_CHECKING:
    from siteannex.site.schema import Site

_CHECK_TIMEOUT_S = 15.0
_TROUBLE = (
    (r"REMOTE HOST IDENTIFICATION HAS CHANGED", "host-key-changed", "the host key has changed"),
    (r"Host key verification failed", "host-key-unknown", "the host key was not accepted"),
    (r"Could not resolve hostname", "host-unresolvable", "the name does not resolve"),
    (r"Too many authentication failures", "login-refused", "too many keys or answers were refused"),
    (r"Permission denied \(publickey\)", "key-refused", "the site wants a key and accepted none"),
    (r"Permission denied", "login-refused", "the site refused the login"),
    (r"(Connection (refused|timed out)|No route to host|Network is unreachable)", "host-unreachable", "no answer"),
    (r"(Connection (closed|reset)|Broken pipe)", "link-broken", "the connection ended during the login"),
)


@dataclass(frozen=True, slots=True)
class Master:
    """One control master: how ssh names the host, and where the control socket is."""

    site: str
    host: str
    port: int | None
    user: str | None
    socket: Path

    @classmethod
    def of(cls, site: Site, user: str | None, places: Places) -> Master:
        """The master for a site and user; the same words give the same socket."""
        port = None if site.login.port == 22 else site.login.port
        words = "\0".join([site.name, site.login.host, str(port), user or ""])
        digest = hashlib.sha256(words.encode()).hexdigest()[:16]
        return cls(site.name, site.login.host, port, user, places.runtime / f"ssh-{digest}")

    @property
    def login(self) -> str:
        """`user@host` as far as we know it; ssh_config may say more."""
        return f"{self.user}@{self.host}" if self.user else self.host

    def argv(self, *options: str) -> list[str]:
        """`ssh` for this socket with more options; the host comes last."""
        words = ["ssh", "-o", f"ControlPath={self.socket}", *options]
        if self.port is not None:
            words += ["-p", str(self.port)]
        if self.user is not None:
            words += ["-l", self.user]
        return [*words, self.host]

    def alive(self) -> bool:
        """True when the master answers."""
        if not self.socket.exists():
            return False
        return _control(self, "check")

    def note(self) -> Path:
        """Where we keep what `sessions` shows of it."""
        return self.socket.with_suffix(".json")


class OpenSshTransport(ShellTransport):
    """A Transport over a control master. `close` lets the master live on, unless the site forbids kept sessions."""

    def __init__(self, master: Master, *, keep: bool) -> None:
        self._master = master
        self._keep = keep
        self.login = master.login
        super().__init__(master.site, self._open_channel)

    def close(self) -> None:
        """End this use of the connection."""
        super().close()
        if not self._keep:
            _control(self._master, "exit")

    def _open_channel(self, command_line: str) -> ByteChannel:
        if not self._master.alive():
            raise fail("link-broken", self.site, f"the ssh master for {self.site} has ended")
        # Should the master die just now, the ProxyCommand keeps ssh from logging in by itself.
        words = self._master.argv("-T", "-o", "ControlMaster=no", "-o", "BatchMode=yes", "-o", "ProxyCommand=false")
        return PipeChannel.start([*words, command_line])


def open_master(
    site: Site, *, user: str | None, prompter: Prompter, allow_login: bool, places: Places
) -> OpenSshTransport:
    """A living master, or a new one: ssh then asks at the user's terminal. Raises AnnexError."""
    master = Master.of(site, user, places)
    if not master.alive():
        if not allow_login:
            raise fail("session-needed", site.name, f"no session is held for {site.name}")
        check_length(site.name, master.socket.with_name(f"{master.socket.name}.{'x' * 16}"))
        private_directory(places.runtime)
        _start(master, site, prompter)
    return OpenSshTransport(master, keep=site.session.persist)


def _start(master: Master, site: Site, prompter: Prompter) -> None:
    idle = site.session.idle
    words = master.argv(
        *("-f", "-N", "-T", "-o", "ControlMaster=yes", "-o", f"ControlPersist={idle}"),
        *("-o", "ServerAliveInterval=30", "-o", "NumberOfPasswordPrompts=1", "-o", "StrictHostKeyChecking=ask"),
    )
    with tempfile.TemporaryFile() as errors:
        try:
            status = subprocess.run(words, stdout=errors, stderr=errors, check=False).returncode
        except OSError as problem:
            raise fail("login-method-unsupported", site.name, f"the ssh program does not start: {problem}") from problem
        errors.seek(0)
        said = errors.read().decode("utf-8", "replace")
    if said.strip():
        prompter.tell(said)
    if status != 0:
        raise _refused(master, status, said)
    since = datetime.now(UTC)
    note: dict[str, object] = {
        "site": site.name,
        "login": master.login,
        "address": address(site),
        "since": since.isoformat(),
    }
    note |= {"host": master.host, "port": master.port, "user": master.user, "idle_s": idle}
    master.note().write_text(json.dumps(note))


def _refused(master: Master, status: int, said: str) -> AnnexError:
    seen = [Evidence.tail(f"ssh {master.login} (exit status {status})", said)]
    if trouble := account_trouble(said):
        return fail(trouble.code, master.site, f"{master.site} says: {trouble.meaning}", evidence=seen)
    for pattern, code, meaning in _TROUBLE:
        if re.search(pattern, said):
            if code == "link-broken" and (closed := closing_words(said)):
                return fail(
                    "site-maintenance", master.site, f"{master.site} takes no logins now: {closed}", evidence=seen
                )
            return fail(code, master.site, f"ssh to {master.login}: {meaning}", evidence=seen)
    return fail("login-refused", master.site, f"ssh to {master.login} failed", evidence=seen)


def _control(master: Master, verb: str) -> bool:
    try:
        ended = subprocess.run(
            master.argv("-O", verb),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_CHECK_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return ended.returncode == 0


def _noted(places: Places) -> list[tuple[Master, dict[str, str]]]:
    found = []
    for path in sorted(places.runtime.glob("ssh-*.json")) if places.runtime.is_dir() else []:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            note = json.loads(path.read_text())
            master = Master(note["site"], note["host"], note["port"], note["user"], path.with_suffix(""))
            found.append((master, note))
    return found


def master_sessions(places: Places) -> list[SessionInfo]:
    """The living masters. When each was last used is ssh's own knowledge: `idle_until` counts from now."""
    now = datetime.now(UTC)
    return [
        SessionInfo(
            site=master.site,
            login=note["login"],
            address=note["address"],
            since=datetime.fromisoformat(note["since"]),
            idle_until=now + timedelta(seconds=float(note["idle_s"])),
            channels_opened=0,
            authentications=1,
        )
        for master, note in _noted(places)
        if master.alive()
    ]


def close_masters(site: str | None, places: Places) -> list[str]:
    """End the masters of one site or of all; the names of the sites that had a living one."""
    ended = []
    for master, _ in _noted(places):
        if site in {None, master.site}:
            if _control(master, "exit"):
                ended.append(master.site)
            master.note().unlink(missing_ok=True)
    return ended
