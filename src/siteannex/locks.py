"""Locks between commands: flock(2) where the file system has it; where it has not, a stand-in on this host's own disk.

A home on NFS may have no locks (no lock daemon: ENOLCK; a file system without them: EOPNOTSUPP, ENOSYS). A lock of the
same name under the temporary directory then still keeps the commands of this host apart, not those of other hosts.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from siteannex.private import private_directory

_NO_LOCKS = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS})


class Taken(Exception):
    """Another process has the lock."""


@contextmanager
def exclusive(path: Path, *, wait: bool = False) -> Iterator[str]:
    """Hold the lock file `path`, made when it is missing; freed by the end of the block or of the process.

    Yields "" for a real lock, else why only commands of this host are kept out. Raises Taken (never with `wait`),
    OSError.
    """
    handle, weakness = _acquire(path, wait=wait)
    try:
        yield weakness
    finally:
        os.close(handle)


def stand_in(path: Path) -> Path:
    """What is locked in place of a file that cannot be: in a directory of ours on this host."""
    name = hashlib.sha256(os.fsencode(path.absolute())).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"siteannex-{os.getuid()}" / "locks" / name


def _acquire(path: Path, *, wait: bool) -> tuple[int, str]:
    try:
        return _flocked(path, wait=wait), ""
    except OSError as problem:
        if problem.errno not in _NO_LOCKS:
            raise
        why = problem.strerror
    spare = stand_in(path)
    private_directory(spare.parent.parent)
    private_directory(spare.parent)
    return _flocked(spare, wait=wait), f"{path.parent} has no file locks ({why})"


def _flocked(path: Path, *, wait: bool) -> int:
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise Taken from None
    except BaseException:
        os.close(handle)
        raise
    return handle
