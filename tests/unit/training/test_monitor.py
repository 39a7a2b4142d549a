"""From a log to what a person reads: attempts and hours, runs and epochs, and the cost of a look."""

from __future__ import annotations

import json
from datetime import UTC
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from siteannex.training.dag.daggraph import read_graph
from siteannex.training.eventlog.reader import EventLog
from siteannex.training.eventlog.stamps import Stamps
from siteannex.training.eventlog.text import Event, Splitter
from siteannex.training.monitoring.fold import Board, State
from siteannex.training.monitoring.monitor import WAITING, Monitor
from siteannex.training.monitoring.plan import Planned, plan_of_graph, plan_of_manifest, planned_by_name, with_done
from siteannex.training.monitoring.text import LogHealth, as_csv, as_data, head_lines, run_cells, urgent_first
from tests.unit.training import log_twin as twin

PLAN = {f"run{run}-train_epoch{epoch}": Planned(f"run{run}", epoch, "lake") for run in range(2) for epoch in range(2)}


def events_of(text: str) -> list[Event]:
    return Splitter(Stamps(UTC, 2e9)).feed(text.encode())


def board_of(text: str) -> Board:
    board = Board(PLAN)
    board.take(events_of(text))
    return board


def monitor_of(text: str) -> Monitor:
    monitor = Monitor(PLAN)
    monitor.take(events_of(text))
    return monitor


def test_the_campaign_is_counted_attempt_by_attempt() -> None:
    board = board_of(twin.campaign_log())
    assert dict(board.outcomes) == {"evicted": 1, "completed": 2, "failed": 1}
    assert board.closed_hours["Lake-CE1", "NVIDIA A40", "evicted"] == pytest.approx(600 * 2 / 3600)
    assert board.closed_hours["Lake-CE1", "NVIDIA A40", "completed"] == pytest.approx(1.0)
    assert board.closed_hours["example.org", "NVIDIA L40S", "failed"] == pytest.approx(600 / 3600)
    assert board.jobs[11, 0].attempts[0].reason == "Startd was shutdown"
    assert board.jobs[11, 0].attempts[0].received_bytes == 1158408111


@pytest.mark.parametrize(
    ("events", "outcome", "state"),
    [
        (twin.evicted(1, 90) + twin.aborted(1, 90), "aborted", State.REMOVED),
        (twin.evicted(1, 90) + twin.held(1, 91, "disk"), "held", State.HELD),
        (twin.evicted(1, 90) + twin.aborted(1, 990), "evicted", State.REMOVED),
        (twin.aborted(1, 90), "aborted", State.REMOVED),
        (twin.held(1, 90, "disk"), "held", State.HELD),
        (twin.evicted(1, 90), "evicted", State.IDLE),
        (twin.event(7, 1, 90, "Shadow exception!", "\tError from x"), "evicted", State.IDLE),
        (twin.event(24, 1, 90, "Job reconnection failed", "    lost") + twin.evicted(1, 99), "evicted", State.IDLE),
        (twin.terminated(1, 90, value=3), "failed", State.FAILED),
        (twin.event(5, 1, 90, "Job terminated."), "unknown", State.FAILED),
        (twin.event(22, 1, 90, "Job disconnected, attempting to reconnect"), "running", State.DISCONNECTED),
        (twin.event(10, 1, 90, "Job was suspended."), "running", State.SUSPENDED),
        (twin.transfer(1, 90, "Started transferring output files"), "running", State.OUTPUT),
    ],
)
def test_each_way_to_end_has_its_outcome_and_its_state(events: str, outcome: str, state: State) -> None:
    board = board_of(twin.submitted(1, 0, "run0-train_epoch0") + twin.executing(1, 30) + events)
    [attempt] = board.jobs[1, 0].attempts
    assert (attempt.outcome, board.jobs[1, 0].state) == (outcome, state)
    assert attempt.execution_s(twin.BEGIN.replace(tzinfo=UTC).timestamp() + 90) == 60


def test_a_start_without_an_end_ends_with_its_last_sign_of_life() -> None:
    board = board_of(twin.executing(1, 0) + twin.size(1, 500) + twin.executing(1, 9000))
    first, second = board.jobs[1, 0].attempts
    assert (first.outcome, first.execution_s(0), second.outcome) == ("unknown", 500, "running")


def test_an_end_without_a_start_counts_by_htcondors_own_table() -> None:
    end = twin.terminated(1, 9000).replace("TimeSlotBusy (s)     :      955", "TimeExecute (s)      :     3600")
    board = board_of(end)
    assert board.closed_hours["", "", "completed"] == pytest.approx(1.0)


def test_what_is_said_twice_counts_once() -> None:
    text = twin.campaign_log()
    once, twice = board_of(text), Board(PLAN)
    for event in events_of(text):
        twice.take([event])
        if event.number in (0, 1, 5):
            twice.take([event])
    assert once.outcomes == twice.outcomes
    assert once.closed_hours == twice.closed_hours
    assert twice.stray > 0


