"""Files that appear whole or not at all, their digests, and the attempt's file of events."""

from __future__ import annotations

import hashlib
import json
import math
import os
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from .task import CANNOT_WRITE, Json, Refusal


def stamp(seconds: float | None = None) -> str:
    """A time (now, by default) as ISO 8601 in UTC with milliseconds."""
    moment = datetime.now(timezone.utc) if seconds is None else datetime.fromtimestamp(seconds, timezone.utc)
    return moment.isoformat(timespec="milliseconds")


def write_json(path: Path, value: Json) -> None:
    """Write `value` beside `path` and move it into place. Where the disk is full, whatever was there stays."""
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("w") as file:
            json.dump(value, file, indent=1, sort_keys=True, allow_nan=False)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        if partial.exists():
            partial.unlink()
        raise Refusal(CANNOT_WRITE, f"cannot write {path}: {error.strerror}") from error


def digest(path: Path) -> str:
    """The sha256 of a file, in hex."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            found.update(block)
    return found.hexdigest()


def canonical(value: Json) -> bytes:
    """One spelling of a JSON object, for hashing."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def clean(value: Any) -> Any:
    """`value` with NaN and infinities as words: JSON has no numbers for them."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(key): clean(item) for key, item in value.items()}
    return [clean(item) for item in value] if isinstance(value, (list, tuple)) else value


def say(text: str) -> None:
    """One line on standard output, at once."""
    print("siteannex-epoch: " + text, flush=True)


class Events:
    """The attempt's own file of events: one JSON object a line, each with the hash of the one before it."""

    def __init__(self, path: Path, envelope: Json) -> None:
        self.path = path
        self._envelope = envelope
        self._number = 0
        self._previous = ""
        self._file = path.open("x")

    def write(self, type_: str, **payload: Any) -> None:
        """Append one event and see it to the disk. A full disk must not end a training that could go on."""
        event = dict(self._envelope, seq=self._number, ts=stamp(), type=type_, payload=clean(payload))
        event["prev_hash"] = self._previous
        event["hash"] = hashlib.sha256(canonical(event)).hexdigest()
        try:
            self._file.write(json.dumps(event, sort_keys=True) + "\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            say(f"event {type_} could not be written: {error.strerror}")
        self._previous = event["hash"]
        self._number += 1

    def close(self) -> None:
        """No more events."""
        self._file.close()
