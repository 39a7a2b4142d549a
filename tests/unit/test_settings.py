"""The user's settings file: what it may say, and what a mistake in it looks like."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from siteannex.cli.settings import Settings, SiteSettings, config_dir, read_settings, site_directories
from siteannex.errors import AnnexError


def write(directory: Path, text: str) -> Path:
    path = directory / "config.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    return path


def test_a_missing_file_is_an_empty_one(tmp_path: Path) -> None:
    assert read_settings(tmp_path / "config.yaml") == Settings({})
    assert read_settings(tmp_path / "config.yaml").of("lab") == SiteSettings()


@pytest.mark.parametrize("text", ["", "sites:\n", "{}\n", "# nothing\n"])
def test_an_empty_file_says_nothing(tmp_path: Path, text: str) -> None:
    assert read_settings(write(tmp_path, text)).sites == {}


def test_a_user_and_an_account_are_kept_by_site(tmp_path: Path) -> None:
    read = read_settings(write(tmp_path, "sites:\n  lab: {user: alice, account: abc123}\n  delta: {user: al}\n"))
    assert read.of("lab") == SiteSettings("alice", "abc123")
    assert read.of("delta").account is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sites:\n  lab: {usr: alice}\n", "usr"),
        ("site:\n  lab: {user: alice}\n", "unknown key 'site'; known: sites"),
        ("- sites\n", ""),
        ("words\n", ""),
        ("sites: [lab]\n", ""),
        ("sites:\n  lab: alice\n", ""),
        ("sites:\n  lab:\n", ""),
        ("sites: {lab: {\n", ""),
        ("\x07\n", ""),
        ("sites:\n  lab: {user: 5}\n", "user"),
        ("\ud800\n", "utf-8"),
    ],
)
def test_a_mistake_is_a_failure_that_names_the_file(tmp_path: Path, text: str, words: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(AnnexError) as raised:
        read_settings(path)
    failure = raised.value.failure
    assert failure.code == "site-invalid"
    assert str(path) in failure.summary
    assert words in failure.evidence[0].text


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text())
def test_any_file_is_settings_or_a_failure(tmp_path: Path, text: str) -> None:
    try:
        read = read_settings(write(tmp_path, text))
    except AnnexError:
        return
    assert isinstance(read, Settings)


def test_the_users_directory_comes_before_the_admins_and_the_packaged_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    user, admin, packaged = site_directories()
    assert user == tmp_path / "siteannex" / "sites"
    assert admin == Path("/etc/siteannex/sites")
    assert (packaged / "lab.yaml").is_file()


@pytest.mark.parametrize("value", ["", "relative/path"])
def test_a_config_home_that_is_no_absolute_path_is_ignored(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", value)
    monkeypatch.setenv("HOME", "/home/alice")
    assert config_dir() == Path("/home/alice/.config/siteannex")
