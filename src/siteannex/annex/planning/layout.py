"""One request laid out on one kind of node of one partition: pilots, shape, bill; or the fact that forbids it. Pure.

Every pilot is a batch job of its own on one node, so that a job's node limit never binds, and limits on a user's
running and waiting jobs do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from siteannex.annex.planning.bill import Bill, billed
from siteannex.model import PilotShape, Request
from siteannex.site.gpus import find_model
from siteannex.site.partitions import REPORTED_SHARE
from siteannex.site.schema import Bundle, Gpus, NodeKind, Partition
from siteannex.units import format_duration, format_memory


@dataclass(frozen=True, slots=True)
class Layout:
    """Where and how the request fits."""

    partition: str
    facts: Partition
    kind: NodeKind
    pilots: int
    shape: PilotShape
    """Of each pilot; in an exclusive partition the whole node."""
    bill: Bill
    """Of the whole annex over its whole walltime."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why one kind of node of one partition cannot give what was asked."""

    partition: str
    kind: str
    fact: str
    """The key of the site's file that says no: `caps.gpus_per_user`, `max_walltime`."""
    text: str
    """`at most 12 GPUs a user, 16 asked`."""

    @property
    def about_kind(self) -> bool:
        """True when the nodes are of the wrong sort altogether, False when the request is only too large."""
        return self.distance > 0

    @property
    def distance(self) -> int:
        """How far the partition is from giving what was asked: a limit, then leave to use it, then the wrong GPUs."""
        return _DISTANCES.get(self.fact, 0)


_DISTANCES = {
    "preemption": 1,
    "restricted": 1,
    "gpus.memory": 2,
    "gpu_type": 2,
    "gpu_capability": 2,
    "gpu_bf16": 2,
    "gpu_maker": 3,
    "gpus": 4,
}


class DoesNotFitError(Exception):
    """`fact` is the key of the site's file; the text is shown to the user."""

    def __init__(self, fact: str, text: str) -> None:
        super().__init__(text)
        self.fact = fact


def lay_out(
    request: Request, name: str, facts: Partition, kind: NodeKind, *, only_gpus: bool = False
) -> Layout | Refusal:
    """Fit the request, or say the first fact that forbids it. `only_gpus`: the site has no nodes without them."""
    try:
        _right_gpus(request, kind, only_gpus=only_gpus)
        _walltime(request, facts)
        pilots, gpus = _spread(request, facts, kind)
        shape = _shape(request, facts, kind, gpus)
        layout = Layout(
            partition=name,
            facts=facts,
            kind=kind,
            pilots=pilots,
            shape=shape,
            bill=billed(facts, kind, pilots, shape, request.lifetime_s),
        )
        _within_caps(request, layout)
        _may_be_chosen(request, facts)
    except DoesNotFitError as reason:
        return Refusal(name, kind.name, reason.fact, str(reason))
    return layout


def _may_be_chosen(request: Request, facts: Partition) -> None:
    """Some partitions must be asked for: by name, or by accepting preemption."""
    if request.partition is not None:
        return
    if facts.restricted is not None:
        raise DoesNotFitError("restricted", f"{facts.restricted}; --partition takes it all the same")
    if facts.preemption is not None and not request.preemptible:
        raise DoesNotFitError("preemption", "jobs there can be preempted; --preemptible accepts that")


