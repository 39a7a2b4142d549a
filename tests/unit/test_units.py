"""Sizes and durations: what is read, what is refused and with which words, and that what is written reads back."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siteannex.units import (
    format_bytes,
    format_duration,
    format_memory,
    format_when,
    parse_duration_s,
    parse_memory_mib,
    seconds_between,
)

YEAR_S = 366 * 86400


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("16GB", 16384),
        ("16G", 16384),
        ("16gib", 16384),
        (" 16 GB ", 16384),
        ("16384MB", 16384),
        ("900m", 900),
        ("1.5TB", 1572864),
        ("90.5GiB", 92672),
        ("1MB", 1),
        ("1024TB", 1024**3),
    ],
)
def test_a_size_is_read_as_slurm_and_htcondor_count_it(text: str, mib: int) -> None:
    assert parse_memory_mib(text) == mib


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("16", "'16' has no unit; did you mean 16GB or 16MB?"),
        ("1.5", "did you mean 1.5GB or 1.5MB?"),
        ("16XB", "unknown unit 'xb'; write MB, GB or TB"),
        ("16KB", "unknown unit 'kb'"),
        ("", "'' is not a size; write for example 16GB or 16384MB"),
        ("lots", "is not a size"),
        ("-4GB", "is not a size"),
        ("1e3GB", "is not a size"),
        ("4,5GB", "is not a size"),
        ("0GB", "is not between 1MB and 1024TB"),
        ("0.4MB", "is not between"),
        ("1025TB", "is not between"),
        ("9" * 400 + "GB", "is not between"),
    ],
)
def test_a_refused_size_says_what_to_write(text: str, words: str) -> None:
    with pytest.raises(ValueError) as refused:
        parse_memory_mib(text)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("45s", 45),
        ("90m", 5400),
        ("4h", 14400),
        ("1h30m", 5400),
        ("1 h 30 m", 5400),
        ("2D", 172800),
        ("1d2h3m4s", 93784),
        ("366d", YEAR_S),
    ],
)
def test_a_duration_is_read_in_seconds(text: str, seconds: int) -> None:
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("4", "'4' is not a duration; did you mean 4h or 4m?"),
        ("", "is not a duration; write for example 4h, 90m or 1h30m"),
        ("3-0:00", "is not a duration; write for example"),
        ("1:30:00", "is not a duration"),
        ("UNLIMITED", "is not a duration"),
        ("1.5h", "is not a duration"),
        ("-1h", "is not a duration"),
        ("4w", "is not a duration"),
        ("0s", "is not between 1s and 366d"),
        ("367d", "is not between 1s and 366d"),
    ],
)
def test_a_refused_duration_says_what_to_write(text: str, words: str) -> None:
    with pytest.raises(ValueError) as refused:
        parse_duration_s(text)
    assert words in str(refused.value)


@given(st.text())
def test_any_text_is_a_positive_size_or_a_value_error(text: str) -> None:
    with suppress(ValueError):
        assert 1 <= parse_memory_mib(text) <= 1024**3


@given(st.text(alphabet="0123456789smhd .-:²٣") | st.text())
def test_any_text_is_a_positive_duration_or_a_value_error(text: str) -> None:
    with suppress(ValueError):
        assert 1 <= parse_duration_s(text) <= YEAR_S


@given(st.integers(1, 1024**3))
def test_a_written_size_reads_back_within_a_twentieth(mib: int) -> None:
    assert parse_memory_mib(format_memory(mib)) == pytest.approx(mib, rel=0.05)


@given(st.integers(1, 1024))
def test_whole_gigabytes_and_terabytes_read_back_exactly(count: int) -> None:
    assert parse_memory_mib(format_memory(count * 1024)) == count * 1024
    assert parse_memory_mib(format_memory(count * 1024**2)) == count * 1024**2


@given(st.integers(1, YEAR_S))
def test_a_written_duration_reads_back_and_loses_less_than_its_smaller_unit(seconds: int) -> None:
    back = parse_duration_s(format_duration(seconds))
    small = 1 if seconds < 3600 else 60 if seconds < 86400 else 3600
    assert back <= seconds < back + small


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (-5, "0 s"),
        (12.4, "12 s"),
        (59.6, "1 m"),
        (190, "3 m 10 s"),
        (3600, "1 h"),
        (4320, "1 h 12 m"),
        (86399, "23 h 59 m"),
        (9 * 86400 + 4 * 3600, "9 d 4 h"),
    ],
)
def test_a_duration_is_written_in_at_most_two_units(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (21_300, "21 KB"),
        (999_499, "999 KB"),
        (999_500, "1.0 MB"),
        (14_100_000, "14.1 MB"),
    ],
)
def test_bytes_are_written_in_decimal_units(count: int, text: str) -> None:
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("mib", "text"), [(900, "900 MB"), (65536, "64 GB"), (1536, "1.5 GB"), (1572864, "1.5 TB"), (1, "1 MB")]
)
def test_memory_is_written_in_the_largest_unit(mib: int, text: str) -> None:
    assert format_memory(mib) == text


def test_a_moment_is_written_as_local_clock_time_with_its_distance() -> None:
    now = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
    later = now + timedelta(minutes=72)
    assert format_when(later, now).endswith("(in 1 h 12 m)")
    assert format_when(now - timedelta(seconds=30), now).endswith("(30 s ago)")
    assert format_when(now, now).startswith(f"{now.astimezone():%H:%M}")


def test_a_moment_on_another_day_names_the_day() -> None:
    now = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
    assert format_when(now + timedelta(days=3), now).startswith("Wed 02 Dec")


def test_elapsed_time_is_never_negative() -> None:
    now = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
    assert seconds_between(now, now + timedelta(seconds=3)) == 3.0
    assert seconds_between(now, now - timedelta(seconds=3)) == 0.0
