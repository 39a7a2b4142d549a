"""Events are the truth: what happened to one annex, in order, and the state that follows from them. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from siteannex.errors import Evidence, Stage, StageFailure

EVENTS_VERSION = 1


class What(StrEnum):
    """What an event says about its stage."""

    BEGIN = "begin"
    """About to do it: written before every effect."""
    DONE = "done"
    FAILED = "failed"
    SEEN = "seen"
    """The annex was seen at this stage by the watch."""


@dataclass(frozen=True, slots=True)
class Event:
    """One line of `events.jsonl`. `data` holds JSON values only, never a secret."""

    at: datetime
    stage: Stage
    what: What
    data: Mapping[str, Any] = field(default_factory=dict)


def to_line(event: Event) -> str:
    """One JSON object, one line of ASCII, keys in a fixed order."""
    head = {
        "v": EVENTS_VERSION,
        "at": event.at.isoformat(),
        "stage": str(event.stage),
        "what": str(event.what),
    }
    return json.dumps({**head, "data": dict(event.data)}, sort_keys=False)


def from_line(line: str) -> Event | None:
    """Read one line; None for a torn or foreign one."""
    try:
        record = json.loads(line)
        at = datetime.fromisoformat(record["at"])
        event = Event(at, Stage(record["stage"]), What(record["what"]), record["data"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return event if isinstance(event.data, dict) and at.tzinfo is not None else None


@dataclass(frozen=True, slots=True)
class QueueSeen:
    """What the queue said of one batch job when it was last asked."""

    job_id: str
    text: str
    """`PENDING, Priority`."""
    at: datetime
    start: datetime | None = None
    """Slurm's projection then."""

    @property
    def waits(self) -> bool:
        """True when it was pending then."""
        return self.text.startswith("PENDING")


@dataclass(frozen=True, slots=True)
class AnnexState:
    """What the events of one annex add up to."""

    stage: Stage = Stage.PLAN
    begun: Stage | None = None
    """A stage whose effect was begun and neither done nor failed: the command was interrupted there."""
    since: datetime | None = None
    job_ids: tuple[str, ...] = ()
    submit_begun: bool = False
    submitted_at: datetime | None = None
    """When the first submission was begun."""
    ready_at: datetime | None = None
    ready_ids: tuple[str, ...] = ()
    """Batch jobs whose EP has been ready at some time."""
    failure: StageFailure | None = None
    ended: bool = False
    """Nothing of it is left, or it failed and was cleaned: its name is free again."""
    end_text: str = ""
    collector: str = ""
    join: str = ""
    bytes_sent: int = 0
    login: str = ""
    """Who was logged in where: later commands use the same account."""
    down: datetime | None = None
    """When somebody began to take it down."""
    queue: tuple[QueueSeen, ...] = ()
    """What the queue last said of each batch job that waited or started then."""
    ends: Mapping[str, str] = field(default_factory=dict)
    """How pilots ended that have, by batch job, as far as a look at the site told it."""
    ran: Mapping[str, float] = field(default_factory=dict)
    """Seconds that batch jobs which have ended ran, by the batch system's record."""
    ended_at: datetime | None = None
    keeper: str = ""
    """The batch job of the keeper's first wake."""
    leased_until: datetime | None = None


def fold(events: Iterable[Event]) -> AnnexState:
    """Replay events into a state."""
    state = AnnexState()
    for event in events:
        state = _apply(state, event)
    return state


