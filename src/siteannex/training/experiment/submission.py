"""Hand a DAG to DAGMan and keep a record of it: one directory an experiment, `submission.json` and `events.jsonl`.

Directory: `experiments/<name>-<8 hex of the DAG's path>` below the state directory. Intent is written before the
effect, so that a crash between them is seen.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from siteannex.errors import Evidence
from siteannex.failures import fail
from siteannex.locks import Taken, exclusive
from siteannex.ports import Clock
from siteannex.private import private_dir, write_private

_CLUSTER = re.compile(r"submitted to cluster (\d+)")
_LIMIT_S = 300.0
RECORD_VERSION = 1


@dataclass(frozen=True, slots=True)
class Answer:
    """What a program said."""

    status: int
    text: str


Run = Callable[[Sequence[str], Path], Answer]
"""Run a program in a directory."""


def run_program(argv: Sequence[str], folder: Path) -> Answer:
    """The real one. A program that is not there, or does not end, is an answer too."""
    try:
        done = subprocess.run(
            argv,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LIMIT_S,
            check=False,
        )
    except FileNotFoundError:
        return Answer(127, f"{argv[0]} is not on your PATH: is this an HTCondor access point?")
    except subprocess.TimeoutExpired:
        return Answer(124, f"{argv[0]} gave no answer within {_LIMIT_S:.0f} s")
    return Answer(done.returncode, f"{done.stdout}{done.stderr}".strip())


@dataclass(frozen=True, slots=True)
class Submission:
    """One DAG as it was submitted."""

    experiment: str
    dag: str
    """Absolute path."""
    folder: str
    """Where it was submitted from."""
    sha256: str
    nodes: int
    annexes: dict[str, dict[str, Any]]
    """Annex name -> what its jobs want of it (`matrix.AnnexNeed` as JSON), for whoever brings it up."""
    cluster: int | None = None
    """DAGMan's own job; None: begun, and nothing is known."""


@dataclass(frozen=True, slots=True)
class Records:
    """Every submission of this user."""

    root: Path
    """The state directory."""
    clock: Clock

    def folder(self, experiment: str, dag: Path) -> Path:
        """Where this DAG's record is."""
        mark = hashlib.sha256(os.fsencode(dag.resolve())).hexdigest()[:8]
        return self.root / "experiments" / f"{experiment}-{mark}"

    def last(self, experiment: str, dag: Path) -> Submission | None:
        """How this DAG was submitted last, None when it was not or the record cannot be read."""
        return _read(self.folder(experiment, dag) / "submission.json")

    def all(self) -> list[Submission]:
        """Every DAG's last submission, by name of its directory."""
        base = self.root / "experiments"
        found = [_read(path / "submission.json") for path in sorted(base.iterdir())] if base.is_dir() else []
        return [each for each in found if each is not None]

    def submit(self, wanted: Submission, run: Run, living: Callable[[int], bool]) -> Submission:
        """Submit a DAG once. AnnexError dag-running, dag-refused, state-unwritable.

        A rescue DAG that lies beside it is what DAGMan then runs: finished nodes are not repeated.
        """
        dag = Path(wanted.dag)
        folder = self.folder(wanted.experiment, dag)
        try:
            private_dir(folder)
            with exclusive(folder / "lock"):
                return self._submit(wanted, folder, run, living)
        except Taken as problem:
            raise fail("dag-running", wanted.experiment, f"another command is submitting {dag.name}") from problem
        except OSError as problem:
            seen = Evidence(str(folder), f"{problem.strerror} (errno {problem.errno})")
            raise fail(
                "state-unwritable", wanted.experiment, f"cannot write under {folder}", evidence=[seen]
            ) from problem

    def _submit(self, wanted: Submission, folder: Path, run: Run, living: Callable[[int], bool]) -> Submission:
        before = _read(folder / "submission.json")
        if before is not None and before.cluster is not None and living(before.cluster):
            raise fail("dag-running", wanted.experiment, f"{Path(wanted.dag).name} runs as job {before.cluster}.0")
        if before is not None and before.cluster is not None and _crashed_at_its_end(Path(wanted.dag)):
            Path(f"{wanted.dag}.lock").unlink()
            self._record(folder, "stale-lock-removed", cluster=before.cluster)
        self._record(folder, "submit-begin", dag=wanted.dag, sha256=wanted.sha256, nodes=wanted.nodes)
        argv = ["condor_submit_dag", "-update_submit", "-batch-name", wanted.experiment, wanted.dag]
        answer = run(argv, Path(wanted.folder))
        match = _CLUSTER.search(answer.text)
        if answer.status or match is None:
            self._record(folder, "submit-refused", status=answer.status, text=answer.text[-2000:])
            source = f"{argv[0]} (exit {answer.status})"
            raise fail(
                "dag-refused",
                wanted.experiment,
                f"{Path(wanted.dag).name} was not taken",
                evidence=[Evidence.tail(source, answer.text)],
            )
        done = Submission(**{**_fields(wanted), "cluster": int(match[1])})
        write_private(folder / "submission.json", json.dumps({"v": RECORD_VERSION, **_fields(done)}, indent=1))
        self._record(folder, "submitted", cluster=done.cluster)
        return done

    def _record(self, folder: Path, what: str, **data: Any) -> None:
        now: datetime = self.clock.now()
        line = json.dumps({"v": RECORD_VERSION, "at": now.isoformat(), "what": what, "data": data}) + "\n"
        handle = os.open(folder / "events.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(handle, line.encode())
            os.fsync(handle)
        finally:
            os.close(handle)


def _crashed_at_its_end(dag: Path) -> bool:
    """Whether a DAGMan that is gone wrote its rescue file and then died in its FINAL node, as 25.14.1's does when it is
    removed. With the lock left there the next one would replay the log, take FINAL for failed, and never end."""
    lock = Path(f"{dag}.lock")
    rescues = [path.stat().st_mtime for path in dag.parent.glob(f"{dag.name}.rescue[0-9][0-9][0-9]")]
    if not lock.exists() or not rescues or max(rescues) < lock.stat().st_mtime:
        return False
    with dag.open(encoding="utf-8", errors="replace") as lines:
        return any(line.startswith("FINAL ") for line in lines)


def _fields(submission: Submission) -> dict[str, Any]:
    return {name: getattr(submission, name) for name in submission.__dataclass_fields__}


def _read(path: Path) -> Submission | None:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return Submission(**{name: data[name] for name in Submission.__dataclass_fields__})
    except (OSError, ValueError, KeyError, TypeError):
        return None
