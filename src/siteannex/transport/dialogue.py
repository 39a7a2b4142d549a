"""The SSH user authentication protocol (RFC 4252, RFC 4256), one request at a time, over a paramiko Transport.

paramiko's own helpers answer keyboard-interactive questions from the thread that reads the network, hide the server's
list of methods after a refusal, keep only the last banner and cannot ask whether a key is welcome before signing.
Here the reading thread only puts what the server says into a queue; the caller's thread asks the person and answers,
so that Ctrl-C and a connection that closes while someone types are noticed where they belong.
"""

from __future__ import annotations

import queue
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from paramiko.auth_handler import AuthHandler
from paramiko.common import (
    MSG_SERVICE_ACCEPT,
    MSG_USERAUTH_BANNER,
    MSG_USERAUTH_FAILURE,
    MSG_USERAUTH_INFO_REQUEST,
    MSG_USERAUTH_SUCCESS,
    cMSG_SERVICE_REQUEST,
    cMSG_USERAUTH_INFO_RESPONSE,
    cMSG_USERAUTH_REQUEST,
)
from paramiko.message import Message
from paramiko.packet import Packetizer
from paramiko.pkey import PKey
from paramiko.ssh_exception import SSHException
from paramiko.transport import Transport

from siteannex.errors import Secret

REPLY_TIMEOUT_S = 180.0
"""How long a server may judge: a push to a phone waits for the phone's owner."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The server's verdict on one request. `allowed` are the methods that can continue when not accepted."""

    accepted: bool
    partial: bool = False
    allowed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Questions:
    """One round of keyboard-interactive: texts as sent, prompts with their echo flag; often no prompt at all."""

    name: str
    instructions: str
    prompts: tuple[tuple[str, bool], ...]


Answerer = Callable[[Questions], Sequence[Secret]]


class KeyCandidate(Protocol):
    """A key that can be offered: the public part now, the private part only when the server wants it."""

    @property
    def label(self) -> str:
        """For messages: a path, or the agent's comment."""

    @property
    def key_type(self) -> str:
        """`ssh-ed25519`, `ssh-rsa-cert-v01@openssh.com`, ..."""

    @property
    def blob(self) -> bytes:
        """The public key or certificate in wire form; empty when it can only be had by unlocking."""

    def unlock(self) -> PKey | None:
        """The signing key, asking for a passphrase if need be; None when it cannot be had."""


class LinkLost(Exception):
    """The connection ended during the login; `words` is what the server or the network said."""

    def __init__(self, words: str) -> None:
        super().__init__(words)
        self.words = words


class NewPasswordWanted(Exception):
    """The server asks for a new password instead of judging the old one."""


@dataclass(frozen=True, slots=True)
class _KeyWelcome:
    pass


@dataclass(frozen=True, slots=True)
class _NewPassword:
    text: str


@dataclass(frozen=True, slots=True)
class _Started:
    pass


@dataclass(frozen=True, slots=True)
class _Banner:
    text: str


@dataclass(frozen=True, slots=True)
class _Lost:
    pass


_Event = Reply | Questions | _KeyWelcome | _NewPassword | _Started | _Banner | _Lost


class GreetingPacketizer(Packetizer):
    """Keeps what a server says before it speaks SSH, and how waiting for it ended."""

    def __init__(self, stream: socket.socket) -> None:
        super().__init__(stream)
        self.greeting: list[str] = []
        self.silence: Exception | None = None

    def readline(self, timeout: float) -> str:
        """One line of the greeting."""
        try:
            line = super().readline(timeout)
        except Exception as problem:
            self.silence = problem
            raise
        self.greeting.append(line)
        return line


