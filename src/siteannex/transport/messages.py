"""What a client and the session holder say to each other: typed messages, one JSON object a line.

Every line carries the protocol's version. Bytes travel as base64, secrets in the clear: the socket is private to the
user (0600 in a 0700 directory, both peers' uid checked) and nothing of it is logged.
"""

from __future__ import annotations

import base64
import binascii
import json
import types
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Union, get_args, get_origin, get_type_hints

from siteannex.errors import Secret, StageFailure
from siteannex.ports import Command, CommandResult, Prompt

VERSION = 1


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A held session, as `siteannex sessions` shows it. Times are UTC."""

    site: str
    login: str
    """`user@host`, with the port when it is not 22."""
    address: str
    """`host:port` of the site file the session was opened for."""
    since: datetime
    idle_until: datetime
    """When it ends without further use."""
    channels_opened: int
    authentications: int


# from the client


@dataclass(frozen=True, slots=True)
class Ping:
    """Are you there?"""


@dataclass(frozen=True, slots=True)
class LoginRequest:
    """Open a session. Questions come back as Ask, Confirm and Tell."""

    site_json: str
    user: str | None
    stored_password: Secret | None
    agent_socket: str | None


@dataclass(frozen=True, slots=True)
class RunRequest:
    """Run commands in a held session."""

    site: str
    login: str
    commands: tuple[Command, ...]
    timeout_s: float


@dataclass(frozen=True, slots=True)
class PutRequest:
    """Upload a local file; Progress comes back until Sent."""

    site: str
    login: str
    source: str
    target: str
    sha256: str
    """Of its content, so that it can be resumed; or empty."""


@dataclass(frozen=True, slots=True)
class GetRequest:
    """Fetch the end of a remote file."""

    site: str
    login: str
    path: str
    limit_bytes: int


@dataclass(frozen=True, slots=True)
class SessionsRequest:
    """List the sessions."""


@dataclass(frozen=True, slots=True)
class LogoutRequest:
    """End a site's session, or all of them and the holder."""

    site: str | None


@dataclass(frozen=True, slots=True)
class Answer:
    """The person's answer to Ask."""

    secret: Secret


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The person's answer to Confirm."""

    yes: bool


@dataclass(frozen=True, slots=True)
class Declined:
    """Nobody could answer; why."""

    failure: StageFailure


# from the holder


@dataclass(frozen=True, slots=True)
class Pong:
    """Here I am."""

    pid: int


@dataclass(frozen=True, slots=True)
class Ask:
    """Show a prompt and send the answer."""

    prompt: Prompt


@dataclass(frozen=True, slots=True)
class Confirm:
    """Show an unknown host key and send whether it is accepted."""

    host: str
    key_type: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Tell:
    """Show a text; nothing is sent back."""

    text: str


@dataclass(frozen=True, slots=True)
class Progress:
    """Bytes of an upload so far."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class LoggedIn:
    """The session is open."""

    session: SessionInfo


@dataclass(frozen=True, slots=True)
class Results:
    """The commands' answers."""

    results: tuple[CommandResult, ...]


@dataclass(frozen=True, slots=True)
class Sent:
    """The upload is in place."""

    size: int


@dataclass(frozen=True, slots=True)
class Content:
    """The file's end, or None when there is no such file."""

    data: bytes | None


@dataclass(frozen=True, slots=True)
class SessionList:
    """All sessions."""

    sessions: tuple[SessionInfo, ...]


@dataclass(frozen=True, slots=True)
class LoggedOut:
    """The sites whose sessions were ended."""

    sites: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Failed:
    """The request failed; the failure, whole."""

    failure: StageFailure


FromClient = (
    Ping
    | LoginRequest
    | RunRequest
    | PutRequest
    | GetRequest
    | SessionsRequest
    | LogoutRequest
    | Answer
    | Confirmed
    | Declined
)
FromHolder = (
    Pong | Ask | Confirm | Tell | Progress | LoggedIn | Results | Sent | Content | SessionList | LoggedOut | Failed
)
Message = FromClient | FromHolder


class BadMessage(Exception):
    """A line that is no message of this version; says what is wrong, quotes nothing of it."""


def encode(message: Message) -> bytes:
    """One line, newline included."""
    body = {"v": VERSION, "type": type(message).__name__, **_fields_out(message)}
    return json.dumps(body, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> Message:
    """The message in one line. Raises BadMessage."""
    try:
        body = json.loads(line)
    except (ValueError, UnicodeDecodeError):
        raise BadMessage("a line that is not JSON") from None
    if not isinstance(body, dict):
        raise BadMessage("a line that is not an object")
    if body.get("v") != VERSION:
        raise BadMessage(f"protocol version {body.get('v')!r}; this siteannex speaks {VERSION}")
    kind = _KINDS.get(str(body.get("type")))
    if kind is None:
        raise BadMessage(f"unknown message type {str(body.get('type'))[:40]!r}")
    try:
        message = _in(kind, {key: value for key, value in body.items() if key not in {"v", "type"}})
    except (KeyError, TypeError, ValueError, AttributeError, binascii.Error) as problem:
        raise BadMessage(f"{kind.__name__} with a bad field ({type(problem).__name__})") from None
    return message  # type: ignore[no-any-return]


_KINDS: dict[str, type] = {kind.__name__: kind for kind in get_args(Message)}


def _fields_out(value: Any) -> dict[str, object]:
    return {item.name: _out(getattr(value, item.name)) for item in fields(value)}


def _out(value: Any) -> object:
    if isinstance(value, Secret):
        return value.reveal()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value):
        return _fields_out(value)
    if isinstance(value, tuple):
        return [_out(item) for item in value]
    return value


def _in(kind: Any, value: Any) -> Any:
    """Build a value of the annotated type; KeyError, TypeError or ValueError when it does not fit."""
    origin = get_origin(kind)
    if origin in {Union, types.UnionType}:
        if value is None:
            return None
        (inner,) = (option for option in get_args(kind) if option is not type(None))
        return _in(inner, value)
    if origin is tuple:
        (item, _) = get_args(kind)
        return tuple(_in(item, part) for part in _expect(value, list))
    if kind is Secret:
        return Secret(_expect(value, str))
    if kind is bytes:
        return base64.b64decode(_expect(value, str), validate=True)
    if kind is datetime:
        return datetime.fromisoformat(_expect(value, str))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        parts = {item.name: _in(hints[item.name], _expect(value, dict)[item.name]) for item in fields(kind)}
        build: Any = kind
        return build(**parts)
    return float(_expect(value, int, float)) if kind is float else _expect(value, kind)


def _expect(value: Any, *kinds: type) -> Any:
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise TypeError("unexpected JSON type")
    return value
