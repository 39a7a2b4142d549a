"""`siteannex sites ...`: what a person reads of a site, and the verdict on a file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from siteannex.cli.site_view import hints, show
from siteannex.resources import data_dir
from siteannex.site.kinds import AnySite
from siteannex.site.loader import read_any
from siteannex.site.schema import Site

FILES = sorted(data_dir("sites").glob("*.yaml"))
SITES = {path.stem: read_any(path) for path in FILES}


def siteannex(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from siteannex.cli.main import main; main()", *words]
    env = {"PATH": os.environ["PATH"], "HOME": str(home)}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("site", SITES.values(), ids=SITES)
def test_every_site_can_be_shown_with_its_source_date_and_doubts(site: AnySite) -> None:
    said = show(site)
    assert said.startswith(f"{site.name}: {site.title}\n")
    assert said.splitlines()[-1].startswith(f"verified {site.verified}, ")
    assert all(doubt in said for doubt in site.doubts)
    for name, facts in site.partitions.items() if isinstance(site, Site) else ():
        assert name in said
        assert all(doubt in said for doubt in facts.doubts)


def test_a_site_is_shown_as_users_ask_about_it() -> None:
    expanse = show(SITES["expanse"])
    assert "login.expanse.sdsc.edu, publickey or password, then totp; keys allowed" in expanse
    assert "gpu-shared: 1 node a job, 3 GPUs a job, 24 GPUs a user, 37 cores a job" in expanse
    assert "2026-08-01?" in expanse, "a doubtful row is marked"
    assert "? node-hour  2026" in show(SITES["perlmutter"])
    assert "duo (some users)" in show(SITES["osc-ascend"])
    assert 'GPU jobs +GPUJobLength = "short"' in show(SITES["chtc"])
    assert "p5e.48xlarge" in show(SITES["aws"])
    assert "0.25 x A100" in show(SITES["jetstream2"])


def test_a_valid_file_is_told_what_its_author_may_look_at(tmp_path: Path) -> None:
    lab = (data_dir("sites") / "lab.yaml").read_text()
    path = tmp_path / "lab.yaml"
    path.write_text(lab.replace("NVIDIA A100-SXM4-40GB", "Hopper Next"))
    assert "GPU model 'Hopper Next' is not in the catalogue" in hints(read_any(path))[0]


def test_validate_shows_every_mistake_and_ends_like_a_failed_plan(tmp_path: Path) -> None:
    lab = (data_dir("sites") / "lab.yaml").read_text()
    wrong = tmp_path / "lab.yaml"
    wrong.write_text(lab.replace("cores: 16", "cors: 16").replace("max_walltime: 4h", "max_walltime: 4"))
    said = siteannex(tmp_path, "sites", "validate", str(wrong), "expanse")
    assert said.returncode == 10
    assert "nodes.plain.cors: no such key; did you mean cores?" in said.stdout
    assert "'4' is not a duration; did you mean 4h or 4m?" in said.stdout
    assert "expanse.yaml: valid" in said.stdout
    data = json.loads(siteannex(tmp_path, "sites", "validate", str(wrong), "--json").stdout)
    assert [(each["file"], each["valid"]) for each in data] == [(str(wrong), False)]
    assert any("did you mean cores?" in line for line in data[0]["said"])
    assert siteannex(tmp_path, "sites", "validate").returncode == 0


def test_validate_names_a_site_it_does_not_find(tmp_path: Path) -> None:
    said = siteannex(tmp_path, "sites", "validate", "expnase")
    assert said.returncode == 10
    assert "Did you mean expanse?" in said.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("login.expanse.sdsc.edu",), "is the file of a site 'expanse': siteannex sites check expanse compares it"),
        (("login.example.org", "--name", "../x"), "a site's name is a small letter"),
        (("192.0.2.10",), "a site's name is a small letter"),
        (("alice@login.example.org",), "--login says who you are there"),
    ],
)
def test_discover_rings_nobody_for_a_name_it_could_not_keep(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    ended = siteannex(tmp_path, "sites", "discover", *words)
    assert ended.returncode == 2
    assert said in " ".join(ended.stderr.replace("│", " ").split())
