"""Keys, places and a server for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import paramiko
import pytest

from siteannex.transport.places import Places
from tests.loopback.sshd import LoopbackSshd


@pytest.fixture(scope="session")
def host_key() -> paramiko.PKey:
    """The server's usual key."""
    return paramiko.ECDSAKey.generate()


@pytest.fixture
def places(tmp_path: Path) -> Places:
    """A user whose home, state and sockets are the test's own."""
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    return Places(
        home=home,
        user="alice",
        state=tmp_path / "state",
        runtime=tmp_path / "run",
        system_ssh=tmp_path / "etc",
    )


@pytest.fixture
def sshd(tmp_path: Path, host_key: paramiko.PKey) -> Iterator[LoopbackSshd]:
    """A server with the default script: password, code, a round without prompts."""
    far = tmp_path / "far"
    far.mkdir()
    server = LoopbackSshd(far, [host_key])
    yield server
    server.stop()
