"""Experiment files for tests: a good one, changes to it, and what reading says."""

from __future__ import annotations

from pathlib import Path

import pytest

from siteannex.errors import AnnexError, StageFailure
from siteannex.training.experiment.places import KnownSite
from siteannex.training.experiment.reading import Loaded, read_experiment

GOOD = """\
name: protein
seed: 20261129
parameters:
  lr: {range: 0.01 to 0.1 by 0.01}
  width: {values: [128, 256]}
  decay: 0.10
  kind: small one
mode: product
runs_per_point: 2
train:
  command: python3 train.py --lr $(lr) --width $(width)
  inputs: [train.py]
  epochs: 4
evaluate: {command: python3 evaluate.py, submit: "request_gpus = 0"}
submit: |
  request_cpus = {site.cpus}
  # a comment
  request_memory = {site.memory}
  request_gpus = 1
  requirements = TARGET.HasDocker =!= true
sites:
  expanse: {cpus: 8, memory: 64GB, cap: 4}
  delta: {annex: delta-big, cpus: 4, memory: 1500MB}
  syracuse: {resource: SU-ITS-CE2, cpus: 4, memory: 32GB}
  pool: {requirements: TARGET.HasChirp, cpus: 1, memory: 1GB}
policy: shuffle
environment: {GREETING: it's fine}
"""
KNOWN = {"expanse": KnownSite(annexes=True), "ospool": KnownSite(False, "TARGET.IsOsg =?= true", ("+WantOsg = true",))}


def read(folder: Path, text: str = GOOD, *changes: tuple[str, str]) -> Loaded:
    """The experiment of a text with some of it changed; every change must change something."""
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    path = folder / "protein.yaml"
    path.write_text(text, encoding="utf-8")
    return read_experiment(path, KNOWN.get, list(KNOWN))


def refusal(folder: Path, *changes: tuple[str, str]) -> StageFailure:
    """The failure of the good file with some of it changed."""
    with pytest.raises(AnnexError) as raised:
        read(folder, GOOD, *changes)
    return raised.value.failure
