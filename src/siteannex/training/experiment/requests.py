"""How a DAG asks for an annex: a node's PRE script drops a file, `siteannex up --pending` reads it. No login, ever.

One file a DAG and annex, `<experiment>.<annex>.<DAGMan's cluster>.json` in `requests/` of the state directory, moved
into place whole. It says what an annex's jobs want before they are in the queue, and which site file it goes with.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from siteannex.site.fields import Facts
from siteannex.training.experiment.matrix import AnnexNeed

LOOK_S = 20
"""How long the script may look for the annex; then it leaves it."""


class Asked(Facts):
    """One request file."""

    v: Literal[1]
    annex: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_.-]{0,62}$")]
    experiment: str
    node: str
    """The node that came to the annex last."""
    dag: Annotated[int, Field(ge=0)]
    """DAGMan's cluster; 0: not known."""
    need: AnnexNeed


@dataclass(frozen=True, slots=True)
class RequestFile:
    """A request and where it lies."""

    path: Path
    asked: Asked


def announcing(experiment: str, needs: Mapping[str, AnnexNeed], folder: Path) -> str:
    """The shell function `announce ANNEX NODE` of a PRE script: asks for an annex that is not up.

    It never fails a node: when HTCondor does not answer, or nothing can be written, the job waits in the queue all the
    same, where `status` sees it.
    """
    cases = "".join(f"    {annex}) need={shlex.quote(json.dumps(asdict(need)))} ;;\n" for annex, need in needs.items())
    place = shlex.quote(str(folder))
    form = '{"v": 1, "annex": "%s", "experiment": "%s", "node": "%s", "dag": %s, "need": %s}\\n'
    return (
        "announce() (\n"
        f'  case "$1" in\n{cases}    *) exit 0 ;;\n  esac\n'
        f'  there=$(timeout {LOOK_S} condor_status -limit 1 -af Name -constraint "AnnexName == \\"$1\\"") || exit 0\n'
        '  [ -z "$there" ] || exit 0\n'
        "  umask 077\n"
        f"  folder={place} dag=${{CONDOR_ID%%.*}}\n"
        '  mkdir -p "$folder" || exit 0\n'
        f'  printf \'{form}\' "$1" {experiment} "$2" "${{dag:-0}}" "$need" >"$folder/.$$.part" &&\n'
        f'    mv -f "$folder/.$$.part" "$folder/{experiment}.$1.${{dag:-0}}.json"\n'
        "  exit 0\n"
        ") 2>/dev/null\n"
    )


def read_requests(folder: Path) -> list[RequestFile]:
    """Every request that can be read, by name of its file; what is something else is passed over."""
    found = []
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        try:
            found.append(RequestFile(path, Asked.model_validate_json(path.read_bytes())))
        except (OSError, ValidationError):
            continue
    return found
