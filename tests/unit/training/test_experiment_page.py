"""docs/experiment.md says what the model says: its example is an experiment, its table has every key."""

from __future__ import annotations

import re
from pathlib import Path

from siteannex.training.experiment.checks import VARS
from siteannex.training.experiment.model import Experiment
from siteannex.training.experiment.runs import node_count, runs
from siteannex.training.rendering.descriptions import describe
from tests.unit.training.experiments import read

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "experiment.md").read_text(encoding="utf-8")


def test_the_example_is_an_experiment(tmp_path: Path) -> None:
    match = re.search(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert match is not None
    experiment = read(tmp_path, match[1]).experiment
    assert node_count(experiment) == 10 * 2 * 4 * 6 * 3 * 30


def test_every_key_is_in_the_table() -> None:
    rows = re.findall(r"^\| (`[^|]*`) \|", PAGE, re.MULTILINE)
    told = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert set(Experiment.model_fields) <= told
    assert set(VARS) <= told


def test_every_variable_a_job_gets_is_in_the_table(tmp_path: Path) -> None:
    loaded = read(tmp_path)
    first = next(runs(loaded.experiment))
    for stage in loaded.experiment.works():
        for target in loaded.targets.values():
            for line in describe(loaded.experiment, stage, target, first.parameters):
                for name in re.findall(r"\bSITEANNEX_[A-Z_]+", line):
                    assert f"`{name}`" in PAGE, name
