"""Archiving finished runs: real files, real kills. Whatever happens, every checkpoint is whole somewhere."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from siteannex.cli.main import app
from siteannex.errors import AnnexError
from siteannex.training.archive import Archived, Policy, archive
from siteannex.training.prune import Keep, point_at
from tests.unit.epoch_ground import RUN_ID, Ground

LOSSES = {"losses": {"0": 1.0, "1": 3.0, "2": 2.0}}


class Results:
    """`toy/r03` with three epochs trained for real, and a manifest that also knows a run that is not finished."""

    def __init__(self, folder: Path) -> None:
        ground = Ground(folder)
        ground.train(3, toy=LOSSES)
        self.folder = folder / "toy"
        self.folder.mkdir()
        self.run = (folder / "run").rename(self.folder / "r03")
        (self.run / "logs").mkdir()
        (self.run / "logs" / "r03-e00.1.out").write_text("hello\n")
        point_at(self.run / "last.ckpt", self.run / "checkpoints/epoch002.ckpt")
        self.manifest = folder / "toy.manifest.jsonl"
        rows = [
            {"stage": "train", "run_name": name, "run_id": run_id, "epoch": epoch}
            for name, run_id in (("r03", RUN_ID), ("r04", "other"))
            for epoch in range(3)
        ]
        self.manifest.write_text("".join(f"{json.dumps(row)}\n" for row in [*rows, {"dag": "toy.dag"}]))
        self.to = folder / "archive"
        self.target = self.to / "toy" / "r03"
        self.sums = {name: self.sum(self.run / "checkpoints" / name) for name in self.here()}

    @staticmethod
    def sum(path: Path) -> str:
        return hashlib.sha256(path.read_bytes()).hexdigest()

    def here(self) -> list[str]:
        """Checkpoints in the run's directory."""
        return sorted(path.name for path in (self.run / "checkpoints").glob("*.ckpt"))

    def there(self) -> list[str]:
        """Checkpoints in the archive."""
        return sorted(path.name for path in (self.target / "checkpoints").glob("*.ckpt"))

    def archive(self, policy: Policy | None = None) -> list[Archived]:
        return list(archive(self.folder, self.to, policy or Policy()))

    def nothing_is_lost(self) -> bool:
        """Every checkpoint is whole here or, under its own name, in the archive."""
        places = [self.run / "checkpoints", self.target / "checkpoints"]
        return all(
            any((place / name).exists() and self.sum(place / name) == summed for place in places)
            for name, summed in self.sums.items()
        )


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return Results(tmp_path)


def test_a_finished_run_is_copied_compared_and_only_then_removed(results: Results) -> None:
    done, waits = results.archive()
    assert (done.run, done.skipped, len(done.removed)) == ("r03", "", 3)
    assert (waits.run, waits.skipped) == ("r04", "nothing came back yet")
    assert (results.here(), results.there()) == ([], ["epoch000.ckpt", "epoch001.ckpt", "epoch002.ckpt"])
    assert results.nothing_is_lost()
    listed = json.loads((results.target / "archive.json").read_text())
    assert listed["run_id"] == RUN_ID
    for name, said in listed["files"].items():
        assert results.sum(results.target / name) == said["sha256"]
    assert {"logs/r03-e00.1.out", "checkpoints/epoch000.ckpt.provenance.json"} <= set(listed["files"])
    assert "last.ckpt" not in listed["files"]
    assert not (results.run / "last.ckpt").exists(), "else the newest checkpoint would still take its room"
    assert json.loads((results.run / "archived.json").read_text())["archive"] == str(results.target)
    assert (results.run / "checkpoints/epoch000.ckpt.provenance.json").exists()
    again, _ = results.archive()
    assert (again.copied, again.removed) == (0, ())
    assert set(json.loads((results.target / "archive.json").read_text())["files"]) == set(listed["files"])


