"""Site passwords in the system keyring. A machine without a keyring (most APs) is no error: then a person types.

Second factors are never stored. The keyring library is loaded only when a password is wanted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from siteannex.errors import Secret

PATIENCE_S = 10.0
"""A keyring may wait for somebody at another screen to unlock it; we do not."""


@dataclass(frozen=True, slots=True)
class KeyringAnswer:
    """A password, or the reason why there is none. `done` is for storing."""

    password: Secret | None = None
    done: bool = False
    reason: str = ""


def look_up(site: str, login: str) -> KeyringAnswer:
    """The stored password of this login, or why there is none."""

    def work() -> KeyringAnswer:
        import keyring

        found = keyring.get_password(_service(site), login)
        if found is None:
            return KeyringAnswer(reason="no password is stored for this login")
        return KeyringAnswer(password=Secret(found), done=True)

    return _guarded(work)


def stored_password(site: str, login: str) -> Secret | None:
    """The stored password of this login, or None for whatever reason."""
    return look_up(site, login).password


def store_password(site: str, login: str, password: Secret) -> KeyringAnswer:
    """Keep a password; `done` tells whether it was kept, `reason` why not."""

    def work() -> KeyringAnswer:
        import keyring

        keyring.set_password(_service(site), login, password.reveal())
        return KeyringAnswer(done=True)

    return _guarded(work)


def keyring_obstacle() -> str | None:
    """Why no password can be kept here, or None."""
    answer = _guarded(lambda: KeyringAnswer(done=True))
    return None if answer.done else answer.reason


def _service(site: str) -> str:
    return f"siteannex:{site}"


def _guarded(work: Callable[[], KeyringAnswer]) -> KeyringAnswer:
    """Run the keyring's code aside: it may be absent, locked, broken, or wait for ever."""
    answers: list[KeyringAnswer] = []

    def run() -> None:
        try:
            answers.append(_missing() or work())
        except Exception as problem:  # backends raise what they like; the words must not carry the password
            answers.append(KeyringAnswer(reason=f"the keyring refused ({type(problem).__name__})"))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    return answers[0] if answers else KeyringAnswer(reason=f"the keyring did not answer in {PATIENCE_S:.0f} s")


def _missing() -> KeyringAnswer | None:
    try:
        import keyring
    except ImportError:
        return KeyringAnswer(reason="the keyring library is not installed")
    backend = keyring.get_keyring()
    if backend.priority <= 0:
        return KeyringAnswer(reason="this machine has no keyring service")
    return None
