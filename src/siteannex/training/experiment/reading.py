"""Read an experiment file: YAML, schema, then everything that can be known wrong before a job exists.

Every complaint names file, line and key. Nothing is expanded here: a sweep of ten million points is refused at once.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from siteannex.errors import AnnexError, Evidence
from siteannex.failures import FAILURES, fail
from siteannex.site.complaints import keys_at
from siteannex.site.fields import FROM_YAML
from siteannex.site.layers import Layer, Location, UnreadableError, plain, read_layer
from siteannex.training.experiment.checks import Problem, problems
from siteannex.training.experiment.model import Experiment, as_value
from siteannex.training.experiment.places import Lookup, Target, UnknownSiteError, targets

_LITERAL = re.compile(r"[-+.\w]+")
_TAGS = frozenset({"sweep", "value", "str", "uuid", "SecretFile", "Sticky", "LocalFile", "OneLine"})
_MOST_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Loaded:
    """An experiment that holds together, and where its jobs may go."""

    path: Path
    experiment: Experiment
    targets: dict[str, Target]


def read_experiment(path: Path, lookup: Lookup, site_names: list[str]) -> Loaded:
    """Read and check one file. AnnexError with the first mistake's code; its evidence lists every mistake found."""
    try:
        layer = read_layer(path, "an experiment file")
    except UnreadableError as problem:
        raise _invalid(path, [("experiment-invalid", str(problem))]) from problem
    try:
        experiment = Experiment.model_validate(_spelled(layer), context=FROM_YAML)
    except ValidationError as problem:
        raise _invalid(path, list(_schema_complaints(layer, problem))) from problem
    try:
        where = targets(experiment, lookup, site_names)
    except UnknownSiteError as problem:
        place = layer.place(("sites", problem.key))
        raise _invalid(path, [("site-unknown", f"{place}: sites.{problem.key}: {problem}")]) from problem
    found = [(each.code, _told(layer, each)) for each in problems(experiment, where)]
    if found:
        raise _invalid(path, found)
    return Loaded(path, experiment, where)


def _invalid(path: Path, found: Sequence[tuple[str, str]]) -> AnnexError:
    code, first = found[0]
    told = "\n".join(text for _, text in found[:_MOST_SHOWN])
    rest = len(found) - _MOST_SHOWN
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return fail(
        code,
        path.stem,
        f"{first}{more}",
        evidence=[Evidence(str(path), told + (f"\n... and {rest} more" if rest > 0 else ""))],
    )


def _told(layer: Layer, problem: Problem) -> str:
    """`file:line: key: what`; lines within a block of submit language are counted from the block's start."""
    key = ".".join(str(part) for part in problem.location)
    if problem.line is None:
        return f"{layer.place(problem.location)}: {key}: {problem.text}"
    return f"{layer.path}:{_block_start(layer, problem.location) + problem.line - 1}: {key}: {problem.text}"


def _block_start(layer: Layer, location: Location) -> int:
    """The file's line on which a text's first line stands."""
    parent = layer.value(location[:-1]) if len(location) > 1 else layer.data
    line, column = parent.lc.value(location[-1])
    source = layer.path.read_text(encoding="utf-8").splitlines()
    return int(line) + (2 if source[line][column : column + 1] in ("|", ">") else 1)


def _schema_complaints(layer: Layer, problem: ValidationError) -> Iterator[tuple[str, str]]:
    seen = set()
    for error in problem.errors(include_url=False):
        location = tuple(part for part in error["loc"] if part not in _TAGS)
        text = _words(error, location)
        code = error["type"] if error["type"] in FAILURES else "experiment-invalid"
        if "has no unit" in text:
            code = "unit-missing"
        place = layer.place(location)
        if place not in seen:
            yield code, f"{place}: {'.'.join(map(str, location))}: {text}"
        seen.add(place)


def _words(error: Any, location: Location) -> str:
    if error["type"] == "extra_forbidden":
        here = keys_at(Experiment, location[:-1])
        near = difflib.get_close_matches(str(location[-1]), here, n=1)
        return f"no such key; did you mean {near[0]}?" if near else f"no such key; known here: {', '.join(here)}"
    if error["type"] == "missing":
        return "required, and missing"
    return str(error["msg"]).removeprefix("Value error, ")


def _spelled(layer: Layer) -> dict[str, Any]:
    """The file's data, its parameters' numbers as they are spelled there (`0.10`, `1e-4`)."""
    source = layer.path.read_text(encoding="utf-8").splitlines()
    data: dict[str, Any] = plain(layer.data)
    for location in _scalar_places(data):
        value, key = layer.value(location), location[-1]
        parent: Any = layer.value(location[:-1])
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        line, column = parent.lc.item(key) if isinstance(key, int) else parent.lc.value(key)
        literal = _LITERAL.match(source[line], column)
        node: Any = data
        for part in location[:-1]:
            node = node[part]
        node[key] = _number(literal[0] if literal else "", value)
    return data


def _number(literal: str, value: float) -> object:
    try:
        return as_value(literal) if float(literal) == value else value
    except ValueError:  # YAML knows more ways to write a number than JSON: 0x10, 1_000, .inf
        return value


def _scalar_places(data: dict[str, Any]) -> Iterator[tuple[str | int, ...]]:
    """Where values of parameters and of `{site.NAME}` stand."""
    for name, each in _items(data.get("parameters")):
        if isinstance(each, dict):
            values = each.get("values")
            yield from (
                ("parameters", name, "values", at) for at in range(len(values) if isinstance(values, list) else 0)
            )
        else:
            yield ("parameters", name)
    for site, place in _items(data.get("sites")):
        yield from (("sites", site, "values", name) for name, _ in _items(dict(_items(place)).get("values")))
    runs = data.get("runs")
    for at, run in enumerate(runs if isinstance(runs, list) else []):
        yield from (("runs", at, "parameters", name) for name, _ in _items(dict(_items(run)).get("parameters")))


def _items(node: Any) -> list[tuple[str, Any]]:
    return list(node.items()) if isinstance(node, dict) else []
