"""Refresh docs/faults.json, and the page made from it, from what the fault tests really saw.

    scripts/fault_table.py [PYTEST ARGUMENTS]     run the marked tests there (default: all; the lab must be up)
    scripts/fault_table.py --from RECORD          take the record of a run made with SITEANNEX_FAULT_RECORD=RECORD

Rows that no test of the run proved keep their seconds; rows that no test is marked with any more go.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests import faultbook  # noqa: E402  (the table's code lives with the tests)


def run_tests(arguments: list[str], record: Path) -> int:
    """Run the marked tests with a record; pytest's status."""
    environment = {**os.environ, faultbook.RECORD_VARIABLE: str(record)}
    command = [sys.executable, "-m", "pytest", "-q", "-m", "fault", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def main(arguments: list[str]) -> int:
    """Run or read, then write; the exit status."""
    with tempfile.TemporaryDirectory() as scratch:
        record, status = Path(scratch) / "record", 0
        if arguments[:1] == ["--from"]:
            record = Path(arguments[1])
        else:
            record.touch()
            status = run_tests(arguments, record)
        seen = faultbook.read_records(record.read_text(encoding="utf-8"))
    rows = faultbook.merged(faultbook.read_table(), seen, faultbook.marked_faults())
    faultbook.TABLE.write_text(faultbook.table_text(rows), encoding="utf-8")
    subprocess.run([sys.executable, str(ROOT / "scripts" / "failures_doc.py")], check=True)
    for fault, code in sorted(faultbook.marked_faults() - {(row.fault, row.code) for row in rows}):
        print(f"no record yet: {fault} ({code})", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
