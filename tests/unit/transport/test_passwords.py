"""The keyring, when there is one."""

from __future__ import annotations

import time
from collections.abc import Iterator

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.backends import fail as no_backend
from keyring.errors import KeyringLocked, PasswordDeleteError

from siteannex.errors import Secret
from siteannex.transport import passwords


class MemoryKeyring(KeyringBackend):
    priority = 5

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        if self.kept.pop((service, username), None) is None:
            raise PasswordDeleteError


class LockedKeyring(MemoryKeyring):
    def get_password(self, service: str, username: str) -> str | None:
        raise KeyringLocked("hunter2 is in this message")


class WaitingKeyring(MemoryKeyring):
    def get_password(self, service: str, username: str) -> str | None:
        time.sleep(0.5)
        return None


@pytest.fixture(autouse=True)
def backend() -> Iterator[None]:
    before = keyring.get_keyring()
    keyring.set_keyring(MemoryKeyring())
    yield
    keyring.set_keyring(before)


def test_a_password_is_kept_and_found_for_its_login_only() -> None:
    assert passwords.stored_password("lab", "alice") is None
    assert passwords.store_password("lab", "alice", Secret("hunter2")).done
    found = passwords.stored_password("lab", "alice")
    assert found == Secret("hunter2")
    assert passwords.stored_password("lab", "bob") is None
    assert "no password is stored" in passwords.look_up("lab", "bob").reason


def test_no_keyring_service_is_a_reason_not_an_error() -> None:
    keyring.set_keyring(no_backend.Keyring())  # type: ignore[no-untyped-call]
    answer = passwords.look_up("lab", "alice")
    assert answer.password is None
    assert answer.reason == "this machine has no keyring service"
    assert not passwords.store_password("lab", "alice", Secret("hunter2")).done


def test_a_locked_keyring_is_a_reason_without_its_words() -> None:
    keyring.set_keyring(LockedKeyring())
    assert passwords.look_up("lab", "alice").reason == "the keyring refused (KeyringLocked)"
    assert passwords.stored_password("lab", "alice") is None


def test_a_keyring_that_waits_for_somebody_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    keyring.set_keyring(WaitingKeyring())
    monkeypatch.setattr(passwords, "PATIENCE_S", 0.05)
    assert "did not answer" in passwords.look_up("lab", "alice").reason


def test_a_password_is_not_in_the_repr_of_an_answer() -> None:
    assert "hunter2" not in repr(passwords.KeyringAnswer(password=Secret("hunter2")))