def test_a_transfer_after_which_nothing_ran_is_no_attempt() -> None:
    text = twin.submitted(1, 0, "a") + twin.transfer(1, 5, "Started transferring input files")
    assert board_of(text).jobs[1, 0].state == State.INPUT
    board = board_of(text + twin.evicted(1, 90))
    assert (board.jobs[1, 0].attempts, board.jobs[1, 0].never_started) == ([], 1)


def test_a_clock_that_was_set_back_makes_no_negative_hours() -> None:
    board = board_of(twin.executing(1, 9000) + twin.terminated(1, 10))
    assert board.outcomes["completed"] == 1
    assert sum(board.closed_hours.values()) == 0


@settings(max_examples=100, deadline=None)
@given(at=st.integers(0, 6900), junk=st.binary(max_size=200), length=st.integers(0, 500))
def test_no_damage_breaks_the_fold_or_invents_hours(at: int, junk: bytes, length: int) -> None:
    raw = twin.campaign_log().encode()
    board = Board(PLAN)
    board.take(Splitter(Stamps(UTC, 2e9)).feed(raw[:at] + junk + raw[at + length :]))
    spans = [attempt.execution_s(board.last_at) for job in board.jobs.values() for attempt in job.attempts]
    assert all(span >= 0 for span in spans)
    assert sum(board.outcomes.values()) <= 5
    assert len(board.jobs) <= 5


def test_each_run_shows_the_epoch_that_matters_now() -> None:
    monitor = monitor_of(twin.campaign_log())
    first, second = monitor.runs()
    assert (first.run, first.completed, first.current.node, first.current.state) == (
        "run0", 1, "run0-train_epoch1", State.IDLE,
    )  # fmt: skip
    assert (second.completed, second.current.state) == (1, WAITING)
    done = monitor.nodes_of("run0")[0]
    assert (done.queue_s, done.transfer_s, done.execution_s, done.evicted_s) == (100 + 1340, 60, 3600, 600)
    assert (done.attempts, done.tries, done.target, done.site) == (2, 1, "lake", "Lake-CE1")
    assert monitor.nodes_of("run1")[0].tries == 2


@pytest.mark.parametrize(
    ("told", "host", "site"),
    [
        ({"SiteannexSite": "lake", "AnnexName": "lake2"}, "gpu01", "lake"),
        ({"SiteannexSite": "river"}, "gpu01.lake.edu", "river"),
        ({}, "gpu01.river.edu", "river.edu"),
        ({}, "gpu01", "gpu01"),
    ],
    ids=["as told", "elsewhere", "by its domain", "by its name"],
)
def test_the_actual_site_is_never_guessed_from_the_targeted_one(told: dict[str, str], host: str, site: str) -> None:
    log = twin.submitted(1, 0, "run0-train_epoch0") + twin.executing(1, 10, host=host, told=told)
    monitor = monitor_of(log)
    node = monitor.nodes_of("run0")[0]
    assert (node.target, node.site, node.host) == ("lake", site, host)
    [attempt] = monitor.board.jobs[1, 0].attempts
    assert (attempt.slot, attempt.annex) == (f"slot1_1@{host}", told.get("AnnexName", ""))


def test_a_transfer_waits_in_the_queue_before_it_begins() -> None:
    seen = []
    monitor = Monitor(PLAN)
    for text in (
        twin.submitted(1, 0, "run0-train_epoch0"),
        twin.transfer(1, 10, "Entered queue to transfer input files"),
        twin.transfer(1, 40, "Started transferring input files"),
        twin.executing(1, 90),
        twin.transfer(1, 500, "Entered queue to transfer output files"),
        twin.transfer(1, 600, "Started transferring output files"),
    ):
        monitor.take(events_of(text))
        node = monitor.nodes_of("run0")[0]
        seen.append((node.state, bool(node.reason)))
    assert seen == [
        ("idle", False),
        ("transferring in", True),
        ("transferring in", False),
        ("running", False),
        ("transferring out", True),
        ("transferring out", False),
    ]
    assert (node.queue_s, node.transfer_s) == (10, 80 + 100)


def test_time_left_is_what_was_measured() -> None:
    monitor = monitor_of(twin.campaign_log())
    now = monitor.board.last_at
    first, second = monitor.runs()
    assert first.epoch_s == 5700
    assert monitor.eta_s(first, now) == 5700 - (now - (first.current.submitted_at or 0))
    assert monitor.eta_s(second, now) == second.epoch_s
    assert monitor.totals(now).eta_s == max(5610, second.epoch_s or 0)
    assert Monitor(PLAN).totals(0).eta_s is None


def test_a_held_run_has_no_time_left_and_stands_first() -> None:
    text = twin.campaign_log() + twin.held(14, 5720, "Transfer input files failure")
    monitor = monitor_of(text)
    rows = urgent_first(monitor.runs())
    assert rows[0].current.state == State.HELD
    assert monitor.eta_s(rows[0], monitor.board.last_at) is None
    assert run_cells(monitor, rows, monitor.board.last_at)[0][4] == "held (13)"


