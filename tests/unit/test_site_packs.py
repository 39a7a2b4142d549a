"""Site packs: an installed package brings site files; two with one name are told apart by who brings them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from siteannex.errors import AnnexError
from siteannex.resources import data_dir
from siteannex.site.loader import load_any
from siteannex.site.packs import packs

SITE = (data_dir("sites") / "ospool.yaml").read_text(encoding="utf-8")


def install(place: Path, distribution: str, *, site: str, package: str, value: str | None = None) -> None:
    """What pip leaves behind: a package with a site file and the metadata with its entry point."""
    directory = place / package
    directory.mkdir(parents=True)
    (directory / "__init__.py").write_text("raise SystemExit('a pack is never run')\n")
    (directory / f"{site}.yaml").write_text(SITE.replace("name: ospool", f"name: {site}"))
    info = place / f"{distribution.replace('-', '_')}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(f"[siteannex.sites]\n{package} = {value or package}\n")


def directories() -> list[Path]:
    return [pack.directory for pack in packs() if pack.directory]


def siteannex(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], "HOME": str(place), "PYTHONPATH": str(place)}
    command = [sys.executable, "-c", "from siteannex.cli.main import main; main()", *words]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)


def test_a_pack_brings_its_sites_after_siteannexs_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "uw-sites", site="badger", package="uw_sites")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert [pack.distribution for pack in packs()] == ["siteannex", "uw-sites 1.2"]
    assert load_any("badger", directories()).name == "badger"


def test_two_packages_with_one_name_are_named_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "uw-sites", site="badger", package="uw_sites")
    install(tmp_path, "other-sites", site="badger", package="other_sites")
    install(tmp_path, "third-sites", site="expanse", package="third_sites")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, owners in (
        ("badger", ("uw-sites 1.2", "other-sites 1.2")),
        ("expanse", ("siteannex", "third-sites 1.2")),
    ):
        with pytest.raises(AnnexError) as raised:
            load_any(name, directories())
        assert raised.value.failure.code == "site-name-taken"
        assert all(owner in raised.value.failure.summary for owner in owners)
    assert load_any("anvil", directories()).name == "anvil", "the other sites are not affected"


def test_a_users_own_file_settles_a_clash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "lib", "third-sites", site="expanse", package="third_sites")
    monkeypatch.syspath_prepend(str(tmp_path / "lib"))
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "expanse.yaml").write_text("extends: expanse\ntitle: mine\n")
    assert load_any("expanse", [mine, *directories()]).title == "mine"


def test_the_command_line_lists_a_packs_sites_and_tells_of_a_broken_pack(tmp_path: Path) -> None:
    install(tmp_path, "uw-sites", site="badger", package="uw_sites")
    install(tmp_path, "broken-sites", site="x", package="broken_sites", value="no_such_package.sites")
    install(tmp_path, "third-sites", site="expanse", package="third_sites")
    said = siteannex(tmp_path, "sites", "list")
    assert said.returncode == 0
    assert str(tmp_path / "uw_sites" / "badger.yaml") in said.stdout
    assert "siteannex and third-sites 1.2 both bring a site named 'expanse'" in said.stdout
    assert (
        "site pack broken-sites 1.2: its entry point broken_sites = no_such_package.sites leads nowhere" in said.stderr
    )
