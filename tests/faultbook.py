"""The fault table: which tests inject a fault, which code each must end in, and how long the verdict took.

A test carries `@pytest.mark.fault("home over quota", code="quota-exceeded")`, takes the fixture `fault`, and ends in
`fault.saw(failure)`; where the right answer is no failure the code is "-" and it ends in `fault.no_failure(stage)`.
`docs/faults.json` keeps one row a fault; `scripts/fault_table.py` refreshes it from the records of a run.
"""

from __future__ import annotations

import ast
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from siteannex.annex.events import failure_from_data
from siteannex.errors import Stage, StageFailure
from siteannex.failures import FAILURES

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "docs" / "faults.json"
RECORD_VARIABLE = "SITEANNEX_FAULT_RECORD"
NO_FAILURE = "-"
WITHIN_S = 180.0
"""The bound of the time to a verdict; generous, because test machines are busy."""
GROUNDS = ("lab", "loopback", "scripted")
"""Where a fault is injected, the most real first: the lab, a scripted server, scripted answers."""


@dataclass(frozen=True, slots=True)
class FaultRecord:
    """One row of the table. `seconds` from the injection, or the command, to the verdict."""

    stage: str
    fault: str
    code: str
    seconds: float
    ground: str


@dataclass(slots=True)
class FaultRow:
    """The row a marked test proves: the fixture `fault`."""

    name: str
    code: str
    ground: str
    within_s: float = WITHIN_S
    record: FaultRecord | None = field(default=None, init=False)
    _started: float = field(default_factory=time.monotonic, init=False)

    def start(self) -> None:
        """Count the seconds from here; otherwise they count from the start of the test."""
        self._started = time.monotonic()

    def saw(self, failure: StageFailure | Mapping[str, Any], *, seconds: float | None = None) -> None:
        """Check that the failure (or the one in a `--json` answer) is this row's, and record it."""
        if not isinstance(failure, StageFailure):
            read = failure_from_data(failure.get("failure", failure))
            assert read is not None, f"not a failure: {failure}"
            failure = read
        told = f"{failure.stage} {failure.code}: {failure.summary} {failure.evidence}"
        assert failure.code == self.code, told
        assert failure.stage is FAILURES[self.code].stage, told
        assert failure.hint, told
        self._keep(failure.stage, seconds)

    def no_failure(self, stage: Stage, *, seconds: float | None = None) -> None:
        """The fault is one that siteannex lives through; say at which stage it was met."""
        assert self.code == NO_FAILURE, f"{self.name}: {self.code} was to be seen"
        self._keep(stage, seconds)

    def _keep(self, stage: Stage, seconds: float | None) -> None:
        taken = time.monotonic() - self._started if seconds is None else seconds
        assert taken <= self.within_s, f"{self.name}: {taken:.0f} s to the verdict"
        self.record = FaultRecord(str(stage), self.name, self.code, round(taken, 1), self.ground)
        if path := os.environ.get(RECORD_VARIABLE):
            with Path(path).open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(asdict(self.record)) + "\n")


def ground_of(path: Path) -> str:
    """The ground of a test, by its directory."""
    parts = path.relative_to(ROOT).parts if path.is_absolute() else path.parts
    return parts[1] if len(parts) > 2 and parts[1] in GROUNDS else "scripted"


def marked_faults() -> frozenset[tuple[str, str]]:
    """(fault, code) of every marker written under tests/."""
    return frozenset(row for path in sorted((ROOT / "tests").rglob("*.py")) for row in _marks(path))


def _marks(path: Path) -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "fault":
            named = {keyword.arg: keyword.value for keyword in node.keywords}
            words = [*node.args, named.get("code")]
            texts = [word.value for word in words if isinstance(word, ast.Constant) and isinstance(word.value, str)]
            assert len(texts) == 2, f"{path}:{node.lineno}: write fault and code as plain texts"
            yield texts[0], texts[1]


def read_records(text: str) -> list[FaultRecord]:
    """Records of runs, one JSON object a line."""
    return [FaultRecord(**json.loads(line)) for line in text.splitlines() if line.strip()]


def read_table() -> list[FaultRecord]:
    """The rows of docs/faults.json; none when there is no such file."""
    if not TABLE.is_file():
        return []
    return [FaultRecord(**row) for row in json.loads(TABLE.read_text(encoding="utf-8"))]


def table_text(rows: Iterable[FaultRecord]) -> str:
    """docs/faults.json: one row a line, so that it merges and can be read."""
    ordered = sorted(rows, key=lambda row: (Stage(row.stage).order, row.code, row.fault))
    return "[\n" + ",\n".join(json.dumps(asdict(row)) for row in ordered) + "\n]\n"


def merged(
    old: Iterable[FaultRecord], new: Iterable[FaultRecord], marked: frozenset[tuple[str, str]]
) -> list[FaultRecord]:
    """Old rows that are still marked, replaced by new ones: the most real ground of a fault, its slowest verdict."""
    rows = {(row.fault, row.code): row for row in old}
    fresh: dict[tuple[str, str], FaultRecord] = {}
    for row in new:
        best = fresh.get((row.fault, row.code))
        rank = (-GROUNDS.index(row.ground), row.seconds)
        if best is None or rank > (-GROUNDS.index(best.ground), best.seconds):
            fresh[row.fault, row.code] = row
    return [row for key, row in (rows | fresh).items() if key in marked]
