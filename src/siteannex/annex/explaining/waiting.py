"""A pilot that waits in the queue: why, until when, whether it can ever start, and what would start sooner. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from siteannex.annex.explaining.why_words import up_command
from siteannex.annex.judging.verdict import PilotVerdict
from siteannex.model import Plan
from siteannex.scheduler.limits import Limit, limit_behind
from siteannex.scheduler.reasons import Reason, explain_reason
from siteannex.scheduler.starts import Outlook, Standing
from siteannex.units import format_duration, format_memory, format_when, seconds_between

_LIMITS = ("QOS", "Assoc", "Max")
_SLOW = ("ReqNodeNotAvail", "Partition", "Reservation", "JobHeld", "Licenses", "Dependency")
"""Reasons that do not clear soon, by how they begin: limits, and what only time or a person mends."""
_SOONER_S = 60.0
"""What starts less than this earlier is not worth a change."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """One waiting pilot. `text` and `short` are half a line; `so` and `do` are sentences."""

    job_id: str
    reason: str
    """Slurm's word."""
    hopeless: bool
    start: datetime | None
    """Slurm's projection."""
    ahead: int | None
    text: str
    """The reason in plain words."""
    short: str
    so: tuple[str, ...]
    do: tuple[str, ...]

    def as_data(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "job_id": self.job_id,
            "reason": self.reason,
            "hopeless": self.hopeless,
            "start": self.start.isoformat() if self.start else None,
            "ahead": self.ahead,
            "so": list(self.so),
            "do": list(self.do),
        }


def explain_waiting(plan: Plan, pilot: PilotVerdict, outlook: Outlook, now: datetime) -> Waiting:
    """Slurm's reason in plain words, with the numbers behind it where the site tells them."""
    assert pilot.job is not None
    standing = next((each for each in outlook.standings if each.job_id == pilot.job_id), Standing(pilot.job_id))
    word = pilot.job.reason or standing.reason
    reason = _limited(word, plan, standing, outlook) or explain_reason(word)
    reason = replace(reason, todo=reason.todo.replace("JOB", pilot.job_id))
    start = pilot.job.start or standing.start
    limit_s = outlook.walltimes.get(plan.partition)
    if word == "PartitionTimeLimit" and limit_s is not None:
        asked = format_duration(plan.walltime_s)
        text = f"you asked {asked}, partition {plan.partition} takes at most {format_duration(limit_s)}"
        shorter = up_command(replace(plan.request, lifetime_s=limit_s))
        reason = replace(reason, text=text, todo=f"siteannex down NAME, then {shorter}")
    expected = None if reason.hopeless else start
    until = f"Slurm projects its start at {format_when(expected, now)}" if expected else "Slurm projects no start yet"
    ahead = _ahead(standing, plan) if not reason.hopeless and word in ("", "None", "Priority", "Resources") else ""
    can = "it can never start: " if reason.hopeless and not reason.held else ""
    so = (
        f"job {pilot.job_id} is PENDING, {word or 'no reason'}: {can}{reason.text}.",
        *(f"{text}." for text in (() if reason.hopeless else (until, ahead)) if text),
    )
    return Waiting(
        job_id=pilot.job_id,
        reason=word,
        hopeless=reason.hopeless,
        start=expected,
        ahead=standing.ahead,
        text=reason.text,
        short=_short(word, reason),
        so=so,
        do=_do(plan, word, reason, expected, outlook, now),
    )


def _short(word: str, reason: Reason) -> str:
    if reason.held:
        return f"held: {word}"
    return f"never: {reason.text}" if reason.hopeless else word or "PENDING"


def _limited(word: str, plan: Plan, standing: Standing, outlook: Outlook) -> Reason | None:
    """The limit behind a reason, with its number: whether this pilot is beyond it by itself, or only with others."""
    order = [qos for qos in (outlook.partition_qos, standing.qos) if qos]
    account = standing.account or plan.account or ""
    limit = limit_behind(word, outlook.limits, order, account, plan.shape.gpu_type or "")
    asked = None if limit is None else _asked(plan).get(limit.thing)
    if limit is None or asked is None:
        return None
    number, share, whose = _amount(limit.thing, limit.allowed), _amount(limit.thing, asked), limit.owner
    if asked > limit.allowed:
        per = {"job": "a job", "user": "per user", "account": "per account", "all": "for all its jobs together"}[
            limit.per
        ]
        return Reason(f"you asked {share}, {whose} allows {number} {per}", hopeless=True, todo=_less(plan, limit))
    if limit.per == "job":
        return None
    holders = {"user": "others of yours hold", "account": "other jobs of the account hold"}.get(
        limit.per, "other jobs hold"
    )
    to_whom = {"user": "you ", "account": "an account "}.get(limit.per, "all its jobs together ")
    text = f"{whose} allows {to_whom}{number} at once; this pilot asks {share}, {holders} the rest"
    mine = "wait, or take another of yours down there: siteannex status"
    return Reason(f"{text}: it starts when they end", todo=mine if limit.per == "user" else "")


