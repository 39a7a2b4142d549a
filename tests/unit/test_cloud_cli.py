"""AWS on the command line: a dry run shows everything and needs no account; launching is refused in plain words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from siteannex.cli.main import app
from siteannex.errors import AnnexError

ASKED = ("--gpus", "4", "--gpu-memory", "40GB", "--lifetime", "6h")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    return tmp_path


def typed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    app(list(words), standalone_mode=False)
    return capsys.readouterr().out


def test_a_dry_run_shows_plan_ceiling_quota_and_user_data(capsys: pytest.CaptureFixture[str]) -> None:
    shown = typed(capsys, "up", "aws", *ASKED, "--dry-run")
    assert "aws, us-east-1, on-demand: 4 x g6e.xlarge, each 1 x L40S" in shown
    assert "ceiling 24 GPU-h = 62.96 USD (g6e.xlarge 44.66 USD, the others only where it is not free)" in shown
    assert "vCPUs of Running On-Demand G and VT instances (L-DB2E81BA): https://us-east-1.console.aws" in shown
    assert "systemd-run --unit=siteannex-ttl --on-active=21600" in shown
    assert "nothing was done (--dry-run); launching instances comes in a later release" in shown


def test_a_dry_run_as_json_has_what_the_screen_has(capsys: pytest.CaptureFixture[str]) -> None:
    data = json.loads(typed(capsys, "up", "aws", *ASKED, "--preemptible", "--dry-run", "--json"))
    plan = data["plan"]
    assert plan["markets"] == ["spot", "on-demand"]
    assert [need["code"] for need in plan["quotas"]] == ["L-3819A6DF", "L-DB2E81BA"]
    assert plan["quotas"][0]["page"].endswith("/L-3819A6DF")
    assert plan["choices"][0]["image"].startswith("/aws/service/")
    assert data["script"].startswith("#!/bin/sh\n")


def test_without_dry_run_it_says_that_launching_comes_later_and_what_can_be_done_now() -> None:
    with pytest.raises(AnnexError) as raised:
        app(["up", "aws", *ASKED], standalone_mode=False)
    failure = raised.value.failure
    assert failure.code == "no-annex-here"
    assert "launching instances comes in a later release" in failure.summary
    assert "siteannex up aws --gpus N --dry-run" in failure.hint


def test_the_users_budget_for_aws_holds_in_a_dry_run(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = home / "XDG_CONFIG_HOME" / "siteannex" / "config.yaml"
    settings.parent.mkdir(parents=True)
    settings.write_text("sites:\n  aws: {budget: 5}\n")
    assert app(["up", "aws", *ASKED, "--budget", "500", "--dry-run"], standalone_mode=False) == 10
    assert "budget-exceeded" in capsys.readouterr().err


def test_aws_has_a_row_among_the_sites_compared(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [line.split("  ")[0] for line in typed(capsys, "plan", "lab", "aws", *ASKED).splitlines()]
    assert rows[:3] == ["SITE", "aws", "lab"], "lab gives no six hours"
    [offer] = json.loads(typed(capsys, "plan", "aws", "--gpus", "400", "--nodes", "1", "--json"))
    assert (offer["site"], offer["fits"], offer["plan"]) == ("aws", False, None)
    assert offer["reason"] == "p6-b300.48xlarge: 8 GPUs, 400 a pilot asked"
