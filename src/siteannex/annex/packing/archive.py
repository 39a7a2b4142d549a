"""Tar archives that are the same bytes whenever they hold the same files."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Member:
    """One file of an archive: its bytes and mode, or the target of a symbolic link."""

    data: bytes = b""
    mode: int = 0o644
    link: str | None = None


def tar_gz(members: Mapping[str, Member]) -> bytes:
    """A gzip'd tar of `members` (path to content): sorted, no times, no owners; directories are 0755, or 0700
    when every file in the archive is private."""
    private = all(member.mode & 0o077 == 0 for member in members.values() if member.link is None)
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path in sorted(_directories(members)):
            directory = tarfile.TarInfo(path)
            directory.type, directory.mode = tarfile.DIRTYPE, 0o700 if private else 0o755
            tar.addfile(directory)
        for path, member in sorted(members.items()):
            info = tarfile.TarInfo(path)
            info.mode, info.size = member.mode, len(member.data)
            if member.link is not None:
                info.type, info.linkname, info.size = tarfile.SYMTYPE, member.link, 0
            tar.addfile(info, io.BytesIO(member.data))
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=packed, mtime=0) as stream:
        stream.write(raw.getbuffer())
    return packed.getvalue()


def _directories(paths: Mapping[str, Member]) -> set[str]:
    found: set[str] = set()
    for path in paths:
        parts = path.split("/")[:-1]
        found.update("/".join(parts[: depth + 1]) for depth in range(len(parts)))
    return found
