"""The fault table cannot drift: every marked test has its row, every row its test, and the page shows them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from siteannex.errors import Evidence, Stage
from siteannex.failures import FAILURES, failure
from tests import faultbook
from tests.faultbook import FaultRecord, FaultRow

ROW = FaultRecord("SUBMIT", "unknown QOS", "qos-invalid", 2.0, "scripted")
MARKED = frozenset({("unknown QOS", "qos-invalid")})


def test_every_marked_fault_has_its_row_and_every_row_its_test() -> None:
    rows = faultbook.read_table()
    assert {(row.fault, row.code) for row in rows} == faultbook.marked_faults(), (
        "run the fault tests that are new and refresh the table: scripts/fault_table.py FILES"
    )
    assert len({(row.fault, row.code) for row in rows}) == len(rows)


def test_every_row_has_its_codes_stage() -> None:
    for row in faultbook.read_table():
        assert row.ground in faultbook.GROUNDS
        assert row.code == "-" or FAILURES[row.code].stage == row.stage, row


def test_a_row_takes_only_its_own_code_and_stage() -> None:
    row = FaultRow("unknown QOS", "qos-invalid", "scripted")
    with pytest.raises(AssertionError, match="account-invalid"):
        row.saw(failure("account-invalid", "lab", "no"))
    with pytest.raises(AssertionError):
        row.saw(replace(failure("qos-invalid", "lab", "no"), stage=Stage.PLAN))
    with pytest.raises(AssertionError, match="200 s"):
        row.saw(failure("qos-invalid", "lab", "no"), seconds=200)
    with pytest.raises(AssertionError):
        row.no_failure(Stage.SUBMIT)
    row.saw(failure("qos-invalid", "lab", "no", evidence=[Evidence("sbatch", "Invalid qos")]), seconds=2)
    assert row.record == ROW


def test_the_most_real_ground_and_its_slowest_verdict_are_kept() -> None:
    real, slow = replace(ROW, ground="lab"), replace(ROW, ground="lab", seconds=9.0)
    assert faultbook.merged([], [slow, real, ROW], MARKED) == [slow]
    assert faultbook.merged([slow], [real], MARKED) == [real]
    assert faultbook.merged([slow], [], MARKED) == [slow]
    assert faultbook.merged([slow], [], frozenset()) == []


def test_the_ground_is_the_tests_directory() -> None:
    tests = faultbook.ROOT / "tests"
    assert faultbook.ground_of(tests / "lab" / "faults" / "test_ship.py") == "lab"
    assert faultbook.ground_of(tests / "loopback" / "test_login.py") == "loopback"
    assert faultbook.ground_of(tests / "unit" / "test_up.py") == "scripted"
