"""A training run's merged file, `provenance.ndjson`: all that its attempts told, bound by one chain of hashes. Pure.

Written on the AP only, by `siteannex provenance merge`, which only adds to it. A line is an event of an attempt's file,
or the sha256 of a side-car or of a command's lines. Whoever keeps the last hash elsewhere can prove that nothing that
was merged was changed since.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from siteannex.training.epoch.files import canonical
from siteannex.training.provenance.events import Break

NAME = "provenance.ndjson"


class Entry(BaseModel):
    """One line of the merged file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = 1
    number: int
    kind: Literal["event", "sidecar", "metrics"]
    file: str = Field(description="below the run's directory")
    event: dict[str, Any] | None = Field(description="an event as it was written, with its own hash")
    sha256: str | None = Field(description="of a side-car's or metrics file's bytes")
    lasting: bool = Field(description="false: the side-car of a checkpoint from within an epoch, which may go")
    prev_hash: str
    hash: str

    def computed(self) -> str:
        """What `hash` must be."""
        return hashlib.sha256(canonical(self.model_dump(exclude={"hash"}))).hexdigest()


@dataclass(frozen=True, slots=True)
class Merged:
    """The lines that could be read, and the first that breaks the chain."""

    entries: tuple[Entry, ...]
    broken: Break | None

    @property
    def head(self) -> str:
        """The hash that stands for everything so far; empty without a line."""
        return self.entries[-1].hash if self.entries else ""


def read_merged(text: str) -> Merged:
    """The entries up to the first that is not as it was written."""
    entries: list[Entry] = []
    previous = ""
    for number, line in enumerate(text.split("\n")[: -1 if text.endswith("\n") else None]):
        where = f"{NAME}:{number + 1}"
        try:
            entry = Entry.model_validate_json(line, strict=True)
        except ValidationError:
            kind = "merged-edited" if text.endswith("\n") else "merged-cut-short"
            return Merged(tuple(entries), Break(kind, where, "this line is no entry, or not all of one"))
        if entry.number != number:
            return Merged(tuple(entries), Break("merged-edited", where, f"entry {entry.number} stands for {number}"))
        if entry.computed() != entry.hash or entry.prev_hash != previous:
            wrong = (
                "its hash is not that of its content" if entry.computed() != entry.hash else "entry before it changed"
            )
            return Merged(tuple(entries), Break("merged-edited", where, f"entry {number}: {wrong}"))
        entries.append(entry)
        previous = entry.hash
    return Merged(tuple(entries), None)


def extended(merged: Merged, new: Sequence[dict[str, Any]]) -> Merged:
    """With entries after the last; each of `new` has kind, file, and event or sha256."""
    entries = list(merged.entries)
    for each in new:
        told = {"event": None, "sha256": None, "lasting": True, **each}
        previous = entries[-1].hash if entries else ""
        blank = Entry(number=len(entries), prev_hash=previous, hash="", **told)
        entries.append(blank.model_copy(update={"hash": blank.computed()}))
    return Merged(tuple(entries), None)


def merged_text(merged: Merged) -> str:
    """The file: one JSON object a line."""
    return "".join(json.dumps(entry.model_dump(), sort_keys=True) + "\n" for entry in merged.entries)
