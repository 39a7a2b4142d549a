"""`siteannex plan` and `up` at several sites, as a person types them; nobody is rung."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from siteannex.cli import up_many
from siteannex.cli.screen import make_screen
from siteannex.cli.wiring import Wiring
from siteannex.model import Request
from siteannex.site.schema import Site
from tests.unit.samples import request, site
from tests.unit.test_cli_sites import siteannex


def test_a_plan_is_made_with_the_account_that_up_would_charge(tmp_path: Path) -> None:
    settings = tmp_path / ".config" / "siteannex" / "config.yaml"
    settings.parent.mkdir(parents=True)
    settings.write_text("sites:\n  expanse: {account: xyz789}\n", encoding="utf-8")
    [offer] = json.loads(siteannex(tmp_path, "plan", "expanse", "--gpus", "1", "--json").stdout)
    assert offer["plan"]["account"] == "xyz789"


def test_sizes_beside_a_job_are_refused_instead_of_forgotten(tmp_path: Path) -> None:
    ended = siteannex(tmp_path, "plan", "--for", "4711.0", "--gpus", "4")
    assert ended.returncode == 2
    assert "the job says what it needs" in ended.stderr


def test_a_dry_run_goes_on_after_a_site_where_nothing_fits(tmp_path: Path) -> None:
    words = ("expanse", "osc-pitzer", "--gpus", "1", "--lifetime", "3d", "--account", "x", "--dry-run")
    ended = siteannex(tmp_path, "up", *words)
    assert ended.returncode == 10
    assert "request-impossible" in ended.stderr
    assert "osc-pitzer, partition gpu: 1 pilot x 1 v100" in ended.stdout + ended.stderr


def test_a_site_that_ended_by_a_mistake_of_ours_is_not_counted_as_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for variable in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "HOME"):
        monkeypatch.setenv(variable, str(tmp_path))
    asked: list[str] = []

    def bring_up(wanted: Request, at: Site, *_: object, **__: object) -> tuple[None, None]:
        asked.append(at.name)
        if at.name == "first":
            raise RuntimeError("no such thing")
        return None, None

    monkeypatch.setattr(up_many, "bring_up", bring_up)
    monkeypatch.setattr(up_many, "_log_in", lambda part, wiring: None)
    parts = [(request(name=name, site=name), site(name=name)) for name in ("first", "second")]
    with pytest.raises(RuntimeError, match="no such thing"):
        up_many.up_many(
            parts, Wiring(make_screen(json_output=False)), user=None, budget=None, wait=True, json_output=False
        )
    assert sorted(asked) == ["first", "second"]
    assert "1 of 2: second;" in "".join(capsys.readouterr())


def test_the_budget_of_a_site_nobody_knows_is_not_told_as_none(tmp_path: Path) -> None:
    ended = siteannex(tmp_path, "budget", "expnase")
    assert ended.returncode == 10
    assert "Did you mean expanse?" in ended.stderr
    assert siteannex(tmp_path, "budget", "expanse").stdout == (
        "no annex was ever submitted from here to expanse, and no budget is set\n"
    )


LEASE = ("--lease", "14d", "--max-gpu-hours", "200")


def test_a_lease_is_shown_with_what_its_keeper_costs(tmp_path: Path) -> None:
    ended = siteannex(tmp_path, "up", "lab", "--gpus", "2", *LEASE, "--max-pilots", "2", "--dry-run")
    assert "lease 14 d, at most 200 GPU-h and 2 pilots at once" in ended.stdout + ended.stderr
    assert "core-minutes a day" in ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (("lab", "--gpus", "2", "--lease", "14d"), 2, "a lease needs a bound"),
        (("lab", "--gpus", "2", "--max-pilots", "2"), 2, "it bounds a lease"),
        (("expanse", "--gpus", "1", "--account", "x", *LEASE), 10, "keeper-unavailable"),
        (("aws", "--gpus", "1", *LEASE), 10, "keeper-unavailable"),
    ],
)
def test_a_lease_that_cannot_be_is_refused_before_anything(
    tmp_path: Path, words: tuple[str, ...], status: int, text: str
) -> None:
    ended = siteannex(tmp_path, "up", *words, "--dry-run")
    assert ended.returncode == status
    assert text in " ".join(ended.stderr.split())
