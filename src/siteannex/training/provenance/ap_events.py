"""What the access point itself witnesses of an experiment: its DAG made and submitted, jobs and transfers. Pure.

One line of `NAME/ap-events.ndjson`; `docs/provenance-ap-event.schema.json` is made from `ApEvent`. The file's one
writer is siteannex on the access point. As in the attempts' files, `hash` is the sha256 of the event without it, as
JSON with sorted keys and no spaces, and `prev_hash` is that of the event before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from siteannex.training.epoch.files import canonical
from siteannex.training.eventlog.details import (
    end_of,
    hold_of,
    node_of,
    reason_of,
    start_of,
    transfer_of,
    transfer_queue_s,
)
from siteannex.training.eventlog.text import Event, Kind

_WORDS = {
    "input queued": "transfer.input.queued",
    "input": "transfer.input.started",
    "input done": "transfer.input.finished",
    "output queued": "transfer.output.queued",
    "output": "transfer.output.started",
    "output done": "transfer.output.finished",
}
_REASONS: Mapping[int, str] = {
    Kind.SHADOW_EXCEPTION: "job.evicted",
    Kind.JOB_RECONNECT_FAILED: "job.evicted",
    Kind.JOB_ABORTED: "job.aborted",
    Kind.JOB_RELEASED: "job.released",
    Kind.JOB_DISCONNECTED: "job.disconnected",
    Kind.JOB_RECONNECTED: "job.reconnected",
    Kind.JOB_SUSPENDED: "job.suspended",
    Kind.JOB_UNSUSPENDED: "job.resumed",
    Kind.REMOTE_ERROR: "job.error",
}
_LONGEST = 2000
"""Characters of a reason that are kept."""


class _Read(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class LogCursor(_Read):
    """How far the job log was read when this line was written: the next collection goes on there."""

    log: str
    inode: int
    offset: int
    head: str
    tail: str
    last: float


class ApEvent(_Read):
    """One line. Empty `node`: of the whole DAG."""

    schema_version: Literal[1] = 1
    experiment: str
    source: Literal["ap"] = "ap"
    seq: int
    ts: str = Field(description="when it happened, ISO 8601 in UTC")
    type: str
    node: str = ""
    stage: str = ""
    run: str = ""
    run_id: str = Field("", description="UUID, derived from the experiment; empty for jobs that serve all runs")
    epoch: int | None = None
    job: str = Field("", description="CLUSTER.PROC")
    start: int = Field(0, description="which execution of the job, from 1; 0 before the first")
    payload: dict[str, Any]
    commit: LogCursor | None = Field(
        None, description="stands in the last line of each writing; lines after the last such one were cut off"
    )
    last: bool = Field(description="the last line of one writing")
    prev_hash: str
    hash: str

    def computed(self) -> str:
        """What `hash` must be."""
        return hashlib.sha256(canonical(self.model_dump(exclude={"hash"}))).hexdigest()


def utc(at: float) -> str:
    """Unix seconds as ISO 8601 in UTC."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


def told_by(event: Event) -> tuple[str, dict[str, Any]] | None:
    """Type and payload of a job log's event; None for those that are no news (sizes, scripts, HTCondor's own)."""
    if event.number == Kind.SUBMIT:
        return "job.submitted", {"node": node_of(event)}
    if event.number == Kind.EXECUTE:
        return "job.executing", _place(event)
    if event.number == Kind.FILE_TRANSFER:
        word = _WORDS.get(transfer_of(event))
        return None if word is None else (word, {"queue_s": transfer_queue_s(event)})
    if event.number in (Kind.JOB_TERMINATED, Kind.JOB_EVICTED):
        return _ended(event)
    if event.number == Kind.JOB_HELD:
        hold = hold_of(event)
        return "job.held", {"reason": hold.reason[:_LONGEST], "code": hold.code, "subcode": hold.subcode}
    if event.number == Kind.CHECKPOINTED:
        return "job.checkpointed", {}
    word = _REASONS.get(event.number)
    return None if word is None else (word, {"reason": reason_of(event)[:_LONGEST]})


def _place(event: Event) -> dict[str, Any]:
    told = start_of(event)
    return {
        "site": told.site,
        "annex": told.annex,
        "batch_job": told.batch_job,
        "host": told.host,
        "slot": told.slot,
        "gpus": told.gpus,
        "devices": [
            {"model": gpu.model, "uuid": gpu.uuid, "driver": gpu.driver, "memory_mib": gpu.memory_mib}
            for gpu in told.devices
        ],
    }


def _ended(event: Event) -> tuple[str, dict[str, Any]]:
    end = end_of(event)
    done = "job.completed" if end.value == 0 else "job.failed"
    return "job.evicted" if event.number == Kind.JOB_EVICTED else done, {
        "value": end.value,
        "signal": end.signal,
        "code": end.code,
        "subcode": end.subcode,
        "reason": end.reason[:_LONGEST],
        "sent_bytes": end.sent_bytes,
        "received_bytes": end.received_bytes,
    }


def schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of one line."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **ApEvent.model_json_schema()}
