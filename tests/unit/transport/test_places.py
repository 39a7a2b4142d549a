"""Where this user's files are."""

import os
from pathlib import Path

import pytest

from siteannex.transport.places import SOCKET_PATH_LIMIT_BYTES, Places
from siteannex.transport.wire import private_directory


def test_xdg_directories_are_honoured() -> None:
    places = Places.from_environment(
        {
            "HOME": "/home/alice",
            "XDG_STATE_HOME": "/var/state",
            "XDG_RUNTIME_DIR": "/var",
            "SSH_AUTH_SOCK": "/agent",
        }
    )
    assert places.home == Path("/home/alice")
    assert places.state == Path("/var/state/siteannex")
    assert places.runtime == Path("/var/siteannex")
    assert places.agent_socket == Path("/agent")


def test_without_a_runtime_directory_the_state_directory_is_used_one_a_machine() -> None:
    places = Places.from_environment({"HOME": "/home/alice", "XDG_RUNTIME_DIR": "/nonexistent"})
    assert places.state == Path("/home/alice/.local/state/siteannex")
    assert places.runtime.parent == places.state / "run"
    assert places.agent_socket is None


def test_relative_xdg_values_are_ignored() -> None:
    places = Places.from_environment({"HOME": "/h", "XDG_STATE_HOME": "rel", "XDG_RUNTIME_DIR": "rel"})
    assert places.state == Path("/h/.local/state/siteannex")


def test_a_home_too_deep_for_a_socket_gives_a_short_place() -> None:
    places = Places.from_environment({"HOME": "/home/" + "x" * 90, "XDG_RUNTIME_DIR": "/nonexistent"})
    assert len(os.fsencode(places.holder_socket)) <= SOCKET_PATH_LIMIT_BYTES
    assert str(os.getuid()) in places.runtime.name


def test_a_private_directory_is_private(tmp_path: Path) -> None:
    target = tmp_path / "a/b"
    private_directory(target)
    assert target.stat().st_mode & 0o777 == 0o700
    target.chmod(0o777)
    private_directory(target)
    assert target.stat().st_mode & 0o777 == 0o700


def test_a_link_in_place_of_a_private_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(PermissionError):
        private_directory(tmp_path / "link")
