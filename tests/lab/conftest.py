"""The running lab, and people in it. Every test leaves the site as empty as it found it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab import Lab
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


def _clean(person: Person) -> None:
    person.types("down", "--all", "--now")
    person.types("logout", "--all")
    person.shell("rm -rf ~/.local/state/siteannex ~/.config/siteannex ~/.ssh/known_hosts; condor_rm -all || true")


@pytest.fixture
def as_account(lab: Lab) -> Iterator[object]:
    """A function giving alice under another account at the site: `as_account("tess")`."""

    def person(account: str) -> Person:
        return Person(lab, account=account)

    yield person
