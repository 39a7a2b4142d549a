"""Write an experiment's DAG and everything it needs beside it, so that condor_submit_dag alone could run it."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from siteannex.errors import AnnexError, Evidence
from siteannex.failures import fail
from siteannex.training.dag.dagfile import save_text
from siteannex.training.experiment.matrix import annex_needs
from siteannex.training.experiment.model import Experiment, LocalFile
from siteannex.training.experiment.origins import UNKNOWN, Origins, find_origins
from siteannex.training.experiment.places import ANY
from siteannex.training.experiment.reading import Loaded
from siteannex.training.experiment.requests import announcing
from siteannex.training.experiment.runs import node_count, parameters_text, run_count, runs
from siteannex.training.gen.gensubdag import Compiled
from siteannex.training.rendering.descriptions import RUNNER, local_images, secret_files
from siteannex.training.rendering.render import (
    Names,
    config_text,
    hook_scripts,
    images,
    pieces,
    run_folders,
)

_RUN_OF_LINE = re.compile(r'"run_name": "([^"]+)", "run_id": "([^"]+)"')
"""As the manifest writes them."""


@dataclass(frozen=True, slots=True)
class Written:
    """What was written."""

    dag: Path
    manifest: Path
    nodes: int
    sha256: str
    """Of the DAG file."""
    origins: Origins = UNKNOWN


def default_dag(loaded: Loaded) -> Path:
    """`NAME.dag` beside the experiment file."""
    return loaded.path.parent / f"{loaded.experiment.name}.dag"


def companions(dag: Path, folder: Path) -> tuple[Names, Path]:
    """Names of config, status and job log as the DAG names them from `folder`; and the manifest's path."""
    start = os.path.relpath(dag.resolve(), folder.resolve()).removesuffix(".dag")
    return Names(f"{start}.config", f"{start}.status", f"{start}.jobstate"), dag.with_suffix(".manifest.jsonl")


def write_dag(loaded: Loaded, dag: Path, runner: Callable[[], bytes], requests: Path) -> Written:
    """Write DAG, config, manifest, hooks, runner and the runs' directories. AnnexError(state-unwritable).

    The DAG is meant to be submitted from the experiment file's directory: all its paths are relative to that. What
    runs have brought back already is left alone. `requests`: where its nodes ask for annexes that are not up.
    """
    experiment, folder = loaded.experiment, loaded.path.parent
    names, manifest = companions(dag, folder)
    try:
        _refuse_strangers(experiment, manifest, folder)
        origins = find_origins(experiment, loaded.path, images(experiment, loaded.targets))
        with _Growing.at(dag) as lines, _Growing.at(manifest) as told:
            for of_dag, of_manifest in pieces(experiment, loaded.targets, names, origins):
                lines.add(of_dag)
                told.add(of_manifest)
            sha256 = lines.summed.hexdigest()
            told.add([json.dumps({"dag": dag.name, "dag_sha256": sha256, "nodes": node_count(experiment)})])
        _replace(folder / names.config, config_text(experiment))
        for path in run_folders(experiment):
            with suppress(FileExistsError):
                os.mkdir(f"{folder}/{path}")  # noqa: PTH102  (pathlib takes thrice the time for 30,000 of them)
        needs = annex_needs(experiment, loaded.targets, {ANY: run_count(experiment)})
        asks = announcing(experiment.name, needs, requests.absolute()) if needs else ""
        for name, text in hook_scripts(experiment, asks).items():
            _replace(folder / experiment.name / "hooks" / name, text, executable=True)
        if any(work.command is not None for work in experiment.works().values()):
            _replace(folder / experiment.name / RUNNER, runner(), executable=True)
    except OSError as problem:
        raise _unwritable(folder, problem) from problem
    return Written(dag, manifest, node_count(experiment), sha256, origins)


