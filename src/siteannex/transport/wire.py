"""The Unix socket between clients and the session holder: private directory, peer check, lines of messages."""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path

from siteannex.failures import fail
from siteannex.private import private_directory as private_directory
from siteannex.transport.messages import Message, decode, encode
from siteannex.transport.places import SOCKET_PATH_LIMIT_BYTES


class PeerGone(Exception):
    """The other end closed the socket."""


class Wire:
    """Messages both ways over one connected socket."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._reader = stream.makefile("rb")

    def send(self, message: Message) -> None:
        """Send one message. Raises PeerGone."""
        try:
            self._stream.sendall(encode(message))
        except OSError as problem:
            raise PeerGone(str(problem)) from problem

    def receive(self, timeout_s: float | None = None) -> Message:
        """The next message. Raises PeerGone at the end of the stream, TimeoutError, BadMessage."""
        self._stream.settimeout(timeout_s)
        try:
            line = self._reader.readline()
        except TimeoutError:
            raise
        except (OSError, ValueError) as problem:
            raise PeerGone(str(problem)) from problem
        finally:
            self._stream.settimeout(None)
        if not line.endswith(b"\n"):
            raise PeerGone("closed")
        return decode(line)

    def close(self) -> None:
        """Close the socket."""
        self._reader.close()
        self._stream.close()


def peer_is_me(stream: socket.socket) -> bool:
    """True when the process at the other end belongs to our user (SO_PEERCRED, unix(7))."""
    size = struct.calcsize("3i")
    _, uid, _ = struct.unpack("3i", stream.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return bool(uid == os.getuid())


def check_length(site: str, path: Path) -> None:
    """Raises AnnexError when the path does not fit into a Unix socket's address."""
    length = len(os.fsencode(path))
    if length > SOCKET_PATH_LIMIT_BYTES:
        raise fail(
            "session-holder-lost",
            site,
            f"the path of the session socket has {length} bytes, Unix allows {SOCKET_PATH_LIMIT_BYTES}: {path}",
            hint="Set XDG_RUNTIME_DIR to a short directory of yours.",
        )


def dial(path: Path) -> Wire:
    """Connect to the holder. Raises OSError when nobody listens or the listener is not our user's."""
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        stream.connect(str(path))
        if not peer_is_me(stream):
            raise PermissionError(f"{path} belongs to another user")
    except BaseException:
        stream.close()
        raise
    return Wire(stream)
