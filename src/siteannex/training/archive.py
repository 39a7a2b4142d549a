"""Finished runs go to an archive: copied, compared byte for byte, noted there and here, and only then removed here.

What is removed are checkpoints; side-cars, events and logs stay, so that reports and rescue DAGs still know all.
Killed at any point nothing is lost: a file has its name in the archive only once it was compared, a checkpoint goes
only after the archive's own list of files is on disk, and the same command goes on from whatever is there.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from siteannex.errors import Evidence
from siteannex.failures import fail
from siteannex.training.epoch.checkpoints import Checkpoint, fault, scan
from siteannex.training.prune import Keep, to_keep

LIST, MARK = "archive.json", "archived.json"
"""The list of files in a run's archive; what is left in the run's directory to say where they are."""
VERSION = 1
_BLOCK = 1 << 20
Step = Callable[[str], None]
"""Told before each change, so that a screen can show it and a test can kill there."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Which runs, which of their checkpoints, and whether these are removed here."""

    keep: Keep | None = None
    """Only what this would keep is archived; None: every checkpoint."""
    older_than_s: float = 0.0
    """Runs whose last checkpoint is at least so old."""
    remove: bool = True


@dataclass(frozen=True, slots=True)
class Chain:
    """What a run must have to be finished, by the manifest."""

    run_name: str
    run_id: str
    last_epochs: Mapping[str, int]
    """Stage -> its last epoch."""


@dataclass(frozen=True, slots=True)
class Archived:
    """What was done with one run."""

    run: str
    copied: int = 0
    copied_bytes: int = 0
    removed: tuple[str, ...] = ()
    freed_bytes: int = 0
    skipped: str = ""
    """Why nothing was done, or empty."""
    doubts: tuple[str, ...] = ()
    """Checkpoints left alone because they are not what their side-cars say."""


