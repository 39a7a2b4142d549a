"""The running lab, and people in it. Every test leaves the site as empty as it found it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from lab import Lab
from tests.lab.ground import Ground
from tests.lab.person import Person
from tests.lab.probing import AtSite, Probe, changed


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
    person.shell("cd ~/.local/state/siteannex 2>/dev/null && rm -rf annexes locks requests || true")


@pytest.fixture
def as_account(lab: Lab) -> Callable[[str], Person]:
    """A function giving alice under another account at the site: `as_account("tess")`."""

    return lambda account: Person(lab, account=account)


@pytest.fixture
def home(lab: Lab) -> Iterator[str]:
    """A home of the test's own for bob on the AP, with his key."""
    path = f"/tmp/probe-{os.getpid()}"
    lab.exec(
        "ap",
        ["sh", "-c", f"mkdir -m 700 {path} && cp -r ~/.ssh {path}/ && rm -f {path}/.ssh/known_hosts"],
        user="bob",
        check=True,
    )
    yield path
    lab.exec("ap", ["rm", "-rf", path], user="bob", check=True)


@pytest.fixture
def probe(lab: Lab, home: str) -> Probe:
    """Logins from the AP, from a home of the test's own."""
    return Probe(lab, home)


@pytest.fixture
def at_site(lab: Lab) -> AtSite:
    """Change something on the login node as root for the length of a block: (do, undo)."""
    return lambda do, undo: changed(lab, "login1", do, undo)
