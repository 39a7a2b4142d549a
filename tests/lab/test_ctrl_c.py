"""Ctrl-C: the command ends with a word, what was submitted goes on, what was not begun leaves nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pexpect
import pytest

from tests.lab.ground import Ground
from tests.lab.person import Person

WORDS = "Stopped watching. Whatever was submitted goes on"


@pytest.fixture
def closed_partition(ground: Ground) -> Iterator[None]:
    """Nothing starts in `debug`: pilots there wait."""
    ground.at("login1", "scontrol update partitionname=debug state=down")
    yield
    ground.at("login1", "scontrol update partitionname=debug state=up")


def _interrupt(child: pexpect.spawn[str]) -> int:
    """Ctrl-C; the command's exit status after its last word."""
    child.sendintr()
    child.expect_exact(WORDS)
    child.expect(pexpect.EOF)
    child.close()
    return int(child.exitstatus or 0)


def test_in_the_queue_the_pilot_goes_on_waiting(alice: Person, ground: Ground, closed_partition: None) -> None:
    assert alice.types("login", "lab").status == 0
    child = alice.start("up", "lab", "--cpus", "1", "--partition", "debug", "--lifetime", "10m")
    child.expect("PENDING, PartitionDown")
    assert _interrupt(child) == 130
    assert len(ground.batch_jobs()) == 1
    status = alice.types("status", "lab", "--remote", "--json")
    assert status.answers == (), "the session outlives the command"
    [row] = status.json()
    assert [(pilot["state"], pilot["reason"]) for pilot in row["pilots"]] == [("PENDING", "PartitionDown")]

    ground.at("login1", "scontrol update partitionname=debug state=up")
    again = alice.types("up", "lab", "--cpus", "1", "--partition", "debug", "--lifetime", "10m")
    assert again.status == 0, again.text
    assert "lives already" in again.text
    assert len(ground.batch_jobs()) == 1


def test_at_the_password_nothing_is_left(alice: Person, ground: Ground) -> None:
    child = alice.start("up", "lab", "--cpus", "1")
    child.expect(r"\(yes/no\) ")
    child.sendline("yes")
    child.expect("Password: ")
    assert _interrupt(child) == 130
    ground.nothing_left(within_s=5)
    assert alice.types("sessions").text.startswith("No session is held")
    down = alice.types("down", "lab")
    assert down.status == 0, down.text
    assert down.answers == (), "nothing had been submitted, so nobody logs in"
    assert alice.types("status").text.startswith("No annex is up")
