"""A sandbox as an execution point has it: the shipped runner, a training command of a few lines, real processes."""

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from siteannex.training.rendering.shipping import NAME, epoch_runner

RUN_ID = "6ba7b810-9dad-51d1-80b4-00c04fd430c8"
STEPS = 6
TRAINING = f"""
import json, os, signal, sys, time
from pathlib import Path

env = os.environ
plan = json.loads(env.get("TOY") or "{{}}")
asked = []
signal.signal(signal.SIGTERM, lambda *_: None if plan.get("deaf") else asked.append(1))
folder, metrics = Path(env["SITEANNEX_CHECKPOINTS"]), Path(env["SITEANNEX_METRICS"])

def tell(**row):
    with metrics.open("a") as file:
        file.write(json.dumps(row) + "\\n")

def save(name, state, **row):
    partial = folder / (name + ".partial")
    partial.write_text(json.dumps(state))
    partial.replace(folder / name)
    tell(checkpoint=name, **row)

Path("started").write_text(env.get("SITEANNEX_RESUME", "") + "\\n" + env.get("WORD", ""))
state = {{"steps": [], "step": 0}}
if env.get("SITEANNEX_RESUME"):
    state = json.loads(Path(env["SITEANNEX_RESUME"]).read_text())
tell(ready={{"versions": {{"toy": "1.0"}}, "batch": 4}})
for epoch in range(int(env["SITEANNEX_START_EPOCH"]), int(env["SITEANNEX_STOP_EPOCH"])):
    for step in range(state["step"], {STEPS}):
        state["steps"].append([epoch, step])
        state["step"] = step + 1
        if plan.get("nan") == [epoch, step]:
            tell(epoch=epoch, step=step, train_loss=float("nan"))
            time.sleep(60)
        if plan.get("save") == [epoch, step]:
            save("time.ckpt", state, complete=False, epoch=epoch, step=step)
        if plan.get("pause") == [epoch, step]:
            Path("paused").touch()
            until = time.monotonic() + 60
            while not asked and time.monotonic() < until:
                time.sleep(0.02)
        if asked:
            save("time.ckpt", state, complete=False, epoch=epoch, step=step)
            sys.exit(0)
    state["step"] = 0
    loss = plan.get("losses", {{}}).get(str(epoch), 1.0 / (epoch + 1))
    stage = "" if env.get("SITEANNEX_STAGE", "train") == "train" else "fine-"
    save(f"{{stage}}epoch{{epoch:03d}}.ckpt", state, epoch=epoch, val_loss=float(loss))
sys.exit(plan.get("status", 0))
"""


@dataclass(frozen=True, slots=True)
class Ended:
    """How one attempt ended."""

    status: int
    output: str
    events: list[dict[str, Any]]

    def named(self, kind: str) -> list[dict[str, Any]]:
        """The payloads of events of one kind."""
        return [event["payload"] for event in self.events if event["type"] == kind]


class Ground:
    """One training run's directory, and attempts on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.checkpoints = folder / "run" / "checkpoints"
        self.attempts = folder / "run" / "attempts"
        self.runner = folder / NAME
        self.runner.write_bytes(epoch_runner())
        (folder / "train.py").write_text(TRAINING)

    def environment(self, epoch: int, more: Mapping[str, str], toy: Mapping[str, Any] | None) -> dict[str, str]:
        told = {
            "SITEANNEX_EXPERIMENT": "toy",
            "SITEANNEX_RUN": "3",
            "SITEANNEX_RUN_NAME": "r03",
            "SITEANNEX_RUN_ID": RUN_ID,
            "SITEANNEX_RUN_DIR": "run",
            "SITEANNEX_SEED": "17",
            "SITEANNEX_EPOCH": str(epoch),
            "SITEANNEX_NODE": f"r03-train-e{epoch}",
            "SITEANNEX_SITE": "delta",
            "SITEANNEX_PARAMETERS": '{"lr": 0.001, "width": 8}',
            "TOY": json.dumps(toy or {}),
        }
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SITEANNEX", "_CONDOR"))}
        return {**kept, **told, **more}

    def start(
        self,
        epoch: int,
        *,
        toy: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        options: Sequence[str] = ("--gpu-every", "0"),
        command: Sequence[str] = (sys.executable, "train.py"),
        within: Sequence[str] = (),
    ) -> "subprocess.Popen[str]":
        """One attempt as a process."""
        return subprocess.Popen(
            [*within, sys.executable, "-I", "-W", "error", str(self.runner), *options, "--", *command],
            cwd=self.folder,
            env=self.environment(epoch, env or {}, toy),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def finish(self, process: "subprocess.Popen[str]") -> Ended:
        """Wait for an attempt."""
        output, _ = process.communicate(timeout=60)
        files = sorted(self.attempts.glob("*.ndjson"), key=lambda path: path.stat().st_mtime_ns)
        events = [json.loads(line) for line in files[-1].read_text().splitlines()] if files else []
        return Ended(process.returncode, output, events)

    def attempt(self, epoch: int, **how: Any) -> Ended:
        """Start an attempt and wait for it."""
        return self.finish(self.start(epoch, **how))

    def interrupt(self, epoch: int, signal_number: int, toy: Mapping[str, Any], **how: Any) -> Ended:
        """An attempt that is sent a signal where `toy` makes it pause."""
        (self.folder / "paused").unlink(missing_ok=True)
        process = self.start(epoch, toy=toy, **how)
        until = time.monotonic() + 60
        while not (self.folder / "paused").exists() and process.poll() is None:
            assert time.monotonic() < until
            time.sleep(0.02)
        process.send_signal(signal_number)
        return self.finish(process)

    def train(self, epochs: int, **how: Any) -> None:
        """Epochs 0 to `epochs` - 1, one job each, without trouble."""
        for epoch in range(epochs):
            assert self.attempt(epoch, **how).status == 0

    def sidecar(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.checkpoints / f"{name}.provenance.json").read_text())
        return found

    def steps(self, name: str) -> list[list[int]]:
        """Every step that led to a checkpoint, in order."""
        found: list[list[int]] = json.loads((self.checkpoints / name).read_text())["steps"]
        return found

    def sha256(self, name: str) -> str:
        return hashlib.sha256((self.checkpoints / name).read_bytes()).hexdigest()

    def names(self) -> list[str]:
        return sorted(path.name for path in self.checkpoints.iterdir())

    def loaded(self) -> str:
        """What the command of the last attempt was told to go on from; empty for the beginning."""
        return Path((self.folder / "started").read_text().split("\n")[0]).name


def all_steps(epochs: int) -> list[list[int]]:
    """Every step of so many epochs, once, in order."""
    return [[epoch, step] for epoch in range(epochs) for step in range(STEPS)]