def _right_gpus(request: Request, kind: NodeKind, *, only_gpus: bool) -> None:
    if not request.gpus:
        if kind.gpus is not None and request.partition is None and not only_gpus:
            raise DoesNotFitError("gpus", "its nodes are for GPU jobs; --partition takes their cores all the same")
        return
    gpus = kind.gpus
    if gpus is None:
        raise DoesNotFitError("gpus", "no GPUs here")
    if request.gpu_type is not None and not is_type(request.gpu_type, gpus):
        raise DoesNotFitError("gpu_type", f"its GPUs are {gpus.type}, not {request.gpu_type}")
    if request.gpu_type is None and request.partition is None and gpus.known and gpus.known.maker != "nvidia":
        raise DoesNotFitError("gpu_maker", f"its GPUs run no CUDA; --gpu-type {gpus.type} takes them all the same")
    if request.gpu_memory_mib is not None:
        floor = gpus.memory_floor
        if floor is None:
            raise DoesNotFitError("gpus.memory", f"the memory of its {gpus.type} is not known")
        if floor < int(request.gpu_memory_mib * REPORTED_SHARE):
            has = format_memory(gpus.memory_nominal or floor)
            asked = format_memory(request.gpu_memory_mib)
            raise DoesNotFitError("gpus.memory", f"its {gpus.type} have {has} each, {asked} asked")
    if request.gpu_capability is not None:
        capability = gpus.compute_capability
        if capability is None or capability < request.gpu_capability:
            has = "an unknown capability" if capability is None else f"capability {capability}"
            raise DoesNotFitError("gpu_capability", f"its {gpus.type} have {has}, {request.gpu_capability} asked")
    if request.bf16 and gpus.has_bf16 is not True:
        raise DoesNotFitError("gpu_bf16", f"its {gpus.type} have no bf16" if gpus.has_bf16 is False else "bf16 unknown")


def is_type(asked: str, gpus: Gpus) -> bool:
    """Whether a user's word names these GPUs: the site's own word, the driver's name, or the catalogue's model."""
    word, known = _plain(asked), gpus.known
    names = {_plain(gpus.type), _plain(gpus.model)} | ({_plain(known.name)} if known else set())
    model = find_model(asked)
    return word in names or (known is not None and model is known and _plain(model.name) == word)


def _plain(text: str) -> str:
    return text.lower().replace("_", "-").replace(" ", "-")


def _walltime(request: Request, facts: Partition) -> None:
    if facts.max_walltime is not None and request.lifetime_s > facts.max_walltime:
        longest, asked = format_duration(facts.max_walltime), format_duration(request.lifetime_s)
        raise DoesNotFitError("max_walltime", f"at most {longest} a job, {asked} asked")


