"""Inputs that lie at the site already: linked to where the command looks for them, once they are what they must be."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Mapping

from .files import digest, say
from .task import MISUSED, NOT_STAGED, Json, Refusal


def link_staged(env: Mapping[str, str]) -> float | None:
    """Link every staged input into the sandbox; the seconds that verifying took, None when there are none.

    Refusal(NOT_STAGED): a copy is gone (sites purge scratch) or is not what was staged. Never read, never guessed at.
    """
    text = env.get("SITEANNEX_STAGED")
    if not text:
        return None
    begun = time.monotonic()
    try:
        wanted = json.loads(text)
        for name, said in wanted.items():
            _link(Path(name), said, by_size=env.get("SITEANNEX_STAGED_CHECK") == "size")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Refusal(MISUSED, f"SITEANNEX_STAGED is not understood: {error!r}") from error
    return round(time.monotonic() - begun, 3)


def _link(name: Path, said: Json, *, by_size: bool) -> None:
    copy = Path(said["path"])
    wrong = _fault(copy, said, by_size)
    if wrong:
        raise Refusal(NOT_STAGED, f"the staged copy of {name} is not used: {copy}: {wrong}; siteannex stage it again")
    name.parent.mkdir(parents=True, exist_ok=True)
    if name.is_symlink():  # of an earlier start in this sandbox
        name.unlink()
    name.symlink_to(copy)
    say(f"{name} is read at the site: {copy}")


def _fault(copy: Path, said: Json, by_size: bool) -> str:
    try:
        size = copy.stat().st_size
        if size != said["bytes"]:
            return f"{size} bytes, not {said['bytes']}"
        return "" if by_size or digest(copy) == said["sha256"] else "its sha256 is another"
    except FileNotFoundError:
        return "it is gone"
    except OSError as error:
        return f"unreadable: {error.strerror}"
