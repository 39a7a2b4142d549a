"""Why a file could not be written at a site: quota, full disk and permissions, told apart by the far side's words."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from siteannex.errors import AnnexError, Evidence
from siteannex.failures import fail
from siteannex.units import format_bytes

_CAUSES = (
    (r"quota", "quota-exceeded", "your quota there is used up"),
    (r"no space left on device", "site-disk-full", "the file system there is full"),
    (r"read-only file system|permission denied|operation not permitted", "home-unwritable", "you may not write there"),
)
"""The texts of EDQUOT, ENOSPC, EROFS, EACCES and EPERM (errno(3)) under LC_ALL=C."""

_ROOM = ("quota-exceeded", "site-disk-full")

_ASK = r"""LC_ALL=C; export LC_ALL; d=$1
while [ ! -d "$d" ] && [ "$d" != "${d%/*}" ]; do d=${d%/*}; done
timeout 10 df -Pk "$d" 2>/dev/null | tail -n 1
command -v quota >/dev/null 2>&1 && timeout 10 quota -s 2>&1 | tail -n 4
command -v lfs >/dev/null 2>&1 && timeout 10 lfs quota -q -h -u "$(id -un)" "$d" 2>&1 | tail -n 2
exit 0"""


def write_failure(
    site: str, what: str, words: str, evidence: Sequence[Evidence], *, needed_bytes: int = 0
) -> AnnexError:
    """The failure of a write whose program said `words`. `needed_bytes`: the size of what was to be written."""
    need = f"; it needs {format_bytes(needed_bytes)}" if needed_bytes else ""
    for pattern, code, meaning in _CAUSES:
        if re.search(pattern, words, re.IGNORECASE):
            return fail(code, site, f"{what}: {meaning}{need if code in _ROOM else ''}", evidence=evidence)
    return fail("ship-failed", site, what, evidence=evidence)


def with_room(error: AnnexError, place: str, ask: Callable[[str], str]) -> AnnexError:
    """Add what is free at `place` (a shell word), where room is what was missing. `ask` runs a script there."""
    if error.failure.code not in _ROOM:
        return error
    try:
        said = ask(f"set -- {place}\n{_ASK}")
    except AnnexError:
        return error  # the answer is a comfort, the failure is the news
    first, _, rest = said.strip().partition("\n")
    shown = "\n".join(text for text in (room_text(first), rest.strip()) if text)
    seen = (*error.failure.evidence, Evidence.tail("df and quota there", shown)) if shown else error.failure.evidence
    return AnnexError(replace(error.failure, evidence=seen))


def room_text(line: str) -> str:
    """A line of `df -Pk` in words; as it is when it is something else."""
    fields = line.split()
    if len(fields) < 6 or not fields[1].isdecimal() or not fields[3].isdecimal():
        return line.strip()
    free, size = (format_bytes(int(fields[index]) * 1024) for index in (3, 1))
    return f"{free} of {size} free on {' '.join(fields[5:])}"
