"""`kill -9` of `up` at every stage boundary: found and adopted, or found and cleaned; never two pilots, no orphan."""

from __future__ import annotations

import pytest

from siteannex.annex.events import What
from siteannex.errors import Stage
from tests.lab.ground import Ground
from tests.lab.person import Person

BOUNDARIES = [
    ("after", Stage.PLAN, What.DONE),
    ("after", Stage.PACK, What.DONE),
    ("after", Stage.CONNECT, What.BEGIN),
    ("after", Stage.CONNECT, What.DONE),
    ("after", Stage.SHIP, What.BEGIN),
    ("after", Stage.SHIP, What.DONE),
    ("after", Stage.SUBMIT, What.BEGIN),
    ("before", Stage.SUBMIT, What.DONE),
    ("after", Stage.SUBMIT, What.DONE),
    ("after", Stage.BATCH_JOB, What.SEEN),
    ("after", Stage.READY, What.SEEN),
]
UP = ("up", "lab", "--cpus", "1")


def _kill_up(person: Person, moment: str, stage: Stage, what: What) -> int:
    """Run `up`, killed at a boundary; its exit status as a shell reports it (137)."""
    script = "/opt/siteannex-src/tests/lab/killed_up.py"
    killed = person.types(*UP, through=("/opt/siteannex/bin/python", script, moment, str(stage), str(what), "--"))
    return killed.status


@pytest.mark.parametrize(("moment", "stage", "what"), BOUNDARIES)
def test_up_again_goes_on_with_one_pilot(moment: str, stage: Stage, what: What, alice: Person, ground: Ground) -> None:
    assert _kill_up(alice, moment, stage, what) == 137
    assert alice.types("status").status == 0
    again = alice.types(*UP)
    assert again.status == 0, again.text
    assert len(ground.batch_jobs()) == 1, "one request, one pilot"
    [row] = alice.types("status", "--json").json()
    assert row["stage"] == "READY"
    assert alice.types("down", "lab", "--now").status == 0
    ground.nothing_left()


@pytest.mark.parametrize(("moment", "stage", "what"), BOUNDARIES)
def test_down_cleans_up_after_it(moment: str, stage: Stage, what: What, alice: Person, ground: Ground) -> None:
    assert _kill_up(alice, moment, stage, what) == 137
    down = alice.types("down", "--all", "--now")
    assert down.status == 0, down.text
    ground.nothing_left()
