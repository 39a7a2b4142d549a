"""Byte channels: the one thing `Shell` and uploads need of a link, and the one over a child process's pipes."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

CHUNK = 65536
SHELL_COMMAND = "exec /bin/sh"
"""The constant command line of every channel; it means the same to sh, bash, tcsh, zsh and fish."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """What one turn brought: bytes taken for sending, bytes that arrived, whether the far side has ended."""

    sent: int = 0
    stdout: bytes = b""
    stderr: bytes = b""
    ended: bool = False


class ByteChannel(Protocol):
    """A running far program: its stdin, stdout and stderr."""

    def exchange(self, data: bytes | memoryview, timeout_s: float) -> Exchange:
        """Send what can be sent of `data` now and take what has arrived; wait at most `timeout_s` for either."""

    def end_input(self) -> None:
        """Close the program's stdin."""

    def exit_status(self) -> int | None:
        """After `ended`: the program's exit status, None when the link broke before it was told."""

    def close(self) -> None:
        """Give the channel up; the far program loses its stdin."""


ChannelOpener = Callable[[str], ByteChannel]
"""Starts the given constant command line at the far side. Raises AnnexError when the link or the site refuses."""


class PipeChannel:
    """A child process (a local shell, or `ssh` over an open master) as a ByteChannel. Starts at `PipeChannel.start`."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._stdin = process.stdin.fileno()
        self._open = {process.stdout.fileno(): "stdout", process.stderr.fileno(): "stderr"}
        self._input_open = True

    @classmethod
    def start(cls, argv: Sequence[str], *, cwd: str | None = None) -> PipeChannel:
        """Run `argv` in a session of its own, so that Ctrl-C at the terminal does not reach it. Raises OSError."""
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd=cwd,
            start_new_session=True,
        )
        assert process.stdin is not None
        os.set_blocking(process.stdin.fileno(), False)
        return cls(process)

    def exchange(self, data: bytes | memoryview, timeout_s: float) -> Exchange:
        """Send what can be sent of `data` now and take what has arrived; wait at most `timeout_s` for either."""
        poller = select.poll()
        for descriptor in self._open:
            poller.register(descriptor, select.POLLIN)
        if len(data) and self._input_open:
            poller.register(self._stdin, select.POLLOUT)
        arrived = {"stdout": b"", "stderr": b""}
        sent = 0
        for descriptor, _ in poller.poll(timeout_s * 1000):
            if descriptor == self._stdin:
                sent = self._write(data)
            else:
                name = self._open[descriptor]
                arrived[name] = self._read(descriptor)
        return Exchange(sent, arrived["stdout"], arrived["stderr"], ended=not self._open)

    def _write(self, data: bytes | memoryview) -> int:
        try:
            return os.write(self._stdin, data[:CHUNK])
        except BlockingIOError:
            return 0
        except OSError:
            self.end_input()
            return 0

    def _read(self, descriptor: int) -> bytes:
        chunk = os.read(descriptor, CHUNK)
        if not chunk:
            del self._open[descriptor]
        return chunk

    def end_input(self) -> None:
        """Close the program's stdin."""
        if self._input_open:
            self._input_open = False
            assert self._process.stdin is not None
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def exit_status(self) -> int | None:
        """The child's exit status; waits a moment for it."""
        try:
            return self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return None

    def close(self) -> None:
        """Close the pipes and end the child, which we started."""
        self.end_input()
        self._open.clear()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(timeout=0.5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
