"""The paramiko transport: `connect` logs in, through jump hosts if need be, and gives an `SshTransport`."""

from __future__ import annotations

import contextlib
import select
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from paramiko.channel import Channel
from paramiko.ssh_exception import ChannelException, SSHException
from paramiko.transport import Transport

from siteannex.errors import AnnexError, Evidence, Secret
from siteannex.failures import fail
from siteannex.ports import Prompt, Prompter
from siteannex.site.schema import Site
from siteannex.transport.auth import SiteLogin
from siteannex.transport.channels import CHUNK, ByteChannel, Exchange
from siteannex.transport.dialogue import Dialogue, LoginConnection
from siteannex.transport.keys import key_candidates
from siteannex.transport.link import open_link
from siteannex.transport.places import Places
from siteannex.transport.remote import ChannelRefused, ShellTransport
from siteannex.transport.sshconfig import LoginTarget, resolve
from siteannex.units import format_duration

CHANNEL_TIMEOUT_S = 30.0
_SEND_PIECE = 32768
_WINDOW_POLL_S = 0.005
"""paramiko tells nobody when the far side's window opens again; this is how often a full one is looked at."""


class SshTransport(ShellTransport):
    """A Transport over one authenticated SSH connection. `close` ends the connection and its jumps."""

    def __init__(self, site: str, login: str, connections: list[LoginConnection]) -> None:
        self._connections = connections
        self.login = login
        self.authentications = len(connections)
        """How many logins it took: one, and one for each jump host."""
        super().__init__(site, self._open_channel)

    @property
    def alive(self) -> bool:
        """False once the connection, or a jump under it, has ended."""
        return all(connection.is_active() for connection in self._connections)

    def close(self) -> None:
        """End the connection."""
        with contextlib.suppress(AnnexError):
            super().close()
        for connection in reversed(self._connections):
            connection.close()

    def _open_channel(self, command_line: str) -> ByteChannel:
        connection = self._connections[-1]
        try:
            channel = connection.open_session(timeout=CHANNEL_TIMEOUT_S)
        except ChannelException as refusal:
            raise ChannelRefused(f"{refusal.text} (code {refusal.code})") from refusal
        except (SSHException, OSError, EOFError) as problem:
            raise self._broken(problem) from problem
        try:
            channel.exec_command(command_line)
        except (SSHException, OSError, EOFError) as problem:
            channel.close()
            if connection.is_active():
                raise ChannelRefused(f"exec refused: {problem}") from problem
            raise self._broken(problem) from problem
        return ParamikoChannel(channel)

    def _broken(self, problem: Exception) -> AnnexError:
        words = self._connections[-1].disconnect_words or str(problem) or type(problem).__name__
        return fail(
            "link-broken",
            self.site,
            f"the connection to {self.site} is gone",
            evidence=[Evidence.tail("SSH connection", words)],
        )


class ParamikoChannel:
    """An SSH channel with a running program as a ByteChannel."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        channel.settimeout(CHANNEL_TIMEOUT_S)
        self._poller = select.poll()
        self._poller.register(channel.fileno(), select.POLLIN)

    def exchange(self, data: bytes | memoryview, timeout_s: float) -> Exchange:
        """Send what can be sent of `data` now and take what has arrived; wait at most `timeout_s` for either."""
        channel = self._channel
        sent = 0
        if len(data) and channel.send_ready():
            with contextlib.suppress(OSError, EOFError, SSHException):
                sent = channel.send(bytes(data[:_SEND_PIECE]))
        if not sent:
            self._poller.poll((min(timeout_s, _WINDOW_POLL_S) if len(data) else timeout_s) * 1000)
        # Whether it has ended must be asked before the buffers are emptied, else the last words are missed.
        over = channel.eof_received or channel.closed
        stdout = channel.recv(CHUNK) if channel.recv_ready() else b""
        stderr = channel.recv_stderr(CHUNK) if channel.recv_stderr_ready() else b""
        drained = not channel.recv_ready() and not channel.recv_stderr_ready()
        return Exchange(sent, stdout, stderr, ended=bool(over) and drained)

    def end_input(self) -> None:
        """Close the program's stdin."""
        with contextlib.suppress(OSError, EOFError, SSHException):
            self._channel.shutdown_write()

    def exit_status(self) -> int | None:
        """The program's exit status; None when the connection broke before it was told."""
        self._channel.status_event.wait(5)
        status = self._channel.exit_status
        return None if status < 0 else status

    def close(self) -> None:
        """Give the channel up."""
        with contextlib.suppress(OSError, EOFError, SSHException):
            self._channel.close()


def connect(
    site: Site,
    *,
    user: str | None,
    prompter: Prompter,
    stored_password: Secret | None = None,
    places: Places,
) -> SshTransport:
    """Log in to a site once. Blocks while a person answers. Raises AnnexError saying which step failed."""
    target = resolve(site.name, site.login, places, user=user)
    connections: list[LoginConnection] = []
    try:
        for hop in (*target.jumps, target):
            with _named(hop, target):
                through: Transport | None = connections[-1] if connections else None
                connection = open_link(site.name, hop, prompter, through)
                connections.append(connection)
                _authenticate(site, hop, connection, prompter, stored_password if hop is target else None)
    except BaseException:
        for connection in reversed(connections):
            connection.close()
        raise
    return SshTransport(site.name, target.login, connections)


@contextlib.contextmanager
def _named(hop: LoginTarget, target: LoginTarget) -> Iterator[None]:
    """Where there are jump hosts, a failure says at which hop it happened."""
    try:
        yield
    except AnnexError as error:
        if not target.jumps or error.failure.code == "no-terminal":
            raise
        route = " -> ".join(f"{one.host}:{one.port}" for one in (*target.jumps, target))
        role = "the login host" if hop is target else "the jump host"
        where = Evidence("route (ProxyJump in ~/.ssh/config)", f"{route}; failed at {hop.host}:{hop.port}")
        summary = f"at {role} {hop.host}:{hop.port}: {error.failure.summary}"
        raise AnnexError(replace(error.failure, summary=summary, evidence=(*error.failure.evidence, where))) from error


def _authenticate(
    site: Site, hop: LoginTarget, connection: LoginConnection, prompter: Prompter, stored: Secret | None
) -> None:
    def passphrase(path: Path) -> Secret | None:
        text = f"Passphrase for {path}: "
        return prompter.ask(Prompt(site.name, hop.login, text, False, "passphrase"))

    login = SiteLogin(site.name, hop.login, site.login, prompter, lambda: key_candidates(hop, passphrase), stored)
    try:
        login.run(Dialogue(connection, hop.user, login.on_banner))
    except AnnexError as error:
        hint = " ".join([error.failure.hint, *_advice(site, hop.user, error.failure.code)])
        raise AnnexError(replace(error.failure, hint=hint.strip())) from error


def _advice(site: Site, user: str, code: str) -> Iterator[str]:
    """What the site file knows that may explain a refused login."""
    login = site.login
    if not code.endswith("-refused"):
        return
    if login.user_form and code != "code-refused":
        yield f"Login names at {site.name} look like {login.user_form}; you came as {user}."
    if login.certificate_lifetime and code == "key-refused":
        yield f"Certificates of {site.name} are good for {format_duration(login.certificate_lifetime)}: get a new one."
    if login.retry == "never":
        yield f"Not at once: {site.name} shuts out who comes back quickly after a refused login."
