"""What an experiment comes to: runs, epochs and jobs by site, GPU-hours at most, annexes needed. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from siteannex.training.experiment import Experiment
from siteannex.training.places import ANY, Target
from siteannex.training.render import nodes
from siteannex.training.runs import node_count, points, run_count, runs


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
    """Of each job."""
    cap: int | None
    gpu_hours_ceiling: float | None
    """If every job took its whole walltime once; None without `walltime:`."""


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
    annexes: Mapping[str, str]
    """Annex name -> site file, of those that jobs need (under `policy: any`: may use)."""

    @property
    def gpu_hours_ceiling(self) -> float | None:
        """Of all sites; None when any is unknown."""
        ceilings = [share.gpu_hours_ceiling for share in self.shares if share.jobs]
        return round(sum(each for each in ceilings if each is not None), 3) if None not in ceilings else None


def matrix(experiment: Experiment, targets: Mapping[str, Target]) -> Matrix:
    """Count every node where it will go. Evaluation and preparation jobs count as jobs, not as epochs."""
    jobs: Counter[str] = Counter()
    epochs: Counter[str] = Counter()
    at: Counter[str] = Counter()
    seconds: Counter[str] = Counter()
    open_ended: set[str] = set()
    works = experiment.works()
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
        at.update(seen)
    shares = [
        SiteShare(
            site=key,
            annex=target.names.get("annex") if target.annex is not None else None,
            runs=at[key],
            jobs=jobs[key],
            epochs=epochs[key],
            gpus=target.gpus,
            cap=target.cap,
            gpu_hours_ceiling=None if key in open_ended else round(seconds[key] / 3600 * target.gpus, 3),
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
        annexes=annexes_of(experiment, {key: target for key, target in targets.items() if jobs[key] or jobs[ANY]}),
    )


def annexes_of(experiment: Experiment, targets: Mapping[str, Target]) -> dict[str, str]:
    """Annex name -> site file, of the sites of an experiment that have one."""
    places = experiment.sites
    return {
        target.names["annex"]: places[key].site or key
        for key, target in targets.items()
        if "annex" in target.names and key in places
    }


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
        "annexes": dict(found.annexes),
    }