class LoginConnection(Transport):
    """A paramiko Transport that keeps the server's greeting and the words of its disconnect message."""

    disconnect_words: str = ""

    def __init__(self, stream: socket.socket) -> None:
        super().__init__(stream, packetizer_class=GreetingPacketizer)

    @property
    def foreign_greeting(self) -> str:
        """What the server said before, or in place of, an SSH version."""
        lines: list[str] = getattr(self.packetizer, "greeting", [])
        return "\n".join(line for line in lines if not line.startswith("SSH-"))

    @property
    def kept_silent(self) -> bool:
        """True when the server said nothing for as long as we waited."""
        return isinstance(getattr(self.packetizer, "silence", None), TimeoutError)

    def _parse_disconnect(self, message: Message) -> None:
        message.get_int()
        self.disconnect_words = _text(message)


class Dialogue(AuthHandler):
    """One login on one connection. Banners go to `on_banner`, in the caller's thread, in the order of arrival."""

    def __init__(self, connection: LoginConnection, user: str, on_banner: Callable[[str], None]) -> None:
        super().__init__(connection)
        self._connection = connection
        self._user = user
        self._on_banner = on_banner
        self._events: queue.SimpleQueue[_Event] = queue.SimpleQueue()
        self._service = False
        connection.auth_handler = self

    # what paramiko's reading thread calls

    @property
    def _client_handler_table(self) -> dict[int, Callable[[Message], None]]:
        return {
            MSG_SERVICE_ACCEPT: lambda _: self._events.put(_Started()),
            MSG_USERAUTH_SUCCESS: self._on_success,
            MSG_USERAUTH_FAILURE: self._on_failure,
            MSG_USERAUTH_BANNER: lambda message: self._events.put(_Banner(_text(message))),
            MSG_USERAUTH_INFO_REQUEST: self._on_message_60,
        }

    def abort(self) -> None:
        """The reading thread has ended."""
        self._events.put(_Lost())

    def _on_success(self, _message: Message) -> None:
        self.authenticated = True
        self._connection._auth_trigger()  # type: ignore[attr-defined]  # starts zlib@openssh.com
        self._events.put(Reply(accepted=True))

    def _on_failure(self, message: Message) -> None:
        allowed = tuple(name for name in _text(message).split(",") if name)
        self._events.put(Reply(accepted=False, partial=message.get_boolean(), allowed=allowed))

    def _on_message_60(self, message: Message) -> None:
        # RFC 4252 gives one number three meanings, told apart by the method under way.
        if self.auth_method == "publickey":
            self._events.put(_KeyWelcome())
        elif self.auth_method == "password":
            self._events.put(_NewPassword(_text(message)))
        else:
            name, instructions = _text(message), _text(message)
            message.get_binary()
            count = message.get_int()
            prompts = tuple((_text(message), message.get_boolean()) for _ in range(count))
            self._events.put(Questions(name, instructions, prompts))

    # what the login calls

    def none(self) -> Reply:
        """Ask for nothing, to learn the methods."""
        self._request("none", lambda _: None)
        return self._verdict()

    def offer(self, candidate: KeyCandidate) -> Reply:
        """Ask whether a key is welcome; sign only then. A key that cannot be unlocked: refused, with no list."""
        key, kind, blob = None, candidate.key_type, candidate.blob
        if not blob:
            key = candidate.unlock()
            if key is None:
                return Reply(accepted=False, allowed=())
            kind, blob = key.get_name(), key.asbytes()
        algorithm = self._algorithm(kind)

        def query(message: Message) -> None:
            message.add_boolean(False)
            message.add_string(algorithm)
            message.add_string(blob)

        self._request("publickey", query)
        event = self._next()
        if isinstance(event, Reply):
            return event
        if not isinstance(event, _KeyWelcome):
            raise LinkLost(f"unexpected message during publickey: {type(event).__name__}")
        key = key or candidate.unlock()
        if key is None:
            return Reply(accepted=False, allowed=())
        signature = self._sign(key, algorithm, blob)

        def proof(message: Message) -> None:
            message.add_boolean(True)
            message.add_string(algorithm)
            message.add_string(blob)
            message.add_string(signature)

        self._request("publickey", proof)
        return self._verdict()

    def password_login(self, password: Secret) -> Reply:
        """Method `password`. Raises NewPasswordWanted when the server asks for a change."""

        def finish(message: Message) -> None:
            message.add_boolean(False)
            message.add_string(password.reveal().encode())

        self._request("password", finish)
        return self._verdict()

    def interactive(self, answer: Answerer) -> Reply:
        """Method `keyboard-interactive`: as many rounds of questions as the server has."""

        def finish(message: Message) -> None:
            message.add_string("")
            message.add_string("")

        self._request("keyboard-interactive", finish)
        while isinstance(event := self._next(), Questions):
            answers = answer(event)
            message = Message()
            message.add_byte(cMSG_USERAUTH_INFO_RESPONSE)
            message.add_int(len(answers))
            for secret in answers:
                message.add_string(secret.reveal().encode())
            self._send(message)
        if isinstance(event, Reply):
            return event
        raise LinkLost(f"unexpected message during keyboard-interactive: {type(event).__name__}")

    def _request(self, method: str, finish: Callable[[Message], None]) -> None:
        if not self._service:
            opening = Message()
            opening.add_byte(cMSG_SERVICE_REQUEST)
            opening.add_string("ssh-userauth")
            self._send(opening)
            if not isinstance(self._next(), _Started):
                raise LinkLost("the server does not offer ssh-userauth")
            self._service = True
        self.auth_method = method
        message = Message()
        message.add_byte(cMSG_USERAUTH_REQUEST)
        message.add_string(self._user)
        message.add_string("ssh-connection")
        message.add_string(method)
        finish(message)
        self._send(message)

    def _send(self, message: Message) -> None:
        if not self._connection.is_active():
            raise LinkLost(self._last_words())
        try:
            self._connection.packetizer.send_message(message)
        except (OSError, EOFError) as problem:
            raise LinkLost(self._last_words() or str(problem)) from problem

    def _verdict(self) -> Reply:
        event = self._next()
        if isinstance(event, _NewPassword):
            raise NewPasswordWanted(event.text)
        if isinstance(event, Reply):
            return event
        raise LinkLost(f"unexpected message during {self.auth_method}: {type(event).__name__}")

    def _next(self) -> _Event:
        deadline = time.monotonic() + REPLY_TIMEOUT_S
        while time.monotonic() < deadline:
            try:
                event = self._events.get(timeout=0.25)
            except queue.Empty:
                if self._connection.is_active():
                    continue
                event = _Lost()
            if isinstance(event, _Lost):
                raise LinkLost(self._last_words())
            if not isinstance(event, _Banner):
                return event
            self._on_banner(event.text)
        raise LinkLost(f"the server said nothing for {REPLY_TIMEOUT_S:.0f} s")

    def _last_words(self) -> str:
        problem = self._connection.get_exception()
        return self._connection.disconnect_words or (str(problem) if problem else "") or "connection closed"

    def _algorithm(self, key_type: str) -> str:
        if "rsa" not in key_type:
            return key_type
        extensions: dict[str, bytes] = getattr(self._connection, "server_extensions", {})
        offered = extensions.get("server-sig-algs", b"").decode("ascii", "replace")
        wanted = ("rsa-sha2-512", "rsa-sha2-256")
        known = [name for name in wanted if not offered or name in offered.split(",")]
        suffix = "-cert-v01@openssh.com" if key_type.endswith("-cert-v01@openssh.com") else ""
        return (known or list(wanted))[0] + suffix

    def _sign(self, key: PKey, algorithm: str, blob: bytes) -> bytes:
        message = Message()
        message.add_string(self._connection.session_id or b"")
        message.add_byte(cMSG_USERAUTH_REQUEST)
        message.add_string(self._user)
        message.add_string("ssh-connection")
        message.add_string("publickey")
        message.add_boolean(True)
        message.add_string(algorithm)
        message.add_string(blob)
        try:
            signature: bytes | Message = key.sign_ssh_data(message.asbytes(), algorithm)
        except SSHException:  # an agent that will not sign (its owner said no): the key is as good as absent
            return b""
        return signature if isinstance(signature, bytes) else signature.asbytes()


def _text(message: Message) -> str:
    return message.get_binary().decode("utf-8", "replace")
