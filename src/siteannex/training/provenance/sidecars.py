"""Whether side-cars say what the events of the attempts that wrote them say. Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from siteannex.training.epoch.checkpoints import SIDECAR
from siteannex.training.epoch.files import clean
from siteannex.training.epoch.recorder import OUR_KEYS
from siteannex.training.provenance.events import Break, Writing
from siteannex.training.provenance.files import Car
from siteannex.training.provenance.run import Run, attempt_of, short


def misnamed(run: Run) -> Iterator[Break]:
    """Side-cars that stand under another checkpoint's name."""
    for car in run.cars:
        said = car.said.checkpoint
        kept = f"{said.file}.{said.sha256[:12]}{SIDECAR}"
        if car.name != said.file + SIDECAR and (car.name != kept or said.complete):
            yield Break("sidecar-misnamed", car.where, f"it describes {said.file}: one of both was renamed or copied")


def sidecars_against_events(run: Run) -> Iterator[Break]:
    """Each side-car was written by an attempt whose events are there and say the same."""
    for car in run.cars:
        attempt, said = car.raw["attempt"], car.said.checkpoint
        same = [each for each in run.written if each.get("file") == said.file and attempt_of(each.log) == attempt]
        exact = [each for each in same if each.get("sha256") == said.sha256]
        if exact:
            yield from _contradictions(car, exact[-1])
        elif same and said.complete:
            yield from _contradictions(car, same[-1])
        elif twin := [each for each in run.written if each.get("sha256") == said.sha256]:
            other = {"file": twin[0].get("file"), **attempt_of(twin[0].log)}
            text = f"{_differing({'file': said.file, **attempt}, other)}: {twin[0].where} tells of it"
            yield Break("sidecar-edited", car.where, text)
        elif any(log.lines and attempt_of(log) == attempt for log in run.logs):
            yield Break("event-missing", car.where, f"its attempt's events do not tell that {said.file} was written")
        else:
            job = car.said.attempt
            text = f"the events of its attempt are not there: attempts/{job.node}.{job.job.cluster or 0}.{job.start}.*"
            yield Break("attempt-missing", car.where, text)


def _differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    name = next(name for name in one if one[name] != other.get(name))
    return f"{name} is {one[name]!r}, not {other.get(name)!r}"


def _contradictions(car: Car, writing: Writing) -> Iterator[Break]:
    """Everything the events know too; one break for each value that differs."""
    raw = car.raw
    event = writing.log.lines[0].event
    told: list[tuple[str, Any, Any]] = [
        ("checkpoint.sha256", raw["checkpoint"]["sha256"], writing.get("sha256")),
        ("experiment", raw["experiment"], event.experiment),
        ("run.stage", raw["run"]["stage"], event.stage),
        ("epoch", raw["epoch"], writing.get("epoch")),
        ("checkpoint.complete", raw["checkpoint"]["complete"], writing.get("complete")),
        *(_each("parent", raw["parent"], writing.get("parent"))),
        ("software.command", raw["software"]["command"], writing.facts),
    ]
    for started in writing.log.payloads("attempt.started"):
        where = raw["where"]
        told += [(f"where.{name}", where[name], started.get(name)) for name in ("host", "site", "slot")]
        told.append(("where.gpus", where["gpus"] or where["advertised_gpus"], started.get("gpus")))
    for ended in writing.log.payloads("attempt.ended"):
        names = ("transfer_in_s", "unpack_s", "start_up_s")
        told += [(f"training.{name}", raw["training"][name], ended.get(name)) for name in names]
    if writing.completed is not None and raw["checkpoint"]["complete"]:
        told += _each("training.metrics", raw["training"]["metrics"], writing.completed.get("metrics"))
        told.append(("epoch", raw["epoch"], writing.completed.get("epoch")))
        told.append(("training.seconds", raw["training"]["seconds"], writing.completed.get("seconds")))
    for name, here, there in told:
        if here != there:
            text = f"{name} is {short(here)}; {writing.where} says {short(there)}"
            yield Break("parent-swapped" if name.startswith("parent.") else "sidecar-edited", car.where, text)


def _each(name: str, here: Mapping[str, Any], there: Any) -> list[tuple[str, Any, Any]]:
    other = there if isinstance(there, dict) else {}
    return [(f"{name}.{key}", here.get(key), other.get(key)) for key in sorted({*here, *other})]


def against_metrics(run: Run) -> Iterator[Break]:
    """The command's own lines say what the events took from them."""
    for writing in run.written:
        rows = run.files.metrics.get(writing.log.name)
        if rows is None or writing.completed is None:
            continue
        path = f"attempts/{writing.log.name.removesuffix('.ndjson')}.metrics.jsonl"
        mine = [row for row in rows if row.get("checkpoint") == writing.get("file")]
        mine = [row for row in mine if row.get("complete", True) and row.get("epoch") == writing.get("epoch")]
        told = [clean({key: value for key, value in row.items() if key not in OUR_KEYS}) for row in mine]
        if writing.completed.get("metrics") not in told:
            wanted = short(writing.completed.get("metrics"))
            seen = f"it says {short(told[-1])}" if told else "it has no line about that checkpoint"
            text = f"{writing.get('file')}: {seen}; {writing.where} says {wanted}"
            yield Break("metrics-edited", path, text)


def unlike(run: Run) -> Iterator[Break]:
    """What is the same for every epoch of a run."""
    fields = ("name", "index", "seed", "parameters", "parameters_sha256")
    for field in fields:
        counted = Counter(repr(car.raw["run"][field]) for car in run.cars)
        usual = min(counted, key=lambda each: (-counted[each], each), default="")
        for car in run.cars:
            if repr(value := car.raw["run"][field]) != usual:
                text = f"run.{field} is {short(value)}; the run's other side-cars say {usual[:80]}"
                yield Break("sidecar-edited", car.where, text)
