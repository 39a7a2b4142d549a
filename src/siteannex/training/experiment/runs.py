"""From an experiment to its training runs: points of the sweep, ids, seeds, parameters. Pure, lazy, reproducible.

Everything random is derived from the experiment's seed by SHA-256 and Python's Mersenne Twister (whose `random()` is
the same in every version), so that a file gives the same runs wherever and whenever it is read.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, product
from uuid import UUID, uuid5

from siteannex.training.experiment.model import Experiment, GivenRun, Sweep, Value, as_value

NAMESPACE = UUID("6f1d2c5e-6a0f-5c0e-9a63-0d7c1b7f4a52")
"""Of the run ids: made once for siteannex, never to be changed."""
SEEDS = 2**31
_SPREAD = 2654435769
"""Odd, so that run index -> seed is one to one modulo 2**31."""


@dataclass(frozen=True, slots=True)
class Run:
    """One training run."""

    index: int
    name: str
    run_id: str
    seed: int
    parameters: Mapping[str, Value]
    sites: tuple[str, ...] = ()
    """Written out in the file for each of its jobs; empty: by the policy."""

    def parameters_json(self) -> str:
        """The parameters as one JSON object, numbers spelled as they were written."""
        return "{" + ",".join(f'"{name}":{_json(value)}' for name, value in self.parameters.items()) + "}"

    def parameters_sha256(self) -> str:
        """Of the JSON object with its keys in order: equal parameters have equal hashes."""
        ordered = Run(self.index, self.name, "", 0, dict(sorted(self.parameters.items())))
        return hashlib.sha256(ordered.parameters_json().encode()).hexdigest()


def _json(value: Value) -> str:
    return f'"{value.text}"' if value.kind == "text" else value.text


def points(experiment: Experiment) -> int:
    """How many points the sweep has, without making them; 0 when zipped lists differ in length."""
    sizes = [sweep.size() for sweep in experiment.swept().values()]
    if experiment.mode == "zip":
        return sizes[0] if len(set(sizes)) == 1 else 0
    return math.prod(sizes)


def run_count(experiment: Experiment) -> int:
    """How many training runs there are."""
    return len(experiment.runs) or points(experiment) * experiment.runs_per_point


def nodes_per_run(experiment: Experiment) -> int:
    """How many DAG nodes one run has, side-cars and its own preparation included."""
    jobs = sum(chain.jobs for chain in experiment.chains().values())
    evaluations = 0 if not experiment.evaluate else jobs if experiment.evaluate.after == "each" else 1
    return jobs + evaluations + (experiment.prepare is not None and experiment.prepare.per == "run")


def node_count(experiment: Experiment) -> int:
    """How many nodes the DAG has."""
    once = experiment.prepare is not None and experiment.prepare.per == "experiment"
    return run_count(experiment) * nodes_per_run(experiment) + once + (experiment.hooks.final is not None)


def runs(experiment: Experiment) -> Iterator[Run]:
    """Every run in order: the first parameter changes slowest, replicas of one point stand together."""
    width = max(2, len(str(run_count(experiment) - 1)))
    base = int.from_bytes(_digest(experiment, "seed")[:8], "big")
    for index, (given, parameters) in enumerate(_cases(experiment)):
        told = parameters_text(parameters)
        yield Run(
            index=index,
            name=given.name or f"r{index:0{width}d}",
            run_id=str(given.id or uuid5(NAMESPACE, f"{experiment.name}\n{experiment.seed}\n{index}\n{told}")),
            seed=(base + _SPREAD * index) % SEEDS if given.seed is None else given.seed,
            parameters=parameters,
            sites=given.sites,
        )


def parameters_text(parameters: Mapping[str, Value]) -> str:
    """`lr=0.001 width=128`."""
    return " ".join(f"{name}={value.text}" for name, value in parameters.items())


def _cases(experiment: Experiment) -> Iterator[tuple[GivenRun, Mapping[str, Value]]]:
    fixed = {name: each for name, each in experiment.parameters.items() if isinstance(each, Value)}
    if experiment.runs:
        for given in experiment.runs:
            yield given, {**fixed, **given.parameters}
        return
    plain = GivenRun()
    order = list(experiment.parameters)
    swept = experiment.swept()
    columns = [_values(experiment, name, sweep) for name, sweep in swept.items()]
    rows = zip(*columns, strict=True) if columns and experiment.mode == "zip" else product(*columns)
    for row in rows:
        chosen = {**fixed, **dict(zip(swept, row, strict=True))}
        parameters = {name: chosen[name] for name in order}
        for _ in range(experiment.runs_per_point):
            yield plain, parameters


def _values(experiment: Experiment, name: str, sweep: Sweep) -> list[Value]:
    grid = sweep.grid()
    if grid is not None:
        return [as_value(text) for text in islice(grid, grid.count)]
    return list(sweep.values) if sweep.values is not None else _samples(experiment, name, sweep)


def _samples(experiment: Experiment, name: str, sweep: Sweep) -> list[Value]:
    """Six significant digits, so that platforms whose logarithms differ in the last bit agree."""
    source = random.Random(_digest(experiment, f"sample {name}"))  # noqa: S311  (reproducible on purpose)
    low, high = sweep.bounds()
    drawn = []
    for _ in range(sweep.count or 0):
        share = source.random()
        if sweep.whole():
            drawn.append(Value(str(int(low) + int(share * (int(high) - int(low) + 1))), "number"))
        elif sweep.scale == "log":
            drawn.append(as_value(f"{math.exp(math.log(low) + share * (math.log(high) - math.log(low))):.6g}"))
        else:
            drawn.append(as_value(f"{low + share * (high - low):.6g}"))
    return drawn


def _digest(experiment: Experiment, what: str) -> bytes:
    return hashlib.sha256(f"{experiment.name}\n{experiment.seed}\n{what}".encode()).digest()