def test_killed_at_any_step_nothing_is_lost_and_the_same_command_ends_it(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom siteannex.training.archive import Policy, archive\n"
        "left = [int(sys.argv[3])]\n"
        "def step(what):\n    left[0] -= 1\n    left[0] < 0 and os.kill(os.getpid(), signal.SIGKILL)\n"
        "list(archive(Path(sys.argv[1]), Path(sys.argv[2]), Policy(), step))\n"
    )
    results = Results(tmp_path)
    argv = [sys.executable, "-c", script, str(results.folder), str(results.to)]
    killed = 0
    while True:
        # Killed before the first, second, third or fourth change that is still to be made.
        done = subprocess.run([*argv, str(killed % 4)], capture_output=True, text=True, check=False)
        assert results.nothing_is_lost(), f"after {killed} kills"
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
        killed += 1
        assert killed < 200
    assert killed > 10
    assert (results.here(), len(results.there())) == ([], 3)
    assert not list(results.to.rglob("*.part"))


def test_only_what_the_policy_names_goes(results: Results) -> None:
    done, _ = results.archive(Policy(keep=Keep(last=1)))
    assert results.there() == ["epoch000.ckpt", "epoch002.ckpt"]
    assert (results.here(), len(done.removed)) == (["epoch001.ckpt"], 2)


def test_copies_may_be_had_without_removing_anything(results: Results) -> None:
    done, _ = results.archive(Policy(remove=False))
    assert (done.removed, len(results.here()), len(results.there())) == ((), 3, 3)


def test_a_run_of_today_may_be_too_young(results: Results) -> None:
    done, _ = results.archive(Policy(older_than_s=3600))
    assert (done.skipped, results.there()) == ("too young", [])


def test_a_damaged_checkpoint_is_neither_archived_nor_removed(results: Results) -> None:
    bad = results.run / "checkpoints/epoch001.ckpt"
    bad.write_bytes(b"?" * bad.stat().st_size)
    done, _ = results.archive()
    assert done.doubts == ("epoch001.ckpt: its sha256 is not the side-car's",)
    assert (results.here(), results.there()) == (["epoch001.ckpt"], ["epoch000.ckpt", "epoch002.ckpt"])


def test_a_rotten_copy_of_an_earlier_time_is_replaced_before_anything_goes(results: Results) -> None:
    results.archive(Policy(remove=False))
    rotten = results.target / "checkpoints/epoch001.ckpt"
    rotten.write_bytes(b"?" * rotten.stat().st_size)
    results.archive()
    assert results.nothing_is_lost()
    assert results.here() == []


def test_a_copy_that_arrives_as_something_else_removes_nothing(results: Results) -> None:
    def spoil(what: str) -> None:
        if what == "compare epoch001.ckpt":
            part = results.target / "checkpoints/.epoch001.ckpt.part"
            part.write_bytes(b"?" * part.stat().st_size)

    with pytest.raises(AnnexError) as raised:
        list(archive(results.folder, results.to, Policy(), spoil))
    assert raised.value.failure.code == "archive-differs"
    assert len(results.here()) == 3


@pytest.mark.parametrize("case", ["no manifest", "inside", "another run", "torn list"])
def test_what_cannot_be_archived_is_said(results: Results, case: str) -> None:
    to = results.to
    if case == "no manifest":
        results.manifest.unlink()
    elif case == "inside":
        to = results.folder / "archive"
    else:
        results.target.mkdir(parents=True)
        text = "{" if case == "torn list" else json.dumps({"run_id": "another", "files": {}})
        (results.target / "archive.json").write_text(text)
    with pytest.raises(AnnexError) as raised:
        list(archive(results.folder, to, Policy()))
    assert raised.value.failure.code == "archive-impossible"
    assert len(results.here()) == 3


def test_the_command_says_what_it_did(results: Results, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    words = ["dag", "archive", str(results.folder), "--to", str(results.to)]
    told = CliRunner().invoke(app, words, catch_exceptions=False)
    assert told.exit_code == 0
    assert "3 checkpoints removed here" in told.output
    assert "r04: not archived: nothing came back yet" in told.output
    again = CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False)
    assert [run["removed"] for run in json.loads(again.output)["runs"]] == [[], []]
