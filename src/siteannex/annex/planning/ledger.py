"""What annexes have cost and may still cost, by site: a fold over their records. Pure.

An annex is *reserved* in full (every pilot for its whole walltime) from its plan on, and a pilot's reservation becomes
*used* when the batch system has told how long its job ran. Where it never told (no accounting, a record lost), what
could have been used stays counted: a budget must not grow by silence.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from siteannex.annex.events import AnnexState
from siteannex.errors import Evidence
from siteannex.failures import fail
from siteannex.model import Plan
from siteannex.units import seconds_between


@dataclass(frozen=True, slots=True)
class Record:
    """One annex as its events have it."""

    plan: Plan
    state: AnnexState
    busy: bool = False
    """A command is at work on it right now."""


@dataclass(frozen=True, slots=True)
class Account:
    """One site's sums, in `unit`. `cap` None: no limit."""

    site: str
    unit: str
    used: float
    reserved: float
    cap: float | None = None

    @property
    def left(self) -> float | None:
        """What may still be reserved; never below 0. None without a cap."""
        return None if self.cap is None else max(0.0, self.cap - self.used - self.reserved)


def price(plan: Plan) -> tuple[float, str]:
    """A plan's ceiling in the site's unit where its rate is known, else in GPU-hours, else in core-hours.

    A lease is reserved in full: its keeper may bring pilots back until its GPU-hours are spent.
    """
    if (lease := plan.request.lease) is not None and plan.ceiling_gpu_hours:
        amount, unit = _once_price(plan)
        return amount * lease.gpu_hours / plan.ceiling_gpu_hours, unit
    return _once_price(plan)


def _once_price(plan: Plan) -> tuple[float, str]:
    if plan.charge is not None:
        return plan.charge, plan.charge_unit
    return (plan.ceiling_gpu_hours, "GPU-h") if plan.shape.gpus else (plan.ceiling_core_hours, "core-h")


def account_of(site: str, unit: str, records: Iterable[Record], now: datetime, cap: float | None = None) -> Account:
    """The sums of one site in one unit."""
    used = reserved = 0.0
    for record in records:
        amount, its_unit = price(record.plan)
        if record.plan.request.site == site and its_unit == unit:
            more_used, more_reserved = _split(record, amount, now)
            used, reserved = used + more_used, reserved + more_reserved
    return Account(site, unit, round(used, 3), round(reserved, 3), cap)


def _split(record: Record, amount: float, now: datetime) -> tuple[float, float]:
    """(used, reserved) of one annex."""
    plan, state = record.plan, record.state
    if not state.submit_begun:
        return 0.0, (amount if record.busy and not state.ended else 0.0)
    if plan.request.lease is not None:
        return _split_lease(record, amount, now)
    each = amount / plan.pilots
    told = [_share(plan, seconds) * each for seconds in list(state.ran.values())[: plan.pilots]]
    untold = plan.pilots - len(told)
    if not state.ended:
        return sum(told), untold * each
    if not state.job_ids and state.failure is not None:
        untold = 0  # sbatch took nothing: the failure was recorded after a look by name
    lived = seconds_between(state.submitted_at, state.ended_at or now) if state.submitted_at else plan.walltime_s
    return sum(told) + untold * each * _share(plan, lived), 0.0


def _split_lease(record: Record, amount: float, now: datetime) -> tuple[float, float]:
    """(used, reserved) of an annex whose keeper may have brought pilots that we have not heard of."""
    plan, state = record.plan, record.state
    each = _once_price(plan)[0] / plan.pilots
    told = sum(_share(plan, seconds) * each for seconds in state.ran.values())
    if not state.ended:
        return told, max(0.0, amount - told)
    untold = [job for job in state.job_ids if job not in state.ran]
    lived = seconds_between(state.submitted_at, state.ended_at or now) if state.submitted_at else plan.walltime_s
    return min(amount, told + len(untold) * each * _share(plan, lived)), 0.0


def _share(plan: Plan, seconds: float) -> float:
    """The part of a pilot's ceiling that so many seconds cost: none for none, else at least the site's minimum."""
    least = plan.charge_minimum_s
    return min(1.0, max(seconds, least) / max(plan.walltime_s, least)) if seconds > 0 else 0.0


def within_budget(plan: Plan, account: Account, *, command_cap: float | None = None) -> None:
    """AnnexError(budget-exceeded) when the plan's ceiling passes what the command or the site's budget allows."""
    amount, unit = price(plan)
    site = plan.request.site
    if command_cap is not None and amount > command_cap:
        over = round(amount - command_cap, 3)
        raise fail(
            "budget-exceeded", site, f"the ceiling is {amount:g} {unit}: {over:g} {unit} more than --budget allows"
        )
    if account.left is not None and amount > account.left:
        over = round(amount - account.left, 3)
        words = (
            f"cap {account.cap:g}, used {account.used:g}, reserved {account.reserved:g}, left {account.left:g} {unit}"
        )
        raise fail(
            "budget-exceeded",
            site,
            f"the ceiling is {amount:g} {unit}: {over:g} {unit} more than is left of the budget for {site}",
            evidence=[Evidence(f"siteannex budget {site}", words)],
        )


def as_data(account: Account) -> dict[str, Any]:
    """As JSON values."""
    return {
        "site": account.site,
        "unit": account.unit,
        "cap": account.cap,
        "used": account.used,
        "reserved": account.reserved,
        "left": account.left,
    }
