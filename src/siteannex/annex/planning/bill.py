"""What an annex costs at most, in GPU-hours, core-hours and the site's own unit. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from siteannex.model import PilotShape
from siteannex.site.schema import Charge, NodeKind, Partition


@dataclass(frozen=True, slots=True)
class Bill:
    """The ceiling: every pilot for its whole walltime."""

    gpu_hours: float
    """Whole nodes where they are given whole."""
    core_hours: float
    charge: float | None
    """In `unit`; None where the site's rate is not known."""
    unit: str = ""


def billed(facts: Partition, kind: NodeKind, pilots: int, shape: PilotShape, walltime_s: int) -> Bill:
    """The bill of `pilots` equal pilots."""
    exclusive = facts.sharing == "exclusive"
    gpus = kind.gpus.per_node if exclusive and kind.gpus else shape.gpus
    cores = kind.cores if exclusive and kind.cores else shape.cpus
    hours = pilots * walltime_s / 3600
    charge = facts.charge
    factor = None if charge is None else (charge.factor if kind.charge_factor is None else kind.charge_factor)
    if charge is None or factor is None:
        return Bill(round(gpus * hours, 3), round(cores * hours, 3), None, charge.unit if charge else "")
    each = _units(charge, kind, gpus, cores, shape.memory_mib, exclusive=exclusive)
    long = pilots * max(walltime_s, charge.minimum or 0) / 3600
    amount = None if each is None else round(each * factor * long, 3)
    return Bill(round(gpus * hours, 3), round(cores * hours, 3), amount, charge.unit)


def _units(charge: Charge, kind: NodeKind, gpus: int, cores: int, memory_mib: int, *, exclusive: bool) -> float | None:
    """What one pilot counts as: GPUs, cores or nodes; more when it takes more than those bring along."""
    bundle = charge.bundle
    shares = (
        []
        if bundle is None or exclusive
        else [
            *([cores / bundle.cores] if bundle.cores else []),
            *([memory_mib / bundle.memory] if bundle.memory else []),
        ]
    )
    if charge.per == "gpu_hour":  # without a GPU, and no rule for cores and memory: not known, surely not free
        return max(float(gpus), *shares, 0.0) or None
    if charge.per == "core_hour":
        return float(cores)
    if exclusive:
        return 1.0
    parts = [
        *([gpus / kind.gpus.per_node] if kind.gpus else []),
        *([cores / kind.cores] if kind.cores else []),
        *([memory_mib / kind.memory_usable] if kind.memory_usable else []),
    ]
    return max(parts) if parts else None
