"""Write down what an access point witnessed of an experiment and has not written down yet: from its job log, from its
record of submissions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import tzinfo
from pathlib import Path
from typing import Any

from siteannex.training.eventlog.reader import Cursor, EventLog
from siteannex.training.provenance.ap_events import LogCursor, told_by
from siteannex.training.provenance.ap_events import utc as utc_text
from siteannex.training.provenance.ap_file import ApFile, opened
from siteannex.training.rendering.descriptions import JOB_LOG


@dataclass(frozen=True, slots=True)
class Collected:
    """What one collection did."""

    new: int
    lines: int
    head: str
    """The hash of the last line."""
    damaged: int
    """Stretches of the log that were no whole event."""


def write_generated(folder: Path, experiment: str, at: float, payload: Mapping[str, Any]) -> None:
    """The DAG was written; once for the same bytes. OSError, ValueError."""
    with opened(folder, experiment) as file:
        if file.generated != payload["dag_sha256"]:
            file.write([{"ts": utc_text(at), "type": "dag.generated", "payload": dict(payload)}])


def write_submitted(folder: Path, experiment: str, at: float, payload: Mapping[str, Any]) -> None:
    """The DAG was handed to DAGMan; once for each `cluster`. OSError, ValueError."""
    with opened(folder, experiment) as file:
        if payload["cluster"] not in file.submitted:
            file.write([{"ts": utc_text(at), "type": "dag.submitted", "payload": dict(payload)}])


def job_log(folder: Path) -> Path | None:
    """The log to read: the jobs' own, else DAGMan's; None when nothing ran."""
    own, dagmans = folder / JOB_LOG, folder.parent / f"{folder.name}.dag.nodes.log"
    return own if own.is_file() else dagmans if dagmans.is_file() else None


def collect(folder: Path, experiment: str, zone: tzinfo, nodes: Mapping[str, Mapping[str, Any]]) -> Collected:
    """Read what is new in the job log of the experiment whose runs are in `folder`, and write it down.

    `nodes`: the manifest, by node. OSError, ValueError.
    """
    with opened(folder, experiment) as file:
        path = job_log(folder)
        if path is None:
            return Collected(0, file.seq, file.head, 0)
        with EventLog(path, zone, _begin(file, path)) as log:
            new = file.write(_drafts(file, log, nodes), lambda: _stand(log, path))
            return Collected(new, file.seq, file.head, log.damaged)


def _begin(file: ApFile, path: Path) -> Cursor | None:
    told = file.cursor
    if told is None or told.log != path.name:
        return None
    return Cursor(told.inode, told.offset, told.head, told.tail, told.last)


def _stand(log: EventLog, path: Path) -> LogCursor | None:
    found = log.cursor()
    if found is None:
        return None
    return LogCursor(
        log=path.name, inode=found.inode, offset=found.offset, head=found.head, tail=found.tail, last=found.last
    )


def _drafts(file: ApFile, log: EventLog, nodes: Mapping[str, Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    known = dict(file.jobs)
    for batch in log.read():
        for event in batch.events:
            told = told_by(event)
            if told is None:
                continue
            job = f"{event.cluster}.{event.proc}"
            kind, payload = told
            node, start = known.get(job, ("", 0))
            node, start = str(payload.pop("node", "") or node), start + (kind == "job.executing")
            known[job] = (node, start)
            planned = nodes.get(node, {})
            if kind == "job.submitted":
                payload["targeted_site"] = planned.get("site") or ""
            yield {
                "ts": utc_text(event.at),
                "type": kind,
                "node": node,
                "stage": str(planned.get("stage") or ""),
                "run": str(planned.get("run_name") or ""),
                "run_id": str(planned.get("run_id") or ""),
                "epoch": planned.get("epoch"),
                "job": job,
                "start": start,
                "payload": payload,
            }


def nodes_of(manifest: Path) -> dict[str, dict[str, Any]]:
    """A manifest by node; empty where there is none. OSError, ValueError."""
    if not manifest.is_file():
        return {}
    with manifest.open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return {row["node"]: row for row in rows if "node" in row}
