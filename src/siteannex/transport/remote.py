"""`ShellTransport`: run, put and get over anything that can open byte channels. The concrete transports extend it."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path

from siteannex.errors import Evidence
from siteannex.failures import fail
from siteannex.ports import Command, CommandResult, Progress
from siteannex.transport.channels import ByteChannel, ChannelOpener
from siteannex.transport.frames import RawResult, quote
from siteannex.transport.shell import Shell
from siteannex.transport.upload import Upload

_MISSING = 44
_REOPEN_S = 2.0


class ChannelRefused(Exception):
    """The far side opens no further channel now (sshd's MaxSessions); carries its words."""


class ShellTransport:
    """A Transport made of one framed shell and, for each upload, one more channel."""

    def __init__(self, site: str, opener: ChannelOpener) -> None:
        self.site = site
        self._open = opener
        self._shell = Shell(site, self._open_shell)
        self._opened = 0
        self._count_lock = threading.Lock()

    @property
    def opened_channels(self) -> int:
        """How many channels have been opened so far."""
        return self._opened

    def run(self, commands: Sequence[Command], *, timeout_s: float = 60.0) -> list[CommandResult]:
        """Run the commands in order in one round trip, one result each. AnnexError when the link breaks."""
        return [result.decoded() for result in self._shell.run(commands, timeout_s=timeout_s)]

    def put(self, source: Path, target: str, *, progress: Progress | None = None, sha256: str = "") -> int:
        """Upload a file, verified by sha256 and moved into place atomically, mode 0600; returns bytes sent."""
        return Upload(self.site, source, target, progress, sha256).run(self._open_upload, self._framed)

    def get(self, path: str, *, limit_bytes: int) -> bytes | None:
        """The last `limit_bytes` of a remote file, or None when it does not exist."""
        quoted = quote(path if path.startswith("/") else f"./{path}")
        script = f"[ -e {quoted} ] || exit {_MISSING}\nexec tail -c {int(limit_bytes)} {quoted}"
        result = self._framed(Command(script), 60.0 + limit_bytes / 1e6)
        if result.status == _MISSING:
            return None
        if result.status != 0:
            raise fail(
                "file-unreadable",
                self.site,
                f"{path} at {self.site} cannot be read",
                evidence=[Evidence.tail(f"{self.site}: tail {path}", result.decoded().stderr)],
            )
        return result.stdout

    def close(self) -> None:
        """End this use of the connection."""
        self._shell.release()

    def _framed(self, command: Command, timeout_s: float) -> RawResult:
        return self._shell.run([command], timeout_s=timeout_s)[0]

    def _open_shell(self, command_line: str) -> ByteChannel:
        try:
            return self._patiently(command_line)
        except ChannelRefused as refusal:
            raise self._no_channel(refusal) from refusal

    def _open_upload(self, command_line: str) -> ByteChannel:
        try:
            return self._counted(command_line)
        except ChannelRefused:
            self._shell.release()  # a site may allow one channel at a time (MaxSessions 1): the shell's
        return self._open_shell(command_line)

    def _patiently(self, command_line: str) -> ByteChannel:
        """A site counts a channel until its program has ended, a moment after we closed it."""
        deadline = time.monotonic() + _REOPEN_S
        while True:
            try:
                return self._counted(command_line)
            except ChannelRefused:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.05)

    def _counted(self, command_line: str) -> ByteChannel:
        channel = self._open(command_line)
        with self._count_lock:
            self._opened += 1
        return channel

    def _no_channel(self, refusal: ChannelRefused) -> Exception:
        return fail(
            "channel-refused",
            self.site,
            f"{self.site} accepted the login and opens no channel for commands",
            evidence=[Evidence.tail("SSH channel open", str(refusal))],
        )
