"""Files and directories that only their owner may read."""

from __future__ import annotations

import os
from pathlib import Path


def private_dir(path: Path, *, new: bool = False) -> None:
    """Make a directory and whatever is missing above it, all 0700 (`parents=True` would follow the umask).

    With `new` the directory itself must not exist yet (FileExistsError).
    """
    for ancestor in reversed(path.parents):
        ancestor.mkdir(mode=0o700, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=not new)


def write_private(path: Path, text: str) -> None:
    """Write a text file, 0600, and make sure it is on disk."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