def test_a_post_script_decides_what_dagman_goes_by() -> None:
    ended = twin.submitted(1, 0, "run0-train_epoch0") + twin.executing(1, 1) + twin.terminated(1, 9, value=1)
    post = twin.event(
        16,
        1,
        10,
        "POST Script terminated.",
        "\t(1) Normal termination (return value 0)",
        "    DAG Node: run0-train_epoch0",
    )
    assert monitor_of(ended).nodes_of("run0")[0].state == State.FAILED
    assert monitor_of(ended + post).nodes_of("run0")[0].state == State.COMPLETED
    assert monitor_of(ended + post.replace("value 0", "value 2")).nodes_of("run0")[0].state == State.FAILED


def test_nodes_done_before_the_log_began_are_done() -> None:
    plan = with_done(PLAN, frozenset({"run1-train_epoch0"}))
    monitor = Monitor(plan)
    assert [row.completed for row in monitor.runs()] == [0, 1]


def test_runs_and_epochs_are_read_from_names_of_both_kinds() -> None:
    assert planned_by_name("run3-train_epoch12") == Planned("run3", 12)
    assert planned_by_name("r007-e03") == Planned("r007", 3)
    assert planned_by_name("prepare") == Planned("prepare", None)


def test_the_plan_of_a_dag_and_of_a_manifest() -> None:
    dag = "JOB run0-train_epoch0 delta_pretrain.sub\nJOB r0-e1 train-lab\nJOB x x.sub\n"
    dag += 'VARS x ResourceName="anvil"\nDONE x\n'
    plan = plan_of_graph(read_graph(dag))
    assert plan == {
        "run0-train_epoch0": Planned("run0", 0, "delta"),
        "r0-e1": Planned("r0", 1, "lab"),
        "x": Planned("x", None, "anvil", done=True),
    }
    lines = [
        {"node": "prepare", "stage": "prepare", "site": "lab"},
        {"node": "r00-e3", "stage": "train", "site": "lab", "epoch": 3, "run_name": "r00"},
        {"node": "r00-e3-eval", "stage": "evaluate", "site": "lab", "epoch": 3, "run_name": "r00"},
        {"dag": "x.dag", "nodes": 3},
    ]
    read = plan_of_manifest("".join(json.dumps(line) + "\n" for line in lines))
    assert read["r00-e3"] == Planned("r00", 3, "lab")
    assert read["r00-e3-eval"].epoch is None
    assert len(read) == 3


def test_json_and_csv_have_what_the_screen_has() -> None:
    monitor = monitor_of(twin.campaign_log())
    data = as_data(monitor, LogHealth("x.log"), monitor.board.last_at)
    assert json.loads(json.dumps(data))["totals"]["attempts"]["completed"] == 2
    assert len(data["attempts"]) == 4
    lines = as_csv(monitor).splitlines()
    assert len(lines) == 1 + len(PLAN)
    assert lines[0].startswith("node,run,epoch,job_id,state")


def test_the_head_tells_hours_damage_and_silence() -> None:
    monitor = monitor_of(twin.campaign_log())
    _, splitter = [], Splitter(Stamps(UTC, 2e9))
    splitter.feed(b"junk\n...\n")
    health = LogHealth("x.log", 1, splitter.damage, unknown=2, steps_back=1, notes=["rotated"])
    lines = dict(head_lines(monitor.totals(0), health, 1.0, 1e6))
    assert "lost (1 evicted, 1 failed)" in lines["gpu-h"]
    assert "4 bytes at 0: no header" in lines["damage"]
    assert "as of then" in lines["log"]


def test_a_look_costs_what_is_new_and_not_the_log(tmp_path: Path) -> None:
    runs, epochs = 1000, 20
    plan = {f"r{run}-e{epoch}": Planned(f"r{run}", epoch, "lab") for run in range(runs) for epoch in range(epochs)}
    path = tmp_path / "big.log"
    with path.open("w") as out:
        for at, node in enumerate(plan):
            out.write(twin.submitted(at, at, node) + twin.executing(at, at + 1) + twin.terminated(at, at + 60))
    monitor = Monitor(plan)
    with EventLog(path, UTC) as log:
        for batch in log.read():
            monitor.take(batch.events)
        assert monitor.totals(monitor.board.last_at).states == {"completed": runs * epochs}
        before, read = monitor.worked_out, log.bytes_read
        news = twin.submitted(99_999, 99_999, "r7-e5")
        with path.open("a") as out:
            out.write(news)
        for batch in log.read():
            monitor.take(batch.events)
        assert monitor.totals(monitor.board.last_at).states == {"completed": runs * epochs - 1, "idle": 1}
        assert monitor.worked_out - before == 1
        assert log.bytes_read - read == len(news)
