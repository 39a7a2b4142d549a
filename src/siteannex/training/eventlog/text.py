"""HTCondor's job event log as text: bytes in, events and damage out. Pure but for what has been read so far.

An event is a header (`004 (12.000.000) 2026-05-06 11:28:27 Job was evicted.`), more lines, and a line `...`. Reading
goes by that line, so that nothing damaged costs more than itself. Bodies stay bytes until somebody asks for them
(`eventlog_details`): most events of a long log are sizes that nobody looks at.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import NamedTuple

from siteannex.training.eventlog.stamps import Stamps

SEPARATOR = b"\n...\n"
_LONGEST = 8 << 20
"""Bytes without a separator after which they are given up as damage: memory stays flat."""
_MOST_SAMPLES = 100
_HEADER = re.compile(
    rb"((\d{3}) \((-?\d+)\.(-?\d+)\.(-?\d+)\)) "
    rb"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d|\d\d/\d\d \d\d:\d\d):(\d\d(?:\.\d+)?)(Z)?(?= |\n|$)"
)
_ANOTHER = b".000) 20"
"""What no event with a dated header has a second time, unless another event is in it (or a text that looks so): the end
of HTCondor's unused third number, and the century."""
_SECONDS = {f":{second:02} ".encode(): float(second) for second in range(61)}
_MOST_KNOWN = 65_536
_EVENT_BEGINS = re.compile(rb"\d{3} \(|.{0,4}\Z", re.DOTALL)


class Kind(IntEnum):
    """HTCondor's event numbers (ULogEventNumber, 25.14)."""

    SUBMIT = 0
    EXECUTE = 1
    EXECUTABLE_ERROR = 2
    CHECKPOINTED = 3
    JOB_EVICTED = 4
    JOB_TERMINATED = 5
    IMAGE_SIZE = 6
    SHADOW_EXCEPTION = 7
    GENERIC = 8
    JOB_ABORTED = 9
    JOB_SUSPENDED = 10
    JOB_UNSUSPENDED = 11
    JOB_HELD = 12
    JOB_RELEASED = 13
    NODE_EXECUTE = 14
    NODE_TERMINATED = 15
    POST_SCRIPT_TERMINATED = 16
    GLOBUS_SUBMIT = 17
    GLOBUS_SUBMIT_FAILED = 18
    GLOBUS_RESOURCE_UP = 19
    GLOBUS_RESOURCE_DOWN = 20
    REMOTE_ERROR = 21
    JOB_DISCONNECTED = 22
    JOB_RECONNECTED = 23
    JOB_RECONNECT_FAILED = 24
    GRID_RESOURCE_UP = 25
    GRID_RESOURCE_DOWN = 26
    GRID_SUBMIT = 27
    JOB_AD_INFORMATION = 28
    JOB_STATUS_UNKNOWN = 29
    JOB_STATUS_KNOWN = 30
    JOB_STAGE_IN = 31
    JOB_STAGE_OUT = 32
    ATTRIBUTE_UPDATE = 33
    PRESKIP = 34
    CLUSTER_SUBMIT = 35
    CLUSTER_REMOVE = 36
    FACTORY_PAUSED = 37
    FACTORY_RESUMED = 38
    NONE = 39
    FILE_TRANSFER = 40
    RESERVE_SPACE = 41
    RELEASE_SPACE = 42
    FILE_COMPLETE = 43
    FILE_USED = 44
    FILE_REMOVED = 45
    DATAFLOW_JOB_SKIPPED = 46
    COMMON_FILES = 47


class Event(NamedTuple):
    """One event."""

    number: int
    """A `Kind`, or a number that a newer HTCondor has."""
    cluster: int
    proc: int
    subproc: int
    at: float
    """Unix seconds."""
    offset: int
    """Of its first byte in the file."""
    raw: bytes
    """From its header to before the line `...`."""


class Damage(NamedTuple):
    """Bytes that are no whole event."""

    offset: int
    length: int
    what: str
    """`no header`, `cut off by another event`, `mixed with another event`, `a time that does not exist`, `too long`."""


