"""`siteannex dag status` as a person runs it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pexpect
import pytest
from typer.testing import CliRunner

from siteannex.cli.dag import app
from tests.unit.training import log_twin as twin

DAG = "".join(f"JOB run{run}-train_epoch{epoch} lake_pretrain.sub\n" for run in range(2) for epoch in range(2))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "x.dag").write_text(DAG)
    (tmp_path / "x.dag.nodes.log").write_text(twin.campaign_log())
    return tmp_path


def status(*words: object) -> str:
    result = CliRunner().invoke(app, ["status", *map(str, words)])
    assert result.exit_code == 0, result.output
    return result.output


def test_the_screen_has_runs_hours_and_what_waits(folder: Path) -> None:
    screen = status("--log", folder / "x.dag.nodes.log")
    assert "1 idle, 2 completed" in screen
    assert "gpu-h    2.0 good, 0.5 lost (1 evicted, 1 failed)" in screen
    row = next(line for line in screen.splitlines() if line.startswith("run0"))
    assert "[#####-----] 1/2" in row
    assert "epoch 1" in row


def test_a_directory_is_enough(folder: Path) -> None:
    assert "1 idle, 2 completed, 1 waiting; 2 runs, 4 nodes" in status(folder)
    assert "1 idle, 2 completed, 1 waiting; 2 runs, 4 nodes" in status(folder / "x.dag")


def test_what_a_rescue_file_says_is_done_is_done(folder: Path) -> None:
    (folder / "x.dag.rescue001").write_text("DONE run1-train_epoch1\n")
    assert "1 idle, 3 completed" in status(folder)


def test_one_run_epoch_by_epoch(folder: Path) -> None:
    screen = status(folder, "--run", "run0")
    row = next(line for line in screen.splitlines() if line.startswith("0 "))
    assert row.split() == [
        *("0", "11.0", "completed", "Lake-CE1", "1", "x", "A40"),
        *("24", "m", "1", "m", "1", "h", "10", "m", "2"),
    ]


def test_a_run_that_is_not_there_is_told_with_those_that_are(folder: Path) -> None:
    result = CliRunner().invoke(app, ["status", str(folder), "--run", "run9"])
    assert result.exit_code == 2
    assert "run0" in result.output


def test_json_and_csv(folder: Path) -> None:
    data = json.loads(status(folder, "--json"))
    assert data["totals"]["nodes"] == 4
    assert data["runs"][0]["nodes"][0]["site"] == "Lake-CE1"
    assert status(folder, "--csv").count("\n") == 5


def test_a_held_run_says_why_and_what_to_do(folder: Path) -> None:
    with (folder / "x.dag.nodes.log").open("a") as log:
        log.write(twin.held(14, 5720, "Transfer input files failure at execution point"))
    screen = status("--log", folder / "x.dag.nodes.log")
    assert "held     run0-train_epoch1, job 14.0: Transfer input files failure" in screen
    assert "condor_release 14.0" in screen


def test_damage_is_told(folder: Path) -> None:
    path = folder / "x.dag.nodes.log"
    path.write_text("junk\n" + path.read_text())
    assert "damage   5 bytes at 0: no header; the rest was read" in status("--log", path)


def test_a_directory_without_a_dag_is_an_error_that_says_what_to_give(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["status", str(tmp_path)])
    assert result.exit_code == 2
    assert "--log FILE" in result.output.replace("\n", " ")


def test_a_zone_that_does_not_exist_is_refused(folder: Path) -> None:
    result = CliRunner().invoke(app, ["status", str(folder), "--timezone", "Mars/Olympus"])
    assert result.exit_code == 2


def test_the_watched_screen_follows_the_log_and_ends_at_ctrl_c(folder: Path) -> None:
    path = folder / "x.dag.nodes.log"
    command = [
        sys.executable,
        "-c",
        "from siteannex.cli.main import main; main()",
        "dag",
        "status",
        "--log",
        str(path),
        "--watch",
    ]
    screen = pexpect.spawn(command[0], command[1:], encoding="utf-8", dimensions=(30, 120), timeout=60)
    try:
        screen.expect("Ctrl-C ends this view and nothing else")
        screen.expect("1 idle, 2 completed")
        with path.open("a") as log:
            log.write(twin.executing(14, 5800))
        screen.expect("1 running, 2 completed")
        screen.sendintr()
        screen.expect("Stopped watching")
        screen.expect(pexpect.EOF)
    finally:
        screen.close(force=True)
