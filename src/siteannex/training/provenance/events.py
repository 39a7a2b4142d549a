"""An attempt's file of events as the AP reads it, and whether its chain of hashes holds. Pure.

`docs/provenance-event.schema.json` is made from `Event`. The runner writes each event with its number, the hash of the
event before it and its own: the sha256 of the event as JSON without `hash`, keys sorted, no spaces.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from siteannex.training.epoch.files import canonical
from siteannex.training.sidecar import Job

FILE = ".ndjson"


class _Read(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class AttemptKey(_Read):
    """One start of one job; the node stands beside it."""

    retry: int
    start: int
    job: Job


class Event(_Read):
    """One line of an attempt's file."""

    schema_version: Literal[1]
    experiment: str
    run_id: str
    stage: Literal["prepare", "train", "finetune", "evaluate"]
    node: str
    attempt: AttemptKey
    source: str
    seq: int
    ts: datetime
    type: str
    payload: dict[str, Any]
    prev_hash: str
    hash: str


@dataclass(frozen=True, slots=True)
class Break:
    """One thing that is not as it was written: a stable word, the file (and line), and what was seen."""

    kind: str
    where: str
    text: str


@dataclass(frozen=True, slots=True)
class Line:
    """An event, the line it stands on (from 1), and the same as plain JSON."""

    number: int
    event: Event
    raw: dict[str, Any]


@dataclass(frozen=True, slots=True)
class AttemptLog:
    """The events of one attempt that could be read, and the first break of their chain."""

    name: str
    lines: tuple[Line, ...]
    broken: Break | None

    @property
    def head(self) -> Event | None:
        """Any event, for what is equal in all."""
        return self.lines[0].event if self.lines else None

    @property
    def status(self) -> int | None:
        """What the runner ended with; None when the file does not tell of an end."""
        last = self.lines[-1].event if self.lines else None
        told = last.payload.get("status") if last and last.type == "attempt.ended" else None
        return told if isinstance(told, int) else None

    def payloads(self, kind: str) -> list[dict[str, Any]]:
        """Of all events of one type."""
        return [line.event.payload for line in self.lines if line.event.type == kind]


@dataclass(frozen=True, slots=True)
class Writing:
    """A checkpoint as the events tell of it."""

    log: AttemptLog
    line: int
    payload: dict[str, Any]
    """file, sha256, epoch, complete, parent."""
    completed: dict[str, Any] | None
    """epoch, seconds, metrics; None for one saved on the way."""
    facts: dict[str, Any]
    """What the command had said of itself by then."""

    @property
    def where(self) -> str:
        """File and line."""
        return f"attempts/{self.log.name}:{self.line}"

    @property
    def stage(self) -> str:
        """train or finetune."""
        return self.log.lines[0].event.stage

    def get(self, name: str) -> Any:
        """A value of the event."""
        return self.payload.get(name)


def read_log(name: str, text: str) -> AttemptLog:
    """The events in a file's text."""
    rows: list[tuple[int, Event | None, str]] = []
    lines = []
    cut = ""
    for number, line in enumerate(text.split("\n")[: None if not text.endswith("\n") else -1], 1):
        try:
            event = Event.model_validate_json(line, strict=True)
            lines.append(Line(number, event, json.loads(line)))
            rows.append((number, event, _hash(lines[-1].raw)))
        except (ValidationError, ValueError) as problem:
            rows.append((number, None, ""))
            cut = cut or _unreadable(problem)
    whole = text.endswith("\n")
    return AttemptLog(name, tuple(lines), next(_faults(name, rows, whole, cut), None))


def _hash(raw: dict[str, Any]) -> str:
    return hashlib.sha256(canonical({key: value for key, value in raw.items() if key != "hash"})).hexdigest()


def _unreadable(problem: Exception) -> str:
    if isinstance(problem, ValidationError):
        first = problem.errors(include_url=False, include_input=False)[0]
        return ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))
    return str(problem)


def _faults(name: str, rows: Sequence[tuple[int, Event | None, str]], whole: bool, cut: str) -> Iterator[Break]:
    """Along the file: what is first wrong is yielded first."""
    if not rows or not any(event for _, event, _ in rows):
        yield Break("event-missing", f"attempts/{name}", "there is no event in it")
        return
    head = next(event for _, event, _ in rows if event)
    expected, previous, seen = 0, "", set[int]()
    all_numbers = {event.seq for _, event, _ in rows if event}
    for place, (number, event, computed) in enumerate(rows):
        where = f"attempts/{name}:{number}"
        if event is None:
            if not whole and place == len(rows) - 1:
                yield Break("event-cut-short", where, f"the file is cut short within event {expected}")
            else:
                yield Break("event-unreadable", where, f"this line is no event ({cut})")
            expected, previous = expected + 1, ""
            continue
        told = f"event {event.seq} ({event.type})"
        if computed != event.hash:
            yield Break("event-edited", where, f"{told} was edited: its hash is not that of its content")
        if _envelope(event) != _envelope(head):
            yield Break("event-foreign", where, f"{told} is of another attempt than the file's first")
        if event.seq in seen:
            yield Break("event-repeated", where, f"{told} stands here a second time")
        elif event.seq > expected and expected in all_numbers:
            yield Break("event-out-of-order", where, f"{told} stands where event {expected} belongs")
        elif event.seq > expected:
            gone = f"event {expected} is" if event.seq == expected + 1 else f"events {expected} to {event.seq - 1} are"
            yield Break("event-missing", where, f"{gone} missing before {told}")
        elif event.seq == expected and event.prev_hash != previous and (previous or not expected):
            text = f"event {expected - 1} was replaced: {told} was written after one with another hash"
            yield Break("event-edited", where, text)
        seen.add(event.seq)
        expected, previous = event.seq + 1, event.hash
    if not name.startswith(f"{head.node}.{head.attempt.job.cluster or 0}.{head.attempt.start}."):
        yield Break("attempt-misnamed", f"attempts/{name}", f"the events in it are of node {head.node}")


def _envelope(event: Event) -> tuple[object, ...]:
    return event.experiment, event.run_id, event.stage, event.node, event.attempt


def writings(log: AttemptLog) -> list[Writing]:
    """Every checkpoint that an attempt's events tell of, in order."""
    found = []
    facts: dict[str, Any] = {}
    for place, line in enumerate(log.lines):
        if line.event.type == "command.ready" and isinstance(line.event.payload.get("facts"), dict):
            facts = line.event.payload["facts"]
        if line.event.type != "checkpoint.written":
            continue
        after = log.lines[place + 1].event if place + 1 < len(log.lines) else None
        completed = after.payload if after is not None and after.type == "epoch.completed" else None
        found.append(Writing(log, line.number, line.event.payload, completed, facts))
    return found


def schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of one line."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Event.model_json_schema()}
