"""Every kind of account a site may have: READY with each."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.lab.ground import Ground
from tests.lab.person import Person

ACCOUNTS = {
    "tess": ("known", "password", "code"),  # login shell tcsh
    "nora": ("known", "password", "code"),  # a .bashrc that prints
    "kim": ("known", "code"),  # key, then code
    "kay": ("known",),  # key only
    "dana": ("known", "password", "menu"),  # password, then a Duo-like menu
}


@pytest.mark.parametrize("account", ACCOUNTS)
def test_up_reaches_ready_with(
    account: str, alice: Person, as_account: Callable[[str], Person], ground: Ground
) -> None:
    person = as_account(account)
    up = person.types("up", "lab", "--gpus", "1", "--login", account)
    assert up.status == 0, up.text
    assert up.answers == ACCOUNTS[account]
    down = person.types("down", "lab", "--now", "--login", account)
    assert down.status == 0, down.text
    ground.nothing_left(account)
