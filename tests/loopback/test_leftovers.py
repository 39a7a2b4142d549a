"""What session holders leave on this machine, with real holder processes and real sockets."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from siteannex.transport.held import start_holder
from siteannex.transport.leftovers import leftovers
from siteannex.transport.places import Places
from tests.loopback.holding import eventually, holder_of, holder_pid, lives


@pytest.fixture
def places(tmp_path: Path) -> Iterator[Places]:
    made = Places(home=tmp_path, user="alice", state=tmp_path / "state", runtime=tmp_path / "run")
    with holder_of(made):
        yield made


def a_holder(places: Places) -> int:
    start_holder(places)
    assert eventually(lambda: holder_pid(places))
    return holder_pid(places)


def test_a_holder_that_serves_is_no_leftover(places: Places) -> None:
    pid = a_holder(places)
    assert leftovers(places) == []
    assert lives(pid)


def test_no_runtime_directory_has_no_leftovers(places: Places) -> None:
    assert leftovers(places) == []
    assert not places.runtime.exists()


def test_a_holder_whose_socket_is_gone_ends_by_itself_and_a_hung_one_is_ended(places: Places) -> None:
    pid = a_holder(places)
    os.kill(pid, signal.SIGSTOP)
    places.holder_socket.unlink()
    [found] = leftovers(places)
    assert found.what == f"session holder, process {pid}"
    found.remove()
    assert not lives(pid)
    assert leftovers(places) == []
    second = a_holder(places)
    places.holder_socket.unlink()
    assert leftovers(places) == [], "it had a moment to notice"
    assert not lives(second)


def test_the_socket_of_a_killed_holder_is_removed_but_never_a_new_holders(places: Places) -> None:
    pid = a_holder(places)
    os.kill(pid, signal.SIGKILL)
    assert eventually(lambda: not lives(pid))
    [found] = leftovers(places)
    assert found.what == str(places.holder_socket)
    second = a_holder(places)
    found.remove()
    assert holder_pid(places) == second
    os.kill(second, signal.SIGKILL)
    assert eventually(lambda: not lives(second))
    [found] = leftovers(places)
    found.remove()
    assert not places.holder_socket.exists()
    found.remove()


def test_sockets_and_notes_of_dead_ssh_masters_are_removed(places: Places) -> None:
    places.runtime.mkdir(mode=0o700)
    dead, alive = places.runtime / "ssh-0123456789abcdef", places.runtime / "ssh-fedcba9876543210"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(dead))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(alive))
        listener.listen()
        for path in (dead, alive):
            path.with_suffix(".json").write_text("{}")
        found = leftovers(places)
        assert [each.what for each in found] == [str(dead), f"{dead}.json"]
        for each in found:
            each.remove()
        assert sorted(path.name for path in places.runtime.glob("ssh-*")) == [alive.name, f"{alive.name}.json"]


def test_the_holder_of_other_places_is_not_ours(places: Places) -> None:
    words = ["-m", "siteannex.transport.holder", "--runtime", "/elsewhere"]
    with subprocess.Popen(
        [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)", *words], stdout=subprocess.PIPE
    ) as stranger:
        assert stranger.stdout is not None
        stranger.stdout.readline()
        found = leftovers(places)
        theirs = leftovers(replace(places, runtime=Path("/elsewhere")))
        stranger.kill()
    assert found == []
    assert [each.what for each in theirs] == [f"session holder, process {stranger.pid}"]


NO_LOCKS = """
import errno, fcntl, os
real = fcntl.flock
def flock(handle, operation):
    if os.readlink(f"/proc/self/fd/{handle}").startswith("PLACE/"):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
    real(handle, operation)
fcntl.flock = flock
"""


def test_where_the_file_system_has_no_locks_there_is_still_one_holder(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "tmp").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(NO_LOCKS.replace("PLACE", str(places.runtime)))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    pid = a_holder(places)
    start_holder(places)  # gives way to the first
    assert list((tmp_path / "tmp").glob("siteannex-*/locks/*")), "the stand-in was locked"
    assert eventually(lambda: leftovers(places) == [])
    assert holder_pid(places) == pid
