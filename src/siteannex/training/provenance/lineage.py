"""The chain of checkpoints that led to one, back to the beginning, by the side-cars. Pure, but for finding the one."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from siteannex.failures import fail
from siteannex.training.epoch.checkpoints import SIDECAR
from siteannex.training.epoch.files import digest
from siteannex.training.epoch.recorder import is_loss
from siteannex.training.provenance.files import Car, read_cars
from siteannex.training.sidecar import SideCar


@dataclass(frozen=True, slots=True)
class Link:
    """One checkpoint of the chain."""

    file: str
    sha256: str
    stage: str
    epoch: int
    complete: bool
    step: int | None
    site: str | None
    targeted_site: str | None
    host: str
    gpus: tuple[str, ...]
    node: str
    retry: int
    start: int
    job: str | None
    """cluster.proc."""
    metric: str | None
    value: Any
    seconds: float
    written: datetime
    present: bool
    """Whether the checkpoint's file is there still."""


@dataclass(frozen=True, slots=True)
class Lineage:
    """The newest first. `origin` says where the chain begins; `lost` where it ends too early."""

    links: tuple[Link, ...]
    origin: str
    lost: str


def gpus_of(car: SideCar) -> tuple[str, ...]:
    """Models, as the node tells them, else the slot's ad."""
    return tuple(gpu.model or gpu.uuid for gpu in car.where.gpus or car.where.advertised_gpus)


def loss_of(car: SideCar, metric: str | None) -> str | None:
    """The metric to show: the one asked for, else val_loss, else the first loss."""
    names = car.training.metrics
    if metric is not None or "val_loss" in names:
        return metric or "val_loss"
    return next((name for name in sorted(names) if is_loss(name, "loss")), None)


def lineage(start: Car, cars: Sequence[Car], present: frozenset[str], metric: str | None) -> Lineage:
    """Follow the digests of what was really loaded; `present` are the names of checkpoints that are there."""
    links: list[Link] = []
    passed = set[str]()
    car = start
    while True:
        said, parent = car.said, car.said.parent
        links.append(_link(car, present, metric))
        passed.add(said.checkpoint.sha256)
        if parent.kind == "none":
            return Lineage(tuple(links), "trained from nothing", "")
        if parent.kind == "initial":
            return Lineage(tuple(links), f"trained from {parent.file} (sha256 {parent.sha256})", "")
        told = f"its parent {parent.file} (sha256 {parent.sha256})"
        if parent.sha256 in passed:
            return Lineage(tuple(links), "", f"{told} is its own descendant")
        known = [each for each in cars if each.said.checkpoint.sha256 == parent.sha256]
        if not known:
            return Lineage(tuple(links), "", f"no side-car here is of {told}")
        car = next((each for each in known if each.said.checkpoint.file == parent.file), known[0])


def _link(car: Car, present: frozenset[str], metric: str | None) -> Link:
    said = car.said
    job, name = said.attempt.job, loss_of(said, metric)
    kept_for_lineage = car.name != said.checkpoint.file + SIDECAR
    return Link(
        file=said.checkpoint.file,
        sha256=said.checkpoint.sha256,
        stage=said.run.stage,
        epoch=said.epoch,
        complete=said.checkpoint.complete,
        step=said.checkpoint.step,
        site=said.where.site,
        targeted_site=said.where.targeted_site,
        host=said.where.host,
        gpus=gpus_of(said),
        node=said.attempt.node,
        retry=said.attempt.retry,
        start=said.attempt.start,
        job=None if job.cluster is None else f"{job.cluster}.{job.proc or 0}",
        metric=name,
        value=said.training.metrics.get(name) if name else None,
        seconds=said.training.seconds,
        written=said.written,
        present=said.checkpoint.file in present and not kept_for_lineage,
    )


def find(path: Path) -> tuple[Car, list[Car], frozenset[str]]:
    """A checkpoint's side-car, all of its run, and the files that are there.

    `path` is a checkpoint (there or pruned), its side-car, or another name of one (last.ckpt), known by its digest.
    AnnexError(checkpoint-unknown).
    """
    folder = path.parent
    if not any(folder.glob("*" + SIDECAR)) and (folder / "checkpoints").is_dir():
        folder = folder / "checkpoints"
    cars, unreadable = read_cars(folder)
    present = frozenset(each.name for each in folder.glob("*") if each.is_file())
    name = path.name.removesuffix(SIDECAR) + SIDECAR
    for car in cars:
        if car.name == name:
            return car, cars, present
    for broken in unreadable:
        if broken.where == f"checkpoints/{name}":
            raise fail("checkpoint-unknown", "", f"{path.name}: its side-car is {broken.text}")
    if path.is_file():
        found = digest(path)
        for car in cars:
            if car.said.checkpoint.sha256 == found:
                return car, cars, present
        raise fail("checkpoint-unknown", "", f"no side-car in {folder} is of {path.name} (sha256 {found})")
    raise fail("checkpoint-unknown", "", f"there is no checkpoint and no side-car of the name {path}")
