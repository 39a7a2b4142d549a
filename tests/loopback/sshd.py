"""A scripted SSH server on 127.0.0.1: it asks what a test tells it to ask, and runs commands by the real /bin/sh."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import paramiko
from paramiko.common import (
    AUTH_FAILED,
    AUTH_PARTIALLY_SUCCESSFUL,
    AUTH_SUCCESSFUL,
    OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED,
    OPEN_FAILED_CONNECT_FAILED,
    OPEN_SUCCEEDED,
    cMSG_DISCONNECT,
    cMSG_USERAUTH_BANNER,
)
from paramiko.server import InteractiveQuery


@dataclass(frozen=True)
class Round:
    """One round of keyboard-interactive: what is shown, and the answers that let it pass."""

    prompts: tuple[tuple[str, bool], ...] = ()
    answers: tuple[str, ...] = ()
    instructions: str = ""
    judge_late: bool = False
    """Ask the next round whatever was answered; refuse at the end."""
    after: Callable[[Login], None] | None = None
    """Called before the answers are judged."""


PASSWORD = Round((("Password: ", False),), ("right password",))
CODE = Round((("Verification code: ", False),), ("123456",))
DONE = Round()


@dataclass
class Script:
    """How one server behaves."""

    methods: Sequence[Sequence[str]] = (("keyboard-interactive",),)
    """For each stage of the login, the methods it accepts; passing one leads to the next stage."""
    rounds: Sequence[Round] = (PASSWORD, CODE, DONE)
    password: str = "right password"
    keys: Sequence[paramiko.PKey] = ()
    banner: str = ""
    max_sessions: int = 10
    rc: str = ""
    """Shell text a login's rc file would run before every command."""
    forward: bool = False
    close_at: str = ""
    """`connect`: at once; `auth`: at the first request; `none`."""
    greeting: bytes | None = None
    """Say this in place of SSH."""


@dataclass
class Seen:
    """What the server saw."""

    answers: list[list[str]] = field(default_factory=list)
    passwords: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    logins: int = 0
    users: list[str] = field(default_factory=list)


