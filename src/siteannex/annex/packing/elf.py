"""Reading ELF files without running them: what they need, for which processor, from which glibc.

Only the dynamic section is read, so that programs of another architecture can be packed too, and no foreign
program is run as `ldd` would. Layouts are from the System V ABI (https://refspecs.linuxfoundation.org/elf/gabi4+/).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

ARCHITECTURES = {62: "x86_64", 183: "aarch64"}
"""e_machine to the word of `uname -m`; other machines are shown as `em-N`."""

_PT_LOAD, _PT_DYNAMIC, _PT_INTERP = 1, 2, 3
_DT_NEEDED, _DT_STRTAB, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = 1, 5, 14, 15, 29
_SHT_SYMTAB = 2
_GLIBC_NEED = re.compile(rb"GLIBC_(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class Elf:
    """What a packer wants to know of one ELF file."""

    arch: str
    interpreter: str | None
    """The loader the file names (`/lib64/ld-linux-x86-64.so.2`), None for a shared library."""
    needed: tuple[str, ...]
    """Sonames, in the file's order."""
    search: tuple[str, ...]
    """RPATH and RUNPATH directories, `$ORIGIN` left as written."""
    glibc: tuple[int, int]
    """The newest glibc whose symbols it uses, (0, 0) when none is named."""
    has_symbols: bool
    """True when it carries a symbol table that `strip` would take away."""


def read_elf(data: bytes) -> Elf | None:
    """Read an ELF file's bytes. None when it is no 64-bit little-endian ELF file (a script, a 32-bit library)."""
    if data[:6] != b"\x7fELF\x02\x01" or len(data) < 64:
        return None
    try:
        return _read(data)
    except (struct.error, IndexError, ValueError, OverflowError):
        return None


def _read(data: bytes) -> Elf:
    machine, program_at, section_at = struct.unpack_from("<18xH12xQQ", data)
    program_size, program_count, section_size, section_count = struct.unpack_from("<54xHHHH", data)
    segments = [struct.unpack_from("<IIQQQQ", data, program_at + i * program_size) for i in range(program_count)]
    loads = [(vaddr, offset, size) for kind, _, offset, vaddr, _, size in segments if kind == _PT_LOAD]
    interpreter = next((_text(data, offset) for kind, _, offset, *_ in segments if kind == _PT_INTERP), None)
    entries = [
        entry
        for kind, _, offset, _, _, size in segments
        if kind == _PT_DYNAMIC
        for entry in _dynamic(data, offset, size)
    ]
    strings = next((_offset_of(loads, value) for tag, value in entries if tag == _DT_STRTAB), 0)
    names = [(tag, _text(data, strings + value)) for tag, value in entries if tag in _NAMED]
    needs = [(int(major), int(minor)) for major, minor in _GLIBC_NEED.findall(data)]
    return Elf(
        arch=ARCHITECTURES.get(machine, f"em-{machine}"),
        interpreter=interpreter,
        needed=tuple(text for tag, text in names if tag == _DT_NEEDED),
        search=tuple(
            part for tag, text in names if tag in (_DT_RPATH, _DT_RUNPATH) for part in text.split(":") if part
        ),
        glibc=max(needs, default=(0, 0)),
        has_symbols=any(
            struct.unpack_from("<4xI", data, section_at + i * section_size)[0] == _SHT_SYMTAB
            for i in range(section_count)
        ),
    )


_NAMED = frozenset({_DT_NEEDED, _DT_SONAME, _DT_RPATH, _DT_RUNPATH})


def _dynamic(data: bytes, offset: int, size: int) -> Iterator[tuple[int, int]]:
    for tag, value in struct.iter_unpack("<qQ", data[offset : offset + size - size % 16]):
        if tag == 0:
            return
        yield tag, value


def _offset_of(loads: list[tuple[int, int, int]], address: int) -> int:
    for vaddr, offset, size in loads:
        if vaddr <= address < vaddr + size:
            return offset + address - vaddr
    raise IndexError(address)


def _text(data: bytes, offset: int) -> str:
    return data[offset : data.index(b"\0", offset)].decode() if b"\0" in data[offset : offset + 4096] else ""
