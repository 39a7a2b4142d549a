"""Whether what a training run left behind is what its attempts wrote: events, side-cars, lineage, epochs, bytes. Pure.

Breaks come in the order of cause: a damaged file first, then what no longer agrees with it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from siteannex.training.epoch.checkpoints import SIDECAR
from siteannex.training.provenance.attempts import loaded_and_trained, numbered, unended, without_metrics
from siteannex.training.provenance.events import Break, writings
from siteannex.training.provenance.files import Car, RunFiles
from siteannex.training.provenance.merge import since_the_merge
from siteannex.training.provenance.merged import NAME
from siteannex.training.provenance.run import Run, attempt_of, completed_again, name_of, replaced
from siteannex.training.provenance.sidecars import against_metrics, misnamed, sidecars_against_events, unlike


@dataclass(frozen=True, slots=True)
class Verdict:
    """Of one run. A doubt is what an honest run may show too."""

    run: str
    breaks: tuple[Break, ...]
    doubts: tuple[Break, ...]
    epochs: int
    """Finished ones, of all stages."""
    attempts: int
    sidecars: int
    compared: int
    """Checkpoints whose bytes were compared."""
    pruned: int
    """Side-cars of finished epochs whose checkpoint is gone."""
    merged: int
    """Entries of the merged file."""
    head: str
    """The hash of its last entry."""


def verify(runs: Sequence[RunFiles], head: str = "") -> list[Verdict]:
    """A verdict for each run; the others serve to name what was taken from them. `head`: see `verify_run`."""
    names: dict[str, dict[str, str]] = {}
    for files in runs:
        names[files.name] = {
            car.said.checkpoint.sha256: f"{car.said.checkpoint.file} of run {car.said.run.name} ({files.name})"
            for car in files.cars
        }
    verdicts = []
    for files in runs:
        others = {sha: text for name, each in names.items() if name != files.name for sha, text in each.items()}
        verdicts.append(verify_run(files, others, head))
    return verdicts


def verify_run(files: RunFiles, elsewhere: Mapping[str, str], head: str = "") -> Verdict:
    """`elsewhere` names checkpoints of other runs by their digest; `head` is how the merged file ended once."""
    owner = _owner(files)
    cars = tuple(car for car in files.cars if car.said.run.id == owner)
    logs = tuple(log for log in files.logs if log.head is None or log.head.run_id in ("", owner))
    run = Run(files, cars, logs, tuple(each for log in logs for each in writings(log)), elsewhere)
    breaks = [
        *(log.broken for log in files.logs if log.broken),
        *since_the_merge(files),
        *_without_head(files, head),
        *files.unreadable,
        *_strangers(files, owner),
        *numbered(run),
        *misnamed(run),
        *loaded_and_trained(run),
        *sidecars_against_events(run),
        *against_metrics(run),
        *unlike(run),
        *_missing_sidecars(run),
        *_lineage(run),
        *_epochs(run),
        *_bytes(run),
    ]
    cut, doubts = unended(run)
    finished = [car for car in cars if car.said.checkpoint.complete]
    return Verdict(
        files.name,
        (*breaks, *cut),
        (*doubts, *without_metrics(run)),
        epochs=len({(car.said.run.stage, car.said.epoch) for car in finished}),
        attempts=len(files.logs),
        sidecars=len(files.cars),
        compared=len(files.found),
        pruned=sum(car.said.checkpoint.file not in files.found for car in finished),
        merged=len(files.merged.entries) if files.merged else 0,
        head=files.merged.head if files.merged else "",
    )


def _without_head(files: RunFiles, head: str) -> Iterator[Break]:
    if head and not any(entry.hash == head for entry in (files.merged.entries if files.merged else ())):
        yield Break("merged-replaced", NAME, f"no entry in it has the hash {head}: it was cut, or written anew")


def _owner(files: RunFiles) -> str:
    """The run that the directory is of: the one that most of its files name."""
    ids = [log.head.run_id for log in files.logs if log.head and log.head.run_id]
    counted = Counter(ids + [car.said.run.id for car in files.cars])
    return min(counted, key=lambda each: (-counted[each], each), default="")


def _strangers(files: RunFiles, owner: str) -> Iterator[Break]:
    for car in files.cars:
        if car.said.run.id != owner:
            text = f"a checkpoint of run {car.said.run.name} ({car.said.run.id}); this directory is of run {owner}"
            yield Break("foreign-run", car.where, text)
    for log in files.logs:
        if log.head and log.head.run_id not in ("", owner):
            yield Break(
                "foreign-run", f"attempts/{log.name}", f"of run {log.head.run_id}; this directory is of {owner}"
            )


# What was trained twice, and what is gone


def _missing_sidecars(run: Run) -> Iterator[Break]:
    """Every end of an epoch that events tell of has its side-car, or an attempt tells why it was trained again."""
    unreadable = {each.where.removeprefix("checkpoints/") for each in run.files.unreadable}
    for writing in (each for each in run.written if each.get("complete")):
        name = f"{writing.get('file')}{SIDECAR}"
        here = [car for car in run.files.cars if car.name == name]
        again = completed_again(run, writing)
        if name in unreadable or any(car.raw["attempt"] == attempt_of(writing.log) for car in here):
            continue  # it is there, or it was told already what is wrong with it
        if again and replaced(run, writing):
            continue
        if here or again:
            text = f"epoch {writing.get('epoch')} was completed here and by another attempt, and none tells why"
            yield Break("epoch-twice", writing.where, text)
        else:
            text = f"the side-car of {writing.get('file')} (epoch {writing.get('epoch')}) is gone: {writing.where}"
            yield Break("sidecar-missing", f"checkpoints/{name}", text + " tells of it")


def _epochs(run: Run) -> Iterator[Break]:
    """Every epoch from 0 on has one side-car of its end."""
    done: dict[str, dict[int, list[Car]]] = {}
    old = {each.get("sha256") for each in run.written if each.get("complete") and replaced(run, each)}
    for car in (car for car in run.cars if car.said.checkpoint.complete):
        done.setdefault(car.said.run.stage, {}).setdefault(car.said.epoch, []).append(car)
    for stage, epochs in done.items():
        expected = 0
        for epoch, cars in sorted(epochs.items()):
            standing = [car for car in cars if car.said.checkpoint.sha256 not in old]
            if epoch > expected:
                gone = f"epoch {expected}" if epoch == expected + 1 else f"epochs {expected} to {epoch - 1}"
                yield Break("epoch-missing", "checkpoints", f"no side-car of {gone} of {stage}; later ones are there")
            expected = epoch + 1
            if len(cars) > 1 and len(standing) > 1:
                names = ", ".join(car.said.checkpoint.file for car in standing)
                yield Break("epoch-twice", standing[-1].where, f"epoch {epoch} of {stage} was completed by {names}")


# The chain of parents, and the bytes


def _lineage(run: Run) -> Iterator[Break]:
    for car in run.cars:
        parent = car.said.parent
        if parent.kind in ("none", "initial"):
            if (parent.sha256 is None) != (parent.kind == "none"):
                yield Break("parent-unknown", car.where, f"a parent of kind {parent.kind} and sha256 {parent.sha256}")
            continue
        cars = run.by_digest(parent.sha256)
        if not cars:
            lost = [each for each in run.written if each.get("sha256") == parent.sha256]
            if any(completed_again(run, each) and replaced(run, each) for each in lost):
                continue
            text = f"no side-car here is of its parent {name_of(parent.model_dump())}{run.whose(parent.sha256)}"
            yield Break("parent-unknown", car.where, text)
        elif not any(_may_follow(car, each) for each in cars):
            other = cars[0].said
            text = f"epoch {car.said.epoch} of {car.said.run.stage} cannot follow its parent {other.checkpoint.file}, "
            yield Break("epoch-out-of-order", car.where, text + f"epoch {other.epoch} of {other.run.stage}")


def _may_follow(car: Car, parent: Car) -> bool:
    """Whether training could go from `parent` to `car`."""
    one, other = car.said, parent.said
    if other.checkpoint.complete != (one.parent.kind == "epoch"):
        return False
    if one.run.stage != other.run.stage:
        return (one.run.stage, other.run.stage, one.epoch, one.parent.kind) == ("finetune", "train", 0, "epoch")
    return other.epoch < one.epoch if one.parent.kind == "epoch" else other.epoch == one.epoch


def _bytes(run: Run) -> Iterator[Break]:
    for car in run.files.cars:
        said, found = car.said.checkpoint, run.files.found.get(car.said.checkpoint.file)
        if found is None or car.name != said.file + SIDECAR or found.sha256 == said.sha256:
            if found is not None and car.name == said.file + SIDECAR and found.size != said.bytes:
                text = f"checkpoint.bytes is {said.bytes}; the file has {found.size}, and the right sha256"
                yield Break("sidecar-edited", car.where, text)
            continue
        size = "" if found.size == said.bytes else f"{found.size} bytes, not {said.bytes}; "
        text = f"{size}its sha256 is {found.sha256[:12]}..., the side-car says {said.sha256[:12]}..."
        mine = [each for each in run.by_digest(found.sha256) if each.said.checkpoint.file != said.file]
        whose = f"; it is {mine[0].said.checkpoint.file}" if mine else run.whose(found.sha256)
        yield Break("checkpoint-changed", f"checkpoints/{said.file}", text + whose)
    last = run.files.last
    if last is not None and not run.by_digest(last.sha256):
        text = f"no side-car is of its sha256 {last.sha256[:12]}...{run.whose(last.sha256)}"
        yield Break("checkpoint-changed", "last.ckpt", text)
