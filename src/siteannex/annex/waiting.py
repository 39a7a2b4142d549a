"""A pilot that waits in the queue: why, until when, whether it can ever start, and what would start sooner. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from siteannex.annex.verdict import PilotVerdict
from siteannex.annex.why_words import up_command
from siteannex.model import Plan
from siteannex.scheduler.reasons import Reason, explain_reason
from siteannex.scheduler.starts import Outlook, Standing
from siteannex.units import format_duration, format_when, seconds_between

_SOONER_S = 60.0
"""What starts less than this earlier is not worth a change."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """One waiting pilot. `short` is half a line; `so` and `do` are sentences."""

    job_id: str
    reason: str
    """Slurm's word."""
    hopeless: bool
    start: datetime | None
    """Slurm's projection."""
    ahead: int | None
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
    reason = _with_limit(explain_reason(word), word, plan, standing, outlook)
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
        short=f"{'held: ' if reason.held else 'never: ' if reason.hopeless else ''}{word or 'PENDING'}",
        so=so,
        do=_do(plan, word, reason, expected, outlook, now),
    )


def _with_limit(reason: Reason, word: str, plan: Plan, standing: Standing, outlook: Outlook) -> Reason:
    """`PerUser` limits on GPUs, with the QOS's own number."""
    allowed = outlook.limits.get(standing.qos, {}).get("gres/gpu")
    if allowed is None or "PerUser" not in word or "GRES" not in word:
        return reason
    asked = plan.shape.gpus
    if asked > allowed:
        text = f"it asks {asked} GPUs, and QOS {standing.qos} allows you {allowed} at once"
        return Reason(text, hopeless=True, todo=f"up with at most {allowed} GPUs a pilot")
    text = (
        f"QOS {standing.qos} allows you {allowed} GPUs at once; this pilot asks {asked}, others of yours hold the rest"
    )
    todo = "wait, or take another of yours down there: siteannex status"
    return replace(reason, text=f"{text}: it starts when they end", todo=todo)


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
    # `sbatch --test-only` does not look at these limits, and another partition seldom escapes them
    trials = {} if word.startswith(("QOS", "Assoc", "Max")) else outlook.trials
    found = [
        f"siteannex down {name}, then {up_command(replace(plan.request, partition=partition))}   would start "
        + (
            "now"
            if trial.start <= now or seconds_between(now, trial.start) < _SOONER_S
            else f"{format_when(trial.start, now)}"
        )
        for partition, trial in sorted(trials.items(), key=lambda each: each[1].start or now)
        if trial.start is not None
        and plan.walltime_s <= outlook.walltimes.get(partition, plan.walltime_s)
        and (start is None or seconds_between(trial.start, start) > _SOONER_S)
    ]
    todo = reason.todo.replace("NAME", name)
    if found and not reason.held:
        return tuple(found)
    return (todo,) if todo else (f"wait: it starts by itself; siteannex down {name} takes it out of the queue",)
