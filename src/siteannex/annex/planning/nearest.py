"""When a request fits nowhere at a site: the nearest ones that do, one option changed at a time. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from siteannex.model import Request
from siteannex.site.schema import Site
from siteannex.units import write_duration, write_memory


def nearest_requests(asked: Request, fits: Callable[[Request], bool], site: Site) -> tuple[str, ...]:
    """The changed options, as they are typed: `--gpus 12`, of each option the nearest. Empty: one change is too few."""
    found: dict[str, str] = {}
    for words, changed in _changes(asked, fits, site):
        option = words.partition(" ")[0]
        if option not in found and fits(changed):
            found[option] = words
    return tuple(found.values())


def _changes(asked: Request, fits: Callable[[Request], bool], site: Site) -> Iterator[tuple[str, Request]]:
    most = min(asked.gpus - 1, _gpus_in_all(site))
    fewer = next((count for count in range(most, 0, -1) if fits(replace(asked, gpus=count))), None)
    if fewer is not None:
        yield f"--gpus {fewer}", replace(asked, gpus=fewer)
    if asked.gpus_per_pilot is not None:
        yield "leave out --gpus-per-pilot", replace(asked, gpus_per_pilot=None)
    if asked.nodes is not None:
        yield "leave out --nodes", replace(asked, nodes=None)
    if (longest := _longest(asked, fits, site)) is not None:
        yield f"--lifetime {write_duration(longest)}", replace(asked, lifetime_s=longest)
    if asked.cpus is not None:
        sizes = _under(asked.cpus, _cores(site))
        yield from ((f"--cpus {size}", replace(asked, cpus=size)) for size in sizes)
    if asked.memory_mib is not None:
        sizes = _sizes_under(asked.memory_mib, _memories(site))
        yield from ((f"--mem {write_memory(size)}", replace(asked, memory_mib=size)) for size in sizes)
    if asked.gpu_memory_mib is not None:
        sizes = _sizes_under(asked.gpu_memory_mib, _gpu_memories(site))
        yield from ((f"--gpu-memory {write_memory(size)}", replace(asked, gpu_memory_mib=size)) for size in sizes)
    if asked.gpu_type is not None:
        for kind in sorted({kind.gpus.type for part in site.partitions.values() for kind in part.nodes if kind.gpus}):
            yield f"--gpu-type {kind}", replace(asked, gpu_type=kind)
    if asked.partition is not None:
        for name in site.partitions:
            yield f"--partition {name}", replace(asked, partition=name)
    if not asked.preemptible:
        yield "--preemptible", replace(asked, preemptible=True)


def _longest(asked: Request, fits: Callable[[Request], bool], site: Site) -> int | None:
    limits = {part.max_walltime for part in site.partitions.values() if part.max_walltime is not None}
    shorter = sorted((limit for limit in limits if limit < asked.lifetime_s), reverse=True)
    return next((limit for limit in shorter if fits(replace(asked, lifetime_s=limit))), None)


def _under(asked: int, known: set[int]) -> list[int]:
    """The counts smaller than the one asked, largest first."""
    return sorted((size for size in known if size < asked), reverse=True)


def _sizes_under(asked: int, known: set[int]) -> list[int]:
    """As `_under`, in whole GB as people ask."""
    return _under(asked, {size // 1024 * 1024 or size for size in known})


def _gpus_in_all(site: Site) -> int:
    """The most GPUs that the nodes of one kind have; where nobody counted them, a thousand nodes of them."""
    kinds = (kind for part in site.partitions.values() for kind in part.nodes if kind.gpus)
    return max(((kind.count or 1000) * kind.gpus.per_node for kind in kinds if kind.gpus), default=0)


def _cores(site: Site) -> set[int]:
    return {kind.cores for part in site.partitions.values() for kind in part.nodes if kind.cores is not None}


def _memories(site: Site) -> set[int]:
    kinds = (kind for part in site.partitions.values() for kind in part.nodes)
    return {kind.memory_usable for kind in kinds if kind.memory_usable is not None}


def _gpu_memories(site: Site) -> set[int]:
    gpus = (kind.gpus for part in site.partitions.values() for kind in part.nodes if kind.gpus)
    return {size for each in gpus if (size := each.memory_nominal or each.memory_floor) is not None}
