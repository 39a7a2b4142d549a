"""Files and directories that only their owner may read."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def private_dir(path: Path, *, new: bool = False) -> None:
    """Make a directory and whatever is missing above it, all 0700 (`parents=True` would follow the umask).

    With `new` the directory itself must not exist yet (FileExistsError).
    """
    for ancestor in reversed(path.parents):
        ancestor.mkdir(mode=0o700, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=not new)


def private_directory(path: Path) -> None:
    """Make a directory that only we can enter, or check that it is one. Raises OSError."""
    private_dir(path)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise PermissionError(f"{path} is not a directory of yours")
    if stat.S_IMODE(found.st_mode) & 0o077:
        path.chmod(0o700)


def write_private(path: Path, text: str) -> None:
    """Write a text file, 0600, and make sure it is on disk."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
