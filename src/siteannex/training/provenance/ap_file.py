"""The access point's own file of events, `NAME/ap-events.ndjson`: appended to by one writer, whole writings or none.

A writing ends in a line with `last: true`. What a killed writer left after the last such line is cut off by the next
one, which writes it anew: nothing is lost (the cursor in that line says how far the log was read), and nothing stands
there twice.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from pydantic import ValidationError

from siteannex.locks import exclusive
from siteannex.training.epoch.files import canonical
from siteannex.training.provenance.ap_events import ApEvent, LogCursor
from siteannex.training.provenance.events import Break

NAME = "ap-events.ndjson"
_REMEMBERED = (b'"type":"job.submitted"', b'"type":"job.executing"', b'"type":"dag.')
_LAST = b'"last":true'


@dataclass(slots=True)
class ApFile:
    """The file, open for its one writer, and what its lines say that the next ones need."""

    experiment: str
    file: IO[bytes]
    seq: int = 0
    head: str = ""
    """The hash of the last line."""
    cursor: LogCursor | None = None
    jobs: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Job -> its node, and how often it was started."""
    generated: str = ""
    """The sha256 of the DAG that was written down last."""
    submitted: set[int] = field(default_factory=set)
    """Clusters of the DAGMans that were written down."""

    def write(self, drafts: Iterable[dict[str, Any]], cursor: Callable[[], LogCursor | None] = lambda: None) -> int:
        """One writing: all of `drafts` or, after a crash, none. `cursor`: how far a log was read by their end. How
        many there were. OSError."""
        count = 0
        held: dict[str, Any] | None = None
        for draft in drafts:
            if held is not None:
                self._line(held, last=False)
            held, count = draft, count + 1
        if held is not None:
            self.cursor = cursor() or self.cursor
            self._line(held, last=True)
            self.file.flush()
            os.fsync(self.file.fileno())
        return count

    def _line(self, draft: dict[str, Any], *, last: bool) -> None:
        commit = self.cursor if last else None
        blank = ApEvent(
            **draft, experiment=self.experiment, seq=self.seq, commit=commit, last=last, prev_hash=self.head, hash=""
        )
        event = blank.model_copy(update={"hash": blank.computed()})
        self.file.write(canonical(event.model_dump()) + b"\n")
        self.remember(event)

    def remember(self, event: ApEvent) -> None:
        """Take a line into account that stands in the file."""
        self.seq, self.head, self.cursor = event.seq + 1, event.hash, event.commit or self.cursor
        if event.type in ("job.submitted", "job.executing"):
            self.jobs[event.job] = (event.node, event.start)
        elif event.type == "dag.generated":
            self.generated = str(event.payload.get("dag_sha256"))
        elif event.type == "dag.submitted":
            self.submitted.add(event.payload["cluster"])


@contextmanager
def opened(folder: Path, experiment: str) -> Iterator[ApFile]:
    """The file of the experiment whose runs are in `folder`, for one writing; others wait. OSError, ValueError where
    its last whole line is none of ours (`provenance verify` says more)."""
    with exclusive(folder / f".{NAME}.lock", wait=True), (folder / NAME).open("a+b") as file:
        known = ApFile(experiment, file)
        file.seek(0)
        end = place = 0
        final = b""
        for line in file:
            place += len(line)
            if line.endswith(b"\n") and _LAST in line:
                end, final = place, line
        file.seek(0)
        place = 0
        for line in file:
            place += len(line)
            if place > end:
                break
            if any(word in line for word in _REMEMBERED):
                known.remember(ApEvent.model_validate_json(line))
        if final:
            known.remember(ApEvent.model_validate_json(final))
        file.truncate(end)
        file.seek(end)
        yield known


def check(path: Path) -> tuple[int, Break | None]:
    """How many lines the file has, and the first that breaks its chain. OSError."""
    count, previous = 0, ""
    last = True
    with path.open("rb") as lines:
        for count, line in enumerate(lines, 1):
            where = f"{path.name}:{count}"
            if not line.endswith(b"\n"):
                return count - 1, Break("event-cut-short", where, f"the file is cut short within event {count - 1}")
            try:
                raw = json.loads(line)
                event = ApEvent.model_validate(raw, strict=True)
            except ValidationError:
                return count - 1, Break("event-unreadable", where, "this line is no event")
            except ValueError:
                return count - 1, Break("event-unreadable", where, "this line is no JSON")
            told = f"event {event.seq} ({event.type})"
            computed = hashlib.sha256(canonical({name: raw[name] for name in raw if name != "hash"})).hexdigest()
            if computed != event.hash:
                return count - 1, Break(
                    "event-edited", where, f"{told} was edited: its hash is not that of its content"
                )
            if event.seq != count - 1:
                kind = "event-missing" if event.seq > count - 1 else "event-repeated"
                return count - 1, Break(kind, where, f"{told} stands where event {count - 1} belongs")
            if event.prev_hash != previous:
                text = f"event {count - 2} was replaced: {told} was written after one with another hash"
                return count - 1, Break("event-edited", where, text)
            previous, last = event.hash, event.last
    if not last:
        return count, Break("event-cut-short", f"{path.name}:{count}", "the last writing is not whole")
    return count, None
