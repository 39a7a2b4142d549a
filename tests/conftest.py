"""What every test may use: the row of the fault table that a marked test proves."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.faultbook import WITHIN_S, FaultRow, ground_of

_ROW = pytest.StashKey[FaultRow]()


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", "fault(name, *, code, within_s): a row of the fault table (tests/faultbook.py)")


@pytest.fixture
def fault(request: pytest.FixtureRequest) -> FaultRow:
    """The row this test proves; see tests/faultbook.py."""
    mark = request.node.get_closest_marker("fault")
    assert mark is not None, "the fixture `fault` is for tests marked @pytest.mark.fault(...)"
    (name,), bound = mark.args, mark.kwargs.get("within_s", WITHIN_S)
    row = FaultRow(name, mark.kwargs["code"], ground_of(request.path), bound)
    request.node.stash[_ROW] = row
    return row


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """A marked test that passes without having shown its verdict fails."""
    row = item.stash.get(_ROW, None)
    if row is not None:
        row.start()
    outcome = yield
    if item.get_closest_marker("fault") is not None:
        assert row is not None, "a test marked as a fault takes the fixture `fault`"
        assert row.record is not None, f"{row.name}: the test ended without fault.saw(...)"
    return outcome
