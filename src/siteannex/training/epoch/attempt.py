"""One start of the user's command, from choosing the checkpoint to the exit status."""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from pathlib import Path
from typing import Callable, Mapping

from . import VERSION
from .checkpoints import SIDECAR, Checkpoint, candidates, fault, scan, stalled
from .command import Warned, end, tell, wait
from .files import Events, digest, say, stamp, write_json
from .gpus import Gpus
from .place import Place, transfer_seconds
from .recorder import Recorder
from .staged import link_staged
from .task import (
    BROKEN_CONTRACT,
    CANNOT_WRITE,
    COMMAND_FAILED,
    DONE,
    INTERRUPTED,
    MISUSED,
    NO_PARENT,
    SAVED,
    SCHEMA_VERSION,
    Json,
    Refusal,
    Task,
)
from .tracking import obstacle, servers

RESERVE_S = 8.0
"""Of the time HTCondor gives: for ending what heeds no signal, and for the last events."""


class Attempt:
    """Everything one attempt knows. `run` is the straight line."""

    def __init__(self, task: Task, options: argparse.Namespace, env: Mapping[str, str]) -> None:
        self.task = task
        self.options = options
        self.env = env
        self.warned = Warned()
        self.place = Place.found(env)
        self.began = time.time()
        # To be done before HTCondor kills, so that what was saved goes back and the attempt's end is told.
        most = self.place.vacate_s - RESERVE_S if self.place.vacate_s is not None else options.grace
        self.grace = max(1.0, min(options.grace, most))
        base = Path(env.get("SITEANNEX_RUN_DIR") or ".").absolute()
        self.directory = base / "checkpoints"
        self.events = self._open_events(base / "attempts")
        self.gpus = Gpus(options.gpu_every, env)
        metrics = self.events.path.with_suffix(".metrics.jsonl")
        self.recorder = Recorder(task, self.place, self.directory, metrics, self.events, self.gpus)
        self.recorder.times["transfer_in_s"] = transfer_seconds(env.get("_CONDOR_SCRATCH_DIR"))

    def _open_events(self, folder: Path) -> Events:
        job = self.place.job
        envelope = {
            "schema_version": SCHEMA_VERSION,
            "experiment": self.task.experiment,
            "run_id": self.task.run_id,
            "stage": self.task.stage,
            "node": self.task.node,
            "attempt": {"retry": self.task.retry, "start": self.place.start, "job": job},
            "source": "siteannex-epoch " + VERSION,
        }
        name = f"{self.task.node}.{job['cluster'] or 0}.{self.place.start}"
        try:
            for each in (folder, self.directory):
                each.mkdir(parents=True, exist_ok=True)
            # After exit 85 HTCondor starts the job again in the same sandbox, with the same ads.
            taken = len(list(folder.glob(f"{name}.*.ndjson")))
            return Events(folder / f"{name}.{taken}.ndjson", envelope)
        except OSError as error:
            raise Refusal(CANNOT_WRITE, f"cannot write in {folder}: {error.strerror}") from error

    def run(self) -> int:
        """The exit status."""
        place = self.place
        self.events.write(
            "attempt.started", host=place.host, site=place.site, slot=place.slot, gpus=self.gpus.devices or place.gpus
        )
        self._try_tracking()
        try:
            status = self._side_job() if self.task.stage in ("prepare", "evaluate") else self._train()
        except Refusal as refusal:
            say(str(refusal))
            self.events.write("attempt.failed", reason=str(refusal))
            status = refusal.status
        except OSError as error:
            say(f"{error}")
            self.events.write("attempt.failed", reason=str(error))
            status = CANNOT_WRITE
        finally:
            self.gpus.close()
        seconds = round(time.time() - self.began, 3)
        self.events.write(
            "attempt.ended", status=status, seconds=seconds, gpu=self.gpus.summary(), **self.recorder.times
        )
        self.events.close()
        if status not in (SAVED, INTERRUPTED):
            self._send_back_only_ours()
        return status

    def _try_tracking(self) -> None:
        for name, address in servers(self.env).items():
            wrong = obstacle(address, self.env)
            self.events.write("tracking.checked", server=name, address=address, wrong=wrong or None)
            if wrong:
                say(f"{name} at {address} cannot be reached from here ({wrong}); training goes on without it")

    # Training

    def _train(self) -> int:
        known = scan(self.directory)
        self._refuse_strangers(known)
        known = self._without_damaged_end(known)
        if self._nothing_to_do(known):
            return DONE
        start = self._choose(known)
        self._unpack()
        if self.warned.name:
            raise Refusal(SAVED, f"{self.warned.name} before training began; nothing is lost")
        self.recorder.begin(start)
        returned = self._run_command(start)
        self._judge(returned)
        self._stop_if_stalled()
        return DONE

    def _refuse_strangers(self, known: list[Checkpoint]) -> None:
        for one in known:
            owner = one.sidecar["run"].get("id")
            if owner != self.task.run_id:
                raise Refusal(MISUSED, f"{one.path.name} belongs to run {owner}, not to {self.task.run_id}")

    def _is_end(self, one: Checkpoint) -> bool:
        return (one.stage, one.epoch, one.complete) == (self.task.stage, self.task.last, True)

    def _without_damaged_end(self, known: list[Checkpoint]) -> list[Checkpoint]:
        """A checkpoint of this job's last epoch that came back damaged: that epoch is not done. Pruned ones count."""
        kept = []
        for one in known:
            wrong = fault(one) if self._is_end(one) else ""
            if wrong in ("", "missing"):
                kept.append(one)
            else:
                self._set_aside(one, wrong)
        return kept

    def _nothing_to_do(self, known: list[Checkpoint]) -> bool:
        reason = ""
        if self._stopped.exists():
            reason = "the run was stopped early"
        elif any(self._is_end(one) for one in known):
            reason = f"epoch {self.task.last} is already finished"
            self._stop_if_stalled()
        if reason:
            self.events.write("epoch.skipped", epoch=self.task.last, reason=reason)
            say(reason + "; nothing to do")
        return bool(reason)

    def _choose(self, known: list[Checkpoint]) -> int:
        """Settle the checkpoint to go on from and return the first epoch to train."""
        refused = set()
        for one, start, why in candidates(known, self.task):
            if one.path in refused:
                continue
            wrong = fault(one)
            if wrong:
                refused.add(one.path)
                self._set_aside(one, wrong)
                continue
            self._go_on_from(one, start, why)
            return start
        if self.task.first > 0 or (self.task.stage == "finetune" and not self.task.initial):
            raise Refusal(NO_PARENT, f"epoch {self.task.first} needs a checkpoint and none can be trusted")
        parent: Json = {"sha256": None, "file": None, "kind": "none"}
        if self.task.initial:
            path = Path(self.task.initial)
            if not path.is_file():
                raise Refusal(NO_PARENT, f"SITEANNEX_INITIAL_CHECKPOINT is no file here: {path}")
            parent = {"sha256": digest(path), "file": self.task.initial, "kind": "initial"}
        self.recorder.parent = parent
        self.events.write("checkpoint.chosen", why="the beginning", start=0, **parent)
        return 0

    def _go_on_from(self, one: Checkpoint, start: int, why: str) -> None:
        said = one.sidecar["checkpoint"]
        kind = "epoch" if one.complete else "time"
        self.recorder.parent = {"sha256": said["sha256"], "file": said["file"], "kind": kind}
        if not one.complete:
            # The file will be written again; lineage needs the side-car of what was loaded.
            kept = f"{said['file']}.{said['sha256'][:12]}{SIDECAR}"
            write_json(one.path.with_name(kept), one.sidecar)
        self.events.write("checkpoint.chosen", why=why, start=start, **self.recorder.parent)
        say(f"goes on from {said['file']} ({why}, sha256 {said['sha256'][:12]}...)")
        if start < self.task.first:
            self.events.write("epoch.repeated", first=start, before=self.task.first, why="their checkpoints are lost")

    def _set_aside(self, one: Checkpoint, wrong: str) -> None:
        self.events.write("checkpoint.set_aside", file=one.path.name, reason=wrong, expected=one.sidecar["checkpoint"])
        say(f"{one.path.name} is not used: {wrong}")
        if one.path.exists():
            one.path.replace(one.path.with_name(one.path.name + ".damaged"))

    def _judge(self, returned: int) -> None:
        """Return when the job's last epoch is there; else Refusal with the status that says why not."""
        if self.task.last in self.recorder.finished:
            if returned != 0 and not self.warned.name:
                self.events.write("command.failed_late", returned=returned)
            return
        if self.warned.name:
            if self.recorder.written:
                raise Refusal(SAVED, f"{self.warned.name}: a checkpoint was saved, to go on from")
            raise Refusal(INTERRUPTED, f"{self.warned.name}: no checkpoint came in {self.grace:g} s")
        if returned != 0:
            how = f"by signal {-returned}" if returned < 0 else f"with status {returned}"
            raise Refusal(returned if 0 < returned < MISUSED else COMMAND_FAILED, "the command ended " + how)
        raise Refusal(BROKEN_CONTRACT, f"the command ended well but reported no checkpoint of epoch {self.task.last}")

    @property
    def _stopped(self) -> Path:
        """Beside the checkpoints of a stage that early stopping has ended."""
        return self.directory / f"stopped-{self.task.stage}.json"

    def _stop_if_stalled(self) -> None:
        task = self.task
        if stalled(scan(self.directory), task):
            fact = {"stage": task.stage, "epoch": task.last, "metric": task.metric, "patience": task.patience}
            write_json(self._stopped, dict(fact, ts=stamp()))
            self.events.write("run.stopped", **fact)
            say(f"{task.metric} has not improved for {task.patience} epochs: the run stops")

    # The command

    def _unpack(self) -> None:
        if (verified_s := link_staged(self.env)) is not None:
            self.events.write("inputs.staged", verify_s=verified_s)
        begun = time.monotonic()
        for archive in self.options.unpack:
            if subprocess.run(["tar", "-xf", archive], check=False).returncode != 0:
                raise Refusal(MISUSED, f"tar could not unpack {archive}")
        if self.options.unpack:
            self.recorder.times["unpack_s"] = round(time.monotonic() - begun, 3)

    def _environment(self, start: int) -> dict[str, str]:
        parent = self.recorder.parent
        loaded = parent["file"] or ""
        env = dict(
            self.env,
            SITEANNEX_CHECKPOINTS=str(self.directory),
            SITEANNEX_METRICS=str(self.recorder.metrics),
            SITEANNEX_START_EPOCH=str(start),
            SITEANNEX_STOP_EPOCH=str(self.task.last + 1),
            SITEANNEX_RESUME=str(self.directory / loaded) if parent["kind"] in ("epoch", "time") else loaded,
        )
        for pair in filter(None, self.env.get("SITEANNEX_SECRET_FILES", "").split(":")):
            name, _, file = pair.partition("=")
            try:
                env[name] = Path(file).read_text().strip()
            except OSError as error:
                raise Refusal(MISUSED, f"the secret file of {name}: {error.strerror}") from error
        return env

    def _run_command(self, start: int, follow: Callable[..., None] | None = None) -> int:
        """Its exit status (negative: the signal). Nothing of it runs on when this returns or raises."""
        command = self.options.command
        follow = follow or self.recorder.follow
        try:
            # A session of its own: all of it can be ended, and a signal to our group is not told twice.
            process = subprocess.Popen(command, env=self._environment(start), start_new_session=True)
        except OSError as error:
            raise Refusal(MISUSED, f"cannot start {command[0]}: {error.strerror}") from error
        self.events.write("command.started", program=command[0], start=start, last=self.task.last)
        asked = 0.0
        try:
            while not wait(process, 0.2):
                follow()
                if self.warned.name and not asked:
                    asked = time.monotonic()
                    self.events.write("signal.received", signal=self.warned.name, grace_s=self.grace)
                    say(f"{self.warned.name}: asks the command for a last checkpoint")
                    tell(process, self.options.ask)
                elif asked and time.monotonic() - asked > self.grace:
                    break
        finally:
            end(process)
        follow(last=True)
        return process.returncode

    # Preparation and evaluation

    def _side_job(self) -> int:
        if self.task.stage == "evaluate":
            self._choose_evaluated()
        self._unpack()
        returned = self._run_command(self.task.first, follow=lambda last=False: None)
        if self.warned.name:
            raise Refusal(INTERRUPTED, f"ended by {self.warned.name}")
        rows = [json.loads(line) for line in self.recorder.metrics.read_text().splitlines() if line.startswith("{")]
        self.events.write(
            self.task.stage + ".ended",
            checkpoint=self.recorder.parent,
            metrics=rows,
            epoch=self.task.last,
            returned=returned,
        )
        return returned if 0 <= returned < MISUSED else COMMAND_FAILED

    def _choose_evaluated(self) -> None:
        known = scan(self.directory)
        stage = self.task.trained_stage
        wanted = [one for one in known if one.complete and (one.stage, one.epoch) == (stage, self.task.last)]
        for one in wanted:
            wrong = fault(one)
            if not wrong:
                return self._go_on_from(one, one.epoch, "to be evaluated")
            self._set_aside(one, wrong)
        raise Refusal(NO_PARENT, f"no sound checkpoint of epoch {self.task.last} to evaluate")

    # Before the files go back

    def _send_back_only_ours(self) -> None:
        """The AP has what other jobs made; only side-cars, which are small, go back with ours."""
        if self.place.job["cluster"] is None:
            return
        for one in scan(self.directory):
            if one.sidecar["attempt"]["job"] != self.place.job and one.path.exists():
                one.path.unlink()
        for path in self.directory.glob("*.damaged"):
            path.unlink()
