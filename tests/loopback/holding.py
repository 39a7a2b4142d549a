"""A session holder for the length of a test."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

from siteannex.transport import messages as m
from siteannex.transport.held import ask_holder
from siteannex.transport.places import Places
from siteannex.transport.sessions import close_session


def holder_pid(places: Places) -> int:
    """The living holder's process id, 0 when there is none."""
    reply = ask_holder(m.Ping(), places)
    return reply.pid if isinstance(reply, m.Pong) else 0


def lives(pid: int) -> bool:
    """True while the process runs."""
    with contextlib.suppress(OSError):
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123  (a zombie answers kill as well)
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    return False


def eventually(condition: object, timeout_s: float = 10.0) -> bool:
    """Wait until `condition()` is true; False when it does not become so."""
    assert callable(condition)
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False


@contextlib.contextmanager
def holder_of(places: Places) -> Iterator[Places]:
    """Whatever holder these places get during the block is ended after it."""
    try:
        yield places
    finally:
        pid = holder_pid(places)
        close_session(None, places=places)
        assert pid == 0 or eventually(lambda: not lives(pid)), "the holder outlived its test"
