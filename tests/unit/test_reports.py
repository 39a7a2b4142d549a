"""Pilots' progress files: torn lines, foreign lines, lines twice; never an exception."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siteannex.annex.slurm_site import read_reports
from siteannex.model import PilotReport

LINE = json.dumps(
    {
        "v": 1,
        "at": "2026-11-29T12:00:00Z",
        "job": "71",
        "node": "c1",
        "stage": "EP_START",
        "code": "ok",
        "text": "HTCondor 25.14.1",
    }
)
REPORT = PilotReport("71", "EP_START", "ok", "HTCondor 25.14.1", datetime(2026, 11, 29, 12, tzinfo=UTC), "c1")


def test_a_line_of_the_pilot_is_a_report() -> None:
    assert read_reports(LINE + "\n") == (REPORT,)


def test_a_line_seen_twice_counts_once() -> None:
    assert read_reports(f"{LINE}\n{LINE}\n") == (REPORT,)


def test_a_torn_last_line_is_passed_over() -> None:
    assert read_reports(f"{LINE}\n{LINE[:40]}") == (REPORT,)


@pytest.mark.parametrize("missing", ["at", "job", "stage", "code"])
def test_a_line_without_its_essentials_is_passed_over(missing: str) -> None:
    record = json.loads(LINE)
    del record[missing]
    assert read_reports(json.dumps(record)) == ()


@pytest.mark.parametrize("optional", ["text", "node", "v"])
def test_a_line_without_the_rest_is_a_report_still(optional: str) -> None:
    record = json.loads(LINE)
    del record[optional]
    assert len(read_reports(json.dumps(record))) == 1


@pytest.mark.parametrize(
    "line",
    [
        "cat: progress/*.jsonl: No such file or directory",
        "null",
        "[]",
        '["at"]',
        '"text"',
        "42",
        LINE.replace("2026-11-29T12:00:00Z", "noon"),
        LINE.replace("2026-11-29T12:00:00Z", "2026-11-29T12:00:00"),
        "[" * 100_000,
        '{"at":' * 50_000,
        "1" * 5000,
        "\x00",
    ],
)
def test_a_foreign_line_is_passed_over(line: str) -> None:
    assert read_reports(f"{line}\n{LINE}\n") == (REPORT,)


def test_half_a_surrogate_pair_can_still_be_printed_and_written() -> None:
    [report] = read_reports(LINE.replace("HTCondor", "\\ud800"))
    assert report.text.encode("utf-8") == b"? 25.14.1"


def test_a_line_separator_inside_a_text_does_not_tear_the_line() -> None:
    [report] = read_reports(LINE.replace("HTCondor", "a\u2028b\x85c"))
    assert report.text == "a\u2028b\x85c 25.14.1"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
keys = st.sampled_from(["at", "job", "stage", "code", "text", "node"])
times = st.sampled_from(["2026-11-29T12:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00", "20261129"])
records = st.fixed_dictionaries(
    {"at": times | json_values, "job": json_values, "stage": json_values, "code": st.text()}
)


@given(st.lists(st.text() | json_values.map(json.dumps) | records.map(json.dumps)).map("\n".join))
def test_any_text_gives_reports_or_none(text: str) -> None:
    for report in read_reports(text):
        assert report.at.tzinfo is not None
        report.text.encode("utf-8")


@given(st.dictionaries(keys, json_values))
def test_any_record_gives_a_report_or_none(record: dict[str, object]) -> None:
    assert len(read_reports(json.dumps(record))) <= 1
