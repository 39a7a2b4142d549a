"""The marks that everything of an annex bears outside this machine, so that whatever is left can be told to be ours.

Every annex id is unique (eight random hex digits); it names the Slurm job and the directory at the site and stands in
the ads. Beside it stands the origin: which access point, and which state directory there, keeps the annex's events.
The same user may have annexes of another AP at the same site, and those are not ours to touch.

The job's comment is `siteannex:ANNEX_ID:ORIGIN`, the directory holds a file `origin`, the ads say `SiteannexOrigin`.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

ORIGIN = re.compile(r"[A-Za-z0-9_.@:-]+/[0-9a-f]{8}")
ORIGIN_FILE = "origin"
_ANNEX_ID = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,62}-[0-9a-f]{8}")


def origin_of(schedd: str, state: Path) -> str:
    """`ap.example.org/3f2a9c1e`: the AP's schedd, and a short hash of the state directory's path."""
    return f"{schedd}/{hashlib.sha256(str(state).encode()).hexdigest()[:8]}"


def origin_words(origin: str) -> str:
    """An origin for people: the AP it names."""
    return origin.rpartition("/")[0]


def is_annex_id(text: str) -> bool:
    """Whether a name has the form of an annex id."""
    return _ANNEX_ID.fullmatch(text) is not None


def read_comment(text: str) -> tuple[str, str] | None:
    """Annex id and origin ("" before there were origins) of a Slurm job's comment; None when it is not ours."""
    word, _, rest = text.strip().partition(":")
    annex_id, _, origin = rest.partition(":")
    if word != "siteannex" or not is_annex_id(annex_id) or (origin and ORIGIN.fullmatch(origin) is None):
        return None
    return annex_id, origin
