"""What a training run left on the AP, read for `siteannex provenance`: side-cars, events, digests."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from siteannex.training.epoch.checkpoints import SIDECAR
from siteannex.training.epoch.files import digest
from siteannex.training.provenance.events import FILE, AttemptLog, Break, read_log
from siteannex.training.provenance.merged import NAME, Merged, read_merged
from siteannex.training.sidecar import SideCar

METRICS = ".metrics.jsonl"


@dataclass(frozen=True, slots=True)
class Car:
    """A side-car: the name of its file, what its schema reads in it, and the same as plain JSON."""

    name: str
    said: SideCar
    raw: dict[str, Any]

    @property
    def where(self) -> str:
        """The file."""
        return f"checkpoints/{self.name}"


@dataclass(frozen=True, slots=True)
class Found:
    """A checkpoint's file: its size in bytes and its sha256."""

    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class RunFiles:
    """All of one training run's directory that provenance is about."""

    name: str
    cars: tuple[Car, ...]
    unreadable: tuple[Break, ...]
    logs: tuple[AttemptLog, ...]
    metrics: dict[str, list[dict[str, Any]]]
    """Rows the training command wrote, by the name of the attempt's file."""
    found: dict[str, Found]
    """The checkpoints that are there, of those a side-car describes."""
    last: Found | None
    """`last.ckpt` of the run's directory."""
    sums: dict[str, str]
    """sha256 of every side-car and metrics file, by its path below the run's directory."""
    merged: Merged | None
    """None when nothing was merged yet."""


def run_directories(directory: Path) -> list[Path]:
    """`directory` itself, when it is a run's, else those below it. An experiment's has attempts of its own when one job
    prepared the data of all runs."""
    if (directory / "checkpoints").is_dir():
        return [directory]
    below = {path.parent for depth in ("*", "*/*") for path in directory.glob(f"{depth}/*") if is_run(path.parent)}
    own = is_run(directory) and (not below or any((directory / "attempts").iterdir()))
    return [*([directory] if own else []), *sorted(below)]


def is_run(directory: Path) -> bool:
    """Whether the epoch runner has worked there."""
    return (directory / "checkpoints").is_dir() or (directory / "attempts").is_dir()


def name_in(directory: Path, run: Path) -> str:
    """What to call a run that was found in `directory`."""
    return run.resolve().name if run == directory else str(run.relative_to(directory))


def read_run(directory: Path, name: str, *, measure: bool = True) -> RunFiles:
    """Read a run's directory, every checkpoint that is there to its last byte unless `measure` is off. OSError."""
    folder = directory / "checkpoints"
    cars, unreadable = read_cars(folder)
    logs, metrics = [], {}
    for path in sorted((directory / "attempts").glob("*" + FILE)):
        logs.append(read_log(path.name, path.read_bytes().decode(errors="replace")))
        rows = path.with_name(path.name.removesuffix(FILE) + METRICS)
        if rows.is_file():
            metrics[path.name] = _rows(rows.read_bytes().decode(errors="replace"))
    found: dict[str, Found] = {}
    last = directory / "last.ckpt"
    told = None
    for file in sorted({car.said.checkpoint.file for car in cars} if measure else ()):
        if Path(file).name == file and (folder / file).is_file():
            found[file] = _measured(folder / file)
    if measure and last.is_file():
        same = [file for file in found if (folder / file).samefile(last)]
        told = found[same[0]] if same else _measured(last)
    return RunFiles(
        name, tuple(cars), tuple(unreadable), tuple(logs), metrics, found, told, _sums(directory), _merged(directory)
    )


def read_cars(folder: Path) -> tuple[list[Car], list[Break]]:
    """Every side-car of a directory of checkpoints, and what is wrong with those that are not what the schema says."""
    cars, unreadable = [], []
    for path in sorted(folder.glob("*" + SIDECAR)):
        text = path.read_bytes()
        try:
            cars.append(Car(path.name, SideCar.model_validate_json(text, strict=True), json.loads(text)))
        except ValidationError as problem:
            told = "; ".join(_shown(each["loc"], each["msg"]) for each in _first(problem))
            unreadable.append(Break("sidecar-invalid", f"checkpoints/{path.name}", f"not what its schema says: {told}"))
    return cars, unreadable


def _first(problem: ValidationError) -> Sequence[Any]:
    return problem.errors(include_url=False, include_input=False)[:3]


def _shown(place: Sequence[int | str], text: str) -> str:
    return ": ".join(filter(None, (".".join(map(str, place)), text)))


def _measured(path: Path) -> Found:
    return Found(path.stat().st_size, digest(path))


def _rows(text: str) -> list[dict[str, Any]]:
    rows = []
    for line in text.splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows


def _sums(directory: Path) -> dict[str, str]:
    patterns = (f"checkpoints/*{SIDECAR}", f"attempts/*{METRICS}")
    paths = [path for pattern in patterns for path in directory.glob(pattern)]
    return {str(path.relative_to(directory)): digest(path) for path in paths}


def _merged(directory: Path) -> Merged | None:
    path = directory / NAME
    return read_merged(path.read_bytes().decode(errors="replace")) if path.is_file() else None


def write_merged(directory: Path, text: str) -> None:
    """Put the merged file in place, whole or not at all. OSError."""
    partial = directory / f".{NAME}-{os.getpid()}"
    try:
        with partial.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(directory / NAME)
    finally:
        partial.unlink(missing_ok=True)
