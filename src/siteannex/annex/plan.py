"""From a request and a site's facts to a plan: partition, pilots, shape, ceiling. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date

from siteannex.errors import Evidence
from siteannex.failures import fail
from siteannex.model import PilotShape, Plan, Request
from siteannex.site.schema import NodeKind, Partition, Site
from siteannex.units import format_duration, format_memory

STALE_AFTER_DAYS = 365


@dataclass(frozen=True, slots=True)
class _Layout:
    partition: str
    facts: Partition
    kind: NodeKind
    pilots: int
    shape: PilotShape
    billed_gpus: int
    billed_cores: int


class _DoesNotFitError(Exception):
    """Why a partition cannot give what was asked; the text is shown to the user."""


def plan_annex(request: Request, site: Site, *, annex_id: str, today: date) -> Plan:
    """Choose the partition that costs least and still fits. AnnexError(request-impossible) names every reason."""
    layouts: list[_Layout] = []
    refusals: list[str] = []
    for name, facts in _candidates(request, site).items():
        for kind in facts.nodes:
            try:
                layouts.append(_lay_out(request, name, facts, kind))
            except _DoesNotFitError as reason:
                refusals.append(f"{name}{f' ({kind.name})' if len(facts.nodes) > 1 else ''}: {reason}")
    if not layouts:
        raise fail(
            "request-impossible",
            site.name,
            "no partition gives what was asked",
            evidence=[Evidence(f"site facts of {site.name}, partition by partition", "\n".join(refusals))],
        )
    best = min(layouts, key=lambda layout: (layout.billed_gpus * layout.pilots, layout.billed_cores * layout.pilots))
    hours = request.lifetime_s / 3600
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
        ceiling_gpu_hours=round(best.billed_gpus * best.pilots * hours, 3),
        ceiling_core_hours=round(best.billed_cores * best.pilots * hours, 3),
        notes=(
            *_age_note(best.facts, today),
            *_whole_node_note(best),
            *(f"not chosen: {refusal}" for refusal in refusals),
        ),
        deadlines=site.deadlines.seconds(),
    )


def _candidates(request: Request, site: Site) -> Mapping[str, Partition]:
    if request.partition is None:
        return site.partitions
    if request.partition not in site.partitions:
        known = ", ".join(site.partitions)
        raise fail("request-impossible", site.name, f"no partition {request.partition!r} here; known: {known}")
    return {request.partition: site.partitions[request.partition]}


def _lay_out(request: Request, name: str, facts: Partition, kind: NodeKind) -> _Layout:
    pilots, gpus = _spread(request, facts, kind)
    if facts.max_walltime is not None and request.lifetime_s > facts.max_walltime:
        raise _DoesNotFitError(
            f"at most {format_duration(facts.max_walltime)} a job, {format_duration(request.lifetime_s)} asked"
        )
    most_nodes = _most_nodes(facts, kind)
    if most_nodes is not None and pilots > most_nodes:
        raise _DoesNotFitError(f"at most {most_nodes} nodes, {pilots} needed")
    cores, whole_memory = kind.cores, kind.memory_usable
    if cores is None or whole_memory is None:
        raise _DoesNotFitError("how many cores and how much memory its nodes have is not known")
    exclusive = facts.sharing == "exclusive"
    share = 1.0 if exclusive else (gpus / kind.gpus.per_node if gpus and kind.gpus else 0.0)
    cpus = request.cpus or max(1, int(cores * share))
    memory = request.memory_mib or max(
        1, int(whole_memory * share), cpus * whole_memory // cores
    )  # never 0: sbatch reads --mem=0 as all of the node's memory
    if cpus > cores:
        raise _DoesNotFitError(f"at most {cores} cores a node, {cpus} asked")
    if memory > whole_memory:
        raise _DoesNotFitError(f"at most {format_memory(whole_memory)} a node, {format_memory(memory)} asked")
    return _Layout(
        partition=name,
        facts=facts,
        kind=kind,
        pilots=pilots,
        shape=PilotShape(gpus, kind.gpus.type if gpus and kind.gpus else None, cpus, memory),
        billed_gpus=kind.gpus.per_node if exclusive and kind.gpus else gpus,
        billed_cores=cores if exclusive else cpus,
    )


def _most_nodes(facts: Partition, kind: NodeKind) -> int | None:
    return min((most for most in (facts.caps.nodes_per_job, kind.count) if most is not None), default=None)


def _spread(request: Request, facts: Partition, kind: NodeKind) -> tuple[int, int]:
    """(pilots, GPUs of each): as few equal pilots as the node and the job cap allow."""
    if request.gpus == 0:
        return request.nodes or 1, 0
    if kind.gpus is None:
        raise _DoesNotFitError("no GPUs here")
    cap = min(kind.gpus.per_node, facts.caps.gpus_per_job or kind.gpus.per_node)
    most_nodes = _most_nodes(facts, kind)
    most = cap * most_nodes if most_nodes else None
    if most is not None and request.gpus > most:
        raise _DoesNotFitError(f"at most {most} GPUs ({most_nodes} nodes x {cap}), {request.gpus} asked")
    for pilots in [request.nodes] if request.nodes else range(1, request.gpus + 1):
        if request.gpus % pilots == 0 and request.gpus // pilots <= cap:
            if most_nodes is not None and pilots > most_nodes:
                raise _DoesNotFitError(f"{request.gpus} GPUs do not divide evenly over {most_nodes} nodes of {cap}")
            return pilots, request.gpus // pilots
    raise _DoesNotFitError(f"{request.gpus} GPUs do not divide over {request.nodes} nodes of at most {cap} GPUs")


def _whole_node_note(layout: _Layout) -> tuple[str, ...]:
    if layout.billed_gpus == layout.shape.gpus:
        return ()
    return (f"{layout.partition} gives whole nodes: you get and pay for {layout.billed_gpus} GPUs each",)


def _age_note(facts: Partition, today: date) -> tuple[str, ...]:
    age = (today - facts.verified).days
    if age <= STALE_AFTER_DAYS:
        return (f"site facts verified {facts.verified.isoformat()}",)
    return (f"site facts are {age} days old (verified {facts.verified.isoformat()}): they may be stale",)


def differences(asked: Request, living: Request) -> tuple[str, ...]:
    """What differs between a new request and the one an annex was made for, by option: `--gpus 4 asked, 2 living`."""
    return tuple(
        f"--{option} {_shown(field, getattr(asked, field))} asked, {_shown(field, getattr(living, field))} living"
        for field, option in _OPTIONS.items()
        if getattr(asked, field) != getattr(living, field)
    )


_OPTIONS = {
    "site": "site",
    "gpus": "gpus",
    "nodes": "nodes",
    "cpus": "cpus",
    "memory_mib": "mem",
    "partition": "partition",
    "account": "account",
    "lifetime_s": "lifetime",
    "idle_s": "idle",
    "join": "join",
}


def _shown(field: str, value: object) -> str:
    if value is None:
        return "not"
    if field == "memory_mib":
        return format_memory(int(str(value)))
    return format_duration(int(str(value))) if field.endswith("_s") else str(value)
