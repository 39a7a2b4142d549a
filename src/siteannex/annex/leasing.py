"""A lease: what a keeper at the site may do alone, its files, its cost, and what it tells. Pure.

The keeper itself is shell (tarball/keeper.sh, keeper-ledger.sh); docs/decisions/016-keeper.md says why it is as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from siteannex.annex.bundle import assignments, promised_gpus, shell_path
from siteannex.failures import fail
from siteannex.model import Join, KeeperAd, Lease, Plan, PoolFacts
from siteannex.pool.ads import quote
from siteannex.resources import data_dir, render_template
from siteannex.scheduler import slurm
from siteannex.scheduler.refusals import UNCERTAIN
from siteannex.site.gpus import compute_capability
from siteannex.site.schema import Site
from siteannex.units import format_duration, seconds_between

WAKE_S = 1
"""About what a wake that finds nothing to do takes of its core, in seconds (docs/keeper.md)."""


def pilot_gpu_s(plan: Plan) -> int:
    """GPU-seconds that are billed for one pilot's whole walltime."""
    return math.ceil(plan.ceiling_gpu_hours / plan.pilots * 3600)


def check_lease(plan: Plan, site: Site) -> None:
    """AnnexError(keeper-unavailable, lease-impossible) when this site or this plan cannot have the lease."""
    lease = plan.request.lease
    if lease is None:
        return
    if site.keeper.kind == "none":
        raise fail("keeper-unavailable", site.name, f"no keeper may live at {site.name}, as its file has it")
    problem = ""
    if not plan.shape.gpus:
        problem = "a lease is counted in GPU-hours, and no GPU was asked for"
    elif plan.pilots > lease.pilots:
        problem = f"{plan.pilots} pilots are asked for at once, and --max-pilots is {lease.pilots}"
    elif plan.ceiling_gpu_hours > lease.gpu_hours:
        problem = f"the first pilots alone could use {plan.ceiling_gpu_hours:g} GPU-h of {lease.gpu_hours:g}"
    elif plan.walltime_s > lease.lease_s:
        problem = f"a pilot runs {format_duration(plan.walltime_s)}, longer than the lease"
    elif site.keeper.max_lease is not None and lease.lease_s > site.keeper.max_lease:
        problem = f"leases are {format_duration(site.keeper.max_lease)} at most at {site.name}, as its file has it"
    if problem:
        raise fail("lease-impossible", site.name, problem)


def check_join(site: Site, join: Join) -> None:
    """AnnexError(lease-impossible) for direct attach: its token can submit jobs as its owner."""
    if join is Join.DIRECT:
        words = "EPs would join by direct attach, whose token could submit jobs as you, and lie at the site so long"
        raise fail("lease-impossible", site.name, words)


def lease_text(lease: Lease, site: Site) -> str:
    """The plan's line: what is granted, and what the keeper itself costs."""
    interval = format_duration(site.keeper.interval)
    minutes = 86400 / site.keeper.interval * WAKE_S / 60
    pilots = f"{lease.pilots} pilot{'s' if lease.pilots > 1 else ''}"
    return (
        f"lease {format_duration(lease.lease_s)}, at most {lease.gpu_hours:g} GPU-h and {pilots} at once; its keeper "
        f"wakes every {interval} in {site.keeper.partition}: about {minutes:.0f} core-minutes a day"
    )


