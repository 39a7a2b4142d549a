"""What a run's files have that the merged file lacks, and what the merged file has that they lack. Pure."""

from collections.abc import Iterator
from typing import Any

from siteannex.training.epoch.checkpoints import SIDECAR
from siteannex.training.provenance.events import Break
from siteannex.training.provenance.files import RunFiles
from siteannex.training.provenance.merged import NAME, Entry, Merged


def to_merge(files: RunFiles) -> list[dict[str, Any]]:
    """New entries: events in the order of their times, then side-cars and metrics files, new or written again."""
    known = _events(files.merged)
    events = [
        (line.event.ts, log.name, line.event.seq, line.raw)
        for log in files.logs
        for line in log.lines
        if (f"attempts/{log.name}", line.event.seq) not in known
    ]
    pinned = {file: entry.sha256 for file, entry in _pins(files.merged).items()}
    complete = {car.where: car.said.checkpoint.complete for car in files.cars}
    return [
        *(
            {"kind": "event", "file": f"attempts/{name}", "event": raw}
            for _, name, _, raw in sorted(events, key=_order)
        ),
        *(
            {
                "kind": "sidecar" if file.endswith(SIDECAR) else "metrics",
                "file": file,
                "sha256": sha256,
                "lasting": complete.get(file, True),
            }
            for file, sha256 in sorted(files.sums.items())
            if pinned.get(file) != sha256
        ),
    ]


def _order(event: tuple[Any, ...]) -> tuple[Any, ...]:
    return event[:3]


def _events(merged: Merged | None) -> dict[tuple[str, int], Entry]:
    entries = merged.entries if merged else ()
    return {(each.file, each.event.get("seq", -1)): each for each in entries if each.event is not None}


def _pins(merged: Merged | None) -> dict[str, Entry]:
    """The newest of each file."""
    return {each.file: each for each in (merged.entries if merged else ()) if each.event is None}


def since_the_merge(files: RunFiles) -> Iterator[Break]:
    """What was merged and is not there any more, or is not the same."""
    if files.merged is None:
        return
    if files.merged.broken:
        yield files.merged.broken
    known = _events(files.merged)
    here = {(f"attempts/{log.name}", line.event.seq): line.event.hash for log in files.logs for line in log.lines}
    there = {f"attempts/{log.name}" for log in files.logs}
    gone = set[str]()
    for (file, number), entry in known.items():
        event = entry.event or {}
        told = f"event {number} ({event.get('type')})"
        if file not in there and file not in gone:
            gone.add(file)
            yield Break("attempt-missing", file, f"it is gone; {NAME} has its events")
        elif file in there and (file, number) not in here:
            yield Break("event-missing", file, f"{told} is gone; {NAME}:{entry.number + 1} has it")
        elif file in there and here[file, number] != event.get("hash"):
            yield Break("event-edited", file, f"{told} is not the one in {NAME}:{entry.number + 1}")
    yield from _changed_files(files, known)


def _changed_files(files: RunFiles, known: dict[tuple[str, int], Entry]) -> Iterator[Break]:
    rewritten = {
        f"checkpoints/{line.event.payload.get('file')}{SIDECAR}"
        for log in files.logs
        for line in log.lines
        if line.event.type == "checkpoint.written" and (f"attempts/{log.name}", line.event.seq) not in known
    }
    for file, entry in _pins(files.merged).items():
        where = f"{NAME}:{entry.number + 1}"
        if file in files.sums:
            if files.sums[file] != entry.sha256 and file not in rewritten:
                yield Break(f"{entry.kind}-edited", file, f"it was edited after {where} was written")
        elif entry.lasting:
            yield Break(f"{entry.kind}-missing", file, f"it is gone; {where} tells of it")
