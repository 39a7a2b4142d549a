"""Write docs/failures.md from the catalogue in siteannex.failures and docs/faults.json, or `--check` that it is so."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from siteannex.cli.failure_view import EXIT_CODES
from siteannex.errors import Stage
from siteannex.failures import FAILURES

TARGET = Path(__file__).resolve().parent.parent / "docs" / "failures.md"
HEAD = """# Failures

Every failure siteannex can report, by stage. The code is stable: scripts may match on it (`--json`, key `code`).
The exit code is the stage's. This page is written by `scripts/failures_doc.py` from `src/siteannex/failures/`.
"""

TABLE = TARGET.with_name("faults.json")
TABLE_HEAD = """
## The fault table

Faults the tests inject, what siteannex makes of each, and how long the verdict took when the table was last made
(`scripts/fault_table.py`). Ground: `lab` is a real access point, sshd and Slurm; `loopback` a scripted SSH server;
`scripted` scripted answers of Slurm or HTCondor. Code `-`: lived through, nothing fails.

| stage | fault | code | s | ground |
|---|---|---|---:|---|
"""


def fault_table() -> str:
    """The table of docs/faults.json; empty without one."""
    if not TABLE.is_file():
        return ""
    rows = json.loads(TABLE.read_text(encoding="utf-8"))
    lines = ("| {stage} | {fault} | {code} | {seconds} | {ground} |\n".format(**row) for row in rows)
    return TABLE_HEAD + "".join(lines)


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for stage in Stage:
        codes = {code: kind for code, kind in FAILURES.items() if kind.stage is stage}
        if codes:
            parts.append(f"\n## {stage} (exit code {EXIT_CODES[stage]})\n")
        for code, kind in codes.items():
            again = " Trying again can help." if kind.retryable else ""
            parts.append(f"\n### {code}\n\n{kind.meaning}{again}\n\nDo: {kind.hint}\n")
    return "".join(parts) + fault_table()


def main() -> int:
    """Write or check; the exit status."""
    if "--check" not in sys.argv:
        TARGET.write_text(page(), encoding="utf-8")
        return 0
    if TARGET.is_file() and TARGET.read_text(encoding="utf-8") == page():
        return 0
    print("docs/failures.md is not what the code says; run: python scripts/failures_doc.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
