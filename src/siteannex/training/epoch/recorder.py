"""What the command reports: its metrics file, read as it grows, and the side-car of every checkpoint in it."""

from __future__ import annotations

import json
import math
import platform
import time
from pathlib import Path
from typing import Any

from . import VERSION
from .checkpoints import SIDECAR, scan
from .files import Events, clean, digest, say, stamp, write_json
from .gpus import Gpus, number_or_none
from .place import Place
from .task import BROKEN_CONTRACT, NOT_FINITE, SCHEMA_VERSION, Json, Refusal, Task

OUR_KEYS = ("checkpoint", "complete", "epoch", "step")
"""Of a metrics line; every other key is a metric."""


class Recorder:
    """Follows one command. `parent` is what it loaded, then the newest finished epoch's checkpoint."""

    def __init__(self, task: Task, place: Place, directory: Path, metrics: Path, events: Events, gpus: Gpus) -> None:
        self.task = task
        self.place = place
        self.directory = directory
        self.metrics = metrics
        self.events = events
        self.gpus = gpus
        self.parent: Json = {"sha256": None, "file": None, "kind": "none"}
        self.times: Json = {"transfer_in_s": None, "unpack_s": None, "start_up_s": None}
        self.facts: Json = {}
        """What the command says of itself: versions, batch size, precision."""
        self.finished: set[int] = set()
        self.written = 0
        """Side-cars of this attempt."""
        self._next = 0
        self._read = 0
        self._begun = self._epoch_begun = time.time()
        metrics.write_text("")

    def begin(self, start: int) -> None:
        """The command is about to train from epoch `start` on."""
        self._next = start
        self._begun = self._epoch_begun = time.time()
        self.events.write("epoch.started", epoch=start)

    def follow(self, last: bool = False) -> None:
        """Read the lines that are new. One without its end is left for the next time, unless this is the `last`."""
        with self.metrics.open("rb") as file:
            file.seek(self._read)
            text = file.read()
        whole = text if last else text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        if whole and self.times["start_up_s"] is None:
            self.times["start_up_s"] = round(time.time() - self._begun, 3)
        for line in filter(None, whole.splitlines()):
            try:
                row = json.loads(line.decode())
            except ValueError:
                row = None
            if isinstance(row, dict):
                self._take(row)
            else:
                self.events.write("metrics.unreadable", line=line[:200].decode(errors="replace"))

    def _take(self, row: Json) -> None:
        if isinstance(row.get("ready"), dict):
            self.facts.update(clean(row["ready"]))
            self.events.write("command.ready", start_up_s=self.times["start_up_s"], facts=self.facts)
            return
        bad = [name for name in sorted(row) if is_loss(name, self.task.metric) and not is_finite(row[name])]
        if bad:
            self._refuse_not_finite(row, bad)
        if "checkpoint" in row:
            self._describe(row)

    def _refuse_not_finite(self, row: Json, bad: list[str]) -> None:
        name = row.get("checkpoint")
        if isinstance(name, str) and (self.directory / Path(name).name).is_file():
            (self.directory / Path(name).name).unlink()
        self.events.write("epoch.failed", reason="not finite", epoch=row.get("epoch"), metrics=row)
        shown = ", ".join(f"{key} is {row[key]}" for key in bad)
        raise Refusal(NOT_FINITE, f"{shown} in epoch {row.get('epoch')}: a failed epoch, not kept")

    def _describe(self, row: Json) -> None:
        """Write the side-car of a checkpoint that the command says it has finished writing."""
        name, epoch, complete = self._checked(row)
        path = self.directory / name
        try:
            before, sha256, after = path.stat(), digest(path), path.stat()
        except OSError as error:
            raise Refusal(BROKEN_CONTRACT, f"checkpoint {name} was reported: {error.strerror}") from error
        if (before.st_ino, before.st_size, before.st_mtime_ns) != (after.st_ino, after.st_size, after.st_mtime_ns):
            return  # written again meanwhile: the line about that follows
        now = time.time()
        seconds = round(now - self._epoch_begun, 3)
        metrics = clean({key: value for key, value in row.items() if key not in OUR_KEYS})
        sidecar = {
            **self._identity(),
            "epoch": epoch,
            "checkpoint": {
                "file": name,
                "sha256": sha256,
                "bytes": after.st_size,
                "complete": complete,
                "step": row.get("step"),
            },
            "parent": self.parent,
            "training": {
                "metrics": metrics,
                "started": stamp(self._epoch_begun),
                "seconds": seconds,
                "gpu": self.gpus.summary(),
                **self.times,
            },
            "written": stamp(now),
        }
        write_json(path.with_name(name + SIDECAR), sidecar)
        self.written += 1
        self.events.write(
            "checkpoint.written", file=name, sha256=sha256, epoch=epoch, complete=complete, parent=self.parent
        )
        if complete:
            self._finish(epoch, seconds, metrics)
            self.parent = {"sha256": sha256, "file": name, "kind": "epoch"}
            self._epoch_begun = now

    def _checked(self, row: Json) -> tuple[str, int, bool]:
        name, epoch, complete = row["checkpoint"], row.get("epoch"), row.get("complete", True)
        shown = json.dumps(row)[:200]
        if not isinstance(name, str) or not name or Path(name).name != name or not isinstance(epoch, int):
            raise Refusal(BROKEN_CONTRACT, f"a checkpoint's line needs a plain file name and an epoch: {shown}")
        if epoch != self._next:
            raise Refusal(BROKEN_CONTRACT, f"epoch {self._next} comes next, and the command reported: {shown}")
        if epoch > self.task.last:
            raise Refusal(
                BROKEN_CONTRACT, f"this job ends with epoch {self.task.last}, and the command reported: {shown}"
            )
        for other in scan(self.directory):
            taken = other.path.name == name and other.complete
            if taken and (other.stage, other.epoch) != (self.task.stage, epoch):
                text = f"{name} is epoch {other.epoch} of {other.stage} already: each epoch needs a name of its own"
                raise Refusal(BROKEN_CONTRACT, text)
        return name, epoch, bool(complete)

    def _finish(self, epoch: int, seconds: float, metrics: Json) -> None:
        self.finished.add(epoch)
        self._next = epoch + 1
        self.events.write("epoch.completed", epoch=epoch, seconds=seconds, metrics=metrics)
        if epoch < self.task.last:
            self.events.write("epoch.started", epoch=epoch + 1)
        told = ", ".join(f"{key} {metrics[key]}" for key in sorted(metrics))
        say(f"epoch {epoch} done in {seconds:.1f} s: {told}")
        for one in scan(self.directory):
            # What was saved on the way is of no more use.
            if not one.complete and one.stage == self.task.stage and one.epoch <= epoch:
                for path in (one.path, one.path.with_name(one.path.name + SIDECAR)):
                    if path.exists():
                        path.unlink()

    def _identity(self) -> Json:
        """What a side-car says about who, where and with what."""
        task, place = self.task, self.place
        return {
            "schema_version": SCHEMA_VERSION,
            "experiment": task.experiment,
            "run": {
                "id": task.run_id,
                "name": task.run_name,
                "index": task.run,
                "stage": task.stage,
                "seed": task.seed,
                "parameters": task.parameters,
                "parameters_sha256": task.parameters_sha256,
            },
            "attempt": {"node": task.node, "retry": task.retry, "start": place.start, "job": place.job},
            "where": {
                "host": place.host,
                "site": place.site,
                "targeted_site": task.site or None,
                "annex": place.annex,
                "slot": place.slot,
                "gpus": self.gpus.devices,
                "advertised_gpus": place.gpus,
            },
            "software": {
                "runner": VERSION,
                "python": platform.python_version(),
                "kernel": platform.release(),
                "arch": platform.machine(),
                "code": task.code or None,
                "container": task.container or None,
                "dataset": task.dataset or None,
                "command": self.facts,
            },
        }


def is_loss(name: str, metric: str) -> bool:
    """Whether a value of that name that is not finite means that training went wrong."""
    return name in (metric, "loss") or name.endswith("_loss")


def is_finite(value: Any) -> bool:
    """False for NaN and infinities, also when spelled as a word."""
    number = number_or_none(value) if isinstance(value, str) else value
    return not isinstance(number, float) or math.isfinite(number)
