"""What checkpoints are made from: the user's code, containers and data, as side-cars will name them."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from siteannex.training.experiment.model import Experiment, LocalFile

_LIMIT_S = 60.0
MODIFIED = "+modified"
"""After a commit: the experiment or files it needs are not as they are in it."""


@dataclass(frozen=True, slots=True)
class Origins:
    """Found when the DAG is written; empty where nothing is known."""

    code: str = ""
    """The file's `code:`, else the git commit of its directory."""
    dataset: str = ""
    """The file's `dataset:`; of a local one `PATH@sha256:...`."""
    images: Mapping[str, str] = field(default_factory=dict)
    """A local container image as the submit language names it -> `PATH@sha256:...`."""


UNKNOWN = Origins()
Git = Callable[[Path, Iterable[str]], str | None]
"""What git prints in a directory; None when it is not there, refuses, or there is no repository."""


def git(folder: Path, words: Iterable[str]) -> str | None:
    """The real one. It only reads: no lock is taken, no index refreshed."""
    argv = ["git", "--no-optional-locks", "-C", str(folder), *words]
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def find_origins(experiment: Experiment, file: Path, images: Iterable[str], run: Git = git) -> Origins:
    """Look beside the experiment's `file`; `images` as the submit language names them. OSError when a file that is
    there cannot be read."""
    folder = file.parent
    dataset = experiment.dataset
    return Origins(
        code=experiment.code or _commit(experiment, file, run),
        dataset=_with_digest(folder, dataset.file) if isinstance(dataset, LocalFile) else dataset or "",
        images={image: _with_digest(folder, image) for image in images if _is_local_file(folder, image)},
    )


def _commit(experiment: Experiment, file: Path, run: Git) -> str:
    """`COMMIT`, or `COMMIT+modified`. What siteannex writes itself changes nothing, nor do ignored files."""
    folder, name = file.parent, experiment.name
    at = (run(folder, ["rev-parse", "--show-toplevel", "HEAD"]) or "").split("\n")
    if len(at) < 2:
        return ""
    top, commit = Path(at[0]), at[1]
    ours = [f"{name}.{end}" for end in ("dag", "config", "manifest.jsonl")] + [name]
    tracked = ["--untracked-files=no", "--", ".", *(f":(exclude){each}" for each in ours)]
    needed = [path for path in _inputs(experiment) if _normal(folder, path).is_relative_to(top)]
    inputs = ["--untracked-files=normal", "--", file.name, *needed]
    seen = run(folder, ["status", "--porcelain", *tracked]), run(folder, ["status", "--porcelain", *inputs])
    return commit + (MODIFIED if any(each != "" for each in seen) else "")


def _inputs(experiment: Experiment) -> list[str]:
    """Local files that jobs bring along, without those that jobs make."""
    made = {*(experiment.prepare.outputs if experiment.prepare is not None else ()), experiment.name}
    found = (path.rstrip("/") for work in experiment.works().values() for path in work.inputs if _is_path(path))
    return [path for path in found if path not in made and Path(path).parts[0] not in made]


def _normal(folder: Path, path: str) -> Path:
    """The path itself, links in it followed up to its last part."""
    return Path(os.path.normpath(folder.resolve() / path))


def _is_path(text: str) -> bool:
    return "://" not in text and "$(" not in text


def _is_local_file(folder: Path, image: str) -> bool:
    return _is_path(image) and (folder / image).is_file()


def _with_digest(folder: Path, path: str) -> str:
    with (folder / path).open("rb") as file:
        return f"{path}@sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
