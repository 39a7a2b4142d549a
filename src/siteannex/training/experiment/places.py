"""Where jobs go: what binds a job to a site, and which site each job of a run gets. Pure."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from siteannex.model import StagedCopy
from siteannex.training.experiment.model import Experiment, Place, Sticky
from siteannex.training.experiment.runs import Run

ANY = "any"
"""The site key of jobs that go wherever they match."""


@dataclass(frozen=True, slots=True)
class KnownSite:
    """What a site file says that binds jobs: it can have annexes, or jobs reach it by requirements and lines."""

    annexes: bool
    requirements: str | None = None
    job_lines: tuple[str, ...] = ()


Lookup = Callable[[str], KnownSite | None]
"""A site file by name."""


@dataclass(frozen=True, slots=True)
class Target:
    """A site as jobs are bound to it."""

    key: str
    annex: str | None
    """TargetAnnexName as a ClassAd expression, None for pools without annexes."""
    requirement: str | None
    """The clause that must hold of the slot; None only where any slot will do."""
    lines: tuple[str, ...]
    """More submit lines a job needs there."""
    names: Mapping[str, str]
    """What `{site.NAME}` stands for."""
    weight: int = 1
    cap: int | None = None
    staged: Mapping[str, StagedCopy] = field(default_factory=dict)
    """Inputs named in `staged:` that have a copy at this site, by their names in the experiment file."""


class UnknownSiteError(Exception):
    """A key of `sites` that nothing binds; the text says what to write."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(text)
        self.key = key


def targets(experiment: Experiment, lookup: Lookup, names: list[str]) -> dict[str, Target]:
    """Every site of the experiment; under `policy: any` also the one that is all of them.

    `names` are the known site files, for the nearest one. Raises UnknownSiteError.
    """
    found = {key: _target(key, place, lookup, names) for key, place in experiment.sites.items()}
    return {**found, ANY: _anywhere(found)} if experiment.policy == "any" else found


def _target(key: str, place: Place, lookup: Lookup, names: list[str]) -> Target:
    annex, requirement, lines = place.annex, place.requirements, tuple[str, ...]()
    if place.resource is not None:
        requirement = f'TARGET.GLIDEIN_ResourceName == "{place.resource}"'
    elif annex is None and requirement is None:
        file = place.site or key
        known = lookup(file)
        if known is None:
            near = difflib.get_close_matches(file, names, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise UnknownSiteError(
                key, f"no site file {file!r}; {hint}or write annex:, resource: or requirements: below it"
            )
        annex = key if known.annexes else None
        requirement, lines = known.requirements, known.job_lines
    if annex is not None:
        requirement = f'TARGET.AnnexName == "{annex}"'
    return Target(
        key=key,
        annex=f'"{annex}"' if annex is not None else None,
        requirement=requirement,
        lines=lines,
        names=_names(key, place, annex),
        weight=place.weight,
        cap=place.cap,
    )


def _names(key: str, place: Place, annex: str | None) -> dict[str, str]:
    sizes = {"memory": place.memory, "disk": place.disk, "gpu_memory": place.gpu_memory}
    numbers = {"cpus": place.cpus, "gpus": place.gpus, "gpu_capability": place.gpu_capability}
    return {
        "name": key,
        **({"annex": annex} if annex is not None else {}),
        **({"resource": place.resource} if place.resource is not None else {}),
        **{name: _size(mib) for name, mib in sizes.items() if mib is not None},
        **{name: f"{number:g}" for name, number in numbers.items() if number is not None},
        **{name: value.text for name, value in place.values.items()},
    }


def _size(mib: int) -> str:
    return f"{mib // 1024}GB" if mib % 1024 == 0 else f"{mib}MB"


def _anywhere(found: Mapping[str, Target]) -> Target:
    """All sites as one. An annex wants to be named by the job: the job names whichever of these it is looking at."""
    annexes = ", ".join(target.annex for target in found.values() if target.annex is not None)
    clauses = [target.requirement for target in found.values()]
    shared = {
        name: text
        for name, text in next(iter(found.values())).names.items()
        if all(target.names.get(name) == text for target in found.values())
    }
    return Target(
        key=ANY,
        annex=f"IfThenElse(member(TARGET.AnnexName, {{{annexes}}}), TARGET.AnnexName, undefined)" if annexes else None,
        requirement=None if None in clauses else " || ".join(f"({clause})" for clause in clauses),
        lines=tuple(dict.fromkeys(line for target in found.values() for line in target.lines)),
        names={**shared, "name": ANY},
    )


KEYS = ("name", "annex", "resource", "cpus", "gpus", "memory", "disk", "gpu_memory", "gpu_capability")
"""Names of `{site.NAME}` that every site may have."""


def route(experiment: Experiment, run: Run) -> Iterator[str]:
    """The site of each job of a run's chain, without end; the stages share one chain."""
    if run.sites:
        yield from run.sites
        return
    policy, places = experiment.policy, _weighted(experiment.sites)
    if policy == "any":
        while True:
            yield ANY
    if policy == "fixed":
        turn, at = divmod(run.index, len(places))
        site = _shuffled(experiment, places, f"fixed {turn}")[at]
        while True:
            yield site
    stay = max(1, policy.sticky // experiment.train.epochs_per_job) if isinstance(policy, Sticky) else 1
    turn = 0
    while True:
        order = places if policy == "ordered" else _shuffled(experiment, places, f"run {run.index} {turn}")
        for site in order:
            for _ in range(stay):
                yield site
        turn += 1


def _weighted(sites: Mapping[str, Place]) -> list[str]:
    return [key for key, place in sites.items() for _ in range(place.weight)]


def _shuffled(experiment: Experiment, places: list[str], what: str) -> list[str]:
    """A permutation that depends on the seed and nothing else: sorted by hash. A site of weight 2 is there twice."""
    start = hashlib.sha256(f"{experiment.name}\n{experiment.seed}\n{what}\n".encode())

    def rank(at: int) -> bytes:
        each = start.copy()
        each.update(b"%d" % at)
        return each.digest()

    return [places[at] for at in sorted(range(len(places)), key=rank)]