def _asked(plan: Plan) -> dict[str, int]:
    """What one pilot counts for, by the thing that is limited."""
    shape = plan.shape
    resources = {"gres/gpu": shape.gpus, "cpu": shape.cpus, "mem": shape.memory_mib, "node": 1}
    return {**resources, "jobs": 1, "submit": 1, "wall": plan.walltime_s}


def _amount(thing: str, number: int) -> str:
    if thing == "wall":
        return format_duration(number)
    if thing == "mem":
        return format_memory(number)
    noun = {"gres/gpu": "GPU", "cpu": "CPU", "node": "node", "jobs": "running job", "submit": "job in the queue"}[thing]
    plural = "jobs in the queue" if thing == "submit" else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"


def _less(plan: Plan, limit: Limit) -> str:
    """The same request within the limit, where there is one."""
    request, allowed = plan.request, limit.allowed
    smaller = {
        "gres/gpu": replace(request, gpus=allowed * plan.pilots),
        "cpu": replace(request, cpus=allowed),
        "mem": replace(request, memory_mib=allowed),
        "wall": replace(request, lifetime_s=allowed),
    }
    if limit.thing in smaller and allowed > 0:
        return f"siteannex down NAME, then {up_command(smaller[limit.thing])}"
    return "siteannex down NAME, then up with another --partition or --account"


def _ahead(standing: Standing, plan: Plan) -> str:
    if standing.ahead is None:
        return ""
    if standing.ahead == 0:
        return f"no waiting job of partition {plan.partition} stands before it"
    return f"{standing.ahead} waiting job{'s' if standing.ahead > 1 else ''} of partition {plan.partition} before it"


def _do(
    plan: Plan, word: str, reason: Reason, start: datetime | None, outlook: Outlook, now: datetime
) -> tuple[str, ...]:
    name = plan.request.name
    found = [
        f"siteannex down {name}, then {up_command(replace(plan.request, partition=partition))}   would start {when}"
        for partition, when in sooner(plan, word, start, outlook, now)
    ]
    todo = reason.todo.replace("NAME", name)
    if found and not reason.held:
        return tuple(found)
    return (todo,) if todo else (f"wait: it starts by itself; siteannex down {name} takes it out of the queue",)


def sooner(
    plan: Plan, word: str, start: datetime | None, outlook: Outlook, now: datetime
) -> tuple[tuple[str, str], ...]:
    """Partitions that would start the pilot earlier, and when, the earliest first."""
    if word.startswith(
        _LIMITS
    ):  # `sbatch --test-only` does not look at these, and another partition seldom escapes them
        return ()
    return tuple(
        (
            partition,
            "now" if seconds_between(now, trial.start) < _SOONER_S else format_when(trial.start, now),
        )
        for partition, trial in sorted(outlook.trials.items(), key=lambda each: each[1].start or now)
        if trial.start is not None
        and plan.walltime_s <= outlook.walltimes.get(partition, plan.walltime_s)
        and (start is None or seconds_between(trial.start, start) > _SOONER_S)
    )


def queue_hint(plan: Plan, waiting: Waiting, outlook: Outlook, now: datetime) -> str:
    """What `up` adds to its line about the queue: that something else would start sooner, or that this takes long."""
    more = f"siteannex why {plan.request.name}"
    if found := sooner(plan, waiting.reason, waiting.start, outlook, now):
        return f"{found[0][0]} would start {found[0][1]}: {more}"
    if waiting.hopeless or waiting.reason.startswith((*_LIMITS, *_SLOW)):
        return f"{'It can never start: ' if waiting.hopeless else ''}{waiting.text}; {more}"
    return ""
