"""Two commands never work on one annex, also where the file system of the home has no locks."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from siteannex.annex.events import What
from siteannex.annex.store import Store
from siteannex.errors import AnnexError, Stage
from siteannex.locks import exclusive, stand_in
from tests.unit.doubles import FakeClock
from tests.unit.samples import plan

NO_LOCKS = [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS]


def refuse_flock_below(place: Path, number: int, patch: Callable[[str, object], None]) -> None:
    """What a file system without locks says, for files below `place` only."""
    real = fcntl.flock

    def flock(handle: int, operation: int) -> None:
        if Path(f"/proc/self/fd/{handle}").readlink().is_relative_to(place):
            raise OSError(number, os.strerror(number))
        real(handle, operation)

    patch("flock", flock)


@pytest.fixture(autouse=True)
def tmp_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    yield
    monkeypatch.setattr("tempfile.tempdir", None)


@pytest.fixture(params=NO_LOCKS, ids=lambda number: errno.errorcode[number])
def nfs(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory on a file system that has no locks."""
    state = tmp_path / "nfs"
    state.mkdir()
    refuse_flock_below(state, request.param, lambda name, value: monkeypatch.setattr(fcntl, name, value))
    return state


HOLDER = (
    "import fcntl, sys; from pathlib import Path\n"
    "from siteannex.annex.store import Store\n"
    "from tests.unit.doubles import FakeClock; from tests.unit.test_locks import refuse_flock_below\n"
    "state = Path(sys.argv[1])\n"
    "refuse_flock_below(state, int(sys.argv[2]), lambda name, value: setattr(fcntl, name, value))\n"
    "with Store(state, FakeClock()).lock('sweep1', 'lab'): print('held', flush=True); sys.stdin.read()\n"
)


def test_without_file_locks_two_commands_of_one_host_still_exclude_each_other(nfs: Path) -> None:
    said: list[str] = []
    store = Store(nfs, FakeClock(), said.append)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(nfs), str(errno.ENOLCK)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(AnnexError) as raised, store.lock("sweep1", "lab"):
            pass
        assert raised.value.failure.code == "annex-busy"
        assert other.stdin is not None
        other.stdin.close()
        assert other.wait(timeout=30) == 0
    with store.lock("sweep1", "lab"):
        pass
    assert f"{nfs}/locks has no file locks" in said[0]
    assert "use siteannex on one host at a time" in said[0]


def test_without_file_locks_events_are_written_all_the_same(nfs: Path) -> None:
    annex = Store(nfs, FakeClock()).create(plan())
    annex.record(Stage.CONNECT, What.BEGIN)
    assert [event.stage for event in annex.events()] == [Stage.PLAN, Stage.CONNECT]


def test_another_error_of_the_lock_is_no_reason_to_go_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = tmp_path / "state"
    state.mkdir()
    refuse_flock_below(state, errno.EIO, lambda name, value: monkeypatch.setattr(fcntl, name, value))
    with pytest.raises(AnnexError) as raised, Store(state, FakeClock()).lock("sweep1", "lab"):
        pass
    assert raised.value.failure.code == "state-unwritable"


def test_the_stand_in_is_not_trusted_in_a_directory_of_somebody_else(nfs: Path, tmp_path: Path) -> None:
    ours = stand_in(nfs / "x").parent.parent
    ours.symlink_to(tmp_path)
    with pytest.raises(OSError, match="is not a directory of yours"), exclusive(nfs / "x"):
        pass