def read_manifest(path: Path) -> list[Chain]:
    """Every run of an experiment. AnnexError(archive-impossible) without a readable manifest."""
    found: dict[str, tuple[str, dict[str, int]]] = {}
    try:
        for line in path.read_text(encoding="utf-8").splitlines():
            node = json.loads(line)
            if node.get("stage") in ("train", "finetune"):
                _, epochs = found.setdefault(node["run_name"], (node["run_id"], {}))
                epochs[node["stage"]] = max(epochs.get(node["stage"], 0), int(node["epoch"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        seen = [Evidence(str(path), str(problem))]
        what = "which runs are finished is not known without the experiment's manifest"
        raise fail("archive-impossible", path.name.partition(".")[0], what, evidence=seen) from problem
    return [Chain(name, run_id, epochs) for name, (run_id, epochs) in found.items()]


def unfinished(chain: Chain, run: Path) -> str:
    """Why a run is not finished, or empty."""
    if not (run / "checkpoints").is_dir():
        return "nothing came back yet"
    known = scan(run / "checkpoints")
    if any(one.sidecar["run"].get("id") != chain.run_id for one in known):
        return "its checkpoints belong to another run: the experiment was changed"
    done = {(one.stage, one.epoch) for one in known if one.complete}
    for stage, last in chain.last_epochs.items():
        if (stage, last) not in done and not (run / "checkpoints" / f"stopped-{stage}.json").exists():
            return f"{stage} has not finished epoch {last}"
    return ""


def archive(folder: Path, to: Path, policy: Policy, step: Step = lambda _: None) -> Iterator[Archived]:
    """Archive every finished run of the results directory `folder` (`NAME/`) under `to`/NAME, one after the other.

    Raises AnnexError: archive-impossible, archive-differs; OSError when the archive cannot be written.
    """
    chains = read_manifest(folder.with_name(f"{folder.name}.manifest.jsonl"))
    target = to.resolve() / folder.name
    if target.is_relative_to(folder.resolve()) or folder.resolve().is_relative_to(target):
        raise fail("archive-impossible", folder.name, f"{to} and {folder} are one place, or one lies in the other")
    for chain in chains:
        run = folder / chain.run_name
        why = unfinished(chain, run) or _too_young(run, policy)
        yield Archived(chain.run_name, skipped=why) if why else _one(chain, run, target / chain.run_name, policy, step)


def _too_young(run: Path, policy: Policy) -> str:
    newest = max((path.stat().st_mtime for path in (run / "checkpoints").iterdir()), default=0.0)
    return "too young" if policy.older_than_s and time.time() - newest < policy.older_than_s else ""


def _one(chain: Chain, run: Path, target: Path, policy: Policy, step: Step) -> Archived:
    present = [one for one in scan(run / "checkpoints") if one.path.exists()]
    judged = [(one, fault(one)) for one in present]
    sound = [one for one, wrong in judged if not wrong]
    wanted = [one for one in sound if policy.keep is None or one.path in to_keep(sound, policy.keep)]
    listed = _listed(target, chain)
    copied = copied_bytes = 0
    for path in _files(run, present, wanted):
        name = str(path.relative_to(run))
        summed, moved = _copy(path, target / name, step)
        listed[name] = {"sha256": summed, "bytes": path.stat().st_size}
        copied += moved
        copied_bytes += path.stat().st_size if moved else 0
    _as_said(wanted, run, listed)
    step(f"list {target}")
    _write(target / LIST, {"v": VERSION, "run": chain.run_name, "run_id": chain.run_id, "files": listed})
    removed = _remove(wanted, run, target, step) if policy.remove else []
    return Archived(
        run=chain.run_name,
        copied=copied,
        copied_bytes=copied_bytes,
        removed=tuple(one.path.name for one in removed),
        freed_bytes=sum(int(one.sidecar["checkpoint"]["bytes"]) for one in removed),
        doubts=tuple(f"{one.path.name}: {wrong}" for one, wrong in judged if wrong),
    )


def _files(run: Path, present: Sequence[Checkpoint], wanted: Sequence[Checkpoint]) -> list[Path]:
    """Everything of the run but checkpoints that are not wanted, their other names, and unfinished writes."""
    left_out = {one.path for one in present if one not in wanted}
    found = []
    for path in sorted(run.rglob("*")):
        other_name = path.name == "last.ckpt" and path.parent == run
        ours = path.name in (MARK, f".{MARK}.part") or path.name.endswith((".damaged", ".partial"))
        if path.is_file() and not path.is_symlink() and path not in left_out and not other_name and not ours:
            found.append(path)
    return found


def _copy(source: Path, target: Path, step: Step) -> tuple[str, bool]:
    """Copy a file unless it is there already, byte for byte; its sha256, and whether it was copied."""
    if target.exists() and target.stat().st_size == source.stat().st_size:
        summed = _sum(source)
        if _sum(target) == summed:
            return summed, False
    step(f"copy {source.name}")
    target.parent.mkdir(parents=True, exist_ok=True)
    rough = target.with_name(f".{target.name}.part")
    digest = hashlib.sha256()
    with source.open("rb") as read, rough.open("wb") as write:
        while block := read.read(_BLOCK):
            digest.update(block)
            write.write(block)
        write.flush()
        os.fsync(write.fileno())
    step(f"compare {source.name}")
    if (arrived := _sum(rough)) != digest.hexdigest():
        seen = [Evidence(str(rough), f"sha256 {arrived}, not {digest.hexdigest()}")]
        rough.unlink()
        what = f"{source.name} arrived in the archive as something else"
        raise fail("archive-differs", source.name, what, evidence=seen)
    step(f"name {target.name}")
    rough.replace(target)
    _settle(target.parent)
    return digest.hexdigest(), True


def _as_said(wanted: Sequence[Checkpoint], run: Path, listed: Mapping[str, Any]) -> None:
    """What was copied is what the side-cars say: a checkpoint may have changed between the two looks."""
    for one in wanted:
        arrived = listed[str(one.path.relative_to(run))]["sha256"]
        if arrived != one.sidecar["checkpoint"]["sha256"]:
            seen = [Evidence(str(one.path), f"sha256 {arrived}, not {one.sidecar['checkpoint']['sha256']}")]
            what = f"{one.path.name} changed while it was copied"
            raise fail("archive-differs", run.name, what, evidence=seen)


def _remove(wanted: Sequence[Checkpoint], run: Path, target: Path, step: Step) -> list[Checkpoint]:
    if not wanted:
        return []
    step("mark")
    _write(run / MARK, {"v": VERSION, "archive": str(target), "list": LIST})
    newest = run / "last.ckpt"
    if newest.exists() and any(newest.samefile(one.path) for one in wanted):
        newest.unlink()
    for one in wanted:
        step(f"remove {one.path.name}")
        one.path.unlink()
    return list(wanted)


def _listed(target: Path, chain: Chain) -> dict[str, Any]:
    """What an earlier archiving of this very run has listed. AnnexError when the place holds another run."""
    try:
        data = json.loads((target / LIST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as problem:
        seen = [Evidence(str(target / LIST), str(problem))]
        what = f"{target} has a list of files that cannot be read"
        raise fail("archive-impossible", chain.run_name, what, evidence=seen) from problem
    if data.get("run_id") != chain.run_id:
        seen = [Evidence(str(target / LIST), f"run_id {data.get('run_id')}, not {chain.run_id}")]
        raise fail("archive-impossible", chain.run_name, f"{target} holds another run", evidence=seen)
    return dict(data["files"])


def _write(path: Path, data: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rough = path.with_name(f".{path.name}.part")
    with rough.open("w", encoding="utf-8") as file:
        json.dump(data, file, indent=1, sort_keys=True)
        file.flush()
        os.fsync(file.fileno())
    rough.replace(path)
    _settle(path.parent)


def _settle(folder: Path) -> None:
    """A new name is on disk when its directory is."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sum(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
