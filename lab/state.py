"""The state directory of one lab, and how to find and enter its processes.

Process ids are different inside and outside the lab's pid namespace. The supervisor writes the inner ones; this
module translates them for whoever asks.
"""

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.errors import LabError


def _write(path: Path, value: object) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(value, indent=1) + "\n")
    fresh.rename(path)


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    return dict(found)


def write_config(folder: Path, config: dict[str, str]) -> None:
    """What the supervisor needs to know: paths of images."""
    _write(folder / "config.json", config)


def read_config(folder: Path) -> dict[str, str]:
    """The paths written by :func:`write_config`."""
    return _read(folder / "config.json")


def write_inside(folder: Path, inside: dict[str, Any]) -> None:
    """The supervisor's word: its pid namespace, the hosts' inner pids, whether all is ready."""
    _write(folder / "inside.json", inside)


def read_inside(folder: Path) -> dict[str, Any]:
    """The supervisor's last word, empty before it spoke."""
    return _read(folder / "inside.json")


def write_failure(folder: Path, text: str) -> None:
    """Why the lab did not come up."""
    (folder / "failed").write_text(text + "\n")


def read_failure(folder: Path) -> str | None:
    """Why the lab did not come up, if it did not."""
    path = folder / "failed"
    return path.read_text() if path.exists() else None


def clear(folder: Path) -> None:
    """Forget a lab that has ended."""
    for name in ("config.json", "inside.json", "outer.json", "failed", "net", "codes.json", "supervisor.log"):
        (folder / name).unlink(missing_ok=True)
    with suppress(OSError):
        # Only ever a mount point; the mount went with the lab's namespace.
        (folder / "ground").rmdir()


def start_time(pid: int) -> str | None:
    """When a living process started, in the kernel's ticks; None for one that is gone or a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields[19]


def write_outer(folder: Path, pid: int) -> None:
    """The pid of the outer ``unshare``, with its start time so that a reused pid is not taken for it."""
    _write(folder / "outer.json", {"pid": pid, "start": start_time(pid)})


def outer_pid(folder: Path) -> int | None:
    """The living outer ``unshare`` as seen from outside, or None."""
    outer = _read(folder / "outer.json")
    if outer and outer["start"] is not None and start_time(outer["pid"]) == outer["start"]:
        return int(outer["pid"])
    return None


def children(pid: int) -> list[int]:
    """Direct children of a process."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        found = []
        for status in Path("/proc").glob("[0-9]*/stat"):
            try:
                text = status.read_text()
            except OSError:
                continue
            if int(text.rpartition(")")[2].split()[1]) == pid:
                found.append(int(status.parent.name))
        return found


def _inner_pid(pid: int) -> int | None:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    for line in status.splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-1])
    return None


@dataclass(frozen=True, slots=True)
class Processes:
    """Pids, as the asking process sees them, through which the lab is entered."""

    inside: bool
    supervisor: int
    hosts: dict[str, int]


def is_inside(folder: Path) -> bool:
    """Whether this process runs in the outer namespace of the lab in ``folder``."""
    word = read_inside(folder)
    return bool(word) and str(Path("/proc/self/ns/pid").readlink()) == word["pid_namespace"]


def processes(folder: Path) -> Processes:
    """Find the running lab's processes; LabError when it does not run."""
    word = read_inside(folder)
    if is_inside(folder):
        return Processes(True, 1, word["hosts"])
    outer = outer_pid(folder)
    if outer is None or not word:
        raise LabError(f"no lab runs in {folder}; start one with: lab/lab up")
    heads = children(outer)
    if not heads:
        raise LabError(f"the lab in {folder} is ending")
    by_inner = {_inner_pid(child): child for child in children(heads[0])}
    hosts = {name: by_inner[pid] for name, pid in word["hosts"].items() if pid in by_inner}
    return Processes(False, heads[0], hosts)


def enter(pid: int, *, with_user: bool) -> list[str]:
    """The command that enters a host through its ``unshare`` process.

    That process is in the host's namespaces except the pid one, which it made for its children.
    """
    folder = f"/proc/{pid}/ns"
    user = [f"--user={folder}/user"] if with_user else []
    spaces = [f"--mount={folder}/mnt", f"--net={folder}/net", f"--uts={folder}/uts", f"--ipc={folder}/ipc"]
    return ["nsenter", *user, *spaces, f"--pid={folder}/pid_for_children", "--"]


def enter_router(pid: int, *, with_user: bool) -> list[str]:
    """The command that enters the outer namespace through the supervisor."""
    folder = f"/proc/{pid}/ns"
    user = [f"--user={folder}/user"] if with_user else []
    return ["nsenter", *user, f"--mount={folder}/mnt", f"--net={folder}/net", f"--pid={folder}/pid", "--"]
