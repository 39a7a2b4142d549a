"""Sizes and durations as people and batch schedulers write them.

Memory is counted the way Slurm and HTCondor count it: `16GB`, `16G` and `16GiB` are all 16 * 1024 MiB.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta

_MEMORY_UNITS_MIB = {
    "m": 1,
    "mb": 1,
    "mib": 1,
    "g": 1024,
    "gb": 1024,
    "gib": 1024,
    "t": 1024**2,
    "tb": 1024**2,
    "tib": 1024**2,
}
_DURATION_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(?:\d+[smhd])+")
_DURATION_PART = re.compile(r"(\d+)([smhd])")
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")


def parse_memory_mib(text: str) -> int:
    """Read a size such as `16GB` or `90.5GiB`; the result is in MiB. Raises ValueError with what to write."""
    match = _MEMORY.fullmatch(text.strip().lower())
    if match is None:
        raise ValueError(f"{text!r} is not a size; write for example 16GB or 16384MB")
    number, unit = match.groups()
    if not unit:
        raise ValueError(f"{text!r} has no unit; did you mean {number}GB or {number}MB?")
    if unit not in _MEMORY_UNITS_MIB:
        raise ValueError(f"{text!r} has an unknown unit {unit!r}; write MB, GB or TB")
    mib = float(number) * _MEMORY_UNITS_MIB[unit]
    if mib < 1 or mib > 1024**3:
        raise ValueError(f"{text!r} is not between 1MB and 1024TB")
    return round(mib)


def format_memory(mib: int) -> str:
    """Write MiB in the largest unit that stays exact enough to read: `64 GB`, `1.5 TB`, `900 MB`."""
    for unit, size in (("TB", 1024**2), ("GB", 1024)):
        if mib >= size:
            return f"{mib / size:.1f}".removesuffix(".0") + f" {unit}"
    return f"{mib} MB"


def write_memory(mib: int) -> str:
    """Write MiB exactly, as an option takes it: `16GB`, `47661MB`."""
    return f"{mib // 1024}GB" if mib % 1024 == 0 else f"{mib}MB"


def parse_duration_s(text: str) -> int:
    """Read a duration such as `4h`, `1h30m` or `2d`; the result is in seconds. Raises ValueError with what to write."""
    cleaned = text.strip().lower().replace(" ", "")
    if _DURATION.fullmatch(cleaned) is None:
        hint = (
            f"; did you mean {cleaned}h or {cleaned}m?" if cleaned.isdigit() else "; write for example 4h, 90m or 1h30m"
        )
        raise ValueError(f"{text!r} is not a duration{hint}")
    seconds = sum(int(number) * _DURATION_UNITS_S[unit] for number, unit in _DURATION_PART.findall(cleaned))
    if not 0 < seconds <= 366 * 86400:
        raise ValueError(f"{text!r} is not between 1s and 366d")
    return seconds


def format_duration(seconds: float) -> str:
    """Write seconds in at most two units: `12 s`, `3 m 10 s`, `1 h 12 m`, `9 d 4 h`."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return _two(whole, 60, "m", 1, "s")
    if whole < 86400:
        return _two(whole, 3600, "h", 60, "m")
    return _two(whole, 86400, "d", 3600, "h")


def write_duration(seconds: int) -> str:
    """Write seconds exactly, as an option takes them: `4h`, `1h30m`, `2d`."""
    parts = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))
    words = ""
    for size, unit in parts:
        count, seconds = divmod(seconds, size)
        words += f"{count}{unit}" if count else ""
    return words or "0s"


def _two(whole: int, big: int, big_unit: str, small: int, small_unit: str) -> str:
    first, rest = divmod(whole, big)
    second = rest // small
    return f"{first} {big_unit} {second} {small_unit}" if second else f"{first} {big_unit}"


def format_when(moment: datetime, now: datetime) -> str:
    """A local clock time with how far away it is: `14:52 (in 1 h 12 m)`. Both must carry a time zone."""
    local, today = moment.astimezone(), now.astimezone()
    shown = f"{local:%H:%M}" if local.date() == today.date() else f"{local:%a %d %b %H:%M}"
    delta = (moment - now).total_seconds()
    return f"{shown} (in {format_duration(delta)})" if delta >= 0 else f"{shown} ({format_duration(-delta)} ago)"


def format_bytes(count: int) -> str:
    """Bytes on the wire, decimal as network tools count: `21 KB`, `14.1 MB`."""
    if count < 1000:
        return f"{count} B"
    if count < 999_500:
        return f"{count / 1000:.0f} KB"
    return f"{count / 1_000_000:.1f} MB"


def seconds_between(start: datetime, end: datetime) -> float:
    """Elapsed seconds, never negative (clocks step back)."""
    return max(0.0, (end - start) / timedelta(seconds=1))
