"""A disk that is full, for real: the command says so, what is recorded stays whole, and nothing is done unrecorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.lab.ground import Ground
from tests.lab.person import Person

ANNEXES = "/home/alice/.local/state/siteannex/annexes"
UP = ("up", "lab", "--cpus", "1", "--lifetime", "30m")

Disk = Callable[[str], None]


@pytest.fixture
def disk(alice: Person, ground: Ground) -> Iterator[Disk]:
    """Alice's annexes on a disk of their own, of 1 MB; `disk("8k")` makes it smaller or larger."""
    alice.shell(f"mkdir -p {ANNEXES} && chmod 700 {ANNEXES}")
    ground.at("ap", f"mount -t tmpfs -o size=1m,mode=700,uid=$(id -u alice),gid=$(id -g alice) tmpfs {ANNEXES}")
    yield lambda size: void(ground.at("ap", f"mount -o remount,size={size} {ANNEXES}"))
    ground.at("ap", f"mount -o remount,size=1m {ANNEXES}")
    alice.types("down", "--all", "--now")
    ground.at("ap", f"umount {ANNEXES}")


def void(_: str) -> None:
    """A script's output that nobody reads."""


def fill(alice: Person) -> None:
    """Not one byte fits any more, nor into the last page of an event log."""
    pad = "import pathlib, sys\nfor p in pathlib.Path(sys.argv[1]).glob('*/events.jsonl'):\n"
    pad += " n = -p.stat().st_size % 4096\n p.open('a').write('x' * (n - 1) + chr(10)) if n else None\n"
    alice.shell(f"cd {ANNEXES} && cat >/tmp/pad.py <<'END'\n{pad}END\npython3 /tmp/pad.py . && rm /tmp/pad.py")
    alice.shell(f"dd if=/dev/zero of={ANNEXES}/fill bs=4k 2>/dev/null || true")


def test_on_a_full_disk_nothing_is_begun(alice: Person, ground: Ground, disk: Disk) -> None:
    fill(alice)
    refused = alice.types(*UP)
    assert refused.status == 10
    assert "state-unwritable" in refused.text
    assert "No space left on device" in refused.text
    assert "Free space or mend permissions; nothing was lost." in refused.text
    ground.nothing_left(within_s=5)
    alice.shell(f"rm {ANNEXES}/fill")
    assert alice.shell(f"ls {ANNEXES}") == "", "no half of an annex"
    assert alice.types(*UP).status == 0


def test_a_disk_that_fills_before_the_intent_is_written_submits_nothing(
    alice: Person, ground: Ground, disk: Disk
) -> None:
    disk("8k")  # a plan and a few events
    refused = alice.types(*UP)
    assert "state-unwritable" in refused.text, refused.text
    ground.nothing_left(within_s=5)
    disk("1m")
    assert alice.types(*UP).status == 0
    assert len(ground.batch_jobs()) == 1


def test_a_disk_that_fills_under_a_living_annex_loses_nothing(alice: Person, ground: Ground, disk: Disk) -> None:
    assert alice.types(*UP).status == 0
    fill(alice)
    [row] = alice.types("status", "--json").json()
    assert row["stage"] == "READY"
    refused = alice.types("down", "lab", "--now")
    assert "state-unwritable" in refused.text
    assert len(ground.batch_jobs()) == 1, "what cannot be recorded is not done"
    alice.shell(f"rm {ANNEXES}/fill")
    assert alice.types("down", "lab", "--now").status == 0
    ground.nothing_left()
