"""Follow an HTCondor event log on disk: what is new since the last look, across rotation and replacement.

A log is known by inode, and by hashes of its first bytes and of those just before where reading stopped. Moved away
and begun anew (rotation): the old file is read to its end, then the new one. Shorter, or other bytes where known ones
stood (replacement): it is another log, and whoever keeps a state begins anew. The same bytes under a new inode (a
copy put in its place): reading goes on.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, tzinfo
from pathlib import Path
from typing import BinaryIO, Self
from zoneinfo import ZoneInfo

from siteannex.training.eventlog.stamps import Stamps
from siteannex.training.eventlog.text import Damage, Event, Splitter

_CHUNK = 1 << 16
_HEAD = 1024
_TAIL = 256


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where reading stopped: all that is needed to go on in another process."""

    inode: int
    offset: int
    head: str
    """SHA-256 of the first 1024 bytes, or of as many as were read."""
    tail: str
    """SHA-256 of the 256 bytes before `offset`, or of as many as there are."""
    last: float
    """The time of the last event, Unix seconds."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Some new events. `anew`: they are the first of another log, what was read before does not belong to it."""

    events: list[Event]
    anew: bool = False


def machine_zone() -> tzinfo:
    """This machine's time zone with its rules (HTCondor writes a log in the zone of its access point): TZ, else
    /etc/localtime, else UTC."""
    named = os.environ.get("TZ", "").lstrip(":")
    with suppress(OSError, ValueError, KeyError):
        if named:
            return ZoneInfo(named)
        with Path("/etc/localtime").open("rb") as file:
            return ZoneInfo.from_file(file)
    return UTC


class EventLog:
    """One log, read as it grows. OSError where it cannot be read; a log that is not there yet has no events."""

    def __init__(self, path: Path, zone: tzinfo, cursor: Cursor | None = None) -> None:
        self.path, self._zone = path, zone
        self._file: BinaryIO | None = None
        self._begin = cursor
        self._stamps = Stamps(zone, 0.0, last=cursor.last if cursor else 0.0)
        self._splitter = Splitter(self._stamps)
        self._anew = False
        self._known_marks = ("", "")
        self.notes: list[str] = []
        """What happened to the file: `rotated`, `replaced`, ... in words."""
        self.bytes_read = 0

    @property
    def damaged(self) -> int:
        """How many stretches of bytes were no whole event."""
        return self._splitter.damaged

    @property
    def damage(self) -> list[Damage]:
        """The first hundred of them."""
        return self._splitter.damage

    @property
    def unknown(self) -> int:
        """Events whose number this version does not know."""
        return self._splitter.unknown

    @property
    def steps_back(self) -> int:
        """How often the access point's clock went back by more than two minutes."""
        return self._stamps.steps_back

    @property
    def waiting(self) -> int:
        """Bytes of an event that is not whole yet."""
        return self._splitter.waiting

    def cursor(self) -> Cursor | None:
        """Where reading stands; None when no log was there."""
        if self._file is None:
            return self._begin
        return Cursor(_inode(self._file), self._splitter.offset, *self._known_marks, self._stamps.last)

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._begin = self.cursor()
            self._file.close()
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self) -> Iterator[Batch]:
        """All that is new, in pieces."""
        if self._file is None and not self._open():
            return
        if self._file is not None and self._changed(self._file):
            self._restart("replaced: other bytes stand where known ones stood; read again from its beginning")
        yield from self._drain()
        while self._file is not None and self._moved(self._file):
            if not self._next():
                return
            yield from self._drain()

    def _open(self) -> bool:
        begin, self._begin = self._begin, None
        if begin is not None and (old := self._known(begin)) is not None:
            self._take(old, begin.offset)
            return True
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            self._begin = begin
            return False
        self._take(file, 0)
        if begin is not None:
            self._anew = True
            self.notes.append("not the log that was read before; read from its beginning")
        return True

    def _known(self, begin: Cursor) -> BinaryIO | None:
        """The file a cursor speaks of: under its name, or moved aside by rotation."""
        beside = sorted(self.path.parent.glob(f"{self.path.name}.*")) if self.path.parent.is_dir() else []
        for path in [self.path, *beside]:
            with suppress(OSError):
                file = path.open("rb")
                same = path == self.path or _inode(file) == begin.inode
                if same and _marks(file, begin.offset) == (begin.head, begin.tail):
                    return file
                file.close()
        return None

    def _take(self, file: BinaryIO, offset: int) -> None:
        if self._file is not None:
            self._file.close()
        self._file = file
        before = self._splitter
        self._splitter = Splitter(self._stamps, offset=offset)
        self._splitter.damaged, self._splitter.unknown = before.damaged, before.unknown
        self._splitter.damage = before.damage
        self._known_marks = _marks(file, offset)
        file.seek(offset)

    def _marks(self, file: BinaryIO) -> tuple[str, str]:
        return _marks(file, self._splitter.offset)

    def _changed(self, file: BinaryIO) -> bool:
        """Whether the open file no longer holds what was read of it."""
        if os.fstat(file.fileno()).st_size < self._splitter.offset + self._splitter.waiting:
            return True
        return self._known_marks != self._marks(file)

    def _restart(self, why: str) -> None:
        assert self._file is not None
        self.notes.append(why)
        self._stamps = Stamps(self._zone, 0.0)
        self._take(os.fdopen(os.dup(self._file.fileno()), "rb"), 0)
        self._anew = True

    def _moved(self, file: BinaryIO) -> bool:
        try:
            return self.path.stat().st_ino != _inode(file)
        except OSError:
            return False

    def _next(self) -> bool:
        """Go on with the file that has taken the place of the one read to its end."""
        assert self._file is not None
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return False
        if self._splitter.offset and _marks(file, self._splitter.offset) == self._marks(self._file):
            self.notes.append("a copy took its place; went on where it was")
            self._take(file, self._splitter.offset)
            return True
        self._splitter.give_up("cut off by rotation")
        self.notes.append("rotated: the old file was read to its end, then the new one")
        self._take(file, 0)
        return True

    def _drain(self) -> Iterator[Batch]:
        assert self._file is not None
        self._stamps.not_after = os.fstat(self._file.fileno()).st_mtime
        position = self._splitter.offset + self._splitter.waiting
        while data := os.pread(self._file.fileno(), _CHUNK, position):
            position += len(data)
            self.bytes_read += len(data)
            events = self._splitter.feed(data)
            if events or self._anew:
                anew, self._anew = self._anew, False
                yield Batch(events, anew)
        self._known_marks = self._marks(self._file)


def _inode(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_ino


def _marks(file: BinaryIO, offset: int) -> tuple[str, str]:
    """Hashes of the first bytes and of the last ones before an offset; of fewer bytes where the file is shorter."""
    head = os.pread(file.fileno(), min(offset, _HEAD), 0)
    tail = os.pread(file.fileno(), min(offset, _TAIL), max(0, offset - _TAIL))
    return hashlib.sha256(head).hexdigest(), hashlib.sha256(tail).hexdigest()
