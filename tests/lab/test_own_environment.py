"""What a person's own start-up files at the site set for Slurm does not reach siteannex's pilots."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.lab.ground import Ground
from tests.lab.person import Person

LINE = "export SBATCH_ACCOUNT=nosuch SQUEUE_PARTITION=nowhere SCANCEL_PARTITION=nowhere SBATCH_TIMELIMIT=1"


@pytest.fixture
def own_environment(ground: Ground) -> Iterator[None]:
    """kay exports Slurm's variables wherever a shell of hers may look."""
    files = "for file in .bashrc .profile .bash_profile; do"
    add = f"{{ echo '{LINE}'; cat ~kay/$file.was; }} 2>/dev/null >~kay/$file"
    ground.at("login1", f"{files} mv ~kay/$file ~kay/$file.was 2>/dev/null; {add}; chown kay: ~kay/$file; done")
    yield
    ground.at("login1", f"{files} rm -f ~kay/$file; mv ~kay/$file.was ~kay/$file 2>/dev/null; done; true")


def test_an_account_of_ones_own_in_the_environment_hinders_nothing(
    alice: Person, ground: Ground, as_account: Callable[[str], Person], own_environment: None
) -> None:
    by_hand = "ssh -o StrictHostKeyChecking=no kay@login.lab 'echo $SBATCH_ACCOUNT; sbatch --wrap true' 2>&1 || true"
    seen = alice.shell(by_hand)
    assert "nosuch" in seen, "or this test would prove nothing"
    assert "Invalid account" in seen
    kay = as_account("kay")
    up = kay.types("up", "lab", "--cpus", "1", "--login", "kay", "--lifetime", "10m")
    assert up.status == 0, up.text
    assert len(ground.batch_jobs("kay")) == 1
    assert ground.at("login1", "squeue -h -u kay -o '%a %l'") == "abc123 10:00"
    assert kay.types("down", "lab", "--now").status == 0
    ground.nothing_left("kay")