def _refuse_strangers(experiment: Experiment, manifest: Path, folder: Path) -> None:
    """Results of one run are never taken for another's: same name, same id, or nothing there yet. More epochs are fine,
    so is any other submit language."""
    if not manifest.is_file():
        return
    before = dict(_RUN_OF_LINE.findall(manifest.read_text(encoding="utf-8", errors="replace")))
    for run in runs(experiment):
        results = folder / experiment.name / run.name / "checkpoints"
        if before.get(run.name, run.run_id) != run.run_id and results.is_dir() and any(results.iterdir()):
            now = parameters_text(run.parameters)
            raise fail(
                "experiment-changed",
                experiment.name,
                f"{run.name} would now be a run with seed {run.seed} ({now}); {results} has the checkpoints of another",
                hint=f"Give the experiment a new name:, or move {experiment.name}/ and {experiment.name}.* away.",
            )


def write_compiled(compiled: Compiled, nodes: int, dag: Path) -> Written:
    """Write a DAG made from one with GEN SUBDAG, and its manifest. AnnexError(state-unwritable)."""
    manifest = dag.with_suffix(".manifest.jsonl")
    told = (json.dumps({"node": name, "parameters": dict(values)}) for name, values in compiled.points.items())
    try:
        save_text(dag, compiled.text)
        sha256 = hashlib.sha256(dag.read_bytes()).hexdigest()
        with _Growing.at(manifest) as lines:
            lines.add(told)
            lines.add([json.dumps({"dag": dag.name, "dag_sha256": sha256, "nodes": nodes})])
    except OSError as problem:
        raise _unwritable(dag.parent, problem) from problem
    return Written(dag, manifest, nodes, sha256)


def missing_inputs(experiment: Experiment, folder: Path) -> list[str]:
    """Files that jobs bring along and that are not there: `train: data.tar.gz`. What `prepare` makes is not asked."""
    made = set(experiment.prepare.outputs) if experiment.prepare is not None else set()
    asked = [(stage, path) for stage, work in experiment.works().items() for path in (*work.inputs, *work.staged)]
    asked += [("submit", path) for path in local_images(experiment)]
    asked += [(f"environment.{name}", path) for name, (path, _) in secret_files(experiment).items()]
    asked += [("dataset", experiment.dataset.file)] if isinstance(experiment.dataset, LocalFile) else []
    return [
        f"{where}: {path}"
        for where, path in asked
        if path not in made and "://" not in path and "$(" not in path and not (folder / path.rstrip("/")).exists()
    ]


def loose_secrets(experiment: Experiment, folder: Path) -> list[str]:
    """Secret files that others than their owner may read."""
    paths = [path for path, _ in secret_files(experiment).values()]
    return [path for path in paths if (folder / path).exists() and (folder / path).stat().st_mode & 0o077]


@dataclass(slots=True)
class _Growing:
    """A text file that is written piece by piece, summed on the way, and moved into place whole."""

    file: IO[bytes]
    summed: Any

    @classmethod
    @contextmanager
    def at(cls, path: Path) -> Iterator[_Growing]:
        """For one `with`: the file is there when the block ends well, and as it was when it does not."""
        rough = path.with_name(f".{path.name}.part")
        with rough.open("wb") as file:
            yield cls(file, hashlib.sha256())
        rough.replace(path)

    def add(self, lines: Iterable[str]) -> None:
        """Write some lines."""
        data = "".join(f"{line}\n" for line in lines).encode()
        self.summed.update(data)
        self.file.write(data)


def _replace(path: Path, content: str | bytes, *, executable: bool = False) -> None:
    rough = path.with_name(f".{path.name}.part")
    rough.write_bytes(content.encode() if isinstance(content, str) else content)
    rough.chmod(0o755 if executable else 0o644)
    rough.replace(path)


def _unwritable(folder: Path, problem: OSError) -> AnnexError:
    seen = Evidence(str(problem.filename or folder), f"{problem.strerror} (errno {problem.errno})")
    return fail("state-unwritable", folder.name, f"cannot write under {folder}", evidence=[seen])
