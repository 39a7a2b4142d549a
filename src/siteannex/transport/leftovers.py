"""What session holders and ssh masters of this user have left on this machine: sockets and processes nobody reaches."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from siteannex.errors import AnnexError
from siteannex.locks import Taken, exclusive
from siteannex.transport import messages as m
from siteannex.transport.held import ask_holder
from siteannex.transport.places import Places

_START_S, _END_S = 3.0, 3.0
"""How long a holder may take to listen, and to end when it is told to."""


@dataclass(frozen=True, slots=True)
class Leftover:
    """Something of ours on this machine that serves nobody. `remove` is safe to call when it is gone already."""

    what: str
    why: str
    remove: Callable[[], None] = field(repr=False, compare=False)


def leftovers(places: Places) -> list[Leftover]:
    """Holders of these places that no command can reach, and sockets nobody listens at."""
    found = [
        Leftover(f"session holder, process {pid}", "no command can reach it", partial(_end, pid, places))
        for pid in _unreachable(places)
    ]
    if places.runtime.is_dir():
        found += [
            Leftover(str(path), "nobody listens there", partial(_unlink, path, places))
            for path in sorted([places.holder_socket, *places.runtime.glob("ssh-*")])
            if _dead(path)
        ]
    return found


def _unreachable(places: Places) -> set[int]:
    """A holder that has just started listens soon, one whose socket was removed ends by itself: both get a moment."""
    until = time.monotonic() + _START_S
    while strays := set(_holders(places)) - {_answering(places)}:
        if time.monotonic() > until:
            return strays
        time.sleep(0.2)
    return set()


def _answering(places: Places) -> int:
    try:
        reply = ask_holder(m.Ping(), places)
    except AnnexError:
        return 0
    return reply.pid if isinstance(reply, m.Pong) else 0


def _holders(places: Places) -> Iterator[int]:
    """Processes of this user that were started as the holder of these places (held.py says how)."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if _is_holder(words, places) and entry.stat().st_uid == os.getuid():
                    yield int(entry.name)


def _is_holder(words: list[bytes], places: Places) -> bool:
    if b"siteannex.transport.holder" not in words or b"--runtime" not in words:
        return False
    return words[words.index(b"--runtime") + 1 :][:1] == [os.fsencode(places.runtime)]


def _end(pid: int, places: Places) -> None:
    """SIGTERM, then SIGKILL for one that hangs; each only while it is that process still."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        until = time.monotonic() + _END_S
        if pid in _holders(places):
            os.kill(pid, number)
        while pid in _holders(places) and time.monotonic() < until:
            time.sleep(0.1)


def _dead(path: Path) -> bool:
    """True for a socket at which nobody listens, and for the note of an ssh master whose socket is gone."""
    if path.suffix == ".json":
        return not path.with_suffix("").exists() or _dead(path.with_suffix(""))
    if not path.is_socket():
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False


def _unlink(path: Path, places: Places) -> None:
    """Remove what is still dead, while no holder can start and bind a new socket there."""
    with contextlib.suppress(Taken), exclusive(places.holder_lock):
        if _dead(path):
            path.unlink(missing_ok=True)
