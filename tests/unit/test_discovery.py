"""What a login asked, as a site file says it: for every user, and without what this side asked itself."""

from __future__ import annotations

import re

from siteannex.cli.discovery import ListeningPrompter
from siteannex.errors import Secret
from siteannex.ports import Prompt


class Person:
    """Answers everything."""

    def ask(self, prompt: Prompt) -> Secret:
        return Secret("answer")

    def confirm_host_key(self, host: str, key_type: str, fingerprint: str) -> bool:
        return True

    def tell(self, text: str) -> None:
        pass


def test_steps_hold_for_every_user_and_every_number() -> None:
    listening = ListeningPrompter(Person())
    menu = "Duo two-factor login for alice\n\n 1. Duo Push to XXX-0000\n\nPasscode or option (1-3): "
    for text, kind in (
        ("Passphrase for /home/alice/.ssh/id_ed25519: ", "passphrase"),
        ("(alice@login.x) Password: ", "password"),
        ("TOTP code for alice: ", "otp"),
        (menu, "otp"),
    ):
        listening.ask(Prompt("x", "alice@login.x", text, False, kind))
    steps = listening.steps()
    assert [step["by"] for step in steps] == [["password"], ["totp"], ["duo"]]
    asked = ("Password: ", "TOTP code for bob: ", "Passcode or option (1-4): ")
    assert all(re.search(step["prompt"], text) for step, text in zip(steps, asked, strict=True))
