"""When the `dag` and `provenance` verbs write down what this access point witnessed of an experiment."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from siteannex.training.experiment.reading import Loaded
    from siteannex.training.experiment.submission import Submission
    from siteannex.training.provenance.ap_collect import Collected
    from siteannex.training.rendering.writing import Written


def note_generated(loaded: Loaded, written: Written) -> None:
    """The DAG was written. AnnexError(state-unwritable)."""
    from siteannex.training.epoch.files import digest
    from siteannex.training.experiment.runs import run_count
    from siteannex.training.provenance.ap_collect import write_generated

    folder = loaded.path.parent / loaded.experiment.name
    payload: dict[str, Any] = {
        "dag": written.dag.name,
        "dag_sha256": written.sha256,
        "manifest_sha256": digest(written.manifest),
        "file": loaded.path.name,
        "file_sha256": digest(loaded.path),
        "nodes": written.nodes,
        "runs": run_count(loaded.experiment),
        "seed": loaded.experiment.seed,
        "code": written.origins.code or None,
        "dataset": written.origins.dataset or None,
    }
    try:
        write_generated(folder, loaded.experiment.name, time.time(), payload)
    except (OSError, ValueError) as problem:
        raise _unwritable(folder, problem) from problem


def note_submitted(folder: Path, done: Submission) -> None:
    """DAGMan has the DAG. What cannot be written now, the next `provenance merge` takes from the record of it."""
    from contextlib import suppress

    from siteannex.training.provenance.ap_collect import write_submitted

    with suppress(OSError, ValueError):
        write_submitted(folder, done.experiment, time.time(), _told(done))


def collect_at(folder: Path) -> Collected | None:
    """Write down what is new of the experiment in `folder`; None when that is no experiment's directory.
    AnnexError(state-unwritable)."""
    from siteannex.cli.screen import WallClock
    from siteannex.training.eventlog.reader import machine_zone
    from siteannex.training.experiment.submission import Records
    from siteannex.training.provenance.ap_collect import collect, job_log, nodes_of, write_submitted
    from siteannex.training.provenance.ap_file import NAME
    from siteannex.transport.places import Places

    folder = folder.resolve()
    if job_log(folder) is None and not (folder / NAME).is_file():
        return None
    dag = folder.with_name(f"{folder.name}.dag")
    records = Records(Places.from_environment().state, WallClock())
    try:
        if (done := records.last(folder.name, dag)) is not None and done.cluster is not None:
            at = (records.folder(folder.name, dag) / "submission.json").stat().st_mtime
            write_submitted(folder, folder.name, at, _told(done))
        return collect(folder, folder.name, machine_zone(), nodes_of(dag.with_suffix(".manifest.jsonl")))
    except (OSError, ValueError) as problem:
        raise _unwritable(folder, problem) from problem


def _told(done: Submission) -> dict[str, Any]:
    told = asdict(done)
    return {"cluster": done.cluster, "dag": Path(done.dag).name, "dag_sha256": told["sha256"], "nodes": told["nodes"]}


def _unwritable(folder: Path, problem: Exception) -> Exception:
    from siteannex.failures import fail
    from siteannex.training.provenance.ap_file import NAME

    return fail("state-unwritable", folder.name, f"cannot write down what happened in {folder / NAME}: {problem}")
