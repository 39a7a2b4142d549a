"""The reader of HTCondor's event logs: whole logs beside the bindings, damaged ones, and those that move."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

import htcondor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from siteannex.training.eventlog.details import Use, end_of, hold_of, kind_of, node_of, start_of, transfer_of
from siteannex.training.eventlog.reader import Cursor, machine_zone
from siteannex.training.eventlog.reader import EventLog as Log
from siteannex.training.eventlog.stamps import Stamps
from siteannex.training.eventlog.text import Event, Kind, Splitter
from tests.unit.training import log_twin as twin

Open = Callable[..., Log]
CHICAGO = ZoneInfo("America/Chicago")
NOW = datetime(2026, 6, 1, tzinfo=UTC).timestamp()


def split(text: str | bytes, zone: tzinfo = UTC, not_after: float = NOW) -> tuple[list[Event], Splitter]:
    splitter = Splitter(Stamps(zone, not_after))
    return splitter.feed(text.encode() if isinstance(text, str) else text), splitter


@pytest.fixture(name="following")
def closed_afterwards() -> Iterator[Open]:
    with ExitStack() as stack:
        yield lambda *given: stack.enter_context(Log(*given))


def read(log: Log) -> list[Event]:
    return [event for batch in log.read() for event in batch.events]


def brief(events: list[Event]) -> list[tuple[int, int, float]]:
    return [(event.number, event.cluster, event.at) for event in events]


# --- beside the bindings


def test_every_event_of_a_whole_log_is_what_the_bindings_read(tmp_path: Path, following: Open) -> None:
    for path in twin.logs(tmp_path).values():
        whole = tmp_path / "whole.log"
        log = following(path, machine_zone())
        events = read(log)
        healthy = log.damage[0].offset if log.damage else path.stat().st_size
        whole.write_bytes(path.read_bytes()[:healthy])
        ours = [event for event in events if event.offset < healthy]
        theirs = list(htcondor2.JobEventLog(str(whole)).events(stop_after=0))
        assert len(ours) == len(theirs) > 10
        for mine, other in zip(ours, theirs, strict=True):
            assert (mine.number, mine.cluster, mine.proc) == (other["EventTypeNumber"], other.cluster, other.proc)
            assert mine.at == other.timestamp
            match kind_of(mine):
                case Kind.SUBMIT:
                    assert node_of(mine) == other.get("LogNotes", "").removeprefix("DAG Node: ").strip()
                case Kind.EXECUTE:
                    assert start_of(mine).slot == other.get("SlotName", "")
                    assert start_of(mine).gpus == other.get("ExecuteProps", {}).get("GPUs", 0)
                case Kind.JOB_TERMINATED:
                    assert end_of(mine).value == other.get("ReturnValue")
                    assert end_of(mine).signal == other.get("TerminatedBySignal")
                    assert end_of(mine).sent_bytes == pytest.approx(other["SentBytes"], rel=1e-6)
                    for name in ("Cpus", "GPUs"):
                        row = end_of(mine).usage.get(name, Use())
                        assert row.request == str(other.get(f"Request{name}", ""))
                        assert row.assigned == other.get(f"Assigned{name}", "")
                case Kind.JOB_EVICTED:
                    assert end_of(mine).reason == other.get("Reason", "")
                    assert end_of(mine).received_bytes == pytest.approx(other["ReceivedBytes"], rel=1e-6)
                case Kind.JOB_HELD:
                    hold = hold_of(mine)
                    assert hold.reason.splitlines()[0] == other["HoldReason"].strip()
                    if "\n" not in hold.reason:
                        assert (hold.code, hold.subcode) == (other["HoldReasonCode"], other["HoldReasonSubCode"])


def test_the_kinds_are_htcondors_own() -> None:
    assert {kind.value: kind.name for kind in Kind} == {number: htcondor2.JobEventType(number).name for number in Kind}
    assert [kind.value for kind in Kind] == list(range(48))


def test_every_real_log_is_read_to_its_end(tmp_path: Path, following: Open) -> None:
    for path in twin.logs(tmp_path).values():
        log = following(path, CHICAGO)
        events = read(log)
        data = path.read_bytes()
        assert sum(len(event.raw) for event in events) <= len(data)
        assert len(data) - events[-1].offset == len(events[-1].raw) + len("\n...\n")
        assert log.bytes_read == len(data)


# --- what an event says


def test_a_hold_reason_of_several_lines_keeps_them_and_its_code() -> None:
    [event], _ = split(twin.held(1, 0, "first", "second: Code 1", "third"))
    hold = hold_of(event)
    assert hold.reason == "first\nsecond: Code 1\nthird"
    assert (hold.code, hold.subcode) == (13, 256)


def test_an_evicted_run_keeps_its_bytes_and_its_table() -> None:
    [event], _ = split(twin.evicted(1, 0))
    end = end_of(event)
    assert end.received_bytes == 1158408111
    assert (end.code, end.subcode, end.reason) == (1013, 0, "Startd was shutdown")
    assert end.usage["Memory (MB)"].usage == "86213"
    assert end.usage["GpusMemory (MB)"].request == ""
    assert end.usage["TimeSlotBusy (s)"].usage == "955"
    assert end.usage["GPUs"].assigned == "GPU-00000000"


def test_a_signal_is_no_return_value() -> None:
    [event], _ = split(twin.event(5, 1, 0, "Job terminated.", "\t(0) Abnormal termination (signal 9)"))
    assert (end_of(event).value, end_of(event).signal) == (None, 9)


def test_a_start_names_site_slot_and_gpus() -> None:
    [event], _ = split(twin.executing(1, 0, site="Lake-CE1", gpus=2))
    start = start_of(event)
    assert (start.site, start.slot, start.host) == ("Lake-CE1", "slot1_1@gpu01.example.org", "gpu01.example.org")
    assert start.gpus == len(start.devices) == 2
    assert (start.model, start.devices[0].memory_mib, start.devices[0].driver) == ("NVIDIA A40", 45739, "575.57.08")


@pytest.mark.parametrize(
    ("told", "site"),
    [
        ({"SiteannexSite": "delta", "AnnexName": "mine"}, "delta"),
        ({"AnnexName": "mine"}, "mine"),
        ({"SiteannexSite": "delta", "GLIDEIN_ResourceName": "Lake-CE1"}, "Lake-CE1"),
        ({"SiteannexSite": "undefined"}, ""),
        ({}, ""),
    ],
)
def test_the_site_is_what_the_execution_point_says_of_itself(told: dict[str, str], site: str) -> None:
    [event], _ = split(twin.executing(1, 0, told={"EPSlurmJobId": "4711", **told}))
    start = start_of(event)
    assert (start.site, start.annex, start.batch_job) == (site, told.get("AnnexName", ""), "4711")


@pytest.mark.parametrize(
    "line",
    [
        "    DAG Node: r00-e1",
        '    DAGNodeName = "r00-e1"',
        '    [ DAGNodeName = "r00-e1"; JobBatchName = "x" ]',
        '    [ JobBatchName = "x"; DAGNodeName = "r00-e1" ]',
    ],
)
def test_the_node_is_found_in_every_spelling(line: str) -> None:
    [event], _ = split(twin.event(0, 1, 0, "Job submitted from host: <x>", line))
    assert node_of(event) == "r00-e1"


@pytest.mark.parametrize(
    ("said", "word"),
    [
        ("Entered queue to transfer input files", "input queued"),
        ("Started transferring output files", "output"),
        ("Finished transferring input files", "input done"),
        ("Something new", ""),
    ],
)
def test_transfers_have_a_word_each(said: str, word: str) -> None:
    [event], _ = split(twin.transfer(1, 0, said))
    assert transfer_of(event) == word


# --- damage


def test_a_number_that_is_not_known_is_an_event_and_is_counted() -> None:
    events, splitter = split(twin.event(99, 1, 0, "Something of tomorrow.") + twin.size(1, 1))
    assert [event.number for event in events] == [99, 6]
    assert splitter.unknown == 1
    assert kind_of(events[0]) is None


def test_text_that_is_not_utf8_is_shown_byte_by_byte() -> None:
    raw = twin.held(1, 0, "Error: XY").encode().replace(b"XY", b"\xff\xe9")
    [event], splitter = split(raw)
    assert hold_of(event).reason == "Error: \\xff\\xe9"
    assert splitter.damaged == 0


def test_the_last_event_waits_until_it_is_whole() -> None:
    text = (twin.submitted(1, 0, "a") + twin.terminated(1, 9)).encode()
    splitter = Splitter(Stamps(UTC, NOW))
    for cut in range(1, len(text)):
        events = Splitter(Stamps(UTC, NOW)).feed(text[:cut])
        assert len(events) == (0 if cut < text.index(b"...\n") + 4 else 1)
    assert len(splitter.feed(text[:-2])) == 1
    assert len(splitter.feed(text[-2:])) == 1
    assert splitter.damaged == 0


def test_a_junk_line_costs_itself() -> None:
    text = twin.submitted(1, 0, "a") + "\x00\x01 junk ...\n" + twin.terminated(1, 9) + twin.size(1, 10)
    events, splitter = split(text)
    assert [event.number for event in events] == [0, 5, 6]
    assert [(hurt.what, hurt.length) for hurt in splitter.damage] == [("no header", 12)]


def test_an_event_that_a_full_disk_cut_off_keeps_what_is_certain() -> None:
    cut = twin.evicted(1, 9)
    text = (
        twin.submitted(1, 0, "a") + cut[: cut.index("Run Local Usage") + 7] + twin.event(13, 2, 99, "Job was released.")
    )
    events, splitter = split(text)
    assert [(event.number, event.cluster) for event in events] == [(0, 1), (4, 1), (13, 2)]
    assert end_of(events[1]).code == 1013
    assert end_of(events[1]).received_bytes == 0
    assert [hurt.what for hurt in splitter.damage] == ["cut off by another event"]


def test_two_events_written_into_each_other_lend_each_other_no_lines() -> None:
    one, other = twin.terminated(1, 9).splitlines(keepends=True), twin.held(2, 9, "disk").splitlines(keepends=True)
    mixed = "".join([one[0], other[0], *one[1:], *other[1:]])
    events, splitter = split(mixed + twin.size(3, 10))
    assert [(event.number, event.cluster) for event in events] == [(5, 1), (12, 2), (6, 3)]
    assert end_of(events[0]).value is None
    assert hold_of(events[1]).reason == ""
    assert splitter.damaged == 2


def test_a_log_that_begins_in_the_middle_of_an_event() -> None:
    events, splitter = split(twin.terminated(1, 0)[40:] + twin.size(1, 1))
    assert [event.number for event in events] == [6]
    assert splitter.damaged == 1


def test_megabytes_without_a_separator_are_given_up() -> None:
    splitter = Splitter(Stamps(UTC, NOW))
    for _ in range(12):
        assert splitter.feed(b"\x00" * (1 << 20)) == []
    assert splitter.waiting <= 9 << 20
    assert [event.number for event in splitter.feed(b"\n...\n" + twin.size(1, 0).encode())] == [6]
    assert {hurt.what for hurt in splitter.damage} == {"too long", "no header"}


def test_a_time_that_does_not_exist_is_damage() -> None:
    events, splitter = split(twin.size(1, 0).replace("2026-05-06", "2026-02-30") + twin.size(1, 1))
    assert len(events) == 1
    assert splitter.damage[0].what == "a time that does not exist"


@settings(max_examples=60, deadline=None)
@given(cuts=st.lists(st.integers(0, 6000), max_size=12))
def test_however_the_bytes_arrive_the_events_are_the_same(cuts: list[int]) -> None:
    text = twin.campaign_log().encode()
    splitter = Splitter(Stamps(UTC, NOW))
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    events = [event for begin, end in itertools.pairwise(edges) for event in splitter.feed(text[begin:end])]
    assert events == split(text)[0]
    assert splitter.offset == len(text)


@settings(max_examples=150, deadline=None)
@given(at=st.integers(0, 6000), junk=st.binary(min_size=1, max_size=80), length=st.integers(0, 300))
def test_bytes_overwritten_or_lost_cost_no_event_but_those_they_touch(at: int, junk: bytes, length: int) -> None:
    text = twin.campaign_log().encode()
    at = min(at, len(text) - 1)
    whole = split(text)[0]
    broken, splitter = split(text[:at] + junk + text[at + length :] + b"\n...\n")
    untouched = [event for event in whole if event.offset + len(event.raw) + 5 <= at or event.offset >= at + length + 5]
    seen = [(event.number, event.cluster, event.at, event.raw) for event in broken]
    for event in untouched[:-1]:
        assert (event.number, event.cluster, event.at, event.raw) in seen
    if b"(" not in junk:
        headers = {(event.number, event.cluster, event.at) for event in whole}
        invented = [event for event in broken if (event.number, event.cluster, event.at) not in headers]
        assert len(invented) <= 1, "only the header that the junk went through may read otherwise"
    assert splitter.waiting <= len(junk) + 5


# --- time


def test_the_hour_that_comes_twice_is_read_by_the_order_of_the_log() -> None:
    night = datetime(2025, 11, 2, 0, 50)
    stamps = ["00:50:00", "01:10:00", "01:55:00", "01:05:00", "01:50:00", "02:10:00"]
    text = "".join(twin.size(1, 0).replace("2026-05-06 11:00:00", f"{night:%Y-%m-%d} {each}") for each in stamps)
    events, splitter = split(text, CHICAGO)
    first = events[0].at
    assert [round((event.at - first) / 60) for event in events] == [0, 20, 65, 75, 120, 140]
    assert splitter.stamps.steps_back == 0


def test_a_clock_that_was_set_back_is_told_and_changes_no_stamp() -> None:
    text = twin.size(1, 3600) + twin.size(1, 0) + twin.size(1, 60)
    events, splitter = split(text, UTC)
    assert [event.at - events[1].at for event in events] == [3600, 0, 60]
    assert splitter.stamps.steps_back == 1


def test_the_zone_is_the_one_given_and_utc_stamps_say_so_themselves() -> None:
    text = twin.size(1, 0)
    [there], _ = split(text, CHICAGO)
    [utc], _ = split(text.replace("11:00:00", "11:00:00Z"), CHICAGO)
    [parts], _ = split(text.replace("11:00:00", "11:00:00.250"), UTC)
    assert there.at - utc.at == 5 * 3600
    assert parts.at - utc.at == 0.25


def test_stamps_without_a_year_cross_new_year() -> None:
    old = twin.size(1, 0)
    text = old.replace("2026-05-06", "12/31") + old.replace("2026-05-06", "01/01") + old.replace("2026-05-06", "02/29")
    events, splitter = split(text, UTC, datetime(2024, 3, 1, tzinfo=UTC).timestamp())
    days = [datetime.fromtimestamp(event.at, UTC).date().isoformat() for event in events]
    assert days == ["2023-12-31", "2024-01-01", "2024-02-29"]
    assert splitter.damaged == 0


def test_old_events_that_are_glued_together_are_seen() -> None:
    old = twin.size(1, 0).replace("2026-05-06", "05/06")
    events, splitter = split(old[:60] + old, UTC)
    assert len(events) == 2
    assert splitter.damaged == 1


# --- the file


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.dag.nodes.log"


PARTS = [twin.submitted(1, 0, "a"), twin.executing(1, 5), twin.size(1, 6), twin.terminated(1, 9)]


def append(path: Path, text: str) -> None:
    with path.open("a") as out:
        out.write(text)


def test_each_look_gives_what_is_new(path: Path, following: Open) -> None:
    log = following(path, UTC)
    assert read(log) == []
    seen = []
    for part in PARTS:
        append(path, part)
        before = log.bytes_read
        seen += read(log)
        assert log.bytes_read - before == len(part)
    assert [event.number for event in seen] == [0, 1, 6, 5]
    assert read(log) == []


def test_a_cursor_goes_on_in_another_process(path: Path, following: Open) -> None:
    cursor: Cursor | None = None
    seen = []
    for part in PARTS:
        append(path, part[:-3])
        log = following(path, UTC, cursor)
        seen += read(log)
        append(path, part[-3:])
        seen += read(log)
        cursor = log.cursor()
        log.close()
    assert [event.number for event in seen] == [0, 1, 6, 5]


@pytest.mark.parametrize("resumed", [False, True])
def test_rotation_loses_nothing(path: Path, resumed: bool, following: Open) -> None:
    append(path, PARTS[0])
    log = following(path, UTC)
    seen = read(log)
    append(path, PARTS[1])
    path.rename(path.with_name(path.name + ".old"))
    append(path, PARTS[2] + PARTS[3])
    if resumed:
        log = following(path, UTC, log.cursor())
    batches = list(log.read())
    seen += [event for batch in batches for event in batch.events]
    assert [event.number for event in seen] == [0, 1, 6, 5]
    assert not any(batch.anew for batch in batches)
    assert "rotated" in log.notes[-1]


def test_between_rotation_and_the_new_file_nothing_is_wrong(path: Path, following: Open) -> None:
    append(path, PARTS[0])
    log = following(path, UTC)
    read(log)
    path.rename(path.with_name("elsewhere"))
    assert read(log) == []
    append(path, PARTS[1])
    assert [event.number for event in read(log)] == [1]


@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize("more", [0, 40])
def test_a_log_begun_anew_in_its_place_is_read_from_its_beginning(
    path: Path, resumed: bool, more: int, following: Open
) -> None:
    append(path, PARTS[0] + PARTS[1])
    log = following(path, UTC)
    read(log)
    path.write_text(twin.submitted(77, 1, "b") + twin.size(77, 2) * more)
    if resumed:
        log = following(path, UTC, log.cursor())
    batches = list(log.read())
    assert batches[0].anew
    assert {event.cluster for batch in batches for event in batch.events} == {77}
    assert log.notes


def test_a_copy_put_in_its_place_is_the_same_log(path: Path, following: Open) -> None:
    append(path, PARTS[0])
    log = following(path, UTC)
    read(log)
    copy = path.with_name("copy")
    copy.write_text(PARTS[0] + PARTS[1])
    copy.rename(path)
    assert [event.number for event in read(log)] == [1]
    assert [event.number for event in read(following(path, UTC, log.cursor()))] == []


def test_the_copy_of_a_log_elsewhere_needs_no_old_file(path: Path, following: Open) -> None:
    append(path, PARTS[0] + PARTS[1])
    log = following(path, UTC)
    read(log)
    cursor = log.cursor()
    path.unlink()
    append(path, PARTS[2])
    again = following(path, UTC, cursor)
    batches = list(again.read())
    assert batches[0].anew
    assert [event.number for event in batches[0].events] == [6]


def test_memory_does_not_grow_with_the_log(path: Path, following: Open) -> None:
    append(path, "".join(PARTS) * 20_000)
    size = path.stat().st_size
    assert size > 30_000_000
    tracemalloc.start()
    try:
        count = sum(len(batch.events) for batch in following(path, UTC).read())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 80_000
    assert peak < 16 << 20