def _apply(state: AnnexState, event: Event) -> AnnexState:
    data = event.data
    if event.what is What.BEGIN:
        return replace(
            state,
            begun=event.stage,
            submit_begun=state.submit_begun or event.stage is Stage.SUBMIT,
            submitted_at=state.submitted_at or (event.at if event.stage is Stage.SUBMIT else None),
            down=event.at if event.stage is Stage.DRAIN else state.down,
            join=str(data.get("join", state.join)),
            collector=str(data.get("collector", state.collector)),
            leased_until=_moment(data["leased_until"]) if "leased_until" in data else state.leased_until,
        )
    if event.what is What.FAILED:
        return replace(
            state,
            begun=None,
            failure=failure_from_data(data.get("failure")),
            since=event.at,
            ended=state.ended or bool(data.get("ended", False)),
            ended_at=state.ended_at or (event.at if data.get("ended") else None),
        )
    ids, ready, sent = data.get("job_ids"), data.get("ready"), data.get("bytes_sent")
    restarted = _union((), data.get("restarted"))
    if restarted:  # a new start of the same batch job: that its EP was ready once says nothing of this start
        left = tuple(job_id for job_id in state.ready_ids if job_id not in restarted)
        state = replace(state, ready_ids=left, ready_at=state.ready_at if left else None)
    return replace(
        state,
        stage=event.stage,
        begun=None if event.what is What.DONE and state.begun is event.stage else state.begun,
        since=event.at if event.stage is not state.stage else state.since,
        job_ids=_union(state.job_ids, ids),
        ready_ids=_union(state.ready_ids, ready),
        ready_at=state.ready_at or (event.at if event.stage is Stage.READY else None),
        failure=None if event.stage in (Stage.READY, Stage.RELEASED) else state.failure,
        ended=state.ended or event.stage is Stage.RELEASED,
        end_text=str(data.get("text", "")) if event.stage is Stage.RELEASED else state.end_text,
        bytes_sent=state.bytes_sent + (sent if isinstance(sent, int) else 0),
        login=str(data.get("login", state.login)),
        keeper=str(data.get("keeper", state.keeper)),
        queue=_queue(state.queue, event),
        ends=_ends(state.ends, data.get("ends")),
        ran=_ran(state.ran, data.get("ran")),
        ended_at=state.ended_at or (event.at if event.stage is Stage.RELEASED else None),
    )


def _union(known: tuple[str, ...], new: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*known, *(map(str, new) if isinstance(new, list) else ()))))


def _queue(known: tuple[QueueSeen, ...], event: Event) -> tuple[QueueSeen, ...]:
    seen = event.data.get("queue")
    new = {
        str(each["job_id"]): QueueSeen(str(each["job_id"]), str(each["text"]), event.at, _moment(each.get("start")))
        for each in (seen if isinstance(seen, list) else [])
        if isinstance(each, dict) and "job_id" in each and "text" in each
    }
    return tuple(({each.job_id: each for each in known} | new).values())


def _ends(known: Mapping[str, str], new: Any) -> Mapping[str, str]:
    return {**known, **{str(job): str(text) for job, text in new.items()}} if isinstance(new, dict) else known


def _ran(known: Mapping[str, float], new: Any) -> Mapping[str, float]:
    if not isinstance(new, dict):
        return known
    told = {str(job): float(each) for job, each in new.items() if isinstance(each, int | float) and 0 <= each < 1e9}
    return {**known, **told}


def _moment(text: Any) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return moment if moment.tzinfo is not None else None


def failure_to_data(failure: StageFailure) -> dict[str, Any]:
    """A failure as JSON values, the same keys as in `--json` output."""
    return {
        "stage": str(failure.stage),
        "code": failure.code,
        "site": failure.site,
        "summary": failure.summary,
        "evidence": [{"source": item.source, "text": item.text} for item in failure.evidence],
        "hint": failure.hint,
        "retryable": failure.retryable,
    }


def failure_from_data(data: Any) -> StageFailure | None:  # foreign JSON: judged here
    """Read back what `failure_to_data` wrote; None when it is not that."""
    try:
        return StageFailure(
            stage=Stage(data["stage"]),
            code=str(data["code"]),
            site=str(data["site"]),
            summary=str(data["summary"]),
            evidence=tuple(Evidence(str(item["source"]), str(item["text"])) for item in data["evidence"]),
            hint=str(data["hint"]),
            retryable=bool(data["retryable"]),
        )
    except (KeyError, TypeError, ValueError):
        return None
