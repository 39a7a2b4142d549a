"""What the access point writes down of an experiment: each event once, whole writings or none, in one chain."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from siteannex.training.provenance.ap_collect import Collected, collect, nodes_of, write_generated, write_submitted
from siteannex.training.provenance.ap_events import ApEvent
from siteannex.training.provenance.ap_file import NAME, check
from tests.unit.training import log_twin as twin

NODES = {
    "r00-e00": {"node": "r00-e00", "stage": "train", "site": "lake", "epoch": 0, "run_name": "r00", "run_id": "u-0"}
}
FIRST = "".join(
    [
        twin.submitted(11, 0, "r00-e00"),
        twin.transfer(11, 50, "Entered queue to transfer input files"),
        twin.transfer(11, 60, "Started transferring input files"),
        twin.transfer(11, 90, "Finished transferring input files"),
        twin.executing(11, 100, told={"SiteannexSite": "river", "AnnexName": "river2"}),
        twin.size(11, 150),
    ]
)
SECOND = "".join([twin.evicted(11, 700), twin.executing(11, 800), twin.terminated(11, 900)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An experiment's directory with the first half of its log."""
    (tmp_path / "exp").mkdir()
    (tmp_path / "exp" / "jobs.log").write_text(FIRST)
    return tmp_path / "exp"


def take(folder: Path) -> Collected:
    return collect(folder, "exp", UTC, NODES)


def events(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / NAME).read_text().splitlines()]


def types(folder: Path) -> list[str]:
    return [event["type"] for event in events(folder)]


ALL = [
    *("job.submitted", "transfer.input.queued", "transfer.input.started", "transfer.input.finished"),
    *("job.executing", "job.evicted", "job.executing", "job.completed"),
]


def test_every_event_is_written_once_however_often_it_is_collected(folder: Path) -> None:
    assert (take(folder).new, take(folder).new) == (5, 0)
    with (folder / "jobs.log").open("a") as log:
        log.write(SECOND)
    assert (take(folder).new, take(folder).new) == (3, 0)
    assert types(folder) == ALL
    assert check(folder / NAME) == (8, None)


def test_an_event_says_run_epoch_targeted_and_actual_site_and_which_start_it_was(folder: Path) -> None:
    (folder / "jobs.log").write_text(FIRST + SECOND)
    take(folder)
    told = events(folder)
    assert {(each["run"], each["run_id"], each["epoch"], each["stage"], each["job"]) for each in told} == {
        ("r00", "u-0", 0, "train", "11.0")
    }
    assert told[0]["payload"] == {"targeted_site": "lake"}
    assert (told[4]["payload"]["site"], told[4]["payload"]["annex"]) == ("river", "river2")
    assert told[4]["payload"]["devices"][0]["driver"] == "575.57.08"
    assert [each["start"] for each in told] == [0, 0, 0, 0, 1, 1, 2, 2]
    assert told[0]["ts"] == "2026-05-06T11:00:00+00:00"
    assert all(ApEvent.model_validate(each).computed() == each["hash"] for each in told)


def test_the_start_goes_on_counting_in_the_next_collection(folder: Path) -> None:
    take(folder)
    with (folder / "jobs.log").open("a") as log:
        log.write(SECOND)
    take(folder)
    assert [each["start"] for each in events(folder)][-3:] == [1, 2, 2]
    assert events(folder)[-1]["run_id"] == "u-0"


def test_a_dag_is_written_down_once_for_its_bytes_and_once_for_each_submission(folder: Path) -> None:
    for sha256 in ("a", "a", "b"):
        write_generated(folder, "exp", 1.0, {"dag_sha256": sha256})
    for cluster in (5, 5, 9):
        write_submitted(folder, "exp", 2.0, {"cluster": cluster})
    take(folder)
    write_submitted(folder, "exp", 2.0, {"cluster": 5})
    assert types(folder) == ["dag.generated"] * 2 + ["dag.submitted"] * 2 + ALL[:5]
    assert check(folder / NAME) == (9, None)


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_what_a_killed_writer_left_half_done_is_written_anew(folder: Path, cut: int) -> None:
    take(folder)
    whole = (folder / NAME).stat().st_size
    with (folder / "jobs.log").open("a") as log:
        log.write(SECOND)
    take(folder)
    right = (folder / NAME).read_bytes()
    size = len(right) - whole
    (folder / NAME).write_bytes(right[: whole + size * cut // 60])
    take(folder)
    assert (folder / NAME).read_bytes() == right


def test_kill_9_at_any_moment_loses_and_doubles_nothing(folder: Path) -> None:
    """A real process, killed while it writes a log of thousands of events; then the next one."""
    many = "".join(
        twin.submitted(job, job, f"n{job}") + twin.executing(job, job) + twin.terminated(job, job + 5)
        for job in range(1, 1500)
    )
    (folder / "jobs.log").write_text(many)
    program = (
        "import sys; from datetime import UTC; from pathlib import Path; "
        "from siteannex.training.provenance.ap_collect import collect; "
        "collect(Path(sys.argv[1]), 'exp', UTC, {})"
    )
    for least in (1, 200_000, 700_000):
        child = subprocess.Popen([sys.executable, "-c", program, folder])
        while child.poll() is None and (not (folder / NAME).is_file() or (folder / NAME).stat().st_size < least):
            os.sched_yield()
        child.send_signal(signal.SIGKILL)
        child.wait()
    take(folder)
    assert check(folder / NAME) == (1499 * 3, None)
    told = [(each["job"], each["type"]) for each in events(folder)]
    assert len(set(told)) == len(told) == 1499 * 3
    assert take(folder).new == 0


def test_a_rotated_log_is_read_to_its_end(folder: Path) -> None:
    take(folder)
    with (folder / "jobs.log").open("a") as log:
        log.write(twin.evicted(11, 700))
    (folder / "jobs.log").rename(folder / "jobs.log.old")
    (folder / "jobs.log").write_text(twin.executing(11, 800) + twin.terminated(11, 900))
    take(folder)
    assert types(folder) == ALL


def test_dagmans_log_serves_where_jobs_have_none(folder: Path) -> None:
    (folder / "jobs.log").rename(folder.parent / "exp.dag.nodes.log")
    assert take(folder).new == 5


TAMPERINGS: dict[str, tuple[Callable[[list[bytes]], list[bytes]], str]] = {
    "edited": (lambda lines: [*lines[:2], lines[2].replace(b'"epoch":0', b'"epoch":1'), *lines[3:]], "event-edited"),
    "deleted": (lambda lines: [*lines[:2], *lines[3:]], "event-missing"),
    "reordered": (lambda lines: [lines[0], lines[2], lines[1], *lines[3:]], "event-missing"),
    "repeated": (lambda lines: [*lines[:2], lines[1], *lines[2:]], "event-repeated"),
    "cut": (lambda lines: lines[:-1], "event-cut-short"),
    "junk": (lambda lines: [*lines[:2], b"{}\n", *lines[2:]], "event-unreadable"),
}


@pytest.mark.parametrize("name", TAMPERINGS)
def test_tampering_is_named(folder: Path, name: str) -> None:
    take(folder)
    change, kind = TAMPERINGS[name]
    path = folder / NAME
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))
    _, broken = check(path)
    assert broken is not None
    assert broken.kind == kind


def test_the_manifest_names_nodes(tmp_path: Path) -> None:
    path = tmp_path / "exp.manifest.jsonl"
    assert nodes_of(path) == {}
    path.write_text(json.dumps(NODES["r00-e00"]) + '\n{"dag": "exp.dag", "nodes": 1}\n')
    assert nodes_of(path) == NODES
