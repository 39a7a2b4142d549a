"""The site with something wrong: alice is logged in once a module, so that a row costs no login."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab import Lab
from tests.lab.faults.pilots import Trial
from tests.lab.faults.tokens import Mint
from tests.lab.ground import Ground
from tests.lab.person import Person


@pytest.fixture(scope="module")
def logged_in(lab: Lab) -> Iterator[Person]:
    """Alice with a session at the site and the EP software there."""
    person = Person(lab)
    up = person.types("up", "lab", "--cpus", "1", "--lifetime", "30m")
    assert up.status == 0, up.text
    yield person
    person.types("down", "--all", "--now")
    person.types("logout", "--all")


@pytest.fixture
def trial(logged_in: Person, lab: Lab) -> Iterator[Trial]:
    """A trial; whatever it started is gone afterwards."""
    made = Trial(logged_in, Ground(lab))
    made.clean()
    yield made
    made.clean()


@pytest.fixture
def mint(lab: Lab) -> Mint:
    """Tokens that are wrong on purpose."""
    return Mint(lab)
