"""Checkpoints and their side-cars: which can be trusted, and which of them a job goes on from. Reads only."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Iterable, NamedTuple

from .files import digest, say
from .task import STAGES, Json, Task

SIDECAR = ".provenance.json"


class Checkpoint(NamedTuple):
    """A checkpoint as its side-car describes it; the file itself may be missing, cut short or changed."""

    path: Path
    sidecar: Json

    @property
    def stage(self) -> str:
        """train or finetune."""
        return str(self.sidecar["run"].get("stage", "train"))

    @property
    def epoch(self) -> int:
        """The epoch it belongs to."""
        return int(self.sidecar["epoch"])

    @property
    def complete(self) -> bool:
        """Whether the epoch is finished in it; else it was taken on the way."""
        return bool(self.sidecar["checkpoint"]["complete"])

    @property
    def progress(self) -> tuple[int, int, bool, int]:
        """Sorts by how far training had come."""
        step = int(self.sidecar["checkpoint"].get("step") or 0)
        return STAGES.index(self.stage), self.epoch, self.complete, step

    def metric(self, name: str) -> float | None:
        """A metric, when it is there and finite."""
        value = self.sidecar["training"]["metrics"].get(name)
        number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        return float(value) if number else None


class Choice(NamedTuple):
    """A checkpoint to go on from, the first epoch still to be trained after it, and why it was chosen."""

    checkpoint: Checkpoint
    start: int
    why: str


def scan(directory: Path) -> list[Checkpoint]:
    """Every checkpoint that a side-car of this directory describes; side-cars that cannot be read are passed over."""
    found = []
    for path in sorted(directory.glob("*" + SIDECAR)):
        try:
            sidecar = json.loads(path.read_text())
            checkpoint = Checkpoint(directory / sidecar["checkpoint"]["file"], sidecar)
            said = sidecar["checkpoint"]
            whole = checkpoint.progress and len(said["sha256"]) == 64 and said["bytes"] >= 0
            # One kept for lineage only bears another name than its checkpoint's.
            if whole and sidecar["training"]["metrics"] is not None and path.name == said["file"] + SIDECAR:
                found.append(checkpoint)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            say(f"{path.name} cannot be read; passed over")
    return found


def fault(checkpoint: Checkpoint) -> str:
    """What is wrong with the file, or empty when it is what its side-car says, byte for byte."""
    said = checkpoint.sidecar["checkpoint"]
    try:
        size = checkpoint.path.stat().st_size
        if size != said["bytes"]:
            return f"{size} bytes, not {said['bytes']}"
        return "" if digest(checkpoint.path) == said["sha256"] else "its sha256 is not the side-car's"
    except FileNotFoundError:
        return "missing"
    except OSError as error:
        return f"unreadable: {error.strerror}"


def ranked(checkpoints: Iterable[Checkpoint], metric: str, mode: str) -> list[Checkpoint]:
    """Complete checkpoints with the metric, best first; of equals, the later."""
    sign = 1 if mode == "min" else -1
    having = [one for one in checkpoints if one.complete and one.metric(metric) is not None]
    return sorted(having, key=lambda one: (sign * (one.metric(metric) or 0.0), [-int(part) for part in one.progress]))


def candidates(checkpoints: list[Checkpoint], task: Task) -> list[Choice]:
    """What this job may go on from, in the order of trying.

    First a checkpoint from the middle of the very epoch that comes next. Then, by policy, the best of the finished
    epochs; it costs no epoch even when it is not the newest. Then the newest and those before it: epochs after such
    a one are lost and are trained again.
    """
    mine = [one for one in checkpoints if one.stage == task.stage and one.epoch <= task.last]
    finished = [one for one in mine if one.complete]
    following = max((one.epoch for one in finished), default=-1) + 1
    newest_first = sorted(mine, key=lambda one: one.progress, reverse=True)
    found = [
        Choice(one, following, f"in the middle of epoch {following}")
        for one in newest_first
        if not one.complete and one.epoch == following
    ]
    if task.resume_from == "best":
        found += [Choice(one, following, f"best {task.metric}") for one in ranked(mine, task.metric, task.mode)[:1]]
    found += [Choice(one, one.epoch + 1, "last") for one in newest_first if one.complete]
    if task.stage == "finetune":
        trained = [one for one in checkpoints if one.stage == "train" and one.complete]
        order = ranked(trained, task.metric, task.mode) if task.resume_from == "best" else []
        order += [one for one in sorted(trained, key=lambda one: one.progress, reverse=True) if one not in order]
        found += [Choice(one, 0, "from training") for one in order] if task.first == 0 else []
    return found


def stalled(checkpoints: list[Checkpoint], task: Task) -> bool:
    """Whether the metric has not improved by `min_delta` for `patience` finished epochs of this stage."""
    history = sorted(
        (one for one in checkpoints if one.complete and one.stage == task.stage), key=lambda one: one.epoch
    )
    best, best_epoch = math.inf, -1
    for one in history:
        value = one.metric(task.metric)
        value = math.inf if value is None else value if task.mode == "min" else -value
        if value < best - task.min_delta or best_epoch < 0:
            best, best_epoch = value, one.epoch
    return bool(task.patience and history and history[-1].epoch - best_epoch >= task.patience)
