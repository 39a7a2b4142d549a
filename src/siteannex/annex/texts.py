"""What the screen says of a plan, of a ready annex, of what was spent: one wording for every verb."""

from __future__ import annotations

from datetime import datetime

from siteannex.annex.judging.verdict import Verdict
from siteannex.annex.planning.ledger import Account
from siteannex.annex.store import Annex
from siteannex.errors import AnnexError
from siteannex.model import BatchState, Plan
from siteannex.ports import Pool
from siteannex.units import format_duration, format_memory, format_when, seconds_between

_MOST_PASSED_OVER = 3


def plan_text(plan: Plan) -> str:
    """`lab, partition gpu-shared: 1 pilot x 2 a100 (8 cores, 30 GB), 1 h, account abc123`."""
    gpus = f" x {plan.shape.gpus} {plan.shape.gpu_type}" if plan.shape.gpus else ""
    pilots = f"{plan.pilots} pilot{'s' if plan.pilots > 1 else ''}{gpus}"
    size = f"{plan.shape.cpus} core{'s' if plan.shape.cpus != 1 else ''}, {format_memory(plan.shape.memory_mib)}"
    account = f", account {plan.account}" if plan.account else ""
    where = f"{plan.request.site}, partition {plan.partition}"
    return f"{where}: {pilots} ({size}), {format_duration(plan.walltime_s)}{account}"


def ceiling_text(plan: Plan) -> str:
    """The most the plan can cost: `16 GPU-h = 16 SU`; core-hours without GPUs, the site's unit where it is known."""
    hours = f"{plan.ceiling_gpu_hours:g} GPU-h" if plan.shape.gpus else f"{plan.ceiling_core_hours:g} core-h"
    return hours if plan.charge is None else f"{hours} = {plan.charge:g} {plan.charge_unit}"


def budget_text(account: Account) -> str:
    """`budget of expanse: 184 of 200 SU left`; "" without one."""
    if account.cap is None or account.left is None:
        return ""
    return f"budget of {account.site}: {account.left:g} of {account.cap:g} {account.unit} left, this plan counted"


def passed_over_text(plan: Plan) -> str:
    """`not chosen: gpu-shared: at most 3 GPUs a job, 4 asked`, the closest ones only."""
    shown = plan.passed_over[:_MOST_PASSED_OVER]
    left = len(plan.passed_over) - len(shown)
    more = f"; and {left} more (--dry-run shows all)" if left else ""
    return f"not chosen: {'; '.join(shown)}{more}" if shown else ""


def ready_text(annex: Annex, verdict: Verdict, pool: Pool, now: datetime) -> str:
    """`lab: 2 GPUs until 18:02 (in 59 m); 1 of your jobs waits for it.`."""
    slots = [slot for pilot in verdict.pilots for slot in pilot.slots if slot.slot_type != "Dynamic"]
    gpus = sum(slot.total_gpus for slot in slots)
    what = f"{gpus} GPU{'s' if gpus != 1 else ''}" if gpus else f"{sum(slot.total_cpus for slot in slots)} cores"
    ends = [pilot.job.end for pilot in verdict.pilots if pilot.job is not None and pilot.job.end is not None]
    ends = ends or [slot.ends_at for slot in slots if slot.ends_at is not None]
    until = f" until {format_when(min(ends), now)}" if ends else ""
    share = f" ({verdict.ready} of {annex.plan.pilots} pilots)" if annex.plan.pilots > 1 else ""
    return f"{annex.name}: {what}{share}{until}{_waiting_text(annex.name, pool)}"


def spent_text(plan: Plan, verdict: Verdict, now: datetime) -> str:
    """What the pilots have used so far, by Slurm's start times: `0.12 GPU-h`."""
    ran = [pilot.job for pilot in verdict.pilots if pilot.job is not None and pilot.job.state is not BatchState.PENDING]
    seconds = sum(seconds_between(job.start, min(job.end or now, now)) for job in ran if job.start is not None)
    units, word = (plan.shape.gpus, "GPU-h") if plan.shape.gpus else (plan.shape.cpus, "core-h")
    return f"{seconds / 3600 * units:.2f} {word}"


def _waiting_text(name: str, pool: Pool) -> str:
    try:
        waiting = pool.job_counts([name])[name].waiting
    except AnnexError:
        return ""  # it is ready all the same
    return f"; {waiting} of your jobs wait{'s' if waiting == 1 else ''} for it"
