"""Inputs too big to move with every job: which site has a copy, which gets the file itself. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import PurePosixPath

from siteannex.model import StagedCopy
from siteannex.training.experiment.model import Experiment
from siteannex.training.experiment.places import ANY, Target

FindCopy = Callable[[str, str], StagedCopy | None]
"""(site file, path in the experiment file) -> the copy of the file's present content at that site."""


def staged_names(experiment: Experiment) -> list[str]:
    """Every file that some stage names under `staged:`."""
    return list(dict.fromkeys(path for work in experiment.works().values() for path in work.staged))


def with_copies(experiment: Experiment, targets: Mapping[str, Target], find: FindCopy) -> dict[str, Target]:
    """The targets, each with the copies at its site. Only jobs in an annex see a site's files: the others move theirs,
    and so do jobs of `policy: any`, whose site is not known beforehand."""
    names = staged_names(experiment)
    return {
        key: replace(target, staged=_copies(experiment.sites[key].site or key, names, find))
        if target.annex is not None and key != ANY
        else target
        for key, target in targets.items()
    }


def _copies(site: str, names: list[str], find: FindCopy) -> dict[str, StagedCopy]:
    found = {name: find(site, name) for name in names}
    return {name: copy for name, copy in found.items() if copy is not None}


def place_in_sandbox(path: str) -> str:
    """Where a job finds a file of the experiment: HTCondor keeps relative paths and drops absolute ones."""
    pure = PurePosixPath(path)
    return pure.name if pure.is_absolute() else str(pure)


def told_to_job(copies: Mapping[str, StagedCopy]) -> str:
    """SITEANNEX_STAGED: what the epoch runner links and verifies, as JSON."""
    return json.dumps(
        {
            place_in_sandbox(path): {"path": copy.path, "sha256": copy.sha256, "bytes": copy.size_bytes}
            for path, copy in copies.items()
        },
        separators=(",", ":"),
    )


def directories(copies: Mapping[str, StagedCopy]) -> str:
    """Where the copies lie, for a container to see: `/scratch/alice/.siteannex/data`."""
    return ",".join(dict.fromkeys(str(PurePosixPath(copy.path).parent) for copy in copies.values()))
