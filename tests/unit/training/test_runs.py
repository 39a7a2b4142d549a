"""From an experiment to its runs: exact, complete, reproducible."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from siteannex.training.experiment.model import Experiment, as_value
from siteannex.training.experiment.places import route
from siteannex.training.experiment.runs import node_count, points, run_count, runs
from tests.unit.training.experiments import GOOD, read

RANDOM = "{range: 0.01 to 0.1 by 0.01}"


def made(tmp_path: Path, *changes: tuple[str, str]) -> Experiment:
    return read(tmp_path, GOOD, *changes).experiment


def test_a_product_has_every_combination_and_numbers_are_spelled_as_written(tmp_path: Path) -> None:
    found = list(runs(made(tmp_path)))
    assert (points(made(tmp_path)), len(found), node_count(made(tmp_path))) == (20, 40, 40 * 8)
    assert [run.parameters["lr"].text for run in found[:4]] == ["0.01", "0.01", "0.01", "0.01"]
    assert [run.parameters["width"].text for run in found[:4]] == ["128", "128", "256", "256"]
    assert [run.parameters["lr"].text for run in found[::4]] == [f"0.{n:02d}" for n in range(1, 10)] + ["0.1"]
    assert found[0].parameters_json() == '{"lr":0.01,"width":128,"decay":0.10,"kind":"small one"}'
    assert list(json.loads(found[0].parameters_json())) == ["lr", "width", "decay", "kind"]


def test_zip_goes_side_by_side(tmp_path: Path) -> None:
    found = made(tmp_path, ("by 0.01", "by 0.09"), ("mode: product", "mode: zip"), ("runs_per_point: 2\n", ""))
    assert [(run.parameters["lr"].text, run.parameters["width"].text) for run in runs(found)] == [
        ("0.01", "128"),
        ("0.1", "256"),
    ]


def test_no_two_runs_share_a_name_an_id_or_a_seed(tmp_path: Path) -> None:
    found = list(runs(made(tmp_path, ("runs_per_point: 2", "runs_per_point: 500"))))
    for key in ("name", "run_id", "seed"):
        assert len({getattr(run, key) for run in found}) == len(found) == 10_000
    assert all(0 <= run.seed < 2**31 for run in found)


def test_the_same_file_gives_the_same_runs_and_another_seed_gives_others(tmp_path: Path) -> None:
    assert list(runs(made(tmp_path))) == list(runs(made(tmp_path)))
    other = made(tmp_path, ("seed: 20261129", "seed: 20261130"))
    assert not {run.seed for run in runs(made(tmp_path))} & {run.seed for run in runs(other)}
    assert not {run.run_id for run in runs(made(tmp_path))} & {run.run_id for run in runs(other)}


def test_these_ids_never_change(tmp_path: Path) -> None:
    first = next(runs(made(tmp_path)))
    assert (first.name, first.run_id, first.seed) == ("r00", "ddd814cc-bd37-5f3a-9630-aa533810c5f6", 2002772792)


@pytest.mark.parametrize(
    ("sweep", "low", "high", "whole"),
    [
        ("{sample: 0.05 to 0.5, count: 50}", 0.05, 0.5, False),
        ("{sample: 1e-5 to 1e-1, count: 50, scale: log}", 1e-5, 1e-1, False),
        ("{sample: 1 to 6, count: 200}", 1, 6, True),
    ],
)
def test_samples_stay_within_their_bounds(tmp_path: Path, sweep: str, low: float, high: float, whole: bool) -> None:
    found = made(tmp_path, (RANDOM, sweep))
    drawn = [run.parameters["lr"].text for run in runs(found)]
    assert all(low <= float(text) <= high for text in drawn)
    assert {text.isdigit() for text in drawn} == {whole}
    if whole:
        assert {int(text) for text in drawn} == {1, 2, 3, 4, 5, 6}
    assert json.loads(f"[{','.join(drawn)}]")


def test_shuffle_visits_every_site_once_before_any_again(tmp_path: Path) -> None:
    found = made(tmp_path)
    orders = set()
    for run in runs(found):
        sites = list(islice(route(found, run), 12))
        rounds = [tuple(sites[at : at + 4]) for at in (0, 4, 8)]
        assert all(set(each) == set(found.sites) for each in rounds)
        orders |= set(rounds)
    assert len(orders) > 12  # of 24


def test_weight_two_is_two_visits_a_round(tmp_path: Path) -> None:
    found = made(tmp_path, ("cap: 4", "weight: 2"))
    for run in runs(found):
        sites = list(islice(route(found, run), 5))
        assert (sites.count("expanse"), len(set(sites))) == (2, 4)


def test_fixed_keeps_a_run_at_one_site_and_spreads_runs_evenly(tmp_path: Path) -> None:
    found = made(tmp_path, ("policy: shuffle", "policy: fixed"))
    chosen = [set(islice(route(found, run), 4)) for run in runs(found)]
    assert all(len(sites) == 1 for sites in chosen)
    assert {site: chosen.count({site}) for site in found.sites} == dict.fromkeys(found.sites, 10)


def test_ordered_goes_round_in_the_files_order(tmp_path: Path) -> None:
    found = made(tmp_path, ("policy: shuffle", "policy: ordered"))
    assert list(islice(route(found, next(runs(found))), 6)) == [*found.sites, "expanse", "delta"]


def test_sticky_counts_epochs_not_jobs(tmp_path: Path) -> None:
    found = made(tmp_path, ("policy: shuffle", "policy: {sticky: 4}"), ("epochs: 4", "epochs: 16\n  epochs_per_job: 2"))
    sites = list(islice(route(found, next(runs(found))), 8))
    assert sites[0::2] == sites[1::2]
    assert len(set(sites)) == 4


def test_any_names_no_site(tmp_path: Path) -> None:
    changes = ("policy: shuffle", "policy: any"), ("{site.cpus}", "1"), ("{site.memory}", "1GB")
    found = made(tmp_path, *changes)
    assert set(islice(route(found, next(runs(found))), 4)) == {"any"}


@settings(deadline=None)
@given(st.from_regex(r"[+-]?([0-9]{1,5}(\.[0-9]{0,5})?|\.[0-9]{1,5})([eE][+-]?[0-9]{1,2})?", fullmatch=True))
def test_a_number_of_a_range_becomes_json_of_the_same_value(text: str) -> None:
    value = as_value(text)
    assert float(json.loads(value.text)) == float(text)


def test_run_count_is_known_without_making_them(tmp_path: Path) -> None:
    found = made(tmp_path, ("runs_per_point: 2", "runs_per_point: 50"), ("seed: 20261129", "seed: 1\nmax_nodes: 10000"))
    assert run_count(found) == len(list(runs(found))) == 1000
