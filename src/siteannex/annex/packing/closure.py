"""Which libraries a set of programs needs, and where they are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from siteannex.annex.packing.elf import Elf, read_elf
from siteannex.annex.packing.recipe import (
    DLOPENED_OPTIONAL,
    DLOPENED_REQUIRED,
    DRIVER_LIBRARIES,
    GLIBC_FAMILY,
)
from siteannex.annex.packing.source import Source

_SONAME = re.compile(rb"\0(lib[A-Za-z0-9_+-]+\.so\.[\d.]+)(?=\0)")


@dataclass(frozen=True, slots=True)
class Closure:
    """Everything the programs load: soname to real file; and what was not found, as `(needing file, soname)`."""

    libraries: Mapping[str, Path]
    missing: tuple[tuple[str, str], ...]
    glibc_needed: tuple[int, int]
    """The newest glibc whose symbols HTCondor's own files use."""


class Finder:
    """Looks sonames up the way a loader would: RPATH, HTCondor's own directories, the system's."""

    def __init__(self, source: Source, arch: str) -> None:
        self._dirs = (*source.libraries, *source.system)
        self._arch = arch
        self._seen: dict[Path, Elf | None] = {}

    def elf(self, path: Path) -> Elf | None:
        """The file read as ELF, once; None when it is none or not of this architecture."""
        if path not in self._seen:
            found = read_elf(path.read_bytes()) if path.is_file() else None
            self._seen[path] = found if found is not None and found.arch == self._arch else None
        return self._seen[path]

    def find(self, soname: str, needing: Path | None = None) -> Path | None:
        """The real file of a soname, None when no directory has one of this architecture."""
        near: list[Path] = []
        if needing is not None and (elf := self.elf(needing)) is not None:
            near = [Path(place.replace("$ORIGIN", str(needing.parent))) for place in elf.search]
        for place in (*near, *self._dirs):
            real = (place / soname).resolve() if (place / soname).exists() else None
            if real is not None and self.elf(real) is not None:
                return real
        return None


def close(programs: Iterable[Path], finder: Finder) -> Closure:
    """Follow NEEDED from the programs, and add what HTCondor is known to load by name at run time."""
    libraries: dict[str, Path] = {}
    missing: list[tuple[str, str]] = []
    glibc = (0, 0)
    todo = list(programs)
    done: set[Path] = set()
    while todo:
        path = todo.pop()
        elf = finder.elf(path)
        if path in done or elf is None:
            continue
        done.add(path)
        ours = path.name.startswith(("condor_", "libcondor_", "libclassad", "curl_plugin"))
        wanted = [(soname, True) for soname in elf.needed]
        if ours:
            glibc = max(glibc, elf.glibc)
            wanted += _by_name(path.read_bytes())
        for soname, required in wanted:
            if soname in libraries or DRIVER_LIBRARIES.match(soname):
                continue
            found = finder.find(soname, path)
            if found is not None:
                libraries[soname] = found
                todo.append(found)
            elif required:
                missing.append((path.name, soname))
    return Closure(libraries, tuple(dict.fromkeys(missing)), glibc)


def _by_name(data: bytes) -> Sequence[tuple[str, bool]]:
    names = sorted({name.decode() for name in _SONAME.findall(data)})
    return [
        (name, required)
        for pattern, required in ((DLOPENED_REQUIRED, True), (DLOPENED_OPTIONAL, False))
        for name in names
        if pattern.fullmatch(name)
    ]


def with_glibc(libraries: Mapping[str, Path], finder: Finder) -> dict[str, Path]:
    """Add the rest of glibc from the directory its libc came from, so that no part mixes with the site's."""
    home = libraries["libc.so.6"].parent
    family = {name: (home / name).resolve() for name in GLIBC_FAMILY if (home / name).exists()}
    return {**libraries, **{name: path for name, path in family.items() if finder.elf(path) is not None}}