def lease_files(plan: Plan, site: Site, pool: PoolFacts, now: datetime) -> dict[str, str]:
    """What of the bundle is the keeper's: name to text."""
    lease, keeper = plan.request.lease, site.keeper
    if lease is None or keeper.partition is None:
        return {}
    options = slurm.keeper_options(plan, keeper, site.partitions[keeper.partition])
    context = {
        "shell": "/bin/bash -l" if site.environment else "/bin/sh",
        "options": list(options),
        "annex_id": plan.annex_id,
        "home": shell_path(site.directories.home),
        "environment": list(site.environment),
    }
    terms: dict[str, str | int | list[str]] = {
        "L_ENDS_AT": int((now + timedelta(seconds=lease.lease_s)).timestamp()),
        "L_LEASE_S": lease.lease_s,
        "L_CAP_GPU_S": int(lease.gpu_hours * 3600),
        "L_MAX_PILOTS": lease.pilots,
        "L_PILOT_GPU_S": pilot_gpu_s(plan),
        "L_INTERVAL_S": keeper.interval,
        "L_SINCE": f"{now - timedelta(days=1):%Y-%m-%d}",
        "L_WAITING": waiting_constraint(plan, pool.identity),
        "L_FITS": fitting_expression(plan, site),
        "L_UNCERTAIN": UNCERTAIN,
    }
    shell = {path.name: path.read_text(encoding="utf-8") for path in sorted(data_dir("tarball").glob("keeper*.sh"))}
    return {**shell, "keep.sh": render_template("keep.sh.j2", context), "lease.sh": assignments(terms)}


def waiting_constraint(plan: Plan, identity: str) -> str:
    """Idle jobs of the owner's that name this annex, as a ClassAd expression."""
    owner = quote(identity.partition("@")[0])
    return f"Owner == {owner} && JobStatus == 1 && TargetAnnexName == {quote(plan.request.name)}"


def fitting_expression(plan: Plan, site: Site) -> str:
    """Whether one of the annex's pilots could hold the job."""
    shape = plan.shape
    model, memory_mib = promised_gpus(plan, site)
    capability = compute_capability(model) if model else None
    limits = [f"RequestCpus <= {shape.cpus}", f"RequestMemory <= {shape.memory_mib}"]
    limits += [f"(RequestGPUs is undefined || RequestGPUs <= {shape.gpus})"]
    if memory_mib:
        limits.append(f"(GPUsMinMemory is undefined || GPUsMinMemory <= {memory_mib})")
    if capability:
        limits.append(f"(GPUsMinCapability is undefined || GPUsMinCapability <= {capability})")
    return " && ".join(limits)


def unheard_after_s(site: Site) -> int:
    """How long after its start, or its last word, a keeper that is not heard is taken to be gone."""
    return 3 * site.keeper.interval + 600


def keeper_of(annex_id: str, told: Iterable[KeeperAd]) -> KeeperAd | None:
    """The newest word of an annex's keeper."""
    mine = [ad for ad in told if ad.annex_id == annex_id and ad.told_at is not None]
    return max(mine, key=lambda ad: ad.told_at or datetime.min, default=None)


def keeper_text(ad: KeeperAd, now: datetime) -> str:
    """`resting, lease 9 d 4 h, 63 of 200 GPU-h used, 0 waiting`, or a code of its own when it ended."""
    age_s = seconds_between(ad.told_at, now) if ad.told_at else 0.0
    reserved = f", {_hours(ad.reserved_gpu_s)} reserved" if ad.reserved_gpu_s else ""
    hours = f"{_hours(ad.used_gpu_s)} of {_hours(ad.cap_gpu_s)} GPU-h used{reserved}"
    if ad.code:
        return f"{ad.code}: {ad.text}; {hours}"
    left = format_duration(max(0.0, ad.lease_left_s - age_s))
    late = age_s > 2 * ad.interval_s + 300
    heard = f"; its keeper was last heard {format_duration(age_s)} ago" if late else ""
    return f"{ad.stage}, lease {left}, {hours}, {ad.waiting} waiting ({ad.text}){heard}"


def _hours(gpu_s: int) -> str:
    return f"{round(gpu_s / 3600, 2):g}"


def as_data(ad: KeeperAd) -> dict[str, Any]:
    """As JSON values; seconds and GPU-seconds."""
    return {
        "stage": ad.stage,
        "code": ad.code,
        "text": ad.text,
        "used_gpu_s": ad.used_gpu_s,
        "reserved_gpu_s": ad.reserved_gpu_s,
        "cap_gpu_s": ad.cap_gpu_s,
        "pilots": ad.pilots,
        "waiting": ad.waiting,
        "lease_left_s": ad.lease_left_s,
        "interval_s": ad.interval_s,
        "told_at": ad.told_at.isoformat() if ad.told_at else None,
    }
