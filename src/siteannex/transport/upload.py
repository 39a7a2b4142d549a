"""Uploads: bytes into `cat` on a channel of their own, then one framed round trip that checks and moves into place.

No SFTP: an rc file that prints breaks its first packet. Nothing is ever visible under the target's name but the
whole, verified file. A `.part-*` file outlives its upload only when the login node dies; the next upload sweeps it up.
An upload whose sum is known beforehand can be resumed: its `.part` stays when the connection is cut.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from siteannex.errors import AnnexError, Evidence
from siteannex.failures import fail
from siteannex.ports import Command, Progress
from siteannex.transport.channels import CHUNK, ByteChannel, ChannelOpener
from siteannex.transport.frames import RawResult, new_boundary, quote
from siteannex.transport.room import with_room, write_failure

RECEIVE_COMMAND = (
    "/bin/sh -c 'LC_ALL=C; export LC_ALL; umask 077; IFS= read -r mark; IFS= read -r part; IFS= read -r size; "
    'echo "$mark" >&2; mkdir -p "${part%/*}" || exit 1; cat >"$part"; status=$?; '
    '[ "$(wc -c <"$part")" -eq "$size" ] || rm -f "$part"; exit $status\''
)
"""The constant command line of an upload channel; three lines of stdin (a mark, the path, the size), then the bytes.

The mark on stderr parts what rc files printed from what went wrong. What does not arrive whole, because the disk is
full or the connection was cut, the far side removes by itself.
"""

BLOCK = 65536
RESUME_COMMAND = (
    "/bin/sh -c 'LC_ALL=C; export LC_ALL; umask 077; IFS= read -r mark; IFS= read -r part; IFS= read -r blocks; "
    f'echo "$mark" >&2; mkdir -p "${{part%/*}}" || exit 1; exec dd bs={BLOCK} of="$part" seek="$blocks" conv=notrunc\''
)
"""The same for an upload that goes on after so many blocks. Whatever a cut connection's dd still writes it writes in
the same places, byte for byte the same, so that two at once do no harm."""

STALL_S = 60.0
"""An upload that moves no byte for so long is given up."""

_FINISH = """\
part={part} target={target}
size=$(wc -c <"$part" | tr -d ' ') || exit 66
if command -v sha256sum >/dev/null 2>&1; then sum=$(sha256sum <"$part")
elif command -v openssl >/dev/null 2>&1; then sum=$(openssl dgst -sha256 -r <"$part")
elif command -v shasum >/dev/null 2>&1; then sum=$(shasum -a 256 <"$part")
else rm -f "$part"; echo "none of sha256sum, openssl and shasum is installed" >&2; exit 67; fi
sum=${{sum%%[ *]*}}
if [ "$size" != {size} ] || [ "$sum" != {sha256} ]; then
  rm -f "$part"; echo "$size bytes, sha256 $sum"; exit 65
