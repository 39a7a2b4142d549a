"""Attempts and GPU-hours of whole logs, counted a second time by a script that shares no code with the reader.

It runs on the real logs where they are, and always on a log of the same shape. docs/real-logs.md tells the numbers.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import htcondor2
import pytest

from siteannex.training.eventlog.reader import EventLog
from siteannex.training.eventlog.stamps import Stamps
from siteannex.training.eventlog.text import Splitter
from siteannex.training.monitoring.fold import Board
from tests.unit.training import log_twin as twin
from tests.unit.training.mldag_twin import real_training

CHICAGO = ZoneInfo("America/Chicago")
LINE = re.compile(r"(\d\d\d) \((\d+)\.\d+\.\d+\) (\d{4})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d) ")
ENDS = {"001", "004", "005", "007", "009", "012", "024"}


def board_of(path: Path) -> Board:
    board = Board()
    with EventLog(path, CHICAGO) as log:
        for batch in log.read():
            board.take(batch.events)
    return board


def counted_by_lines(text: str) -> tuple[Counter[str], Counter[tuple[str, str, str]]]:
    """Outcomes, and GPU-hours by site, GPU model and outcome: line by line, as awk would do it."""
    events: list[dict[str, str]] = []
    for line in text.splitlines():
        for match in LINE.finditer(line):
            year, month, day, hour, minute, second = map(int, match.groups()[2:])
            moment = datetime(year, month, day, hour, minute, second, tzinfo=CHICAGO)
            events.append({"kind": match[1], "job": match[2], "at": str(moment.timestamp())})
        if not events:
            continue
        if "&alias=" in line and "executing on host" in line:
            events[-1]["site"] = line.rpartition("&alias=")[2].split("&")[0].partition(".")[2]
        if line.strip().startswith("GLIDEIN_ResourceName = "):
            events[-1]["site"] = line.split('"')[1]
        if line.strip().startswith("GPUs = "):
            events[-1]["gpus"] = line.split("=")[1].strip()
        if 'DeviceName = "' in line:
            events[-1]["model"] = line.split('DeviceName = "')[1].split('"')[0]
        if "(return value " in line:
            events[-1]["value"] = line.split("(return value ")[1].split(")")[0]
    outcomes: Counter[str] = Counter()
    hours: Counter[tuple[str, str, str]] = Counter()
    for job in dict.fromkeys(event["job"] for event in events):
        own = [event for event in events if event["job"] == job]
        for place, start in enumerate(own):
            if start["kind"] != "001":
                continue
            rest = [event for event in own[place + 1 :] if event["kind"] in ENDS]
            outcome, end = how_ended(rest)
            outcomes[outcome] += 1
            if end is not None and outcome != "unknown":
                span = float(end["at"]) - float(start["at"])
                hours[start.get("site", ""), start.get("model", ""), outcome] += span * int(start.get("gpus", 0)) / 3600  # type: ignore[assignment]
    return outcomes, hours


def how_ended(rest: list[dict[str, str]]) -> tuple[str, dict[str, str] | None]:
    if not rest:
        return "running", None
    end, then = rest[0], rest[1] if len(rest) > 1 else None
    if end["kind"] == "001":
        return "unknown", end
    if end["kind"] == "005":
        return ("completed" if end.get("value") == "0" else "failed"), end
    if end["kind"] in ("009", "012"):
        return {"009": "aborted", "012": "held"}[end["kind"]], end
    if then is not None and then["kind"] == "004":
        then = rest[2] if len(rest) > 2 else None
    if then is not None and then["kind"] in ("009", "012") and float(then["at"]) - float(end["at"]) <= 60:
        return {"009": "aborted", "012": "held"}[then["kind"]], end
    return "evicted", end


def test_attempts_and_hours_are_the_same_counted_line_by_line(tmp_path: Path) -> None:
    for path in twin.logs(tmp_path).values():
        board = board_of(path)
        outcomes, hours = counted_by_lines(path.read_text())
        ours = {name: count for name, count in board.outcomes.items() if count}
        ours |= {"running": len(board.running)} if board.running else {}
        assert ours == dict(outcomes)
        told = {key: some for key, some in board.closed_hours.items() if some and key[2] != "unknown"}
        assert told == pytest.approx({key: some for key, some in hours.items() if some})


def test_attempts_and_ends_are_as_many_as_the_bindings_read_before_any_damage(tmp_path: Path) -> None:
    for path in twin.logs(tmp_path).values():
        with EventLog(path, CHICAGO) as log:
            events = [event for batch in log.read() for event in batch.events]
            healthy = log.damage[0].offset if log.damage else path.stat().st_size
        whole = tmp_path / "whole.log"
        whole.write_bytes(path.read_bytes()[:healthy])
        theirs = Counter(int(event["EventTypeNumber"]) for event in htcondor2.JobEventLog(str(whole)).events(0))
        assert Counter(event.number for event in events if event.offset < healthy) == theirs
        board = board_of(whole)
        assert sum(board.outcomes.values()) + len(board.running) == theirs[1]
        assert board.outcomes["completed"] + board.outcomes["failed"] == theirs[5]


# --- beside the attempts that were recorded at the time


def recorded(rows: Iterable[dict[str, str]]) -> dict[tuple[str, str], tuple[str, str]]:
    """(cluster, start) -> (how it ended, end)."""
    names = ("HTCondor Cluster ID", "Start Time", "Final Status", "End Time")
    return {(row[names[0]], row[names[1]]): (row[names[2]] or "running", row[names[3]]) for row in rows}


def ours(board: Board) -> dict[tuple[str, str], tuple[str, str]]:
    def shown(at: float | None) -> str:
        return "" if at is None else f"{datetime.fromtimestamp(at, CHICAGO):%Y-%m-%dT%H:%M:%S}"

    return {
        (str(cluster), shown(attempt.started_at)): (attempt.outcome, shown(attempt.ended_at))
        for (cluster, _), job in board.jobs.items()
        for attempt in job.attempts
    }


def differences(board: Board, table: dict[tuple[str, str], tuple[str, str]]) -> Counter[str]:
    """Kinds of difference between our attempts and recorded ones, each with its explanation."""
    mine, found = ours(board), Counter[str]()
    for key in mine.keys() | table.keys():
        one, other = mine.get(key), table.get(key)
        if one is not None and other is not None and one != other:
            evicted = one[0] == "evicted" and other[0] == "aborted" and one[1] < other[1]
            found["runs on until its removal, hours after its eviction" if evicted else f"{one} / {other}"] += 1
        elif one is not None and other is None:
            found["left out: held while its output came back" if one[0] == "held" else f"only ours: {one}"] += 1
        elif one is None:
            found[f"only recorded: {other}"] += 1
    return found


def test_the_recorded_attempts_differ_in_two_ways_only(tmp_path: Path) -> None:
    text = (
        twin.submitted(1, 0, "run0-train_epoch0") + twin.executing(1, 60) + twin.evicted(1, 600) + twin.aborted(1, 9000)
    )
    text += twin.submitted(2, 0, "run1-train_epoch0") + twin.executing(2, 60) + twin.evicted(2, 600)
    text += twin.held(2, 600, "Transfer output files failure", code=12)
    path = tmp_path / "twin.log"
    path.write_text(text)
    row = {"HTCondor Cluster ID": "1", "Start Time": "2026-05-06T11:01:00", "End Time": "2026-05-06T13:30:00"}
    assert differences(board_of(path), recorded([row | {"Final Status": "aborted"}])) == {
        "runs on until its removal, hours after its eviction": 1,
        "left out: held while its output came back": 1,
    }
    real = real_training()
    if real is not None:
        with (real / "attempts.csv").open() as file:
            rows = [row for row in csv.DictReader(file) if row["DAG Source"] == "global_pretraining_in_aws"]
        assert differences(board_of(real / "aws.job.log"), recorded(rows)) == {
            "runs on until its removal, hours after its eviction": 2,
            "left out: held while its output came back": 1,
        }


# --- the same logs, damaged


def damaged_copies(raw: bytes) -> dict[str, bytes]:
    half = raw.index(b"\n...\n", len(raw) // 2) + 5
    mid = half + 60
    return {
        "cut in the middle": raw[:mid],
        "its beginning lost": raw[mid:],
        "junk in the middle": raw[:half] + b"\x00\xff\x00 junk \n" * 50 + raw[half:],
        "a line lost": raw[:half] + raw[raw.index(b"\n", half) + 1 :],
        "twice": raw + raw,
    }


@pytest.mark.parametrize(
    "how", ["cut in the middle", "its beginning lost", "junk in the middle", "a line lost", "twice"]
)
def test_damage_costs_what_it_touches_and_is_told(tmp_path: Path, how: str) -> None:
    for path in twin.logs(tmp_path).values():
        raw = path.read_bytes()
        splitter, whole = Splitter(Stamps(CHICAGO, 2e9)), board_of(path)
        board = Board()
        events = splitter.feed(damaged_copies(raw)[how])
        board.take(events)
        untouched = {(event.number, event.cluster, event.at) for event in Splitter(Stamps(CHICAGO, 2e9)).feed(raw)}
        assert {(event.number, event.cluster, event.at) for event in events} <= untouched
        ended = sum(board.outcomes.values())
        assert ended <= sum(whole.outcomes.values()) + 1
        if how in ("junk in the middle", "twice"):
            assert board.outcomes == whole.outcomes
        if how in ("junk in the middle", "a line lost", "its beginning lost"):
            assert splitter.damaged >= 1
        if how == "cut in the middle":
            assert splitter.waiting > 0
        assert all(some >= 0 for some in board.closed_hours.values())


def test_the_night_of_two_hours_makes_an_hour_more_and_a_new_year_none_less() -> None:
    night = datetime(2025, 11, 2, 0, 30, tzinfo=UTC).replace(tzinfo=None)
    text = twin.executing(1, 0, begin=night) + twin.terminated(1, 2 * 3600, begin=night)
    board = Board()
    board.take(Splitter(Stamps(CHICAGO, 2e9)).feed(text.encode()))
    assert sum(board.closed_hours.values()) == pytest.approx(3.0)
    eve = datetime(2025, 12, 31, 23, 30, tzinfo=UTC).replace(tzinfo=None)
    old = twin.executing(1, 0, begin=eve) + twin.terminated(1, 3600, begin=eve)
    old = old.replace(") 2025-12-31", ") 12/31").replace(") 2026-01-01", ") 01/01")
    board = Board()
    board.take(Splitter(Stamps(CHICAGO, datetime(2026, 1, 2, tzinfo=UTC).timestamp())).feed(old.encode()))
    assert sum(board.closed_hours.values()) == pytest.approx(1.0)
