"""From a request and a site's facts to a plan: partition, pilots, shape, ceiling. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date

from siteannex.annex.planning.layout import Layout, Refusal, lay_out
from siteannex.annex.planning.nearest import nearest_requests
from siteannex.errors import Evidence
from siteannex.failures import fail
from siteannex.model import Lease, Plan, Request
from siteannex.site.schema import Partition, Site
from siteannex.units import format_duration, format_memory

STALE_AFTER_DAYS = 365
TESTS_UP_TO_S = 4 * 3600
"""Partitions with a walltime this short are for tests (debug, dev, interactive), whatever a site calls them."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Every way the request fits a site, the chosen one first, and why the rest does not."""

    fits: tuple[Layout, ...]
    refusals: tuple[Refusal, ...]


def choose(request: Request, site: Site) -> Choice:
    """Try every kind of node of every partition (or of the one asked for); the cheapest that fits comes first."""
    only_gpus = all(kind.gpus for facts in site.partitions.values() for kind in facts.nodes)
    tried = [
        lay_out(request, name, facts, kind, only_gpus=only_gpus)
        for name, facts in _candidates(request, site).items()
        for kind in facts.nodes
    ]
    fits = [each for each in tried if isinstance(each, Layout)]
    in_one_unit = len({each.bill.unit for each in fits if each.bill.charge is not None}) == 1
    all_priced = in_one_unit and all(each.bill.charge is not None for each in fits)
    ranked = sorted(fits, key=lambda layout: _price(layout, all_priced=all_priced))
    return Choice(tuple(ranked), tuple(each for each in tried if isinstance(each, Refusal)))


def _price(layout: Layout, *, all_priced: bool) -> tuple[float, ...]:
    """What costs least; then what wastes least: fewer GPU-hours, smaller GPUs; of equals not one for short tests."""
    bill = layout.bill
    charge = bill.charge if all_priced and bill.charge is not None else bill.gpu_hours or bill.core_hours
    memory = (layout.kind.gpus.memory_floor or 0) if layout.kind.gpus else 0
    return (charge, bill.gpu_hours, memory, for_tests(layout.facts), bill.core_hours)


def for_tests(facts: Partition) -> bool:
    """Whether the walltime says that only short tests are meant to run there."""
    return facts.max_walltime is not None and facts.max_walltime <= TESTS_UP_TO_S


def plan_annex(request: Request, site: Site, *, annex_id: str, today: date) -> Plan:
    """The plan of the cheapest layout.

    AnnexError request-impossible names every reason and the nearest requests that fit; account-missing where the site
    takes no job without an allocation and none is known.
    """
    choice = choose(request, site)
    if not choice.fits:
        raise _impossible(request, site, choice.refusals)
    plan = plan_of(request, site, choice, annex_id=annex_id, today=today)
    if plan.account is None and site.scheduler.account_required:
        raise _accountless(site, choice.fits[0].facts)
    return plan


def plan_of(request: Request, site: Site, choice: Choice, *, annex_id: str, today: date) -> Plan:
    """The plan of a choice that fits, whether or not an account is known."""
    best = choice.fits[0]
    return Plan(
        request=request,
        annex_id=annex_id,
        partition=best.partition,
        node_kind=best.kind.name,
        account=request.account or site.account,
        qos=best.facts.qos,
        pilots=best.pilots,
        shape=best.shape,
        walltime_s=request.lifetime_s,
        idle_s=request.idle_s,
        ceiling_gpu_hours=best.bill.gpu_hours,
        ceiling_core_hours=best.bill.core_hours,
        charge=best.bill.charge,
        charge_unit=best.bill.unit,
        charge_minimum_s=(best.facts.charge.minimum or 0) if best.facts.charge else 0,
        notes=tuple(_notes(request, best, today)),
        passed_over=tuple(passed_over(choice)),
        deadlines=site.deadlines.seconds(),
    )


def passed_over(choice: Choice, *, whole: bool = False) -> list[str]:
    """Why each other partition was not chosen; without `whole` only those whose nodes would have done."""
    best, *others = choice.fits
    dearer = [
        f"{_named(each.partition, each.kind.name, each.facts)}: {_costs(each, best)}"
        for each in others
        if whole or each.partition != best.partition
    ]
    refused = [f"{each.partition}: {each.text}" for each in choice.refusals if whole or not each.about_kind]
    return list(dict.fromkeys([*dearer, *refused]))


