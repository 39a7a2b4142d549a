"""The old tool's queue table against ours: docs/incumbent-queues.md says what both answer, and is right about ours."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from siteannex.annex.planning.layout import Refusal
from siteannex.annex.planning.plan import choose
from siteannex.cli import up as up_verb
from siteannex.cli.asking import Asked
from siteannex.model import Request
from siteannex.site.loader import read_any
from siteannex.site.schema import Site

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "incumbent-queues.md"


@dataclass(frozen=True)
class Row:
    site: str
    asked: str
    old: str
    here: str
    why: str


def rows() -> list[Row]:
    table = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")][1:]
    return [Row(*(cell.strip().strip("`") for cell in line.strip("|").split("|"))) for line in table]


def request_of(row: Row, site: Site, monkeypatch: pytest.MonkeyPatch) -> Request:
    """Through `up`'s own options, as a person types them."""
    asked: list[Request] = []

    def keep(wiring: object, words: Asked, name: str, title: str | None) -> tuple[Request, Site]:
        asked.append(words.request(name, site))
        raise typer.Exit

    monkeypatch.setattr(up_verb, "_request", keep)
    app = typer.Typer()
    app.command()(up_verb.up)
    answer = CliRunner().invoke(app, [row.site, *row.asked.split()])
    assert answer.exit_code == 0, answer.output
    return asked[0]


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row.site} {row.asked}")
def test_the_page_says_what_the_planner_says(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    path = ROOT / "sites" / f"{row.site}.yaml"
    site = read_any(path, [path.parent])
    assert isinstance(site, Site)
    choice = choose(request_of(row, site, monkeypatch), site)
    if choice.fits:
        assert row.here == "yes"
        return
    assert f"no: {closest(choice.refusals).fact}" == row.here


def closest(refusals: tuple[Refusal, ...]) -> Refusal:
    return min(refusals, key=lambda each: each.distance)


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row.site} {row.asked}")
def test_every_difference_has_its_reason(row: Row) -> None:
    if re.match("yes|no", row.old).group() != re.match("yes|no", row.here).group():  # type: ignore[union-attr]
        assert row.why