class Login(paramiko.ServerInterface):
    """One client's login and channels."""

    def __init__(self, server: LoopbackSshd, transport: paramiko.Transport) -> None:
        self.server = server
        self.transport = transport
        self.script = server.script
        self._stage = 0
        self._round = 0
        self._wrong = False
        self._key_passed = False
        self._sessions: set[int] = set()

    def get_banner(self) -> tuple[str | None, str | None]:
        return (self.script.banner, "en") if self.script.banner else (None, None)

    def get_allowed_auths(self, username: str) -> str:
        if self._key_passed:
            self._key_passed = False
            self._stage += 1
        return ",".join(self.script.methods[self._stage])

    def check_auth_none(self, username: str) -> int:
        self.server.seen.users.append(username)
        if self.script.close_at == "auth":
            self.transport.close()
        return AUTH_FAILED

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        if "publickey" in self.script.methods[self._stage] and key in self.script.keys:
            if self._last():
                return AUTH_SUCCESSFUL
            # Asked for the query and for the signature; the list of methods is sent after the signature only.
            self._key_passed = True
            return AUTH_PARTIALLY_SUCCESSFUL
        return AUTH_FAILED

    def check_auth_password(self, username: str, password: str) -> int:
        self.server.seen.passwords.append(password)
        if "password" in self.script.methods[self._stage] and password == self.script.password:
            return self._passed()
        return AUTH_FAILED

    def check_auth_interactive(self, username: str, submethods: str) -> int | InteractiveQuery:
        if "keyboard-interactive" not in self.script.methods[self._stage]:
            self._stage = next(
                index for index, names in enumerate(self.script.methods) if "keyboard-interactive" in names
            )
        self._round = 0
        return self._query()

    def check_auth_interactive_response(self, responses: list[str]) -> int | InteractiveQuery:
        self.server.seen.answers.append(list(responses))
        here = self.script.rounds[self._round]
        if here.after is not None:
            here.after(self)
        if tuple(responses) != here.answers:
            self._wrong = True
            if not here.judge_late:
                return AUTH_FAILED
        self._round += 1
        if self._round < len(self.script.rounds):
            return self._query()
        return AUTH_FAILED if self._wrong else self._passed()

    def _query(self) -> InteractiveQuery:
        here = self.script.rounds[self._round]
        query = InteractiveQuery("", here.instructions)
        for text, echo in here.prompts:
            query.add_prompt(text, echo)
        return query

    def _last(self) -> bool:
        return self._stage + 1 == len(self.script.methods)

    def _passed(self) -> int:
        if self._last():
            self.server.seen.logins += 1
            return AUTH_SUCCESSFUL
        self._stage += 1
        return AUTH_PARTIALLY_SUCCESSFUL

    def say_banner(self, text: str) -> None:
        """Send a banner in the middle of the login, as sshd does with PAM's words."""
        message = paramiko.Message()
        message.add_byte(cMSG_USERAUTH_BANNER)
        message.add_string(text)
        message.add_string("en")
        self.transport.packetizer.send_message(message)

    def hang_up(self, words: str = "") -> None:
        """End the connection, with a disconnect message when there are words."""
        if words:
            message = paramiko.Message()
            message.add_byte(cMSG_DISCONNECT)
            message.add_int(2)
            message.add_string(words)
            message.add_string("en")
            self.transport.packetizer.send_message(message)
        self.transport.close()

    # channels

    def check_channel_request(self, kind: str, chanid: int) -> int:
        if kind != "session" or len(self._sessions) >= self.script.max_sessions:
            return OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED
        self._sessions.add(chanid)
        return OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        text = command.decode()
        self.server.seen.commands.append(text)
        threading.Thread(target=self._run, args=(channel, text), daemon=True).start()
        return True

    def check_channel_direct_tcpip_request(
        self, chanid: int, origin: tuple[str, int], destination: tuple[str, int]
    ) -> int:
        if not self.script.forward:
            return OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED
        try:
            far = socket.create_connection(destination, timeout=5)
        except OSError:
            return OPEN_FAILED_CONNECT_FAILED
        threading.Thread(target=self._forward, args=(far,), daemon=True).start()
        return OPEN_SUCCEEDED

    def _forward(self, far: socket.socket) -> None:
        channel = self.transport.accept(5)
        assert channel is not None
        back = threading.Thread(target=_copy, args=(far.recv, channel.sendall), daemon=True)
        back.start()
        _copy(channel.recv, far.sendall)
        with contextlib.suppress(OSError):
            far.shutdown(socket.SHUT_RDWR)
        back.join(5)
        far.close()
        channel.close()

    def _run(self, channel: paramiko.Channel, command: str) -> None:
        process = subprocess.Popen(
            ["/bin/sh", "-c", f"{self.script.rc}\n{command}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd=self.server.home,
            env={"HOME": str(self.server.home), "PATH": os.environ["PATH"]},
        )
        with self.server.running(process), process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            out, err = process.stdout, process.stderr
            pumps = [
                threading.Thread(target=_copy, args=(out.read, channel.sendall), daemon=True),
                threading.Thread(target=_copy, args=(err.read, channel.sendall_stderr), daemon=True),
            ]
            feeder = threading.Thread(target=self._feed, args=(channel, process), daemon=True)
            for thread in [*pumps, feeder]:
                thread.start()
            status = process.wait()
            for thread in pumps:
                thread.join(5)
            with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
                if status >= 0:
                    channel.send_exit_status(status)
                channel.shutdown_write()
                channel.close()
            feeder.join(5)
        self._sessions.discard(channel.get_id())

    def _feed(self, channel: paramiko.Channel, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        _copy(channel.recv, process.stdin.write)
        with contextlib.suppress(OSError):
            process.stdin.close()


def _copy(read: Callable[[int], bytes], write: Callable[[bytes], object]) -> None:
    with contextlib.suppress(OSError, EOFError, ValueError, paramiko.SSHException):
        while data := read(65536):
            write(data)


class LoopbackSshd:
    """Listens on a free port until `stop`. Change `script` between connections as you like."""

    def __init__(self, home: Path, host_keys: Sequence[paramiko.PKey], script: Script | None = None) -> None:
        self.home = home
        self.host_keys = list(host_keys)
        self.script = script or Script()
        self.seen = Seen()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(0.1)
        self.port: int = self._listener.getsockname()[1]
        self._transports: list[paramiko.Transport] = []
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @contextlib.contextmanager
    def running(self, process: subprocess.Popen[bytes]) -> Iterator[None]:
        """Remember a process for the length of its life."""
        self._processes.add(process)
        try:
            yield
        finally:
            self._processes.discard(process)

    @property
    def busy(self) -> bool:
        """True while a program of some client still runs."""
        return bool(self._processes)

    def drop_connections(self) -> None:
        """Cut every client off, as a dying network would."""
        for transport in self._transports:
            transport.close()

    def stop(self) -> None:
        """End the server, its connections and what they run."""
        self._stopping.set()
        self._thread.join(5)
        self._listener.close()
        self.drop_connections()
        for process in list(self._processes):
            process.kill()
        for transport in self._transports:
            transport.join(5)

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                stream, _ = self._listener.accept()
            except TimeoutError:
                continue
            if self.script.greeting is not None:
                stream.sendall(self.script.greeting)
            if self.script.close_at == "connect" or self.script.greeting is not None:
                stream.close()
                continue
            self._serve(stream)

    def _serve(self, stream: socket.socket) -> None:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport = paramiko.Transport(stream)
        transport.set_log_channel("siteannex.transport.ssh")
        for key in self.host_keys:
            transport.add_server_key(key)
        self._transports.append(transport)
        with contextlib.suppress(paramiko.SSHException, EOFError, OSError):
            transport.start_server(event=threading.Event(), server=Login(self, transport))