fi
chmod 600 "$part" && mv -f "$part" "$target" || {{ rm -f "$part"; exit 66; }}
find "${{target%/*}}" -maxdepth 1 -name "${{target##*/}}.part-*" -mmin +120 -exec rm -f {{}} + 2>/dev/null
exit 0
"""
_MISMATCH, _NO_TOOL = 65, 67
_GOES_ON = frozenset(
    {"upload-cut", "link-broken", "remote-timeout", "channel-refused", "session-needed", "session-holder-lost"}
)
"""After these a resumable upload leaves what it has sent."""

FramedRun = Callable[[Command, float], RawResult]


@dataclass(frozen=True, slots=True)
class _Sent:
    size: int
    sha256: str


class Upload:
    """One file on its way to one target. `run()` once."""

    def __init__(self, site: str, source: Path, target: str, progress: Progress | None, sha256: str = "") -> None:
        self._site = site
        self._source = source
        self._target = target if "/" in target else f"./{target}"
        self._sha256 = sha256
        self._part = f"{self._target}.part" if sha256 else f"{self._target}.part-{secrets.token_hex(4)}"
        self._progress = progress or (lambda _done, _total: None)
        self._complaint = b""

    def run(self, opener: ChannelOpener, framed: FramedRun) -> int:
        """Send, check, move into place; the number of bytes sent.

        Raises AnnexError: ship-failed, quota-exceeded, site-disk-full, home-unwritable, ship-corrupt, upload-cut,
        and what a command can end in.
        """
        if "\n" in self._target or "\0" in self._target:
            raise ValueError("a target path cannot contain a newline or NUL")
        try:
            with self._source.open("rb") as stream:
                blocks = self._blocks_there(framed) if self._sha256 else 0
                digest = _digest_of(stream, blocks * BLOCK)
                channel = opener(RESUME_COMMAND if self._sha256 else RECEIVE_COMMAND)
                try:
                    sent = self._send(channel, stream, digest, blocks)
                finally:
                    with contextlib.suppress(OSError):
                        channel.close()
        except OSError as problem:
            raise fail(
                "ship-failed",
                self._site,
                f"{self._source} cannot be read here",
                evidence=[Evidence.tail(str(self._source), str(problem))],
                hint="Check the file on this machine.",
            ) from problem
        except AnnexError as problem:
            if not (self._sha256 and problem.failure.code in _GOES_ON):
                self._sweep(framed)
            raise with_room(problem, quote(self._target), self._asking(framed)) from problem
        except BaseException:
            if not self._sha256:
                self._sweep(framed)
            raise
        if self._sha256 not in ("", sent.sha256):
            self._sweep(framed)
            raise fail("ship-failed", self._site, f"{self._source} changed while it was sent", hint="Run it again.")
        self._finish(framed, sent)
        return sent.size - blocks * BLOCK

    def _blocks_there(self, framed: FramedRun) -> int:
        """Whole blocks of this content that an earlier upload has left."""
        answer = framed(Command(f"[ -f {quote(self._part)} ] && wc -c <{quote(self._part)}"), 60.0).decoded()
        there = int(answer.stdout) if answer.stdout.strip().isdecimal() else 0
        if there <= self._source.stat().st_size:
            return there // BLOCK
        self._sweep(framed)
        return 0

    def _send(self, channel: ByteChannel, stream: BinaryIO, digest: hashlib._Hash, blocks: int) -> _Sent:
        total = self._source.stat().st_size
        mark = new_boundary()
        size = blocks * BLOCK
        self._progress(size, total)
        third = blocks if self._sha256 else total
        self._push(channel, f"{mark}\n{self._part}\n{third}\n".encode("utf-8", "surrogateescape"), mark)
        while block := stream.read(CHUNK):
            self._push(channel, block, mark)
            digest.update(block)
            size += len(block)
            self._progress(size, max(size, total))
        channel.end_input()
        self._await_end(channel, mark)
        return _Sent(size, digest.hexdigest())

    def _push(self, channel: ByteChannel, data: bytes, mark: str) -> None:
        pending = memoryview(data)
        moved = time.monotonic()
        while len(pending):
            turn = channel.exchange(pending, 0.25)
            pending = pending[turn.sent :]
            self._complaint += turn.stderr
            if turn.ended:
                raise self._refused(channel.exit_status(), mark)
            if turn.sent:
                moved = time.monotonic()
            elif time.monotonic() - moved > STALL_S:
                raise fail("upload-cut", self._site, f"{self._site} took no byte of the upload for {STALL_S:.0f} s")

    def _await_end(self, channel: ByteChannel, mark: str) -> None:
        deadline = time.monotonic() + STALL_S
        while time.monotonic() < deadline:
            turn = channel.exchange(b"", 0.25)
            self._complaint += turn.stderr
            if turn.ended:
                if (status := channel.exit_status()) != 0:
                    raise self._refused(status, mark)
                return
        raise fail("upload-cut", self._site, f"{self._site} did not end the upload in {STALL_S:.0f} s")

    def _refused(self, status: int | None, mark: str) -> AnnexError:
        said = self._complaint.decode("utf-8", "replace").rpartition(f"{mark}\n")[2]
        folder = self._target.rpartition("/")[0]
        evidence = [Evidence.tail(f"cat into {folder} at {self._site}, exit status {status}", said)]
        if status is None:
            return fail(
                "upload-cut",
                self._site,
                f"the link to {self._site} broke during the upload; "
                + ("the same command goes on from there" if self._sha256 else "nothing of it is used"),
                evidence=evidence if said.strip() else (),
            )
        what = f"a file could not be written in {folder} at {self._site}"
        return write_failure(self._site, what, said, evidence, needed_bytes=self._source.stat().st_size)

    def _finish(self, framed: FramedRun, sent: _Sent) -> None:
        script = _FINISH.format(part=quote(self._part), target=quote(self._target), size=sent.size, sha256=sent.sha256)
        result = framed(Command(script), 60.0 + sent.size / 50e6)
        if result.status == 0:
            return
        answer = result.decoded()
        seen = [
            Evidence.tail(
                f"{self._site}: check of {self._part} (exit status {answer.status})",
                f"{answer.stdout}\n{answer.stderr}",
            )
        ]
        if result.status == _MISMATCH:
            raise fail(
                "ship-corrupt",
                self._site,
                f"{self._target}: sent {sent.size} bytes, sha256 {sent.sha256}; something else arrived",
                evidence=seen,
            )
        reason = "cannot be verified at the site" if result.status == _NO_TOOL else "could not be moved into place"
        raise fail("ship-failed", self._site, f"{self._target} {reason}", evidence=seen)

    def _asking(self, framed: FramedRun) -> Callable[[str], str]:
        return lambda script: framed(Command(script), 40.0).decoded().stdout

    def _sweep(self, framed: FramedRun) -> None:
        with contextlib.suppress(AnnexError, OSError):
            framed(Command(f"rm -f {quote(self._part)}"), 10.0)


def _digest_of(stream: BinaryIO, count: int) -> hashlib._Hash:
    """The sum of the first `count` bytes, which are read."""
    digest = hashlib.sha256()
    while count and (block := stream.read(min(count, 1 << 20))):
        digest.update(block)
        count -= len(block)
    return digest
