"""The lab comes and goes without a trace. Starts labs of its own; a running one is not touched."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import Lab, LabError, state
from lab.paths import REPO


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    Lab(tmp_path).down()


def namespaces(pid: int) -> set[str]:
    try:
        return {str(link.readlink()) for link in Path(f"/proc/{pid}/ns").iterdir()}
    except OSError:
        return set()


def family(pid: int) -> set[int]:
    below = state.children(pid)
    return {pid, *(each for child in below for each in family(child))}


def everyone() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def test_up_and_down_five_times_leave_no_process_mount_or_namespace(folder: Path) -> None:
    mounts = Path("/proc/self/mounts").read_text()
    for _ in range(5):
        Lab.up(folder, say=lambda _: None)
        outer = state.outer_pid(folder)
        assert outer is not None
        processes = family(outer)
        ours = set().union(*map(namespaces, processes)) - namespaces(os.getpid())
        assert len(processes) > 20
        assert len(ours) > 20
        assert Lab(folder).down()
        left = everyone()
        assert processes.isdisjoint(left)
        assert not ours & set().union(*map(namespaces, left))
        assert Path("/proc/self/mounts").read_text() == mounts
        assert sorted(entry.name for entry in folder.iterdir()) == [".lock"]


def test_up_twice_is_one_lab_and_down_twice_is_none(folder: Path) -> None:
    said: list[str] = []
    Lab.up(folder, say=said.append)
    first = state.outer_pid(folder)
    Lab.up(folder, say=said.append)
    assert state.outer_pid(folder) == first
    assert said[-1].startswith("the lab already runs")
    assert Lab(folder).down()
    assert not Lab(folder).down()
    with pytest.raises(LabError):
        Lab.attach(folder)


def test_two_labs_do_not_meet(folder: Path) -> None:
    one, two = (Lab.up(folder / name, say=lambda _: None) for name in ("one", "two"))
    try:
        one.net("blocked")
        assert two.net() == "nat"
        one.exec("login1", ["touch", "/home/alice/here"], user="alice", check=True)
        assert two.exec("login1", ["ls", "/home/alice/here"]).returncode != 0
    finally:
        one.down()
        two.down()


def test_pytest_may_run_on_the_router_and_use_the_lab_from_there(folder: Path) -> None:
    lab = Lab.up(folder, say=lambda _: None)
    ask = "from lab import Lab; print(Lab.attach().exec('ap', ['hostname']).stdout)"
    inner = [
        "env",
        f"SITEANNEX_LAB_STATE={folder}",
        f"PYTHONPATH={REPO}",
        os.environ.get("LAB_PYTHON", "python3"),
        "-c",
        ask,
    ]
    done = subprocess.run(lab.argv("router", inner), capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "ap", done.stderr


def test_a_killed_supervisor_takes_the_whole_lab_with_it(folder: Path) -> None:
    Lab.up(folder, say=lambda _: None)
    outer = state.outer_pid(folder)
    assert outer is not None
    processes = family(outer)
    subprocess.run(["kill", "-9", str(state.children(outer)[0])], check=True)
    os.waitpid(outer, 0)
    assert not Lab(folder).running()
    assert processes.isdisjoint(pid for pid in everyone() if state.start_time(pid) is not None)
