"""A small file system tree with an "HTCondor" in it: this machine's own `true`, renamed, with a version inside."""

from __future__ import annotations

import shutil
import sys
import tarfile
from pathlib import Path

from siteannex.annex.packing.elf import read_elf
from siteannex.annex.packing.recipe import OPTIONAL, REQUIRED

VERSION = "25.1.3"
MACHINE_AT = 18
"""Offset of e_machine in an ELF header."""


def native_program() -> Path:
    """A dynamically linked program of this machine that ends with status 0."""
    return Path(shutil.which("true") or "/bin/true").resolve()


def native_libraries() -> dict[str, Path]:
    """libc and the loader this machine runs programs with."""
    elf = read_elf(native_program().read_bytes())
    assert elf is not None
    assert elf.interpreter is not None
    loader = Path(elf.interpreter)
    libc = next(
        Path(line.split()[-1]).resolve()
        for line in Path("/proc/self/maps").read_text().splitlines()
        if "libc.so.6" in line or "/libc-2." in line
    )
    assert sys.platform == "linux"
    return {loader.name: loader.resolve(), "libc.so.6": libc}


def make_root(root: Path, *, version: str = VERSION, without: tuple[str, ...] = (), libraries: bool = True) -> Path:
    """A tree like an installed system's: /usr/sbin, /usr/bin, /usr/libexec/condor, /lib64 -> usr/lib64."""
    program = native_program().read_bytes() + f"\0$CondorVersion: {version} 2026-10-16 BuildID: 1 $\0".encode()
    places = {"sbin": "usr/sbin", "bin": "usr/bin", "libexec": "usr/libexec/condor"}
    for kind, names in REQUIRED.items():
        (root / places[kind]).mkdir(parents=True, exist_ok=True)
        for name in names:
            if name not in without:
                (root / places[kind] / name).write_bytes(program)
                (root / places[kind] / name).chmod(0o755)
    plugin = root / places["libexec"] / "check-url"
    plugin.write_text("#!/bin/sh\nexit 0\n")
    plugin.chmod(0o755)
    assert "check-url" in OPTIONAL["libexec"]
    (root / "usr/lib64").mkdir(parents=True, exist_ok=True)
    if not (root / "lib64").exists():
        (root / "lib64").symlink_to("/usr/lib64")
    if libraries:
        for soname, path in native_libraries().items():
            shutil.copyfile(path, root / "usr/lib64" / soname)
    return root


def make_release(root: Path, archive: Path) -> Path:
    """The same as a release tarball: condor-25.1.3/usr/... with libraries of its own."""
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(root / "usr", "condor-25.1.3/usr")
    return archive


def foreign(path: Path, machine: int = 183) -> None:
    """Turn a program into one for another processor (183: aarch64)."""
    data = bytearray(path.read_bytes())
    data[MACHINE_AT : MACHINE_AT + 2] = machine.to_bytes(2, "little")
    path.write_bytes(bytes(data))