def _named(partition: str, kind: str, facts: Partition) -> str:
    return f"{partition} ({kind})" if len(facts.nodes) > 1 and kind else partition


def _costs(other: Layout, best: Layout) -> str:
    if other.bill.charge is not None and best.bill.charge is not None and other.bill.charge > best.bill.charge:
        return f"fits, {other.bill.charge:g} {other.bill.unit}"
    if other.bill.gpu_hours > best.bill.gpu_hours:
        return f"fits, bills {other.bill.gpu_hours:g} GPU-h"
    if other.bill.core_hours > best.bill.core_hours and not best.bill.gpu_hours:
        return f"fits, bills {other.bill.core_hours:g} core-h"
    return "fits as well, at the same price"


def _candidates(request: Request, site: Site) -> Mapping[str, Partition]:
    if request.partition is None:
        return site.partitions
    if request.partition not in site.partitions:
        known = ", ".join(site.partitions)
        raise fail("request-impossible", site.name, f"no partition {request.partition!r} here; known: {known}")
    return {request.partition: site.partitions[request.partition]}


def _impossible(request: Request, site: Site, refusals: tuple[Refusal, ...]) -> Exception:
    near = nearest_requests(request, lambda asked: bool(choose(asked, site).fits), site)
    return fail(
        "request-impossible",
        site.name,
        "no partition gives what was asked",
        evidence=[
            Evidence(
                f"site facts of {site.name}, partition by partition",
                "\n".join(dict.fromkeys(f"{each.partition}: {each.text}" for each in refusals)),
            )
        ],
        hint=f"nearest that fits: {'; or '.join(near)}" if near else None,
    )


def _accountless(site: Site, facts: Partition) -> Exception:
    listing = f" ({site.scheduler.list_accounts} lists yours there)" if site.scheduler.list_accounts else ""
    form = f", of the form {facts.allocation}" if facts.allocation else ""
    return fail(
        "account-missing",
        site.name,
        f"{site.name} takes no job without an account",
        hint=f"Add --account NAME{form}{listing}.",
    )


def _notes(request: Request, best: Layout, today: date) -> list[str]:
    """The age of the facts, then what is unusual about this layout."""
    facts, shape = best.facts, best.shape
    got = best.pilots * shape.gpus
    whole = f"{best.partition} gives whole nodes: you get and pay for {got} GPUs" if got > request.gpus else ""
    if not request.gpus and facts.sharing == "exclusive" and (best.kind.cores or 0) > shape.cpus:
        whole = f"{best.partition} gives whole nodes: you pay for all {best.kind.cores} cores of each"
    preempted = "its jobs can be preempted" if facts.preemption is not None else ""
    doubts = [f"in doubt: {text}" for text in facts.doubts]
    return [text for text in (_age(facts, today), whole, preempted, *doubts) if text]


def _age(facts: Partition, today: date) -> str:
    age = (today - facts.verified).days
    if age <= STALE_AFTER_DAYS:
        return f"site facts verified {facts.verified.isoformat()}"
    return f"site facts are {age} days old (verified {facts.verified.isoformat()}): they may be stale"


def differences(asked: Request, living: Request) -> tuple[str, ...]:
    """What differs between a new request and the one an annex was made for, by option: `--gpus 4 asked, 2 living`."""
    return tuple(
        f"--{option} {_shown(field, getattr(asked, field))} asked, {_shown(field, getattr(living, field))} living"
        for field, option in OPTIONS.items()
        if getattr(asked, field) != getattr(living, field)
    )


OPTIONS = {
    "site": "site",
    "gpus": "gpus",
    "nodes": "nodes",
    "gpus_per_pilot": "gpus-per-pilot",
    "gpu_type": "gpu-type",
    "gpu_memory_mib": "gpu-memory",
    "gpu_capability": "gpu-capability",
    "bf16": "bf16",
    "cpus": "cpus",
    "memory_mib": "mem",
    "partition": "partition",
    "account": "account",
    "lease": "lease",
    "preemptible": "preemptible",
    "lifetime_s": "lifetime",
    "idle_s": "idle",
    "join": "join",
}
"""Field of a request -> its option on the command line."""


def _shown(field: str, value: object) -> str:
    if value is None:
        return "not"
    if isinstance(value, Lease):
        return f"{format_duration(value.lease_s)}, {value.gpu_hours:g} GPU-h, {value.pilots} pilots"
    if field.endswith("_mib"):
        return format_memory(int(str(value)))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return format_duration(int(str(value))) if field.endswith("_s") else str(value)
