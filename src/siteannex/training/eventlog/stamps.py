"""The times in an HTCondor event log, as Unix seconds.

A log's stamps are the access point's local time without a zone (`2026-05-06 11:06:58`), or UTC (`Z`), or the old form
without a year (`05/06 11:06:58`). So the zone is given, never taken from the environment; a stamp of the hour that
comes twice in an autumn night is read by the order of the log; and a stamp without a year is the latest one that is
not after the log's last change.
"""

from __future__ import annotations

import calendar
from datetime import UTC, datetime, timedelta, tzinfo

_MOST_MINUTES = 4096
_SLACK_S = 120.0
"""Events of one log may be this much out of order (several shadows write it)."""
_LEAP_CYCLE = 9


class Stamps:
    """Reads the stamps of one log in order."""

    def __init__(self, zone: tzinfo, not_after: float, *, last: float = 0.0) -> None:
        self._zone, self.not_after = zone, not_after
        self.last = last
        """The moment read last."""
        self.steps_back = 0
        """How often a stamp lay more than two minutes before the one above it: the clock was set back."""
        self.minutes: dict[bytes, float] = {}
        """The minutes seen lately whose stamps mean one moment only (dated, local time)."""

    def read(self, minute: bytes, second: bytes, utc: bytes | None) -> float:
        """`2026-05-06 11:06` or `05/06 11:06`, and the seconds. ValueError for a time that does not exist."""
        base = None if utc else self.minutes.get(minute)
        if base is None:
            base = self._base(minute, utc=utc is not None)
        if (after := float(second)) >= 61.0:
            raise ValueError(second)
        at = base + after
        self.went_back(self.last, at)
        self.last = at
        return at

    def went_back(self, last: float, at: float) -> None:
        """Count a step back."""
        if at < last - _SLACK_S:
            self.steps_back += 1

    def _base(self, minute: bytes, *, utc: bool) -> float:
        text = minute.decode()
        naive = datetime.fromisoformat(text) if text[4] == "-" else self._with_year(text)
        if utc:
            return naive.replace(tzinfo=UTC).timestamp()
        first = naive.replace(tzinfo=self._zone, fold=0).timestamp()
        second = naive.replace(tzinfo=self._zone, fold=1).timestamp()
        if second > first:
            return second if first < self.last - _SLACK_S else first
        if text[4] == "-":
            if len(self.minutes) >= _MOST_MINUTES:
                self.minutes.clear()
            self.minutes[minute] = first
        return first

    def _with_year(self, text: str) -> datetime:
        month, day, hour, minute = int(text[:2]), int(text[3:5]), int(text[6:8]), int(text[9:11])
        end = datetime.fromtimestamp(self.not_after, self._zone).replace(tzinfo=None) + timedelta(days=1)
        for year in range(end.year, end.year - _LEAP_CYCLE, -1):
            if not 1 <= month <= 12 or day > calendar.monthrange(year, month)[1]:
                continue
            moment = datetime(year, month, day, hour, minute)
            if moment <= end:
                return moment
        raise ValueError(text)
