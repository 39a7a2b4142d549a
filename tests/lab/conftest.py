"""The running lab, and people in it. Every test leaves the site as empty as it found it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from lab import Lab
from tests.lab.ground import Ground
from tests.lab.person import Person


@pytest.fixture(scope="session")
def lab() -> Lab:
    """The lab that `scripts/test` started (or `lab/lab up` by hand)."""
    return Lab.attach()


@pytest.fixture
def alice(lab: Lab) -> Iterator[Person]:
    """Alice, with nothing up, no session and no memory; whatever she started is gone afterwards."""
    person = Person(lab)
    _clean(person)
    yield person
    _clean(person)


@pytest.fixture
def ground(lab: Lab) -> Ground:
    """What can be seen of the site and the pool without siteannex."""
    return Ground(lab)


def _clean(person: Person) -> None:
    person.types("down", "--all", "--now")
    person.types("logout", "--all")
    person.shell("rm -rf ~/.config/siteannex ~/.ssh/known_hosts; condor_rm -all || true")
    # The packed EP software stays: packing takes seconds and has tests of its own.
    person.shell("cd ~/.local/state/siteannex 2>/dev/null && rm -rf annexes locks || true")


@pytest.fixture
def as_account(lab: Lab) -> Callable[[str], Person]:
    """A function giving alice under another account at the site: `as_account("tess")`."""

    return lambda account: Person(lab, account=account)