class Splitter:
    """Cuts a log into events, however its bytes arrive. What comes after the last separator waits."""

    def __init__(self, stamps: Stamps, *, offset: int = 0) -> None:
        self.stamps = stamps
        self.offset = offset
        """Of the first byte that waits: reading can go on from here."""
        self.damaged = 0
        self.damage: list[Damage] = []
        """The first hundred of them."""
        self.unknown = 0
        """Events whose number is not a `Kind`."""
        self._rest = b""
        self._known: dict[bytes, tuple[int, int, int, int]] = {}

    @property
    def waiting(self) -> int:
        """Bytes after the last separator."""
        return len(self._rest)

    def feed(self, data: bytes) -> list[Event]:
        """The events that are whole now."""
        data = self._rest + data
        if data.startswith(SEPARATOR[1:]):
            self.offset += len(SEPARATOR) - 1
            data = data[len(SEPARATOR) - 1 :]
        blobs = data.split(SEPARATOR)
        self._rest = blobs.pop()
        if len(self._rest) > _LONGEST:
            self.give_up("too long")
        return self._cut(blobs)

    def give_up(self, what: str) -> None:
        """What waits will not be completed."""
        if self._rest:
            self._hurt(self.offset, len(self._rest), what)
            self.offset += len(self._rest)
            self._rest = b""

    def _cut(self, blobs: list[bytes]) -> list[Event]:
        """The hot loop: a log repeats its jobs, minutes and seconds, so that most headers are three look-ups."""
        events: list[Event] = []
        add, new, known, minutes, seconds = events.append, tuple.__new__, self._known, self.stamps.minutes, _SECONDS
        offset, last = self.offset, self.stamps.last
        for place, blob in enumerate(blobs):
            close = blob.find(b")", 5, 48)
            event = None
            with_another = blob.find(_ANOTHER, close + 1) >= 0
            try:
                at = minutes[blob[close + 2 : close + 18]] + seconds[blob[close + 18 : close + 22]]
                event = new(Event, known[blob[:close]] + (at, offset, blob))
            except KeyError:
                pass
            if event is None or with_another:
                self.stamps.last = last
                following = blobs[place + 1] if place + 1 < len(blobs) else self._rest
                events += self._mend(blob, offset, following)
                last = self.stamps.last
            else:
                if at < last:
                    self.stamps.went_back(last, at)
                last = at
                add(event)
            offset += len(blob) + 5
        self.offset, self.stamps.last = offset, last
        return events

    def _mend(self, blob: bytes, offset: int, after: bytes) -> list[Event]:
        """The events in bytes between two separators that are not just one event.

        Each header is true: that job had that event then. The last one's body is, too, unless what follows has no
        header (then two events were written into each other, and no line of a body says whose it is). An event that
        another one cuts off keeps its whole lines.
        """
        head = _HEADER.match(blob)
        if head is not None and head[6][4:5] == b"-" and blob.find(_ANOTHER, head.end()) < 0:
            return self._event(head, offset, blob)
        heads = list(_HEADER.finditer(blob))
        if not heads or heads[0].start():
            self._hurt(offset, heads[0].start() if heads else len(blob), "no header")
        mixed = len(heads) > 1 and _EVENT_BEGINS.match(after) is None
        if mixed:
            self._hurt(offset + heads[0].start(), len(blob) - heads[0].start(), "mixed with another event")
        found = []
        for place, head in enumerate(heads):
            last = place + 1 == len(heads)
            start, end = head.start(), len(blob) if last else heads[place + 1].start()
            raw = blob[start:end]
            if mixed:
                raw = raw.partition(b"\n")[0]
            elif not last:
                self._hurt(offset + start, end - start, "cut off by another event")
                raw = raw.rpartition(b"\n")[0] or raw
            found += self._event(head, offset + start, raw)
        return found

    def _event(self, head: re.Match[bytes], offset: int, raw: bytes) -> list[Event]:
        ids, number, cluster, proc, subproc, minute, second, utc = head.groups()
        try:
            at = self.stamps.read(minute, second, utc)
        except ValueError:
            self._hurt(offset, len(raw), "a time that does not exist")
            return []
        whole = (int(number), int(cluster), int(proc), int(subproc))
        if whole[0] > Kind.COMMON_FILES:
            self.unknown += 1
        else:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[ids[:-1]] = whole
        return [Event(*whole, at, offset, raw)]

    def _hurt(self, offset: int, length: int, what: str) -> None:
        if not length:
            return
        self.damaged += 1
        if len(self.damage) < _MOST_SAMPLES:
            self.damage.append(Damage(offset, length, what))
