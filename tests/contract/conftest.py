"""The transports that must all behave alike: this machine, SSH, SSH through the session holder."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import paramiko
import pytest

from siteannex.ports import Transport
from siteannex.transport.local import LocalTransport
from siteannex.transport.places import Places
from siteannex.transport.sessions import open_transport
from siteannex.transport.ssh import connect
from tests.loopback.holding import holder_of
from tests.loopback.people import Person, loopback_site
from tests.loopback.sshd import LoopbackSshd, Script

NOISE = "printf 'Welcome, no newline'; printf 'rc: complaint, no newline' >&2"
"""Every SSH login of these tests has an rc file that prints."""


@dataclass(frozen=True)
class Far:
    """A transport and the directory its commands start in."""

    transport: Transport
    home: Path
    channels: Callable[[], int]


@contextlib.contextmanager
def _local(tmp_path: Path) -> Iterator[Far]:
    home = tmp_path / "far"
    home.mkdir()
    transport = LocalTransport("here", home=str(home))
    yield Far(transport, home, lambda: transport.opened_channels)
    transport.close()


@contextlib.contextmanager
def _server(tmp_path: Path) -> Iterator[tuple[LoopbackSshd, Places]]:
    (tmp_path / "far").mkdir()
    (tmp_path / "home/.ssh").mkdir(parents=True)
    places = Places(
        home=tmp_path / "home",
        user="alice",
        state=tmp_path / "state",
        runtime=tmp_path / "run",
        system_ssh=tmp_path / "etc",
    )
    server = LoopbackSshd(tmp_path / "far", [paramiko.ECDSAKey.generate()], Script(rc=NOISE))
    try:
        yield server, places
    finally:
        server.stop()


@contextlib.contextmanager
def _ssh(tmp_path: Path) -> Iterator[Far]:
    with _server(tmp_path) as (server, places):
        transport = connect(loopback_site(server.port), user=None, prompter=Person(), places=places)
        try:
            yield Far(transport, server.home, lambda: transport.opened_channels)
        finally:
            transport.close()


@contextlib.contextmanager
def _held(tmp_path: Path) -> Iterator[Far]:
    with _server(tmp_path) as (server, places), holder_of(places):
        transport = open_transport(loopback_site(server.port), user=None, prompter=Person(), places=places)
        try:
            yield Far(transport, server.home, lambda: len(server.seen.commands))
        finally:
            transport.close()


@pytest.fixture(params=[_local, _ssh, _held], ids=["local", "ssh", "held"])
def far(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Far]:
    """One transport of each kind."""
    with request.param(tmp_path) as made:
        yield made