def _spread(request: Request, facts: Partition, kind: NodeKind) -> tuple[int, int]:
    """(pilots, GPUs of each): whole nodes where nodes are exclusive, else as few equal pilots as a job's cap allows."""
    if not request.gpus or kind.gpus is None:
        return request.nodes or 1, 0
    if facts.sharing == "exclusive":
        each = kind.gpus.per_node
        pilots = request.nodes or -(-request.gpus // each)
        if pilots * each < request.gpus:
            raise DoesNotFitError("gpus.per_node", f"{pilots} nodes have {pilots * each} GPUs, {request.gpus} asked")
        return pilots, each
    cap, fact = kind.gpus.per_node, "gpus.per_node"
    if facts.caps.gpus_per_job is not None and facts.caps.gpus_per_job < cap:
        cap, fact = facts.caps.gpus_per_job, "caps.gpus_per_job"
    if request.gpus_per_pilot is not None:
        if request.gpus_per_pilot > cap:
            raise DoesNotFitError(fact, f"at most {cap} GPUs a job, {request.gpus_per_pilot} a pilot asked")
        return request.gpus // request.gpus_per_pilot, request.gpus_per_pilot
    for pilots in [request.nodes] if request.nodes else range(1, request.gpus + 1):
        if request.gpus % pilots == 0 and request.gpus // pilots <= cap:
            return pilots, request.gpus // pilots
    nodes = f"{request.nodes} nodes" if request.nodes != 1 else "1 node"
    raise DoesNotFitError(fact, f"{request.gpus} GPUs do not divide over {nodes} of at most {cap} GPUs a job")


def _shape(request: Request, facts: Partition, kind: NodeKind, gpus: int) -> PilotShape:
    whole, bundle = kind.memory_usable, (facts.charge.bundle if facts.charge else None) or Bundle()
    exclusive = facts.sharing == "exclusive"
    share = 1.0 if exclusive else (gpus / kind.gpus.per_node if gpus and kind.gpus else 0.0)
    cpus = request.cpus or _cpus(kind, gpus, share, bundle, exclusive=exclusive)
    if cpus is None:
        raise DoesNotFitError("nodes.cores", "how many cores its nodes have is not known; --cpus says what to ask")
    if kind.cores is not None and cpus > kind.cores:
        raise DoesNotFitError("nodes.cores", f"at most {kind.cores} cores a node, {cpus} asked")
    memory = request.memory_mib or _memory(kind, gpus, share, cpus, bundle, exclusive=exclusive)
    if memory is None:
        raise DoesNotFitError("nodes.memory", "how much memory its nodes have is not known; --mem says what to ask")
    if whole is not None and memory > whole:
        raise DoesNotFitError("nodes.memory", f"at most {format_memory(whole)} a node, {format_memory(memory)} asked")
    return PilotShape(gpus, kind.gpus.type if gpus and kind.gpus else None, cpus, memory)


def _cpus(kind: NodeKind, gpus: int, share: float, bundle: Bundle, *, exclusive: bool) -> int | None:
    """The site's rule, else the GPUs' share of the node; no more than what is charged with the GPUs anyway."""
    if gpus and kind.cpus_per_gpu and not exclusive:
        return kind.cpus_per_gpu * gpus
    if kind.cores is None:
        return None
    own = max(1, int(kind.cores * share))
    return own if exclusive or not gpus or not bundle.cores else min(own, bundle.cores * gpus)


def _memory(kind: NodeKind, gpus: int, share: float, cpus: int, bundle: Bundle, *, exclusive: bool) -> int | None:
    """As `_cpus`. Never 0: sbatch reads --mem=0 as all of the node's memory."""
    whole = kind.memory_usable
    if gpus and kind.memory_per_gpu and not exclusive:
        own = kind.memory_per_gpu * gpus
        return own if whole is None else min(own, whole)
    if whole is None or kind.cores is None:
        return None
    own = max(1, int(whole * share), cpus * whole // kind.cores)
    return own if exclusive or not gpus or not bundle.memory else min(own, bundle.memory * gpus)


def _within_caps(request: Request, layout: Layout) -> None:
    for fact, most, needed, words in _caps(layout):
        if most is not None and needed > most:
            raise DoesNotFitError(fact, f"at most {words.format(most)}, {needed} needed")
    fewest = layout.facts.caps.min_nodes_per_job
    if fewest is not None and fewest > 1:
        raise DoesNotFitError("caps.min_nodes_per_job", f"takes only jobs of {fewest} nodes or more; a pilot is one")


def _caps(layout: Layout) -> Iterator[tuple[str, int | None, int, str]]:
    """(key in the site's file, limit, what this layout needs, words)."""
    caps, kind, shape, pilots = layout.facts.caps, layout.kind, layout.shape, layout.pilots
    exclusive = layout.facts.sharing == "exclusive"
    yield "caps.running_per_user", caps.running_per_user, pilots, "{} of a user's jobs running"
    yield "caps.submitted_per_user", caps.submitted_per_user, pilots, "{} of a user's jobs in all"
    if shape.gpus:
        yield "caps.gpus_per_job", caps.gpus_per_job, shape.gpus, "{} GPUs a job"
        yield "caps.gpus_per_user", caps.gpus_per_user, pilots * shape.gpus, "{} GPUs a user"
        yield "caps.gpus_per_account", caps.gpus_per_account, pilots * shape.gpus, "{} GPUs an account"
        if kind.count and kind.gpus:
            yield "nodes.count", kind.count * kind.gpus.per_node, pilots * shape.gpus, "{} GPUs of this kind"
    cores = (kind.cores or shape.cpus) if exclusive else shape.cpus
    yield "caps.cores_per_job", caps.cores_per_job, cores, "{} cores a job"
    yield "caps.cores_per_user", caps.cores_per_user, pilots * cores, "{} cores a user"
    yield "caps.memory_per_job", caps.memory_per_job, shape.memory_mib, "{} MB a job"
    if exclusive:
        yield "caps.nodes_per_user", caps.nodes_per_user, pilots, "{} nodes a user"
        yield "nodes.count", kind.count, pilots, "{} nodes of this kind"
    elif kind.count and kind.cores:
        yield "nodes.count", kind.count * (kind.cores // cores), pilots, "{} such pilots on its nodes"
