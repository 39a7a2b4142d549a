"""What an experiment comes to: runs, epochs and jobs by site, GPU-hours at most, annexes needed. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from siteannex.training.experiment.model import Experiment
from siteannex.training.experiment.places import ANY, Target
from siteannex.training.experiment.runs import node_count, points, run_count, runs
from siteannex.training.rendering.descriptions import requested_cpus, requested_gpus, requested_memory_mib
from siteannex.training.rendering.render import nodes


@dataclass(frozen=True, slots=True)
class SiteShare:
    """One site's part."""

    site: str
    annex: str | None
    """The annex it needs, None for pools that need none."""
    runs: int
    """Training runs with at least one job there."""
    jobs: int
    """Jobs of every kind."""
    epochs: int
    gpus: int
    """Of each training job."""
    cap: int | None
    job_hours_ceiling: float | None
    """If every job took its whole walltime once; None without `walltime:`."""
    gpu_hours_ceiling: float | None


@dataclass(frozen=True, slots=True)
class AnnexNeed:
    """What an experiment's training jobs want of one annex."""

    site: str
    """The site file."""
    gpus: int
    """Of each job."""
    cpus: int | None
    memory_mib: int | None
    at_once: int
    """Jobs that could run there at the same time."""
    walltime_s: int | None
    gpu_memory_mib: int | None = None
    gpu_capability: float | None = None

    def command(self, annex: str) -> str:
        """`siteannex up` for all of them at once, as long as two epochs take; smaller is fine, they take turns."""
        name = "" if annex == self.site else f" --name {annex}"
        size = f" --gpus {self.gpus * self.at_once}" if self.gpus else f" --cpus {(self.cpus or 1) * self.at_once}"
        hours = -(-2 * self.walltime_s // 3600) if self.walltime_s else 4
        return f"siteannex up {self.site}{name}{size} --lifetime {hours}h"


@dataclass(frozen=True, slots=True)
class Matrix:
    """The whole experiment."""

    name: str
    points: int
    runs: int
    epochs_per_run: int
    nodes: int
    retries: int
    shares: tuple[SiteShare, ...]
    annexes: Mapping[str, AnnexNeed]
    """By annex name, those that jobs need (under `policy: any`: may use)."""

    @property
    def gpu_hours_ceiling(self) -> float | None:
        """Of all sites; None when any is unknown."""
        ceilings = [share.gpu_hours_ceiling for share in self.shares if share.jobs]
        return round(sum(each for each in ceilings if each is not None), 3) if None not in ceilings else None


def matrix(experiment: Experiment, targets: Mapping[str, Target]) -> Matrix:
    """Count every node where it will go. Evaluation and preparation jobs count as jobs, not as epochs."""
    works = experiment.works()
    jobs: Counter[str] = Counter()
    epochs: Counter[str] = Counter()
    at: Counter[str] = Counter()
    seconds: Counter[str] = Counter()
    gpu_seconds: Counter[str] = Counter()
    asked = {
        (stage, key): requested_gpus(experiment, stage, target) for stage in works for key, target in targets.items()
    }
    open_ended: set[str] = set()
    for run in runs(experiment):
        seen = set()
        for node in nodes(experiment, run):
            jobs[node.site] += 1
            seen.add(node.site)
            if node.stage in experiment.chains():
                epochs[node.site] += node.epoch - node.first_epoch + 1
            walltime = works[node.stage].walltime
            if walltime is None:
                open_ended.add(node.site)
            seconds[node.site] += walltime or 0
            gpu_seconds[node.site] += (walltime or 0) * asked[node.stage, node.site]
        at.update(seen)
    shares = [
        SiteShare(
            site=key,
            annex=target.names.get("annex") if target.annex is not None else None,
            runs=at[key],
            jobs=jobs[key],
            epochs=epochs[key],
            gpus=asked["train", key],
            cap=target.cap,
            job_hours_ceiling=None if key in open_ended else round(seconds[key] / 3600, 3),
            gpu_hours_ceiling=None if key in open_ended else round(gpu_seconds[key] / 3600, 3),
        )
        for key, target in targets.items()
        if jobs[key] or experiment.policy != "any"
    ]
    return Matrix(
        name=experiment.name,
        points=0 if experiment.runs else points(experiment),
        runs=run_count(experiment),
        epochs_per_run=sum(chain.epochs for chain in experiment.chains().values()),
        nodes=node_count(experiment),
        retries=experiment.retries,
        shares=tuple(shares),
        annexes=annex_needs(experiment, {key: each for key, each in targets.items() if jobs[key] or jobs[ANY]}, at),
    )


def annex_needs(
    experiment: Experiment, targets: Mapping[str, Target], runs_there: Mapping[str, int]
) -> dict[str, AnnexNeed]:
    """Annex name -> what it is needed for, of the sites that have one. `runs_there`: by site, `any` for the rest."""
    found = {}
    for key, target in targets.items():
        place = experiment.sites.get(key)
        if place is not None and "annex" in target.names:
            most = runs_there.get(key) or runs_there.get(ANY, 1)
            found[target.names["annex"]] = AnnexNeed(
                site=place.site or key,
                gpus=requested_gpus(experiment, "train", target),
                cpus=requested_cpus(experiment, "train", target) or place.cpus,
                memory_mib=requested_memory_mib(experiment, "train", target) or place.memory,
                gpu_memory_mib=place.gpu_memory,
                gpu_capability=place.gpu_capability,
                at_once=min(target.cap or most, most),
                walltime_s=experiment.train.walltime,
            )
    return found


def as_data(found: Matrix) -> dict[str, Any]:
    """As JSON."""
    return {
        "name": found.name,
        "points": found.points,
        "runs": found.runs,
        "epochs_per_run": found.epochs_per_run,
        "nodes": found.nodes,
        "retries": found.retries,
        "gpu_hours_ceiling": found.gpu_hours_ceiling,
        "sites": [{field: getattr(share, field) for field in share.__dataclass_fields__} for share in found.shares],
        "annexes": {name: {**asdict(need), "command": need.command(name)} for name, need in found.annexes.items()},
    }
