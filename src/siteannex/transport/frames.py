"""Framing: many commands in one script for a `/bin/sh` that reads stdin, and their answers out of two byte streams.

A random boundary is printed on stdout and on stderr before the first command and after each one. What a login
shell's rc files, banners or a tcsh print before the first boundary is dropped; between boundaries every byte counts.
Pure: no clock, no channel. The boundary is given by the caller (`new_boundary()` in production).
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from siteannex.ports import Command, CommandResult

SCRIPT_LIMIT_BYTES = 100_000
"""Longest script of one command: Linux takes at most 128 KiB for one argument of a program."""


@dataclass(frozen=True, slots=True)
class RawResult:
    """One command's answer as bytes."""

    status: int
    stdout: bytes
    stderr: bytes

    def decoded(self) -> CommandResult:
        """The answer as text; bytes that are no UTF-8 become U+FFFD."""
        return CommandResult(
            self.status,
            self.stdout.decode("utf-8", "replace"),
            self.stderr.decode("utf-8", "replace"),
        )


def new_boundary() -> str:
    """A boundary nobody can guess or print by accident."""
    return f"siteannex-{secrets.token_hex(16)}"


def quote(text: str) -> str:
    """One word of POSIX shell, whatever is in the text (except NUL, which no shell can carry)."""
    return "'" + text.replace("'", "'\\''") + "'"


def render(commands: Sequence[Command], boundary: str) -> bytes:
    """The script for the far shell. Raises ValueError for what a shell cannot carry (NUL, a script over the limit)."""
    lines = [_mark(f"{boundary} begin")]
    lines += [_one(index, command, boundary) for index, command in enumerate(commands)]
    return "".join(lines).encode("utf-8", "surrogateescape")


def _mark(text: str) -> str:
    return f"printf '\\n%s\\n' '{text}'; printf '\\n%s\\n' '{text}' >&2\n"


def _one(index: int, command: Command, boundary: str) -> str:
    _check(command)
    run = f"/bin/sh -c {quote(command.script)}"
    finish = (
        f"siteannex_status=$?; printf '\\n%s %d\\n' '{boundary} {index}' \"$siteannex_status\"; "
        f"printf '\\n%s\\n' '{boundary} {index}' >&2\n"
    )
    if not command.stdin:
        return f"{run} </dev/null\n{finish}"
    # Not a here-document: those always end with a newline, need a writable /tmp in older bash, and dash 0.5.12 loses
    # bytes when a line starts like the delimiter and goes on with a non-ASCII character.
    return f"printf '%b' {_escaped(command.stdin)} 2>/dev/null | {run}\n{finish}"


def _escaped(text: str) -> str:
    """A word that `printf %b` turns into these bytes; plain ASCII but for newlines and tabs."""
    data = text.encode("utf-8", "surrogateescape")
    plain = b"".join(
        b"\\\\" if byte == 0x5C else bytes([byte]) if _is_plain(byte) else b"\\0%03o" % byte for byte in data
    )
    return quote(plain.decode("ascii"))


def _is_plain(byte: int) -> bool:
    return 0x20 <= byte < 0x7F or byte in b"\n\t"


def _check(command: Command) -> None:
    if "\0" in command.script or "\0" in command.stdin:
        raise ValueError("a command for a site cannot contain NUL")
    if len(command.script.encode("utf-8", "surrogateescape")) > SCRIPT_LIMIT_BYTES:
        raise ValueError(f"a command for a site is longer than {SCRIPT_LIMIT_BYTES} bytes")


class AnswerParser:
    """Bytes of the two streams in, results out. Feed chunks of any size; `results` grows as answers complete."""

    def __init__(self, count: int, boundary: str) -> None:
        self._count = count
        self._out = _Stream(boundary.encode(), count, with_status=True)
        self._err = _Stream(boundary.encode(), count, with_status=False)

    def feed(self, stdout: bytes = b"", stderr: bytes = b"") -> None:
        """Take more bytes of either stream."""
        self._out.feed(stdout)
        self._err.feed(stderr)

    @property
    def done(self) -> bool:
        """True when every command has answered on both streams."""
        return len(self._out.parts) == len(self._err.parts) == self._count and self.begun

    @property
    def begun(self) -> bool:
        """True when the far shell has spoken at all."""
        return self._out.begun and self._err.begun

    @property
    def results(self) -> list[RawResult]:
        """The commands answered so far, in order."""
        pairs = zip(self._out.parts, self._err.parts, strict=False)
        return [RawResult(out.status, out.body, err.body) for out, err in pairs]

    @property
    def unfinished(self) -> tuple[bytes, bytes]:
        """What both streams said after the last boundary, or the noise before the first: evidence of a break."""
        return self._out.rest, self._err.rest


@dataclass(frozen=True, slots=True)
class _Part:
    status: int
    body: bytes


class _Stream:
    """One stream cut at its boundaries. Only the bytes that could hold the next boundary are searched again."""

    def __init__(self, boundary: bytes, count: int, *, with_status: bool) -> None:
        self._boundary = boundary
        self._count = count
        self._with_status = with_status
        self._buffer = bytearray()
        self._searched = 0
        self.begun = False
        self.parts: list[_Part] = []

    @property
    def rest(self) -> bytes:
        return bytes(self._buffer)

    def feed(self, data: bytes) -> None:
        self._buffer += data
        while self._step():
            pass

    def _step(self) -> bool:
        if self.begun and len(self.parts) == self._count:
            return False
        label = b" begin" if not self.begun else b" %d" % len(self.parts)
        needle = b"\n" + self._boundary + label + (b" " if self.begun and self._with_status else b"\n")
        at = self._buffer.find(needle, self._searched)
        if at < 0:
            self._searched = max(0, len(self._buffer) - len(needle) + 1)
            return False
        end = at + len(needle)
        status = 0
        if needle.endswith(b" "):
            newline = self._buffer.find(b"\n", end)
            if newline < 0:
                self._searched = at
                return False
            status = int(self._buffer[end:newline])
            end = newline + 1
        if self.begun:
            self.parts.append(_Part(status, bytes(self._buffer[:at])))
        self.begun = True
        del self._buffer[:end]
        self._searched = 0
        return True
