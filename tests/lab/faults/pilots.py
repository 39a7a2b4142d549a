"""Alice's pilots at a site that has something wrong with it: the site's file, its nodes, its EP software, its token."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tests.faultbook import FaultRow
from tests.lab.ground import NODES, Ground
from tests.lab.person import Person

SITE = Path(__file__).parents[3] / "sites" / "lab.yaml"


def take_software(sha256: str) -> str:
    """A line of a site's environment with which its pilots take other software than was shipped."""
    params = '"$ANNEX_DIR/params.sh"'
    return f'p=$(sed "s/^P_EP_SHA256=.*/P_EP_SHA256={sha256}/" {params}); echo "$p" >{params}'


@dataclass(frozen=True, slots=True)
class Trial:
    """One annex of alice's, and what is wrong where it runs."""

    person: Person
    ground: Ground

    def site(
        self,
        *,
        config: tuple[str, ...] = (),
        environment: tuple[str, ...] = (),
        gpus: Mapping[str, object] | None = None,
        options: tuple[str, ...] = (),
    ) -> None:
        """Write alice's own file of the site: more lines for EP and batch job, other facts of GPUs, sbatch options."""
        facts: dict[str, Any] = YAML(typ="safe").load(SITE)
        facts["ep"]["config"] += config
        facts["ep"]["environment"] = list(environment)
        facts["nodes"]["a100"]["gpus"].update(gpus or {})
        for partition in facts["partitions"].values():
            partition["options"] = list(options)
        directory = "~/.config/siteannex/sites"
        text = json.dumps(facts, default=str)  # which is YAML too
        self.person.shell(f"mkdir -p {directory} && cat >{directory}/lab.yaml <<'END'\n{text}\nEND")

    def software(self, change: str) -> str:
        """EP software changed by a shell script in its directory; the line of shell that makes pilots take it."""
        made = self.ground.at(
            "login1",
            f"""set -e; umask 077; cd ~/.siteannex/ep; rm -f *.odd; whole=$(ls *.tar.gz | head -n 1)
            rm -rf /tmp/odd; mkdir /tmp/odd; tar -xzf "$whole" -C /tmp/odd; (cd /tmp/odd; {change})
            tar -cf - -C /tmp/odd . | gzip -1 >/tmp/odd.tar.gz; rm -rf /tmp/odd
            sum=$(sha256sum </tmp/odd.tar.gz | cut -c 1-64); mv /tmp/odd.tar.gz "$sum.tar.gz"
            ln "$sum.tar.gz" "$sum.odd"; echo "$sum" """,
            user="alice",
        )
        return take_software(made)

    @contextmanager
    def nodes(self, do: str, undo: str) -> Iterator[None]:
        """Something wrong on every compute node for the length of a block."""
        for node in NODES:
            self.ground.at(node, do)
        try:
            yield
        finally:
            for node in NODES:
                self.ground.at(node, undo)

    def fails(self, fault: FaultRow, *words: str, options: tuple[str, ...] = ()) -> dict[str, Any]:
        """`up` fails as the row says, quotes these words, and nothing stays: no job, file, process or ad."""
        up = ["siteannex", "up", "lab", *(options or ("--cpus", "1")), "--lifetime", "30m", "--json"]
        started = time.monotonic()
        shown = self.person.lab.exec("ap", up, user=self.person.user, timeout=180)
        seconds = time.monotonic() - started
        failure: dict[str, Any] = json.loads(shown.stdout)["failure"]
        told = "\n".join([failure["summary"], *(seen["text"] for seen in failure["evidence"])])
        for word in words:
            assert word in told, told
        self.ground.nothing_left()
        fault.saw(failure, seconds=seconds)
        return failure

    def comes_up(self, *options: str) -> str:
        """`up` succeeds all the same; what its screen said."""
        shown = self.person.types("up", "lab", *(options or ("--cpus", "1")), "--lifetime", "30m")
        assert shown.status == 0, shown.text
        return shown.text

    def clean(self) -> None:
        """Leave nothing of this trial; the session and the whole EP software stay."""
        self.person.types("down", "--all", "--now")
        self.person.shell("rm -rf ~/.config/siteannex; cd ~/.local/state/siteannex && rm -rf annexes locks || true")
        self.ground.at(
            "login1", 'cd ~alice/.siteannex/ep && for odd in *.odd; do rm -f "${odd%.odd}.tar.gz" "$odd"; done'
        )
