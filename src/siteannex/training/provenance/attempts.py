"""What one attempt's events must agree with among themselves and with the other attempts' files. Pure."""

from collections.abc import Iterator
from typing import Any

from siteannex.training.provenance.events import FILE, Break, writings
from siteannex.training.provenance.run import Run, known, name_of


def numbered(run: Run) -> Iterator[Break]:
    """Files of one start of a job are numbered from 0, and no two files tell the same."""
    names = {log.name for log in run.logs}
    first: dict[str, str] = {}
    for log in run.logs:
        if log.head is None:
            continue
        if (twin := first.setdefault(log.head.hash, log.name)) != log.name:
            yield Break("attempt-repeated", f"attempts/{log.name}", f"the same events as in attempts/{twin}")
        stem, _, number = log.name.removesuffix(FILE).rpartition(".")
        before = f"{stem}.{int(number) - 1 if number.isdecimal() else 0}{FILE}"
        if number.isdecimal() and int(number) > 0 and before not in names:
            text = f"it is gone, and attempts/{log.name} was written after it"
            yield Break("attempt-missing", f"attempts/{before}", text)


def loaded_and_trained(run: Run) -> Iterator[Break]:
    """The parent told is the checkpoint loaded, then the one just written; epochs follow each other."""
    for log in run.logs:
        loaded: Any = None
        epoch: Any = None
        for line in log.lines:
            event, payload, where = line.event, line.event.payload, f"attempts/{log.name}:{line.number}"
            if event.type == "checkpoint.chosen":
                loaded = {name: payload.get(name) for name in ("sha256", "file", "kind")}
                epoch = payload.get("start")
                if loaded["kind"] in ("epoch", "time") and not known(run, loaded["sha256"]):
                    text = f"the attempt loaded {name_of(loaded)}, which no side-car or event of this run tells of"
                    yield Break("parent-unknown", where, text + run.whose(loaded["sha256"]))
            elif event.type == "checkpoint.written" and not log.broken:
                if payload.get("parent") != loaded:
                    text = (
                        f"{payload.get('file')}: its parent is {name_of(payload.get('parent'))}, not what was loaded, "
                    )
                    yield Break("parent-not-loaded", where, text + name_of(loaded))
                if payload.get("epoch") != epoch:
                    text = f"{payload.get('file')} is epoch {payload.get('epoch')}, and epoch {epoch} came next"
                    yield Break("epoch-out-of-order", where, text)
                if payload.get("complete"):
                    loaded = {"sha256": payload.get("sha256"), "file": payload.get("file"), "kind": "epoch"}
                    epoch = payload["epoch"] + 1 if isinstance(payload.get("epoch"), int) else None


def unended(run: Run) -> tuple[list[Break], list[Break]]:
    """Breaks and doubts: an attempt that tells of no end was killed, or its file was cut."""
    breaks, doubts = [], []
    newest: dict[str, int] = {}
    for each in run.written:
        if each.get("complete") and isinstance(each.get("epoch"), int):
            newest[each.stage] = max(newest.get(each.stage, -1), each.get("epoch"))
    ended = {log.lines[0].event.node for log in run.logs if log.status == 0}
    for log in run.logs:
        if log.broken or not log.lines or log.lines[-1].event.type == "attempt.ended":
            continue
        event = log.lines[-1].event
        mine = [each.get("epoch") for each in writings(log) if each.get("complete")]
        mine = [epoch for epoch in mine if isinstance(epoch, int)]
        text = f"its last event is {event.seq} ({event.type}), not the attempt's end: "
        if mine and max(mine) < newest.get(event.stage, -1) and event.node not in ended:
            text += "events are missing, as later epochs exist and no other attempt of this node tells of a good end"
            breaks.append(Break("event-cut-short", f"attempts/{log.name}", text))
        else:
            text += "the runner was killed, or the file was cut here"
            doubts.append(Break("attempt-unended", f"attempts/{log.name}", text))
    return breaks, doubts


def without_metrics(run: Run) -> list[Break]:
    """Doubts: attempts whose command's own lines are gone."""
    return [
        Break("metrics-missing", f"attempts/{log.name}", "the lines of its training command are not there to compare")
        for log in run.logs
        if log.name not in run.files.metrics
    ]
