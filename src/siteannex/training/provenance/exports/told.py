"""Runs and their attempts as every export tells them: times, how each ended, what it loaded and wrote. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from siteannex.training.epoch.task import DONE, INTERRUPTED, SAVED
from siteannex.training.provenance.events import AttemptLog, writings
from siteannex.training.provenance.exports.scrub import scrubbed
from siteannex.training.provenance.files import Car, RunFiles


@dataclass(frozen=True, slots=True)
class Output:
    """A checkpoint that an attempt wrote."""

    at: datetime
    payload: dict[str, Any]
    """file, sha256, epoch, complete, parent."""
    car: Car | None
    """Its side-car, where that is still there."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One start of one job."""

    id: str
    """A UUID derived from the run's and the name of the attempt's file: the same at each export."""
    file: str
    node: str
    stage: str
    retry: int
    start: int
    job: str | None
    """cluster.proc, of HTCondor."""
    began: datetime
    ended: datetime
    status: int | None
    """The runner's exit status; None when it was killed."""
    reason: str
    """Why it did not end well; empty when it did."""
    place: dict[str, Any]
    """host, site, slot, gpus."""
    inputs: tuple[dict[str, Any], ...]
    """Checkpoints loaded: sha256, file, kind."""
    outputs: tuple[Output, ...]

    @property
    def outcome(self) -> str:
        """COMPLETE, FAIL, or ABORT when something else ended it (a warning from the site, a kill)."""
        if self.status == DONE:
            return "COMPLETE"
        return "ABORT" if self.status in (None, SAVED, INTERRUPTED) else "FAIL"


@dataclass(frozen=True, slots=True)
class Told:
    """One training run. `cars` are its side-cars, newest last; `facts` the newest's run, software, parameters."""

    directory: str
    experiment: str
    id: str
    name: str
    attempts: tuple[Attempt, ...]
    cars: tuple[Car, ...]
    facts: dict[str, Any]


def told(files: RunFiles) -> Told:
    """What a run's files say, without secrets."""
    cars = tuple(sorted(files.cars, key=lambda car: car.said.written))
    logs = [log for log in files.logs if log.lines]
    attempts = tuple(sorted((_attempt(log, cars) for log in logs), key=lambda each: (each.began, each.file)))
    newest = cars[-1].raw if cars else {}
    head = logs[0].lines[0].event if logs else None
    run = newest.get("run", {})
    return Told(
        directory=files.name,
        experiment=newest.get("experiment") or (head.experiment if head else files.name),
        id=as_uuid(run.get("id") or (head.run_id if head else files.name)),
        name=run.get("name") or files.name,
        attempts=attempts,
        cars=cars,
        facts=scrubbed({"run": run, "software": newest.get("software", {})}),
    )


def as_uuid(text: str) -> str:
    """`text` when it is a UUID, else one derived from it."""
    try:
        return str(uuid.UUID(text))
    except ValueError:
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"urn:siteannex:{text}"))


def _attempt(log: AttemptLog, cars: Sequence[Car]) -> Attempt:
    first, last = log.lines[0].event, log.lines[-1].event
    job = first.attempt.job
    started = (log.payloads("attempt.started") or [{}])[0]
    chosen = [each for each in log.payloads("checkpoint.chosen") if each.get("sha256")]
    at = {line.number: line.event.ts for line in log.lines}
    outputs = []
    for writing in writings(log):
        mine = [car for car in cars if car.said.checkpoint.sha256 == writing.get("sha256")]
        outputs.append(Output(at[writing.line], scrubbed(writing.payload), mine[0] if mine else None))
    return Attempt(
        id=str(uuid.uuid5(uuid.UUID(as_uuid(first.run_id)), log.name)),
        file=log.name,
        node=first.node,
        stage=first.stage,
        retry=first.attempt.retry,
        start=first.attempt.start,
        job=None if job.cluster is None else f"{job.cluster}.{job.proc or 0}",
        began=first.ts,
        ended=last.ts,
        status=log.status,
        reason=_reason(log),
        place=scrubbed({name: started.get(name) for name in ("host", "site", "slot", "gpus")}),
        inputs=tuple(scrubbed({name: each.get(name) for name in ("sha256", "file", "kind")}) for each in chosen),
        outputs=tuple(outputs),
    )


def _reason(log: AttemptLog) -> str:
    if log.status == DONE:
        return ""
    if log.status is None:
        return "its events tell of no end: the runner was killed"
    said = [str(each.get("reason")) for each in log.payloads("attempt.failed")]
    signals = [f"ended by {each.get('signal')}" for each in log.payloads("signal.received")]
    return str(scrubbed("; ".join([*said, *signals]) or "no reason told")) + f" (exit status {log.status})"
