"""What annexes cost: never less than what the batch system told, never less than nothing, never forgotten."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siteannex.annex.events import AnnexState
from siteannex.annex.planning.ledger import Account, Record, account_of, price, within_budget
from siteannex.annex.up import up
from siteannex.errors import AnnexError
from siteannex.failures import failure
from tests.unit.samples import NOW, ago, plan, request
from tests.unit.world import World

FOUR_HOURS = plan(pilots=2, walltime_s=14400, ceiling_gpu_hours=16.0, charge=16.0, charge_unit="SU")
SUBMITTED = AnnexState(submit_begun=True, submitted_at=ago(7200), job_ids=("71", "72"))


def sums(*records: Record, cap: float | None = None) -> tuple[float, float]:
    account = account_of("lab", "SU", records, NOW, cap)
    return account.used, account.reserved


def test_a_living_annex_is_reserved_in_full_and_what_has_ended_is_used() -> None:
    assert sums(Record(FOUR_HOURS, SUBMITTED)) == (0.0, 16.0)
    assert sums(Record(FOUR_HOURS, replace(SUBMITTED, ran={"71": 3600.0}))) == (2.0, 8.0)


def test_an_ended_annex_costs_what_slurm_told_and_else_all_that_it_could_have_run() -> None:
    ended = replace(SUBMITTED, ended=True, ended_at=ago(0), ran={"71": 3600.0, "72": 0.0})
    assert sums(Record(FOUR_HOURS, ended)) == (2.0, 0.0)
    assert sums(Record(FOUR_HOURS, replace(ended, ran={}))) == (8.0, 0.0)  # two hours of four, both pilots


def test_a_short_run_is_used_as_the_site_charges_it() -> None:
    at_tacc = replace(FOUR_HOURS, charge_minimum_s=900)
    ended = replace(SUBMITTED, ended=True, ended_at=ago(0), ran={"71": 60.0, "72": 0.0})
    assert sums(Record(at_tacc, ended)) == (0.5, 0.0)  # a quarter of an hour of four, at 8 SU a pilot


def test_a_crash_between_submission_and_its_record_is_counted_as_reserved() -> None:
    assert sums(Record(FOUR_HOURS, AnnexState(submit_begun=True, submitted_at=ago(10)))) == (0.0, 16.0)


def test_a_plan_counts_while_a_command_is_at_work_on_it_and_not_when_it_was_dropped() -> None:
    assert sums(Record(FOUR_HOURS, AnnexState(), busy=True)) == (0.0, 16.0)
    assert sums(Record(FOUR_HOURS, AnnexState())) == (0.0, 0.0)


def test_what_sbatch_refused_costs_nothing() -> None:
    refused = AnnexState(
        submit_begun=True, ended=True, failure=failure("qos-invalid", "lab", "no"), submitted_at=ago(9)
    )
    assert sums(Record(FOUR_HOURS, refused)) == (0.0, 0.0)


def test_units_and_sites_are_kept_apart() -> None:
    in_hours = replace(FOUR_HOURS, charge=None)
    assert price(in_hours) == (16.0, "GPU-h")
    assert sums(Record(in_hours, SUBMITTED)) == (0.0, 0.0)
    elsewhere = replace(FOUR_HOURS, request=replace(FOUR_HOURS.request, site="other"))
    assert sums(Record(elsewhere, SUBMITTED)) == (0.0, 0.0)


def test_a_refusal_says_by_how_much() -> None:
    with pytest.raises(AnnexError) as raised:
        within_budget(FOUR_HOURS, Account("lab", "SU", used=80, reserved=10, cap=100))
    told = raised.value.failure
    assert (told.code, told.summary) == (
        "budget-exceeded",
        "the ceiling is 16 SU: 6 SU more than is left of the budget for lab",
    )
    assert told.evidence[0].text == "cap 100, used 80, reserved 10, left 10 SU"
    with pytest.raises(AnnexError) as raised:
        within_budget(FOUR_HOURS, Account("lab", "SU", 0, 0), command_cap=15.5)
    assert "0.5 SU more than --budget allows" in raised.value.failure.summary


states = st.builds(
    lambda begun, ended, ran, ids, ago_s, end_s: AnnexState(
        submit_begun=begun,
        ended=ended,
        ran={str(71 + number): seconds for number, seconds in enumerate(ran)},
        job_ids=tuple(str(71 + number) for number in range(ids)),
        submitted_at=NOW - timedelta(seconds=ago_s) if begun else None,
        ended_at=NOW - timedelta(seconds=end_s) if ended else None,
    ),
    st.booleans(),
    st.booleans(),
    st.lists(st.floats(0, 1e6), max_size=4),
    st.integers(0, 4),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
)


@given(st.lists(st.builds(lambda state, busy: Record(FOUR_HOURS, state, busy), states, st.booleans()), max_size=6))
def test_sums_are_never_negative_nor_above_the_ceilings_and_each_annex_counts_for_itself(records: list[Record]) -> None:
    used, reserved = sums(*records)
    assert used >= 0
    assert reserved >= 0
    assert used + reserved <= 16.0 * len(records) + 0.001
    apart = [sums(record) for record in records]
    assert used == pytest.approx(sum(each for each, _ in apart), abs=0.01)
    assert reserved == pytest.approx(sum(each for _, each in apart), abs=0.01)


@given(states, st.floats(0, 1e6))
def test_silence_never_makes_an_annex_cheaper_than_a_full_run_told(state: AnnexState, seconds: float) -> None:
    """A living annex of which nothing was told costs at least what it costs when something was."""
    living = replace(state, submit_begun=True, ended=False, submitted_at=ago(10), ran={})
    told = replace(living, ran={"71": seconds})
    assert sum(sums(Record(FOUR_HOURS, living))) >= sum(sums(Record(FOUR_HOURS, told))) - 0.001


def test_up_refuses_what_the_budget_does_not_bear_and_says_what_is_left(tmp_path: Path) -> None:
    world = World(tmp_path)
    tools = replace(world.tools(), caps={"lab": 3.0})
    up(request(), world.site, tools)
    assert ("", "budget of lab: 1 of 3 GPU-h left, this plan counted") in world.view.lines
    with pytest.raises(AnnexError) as raised:
        up(request(name="second"), world.site, tools)
    assert raised.value.failure.code == "budget-exceeded"
    assert world.store.living("second") is None
    assert world.logins == 1


def test_what_was_taken_down_early_is_given_back(tmp_path: Path) -> None:
    world = World(tmp_path)
    annex, _ = world.up()
    world.clock.sleep(360)
    world.down(annex, now=True)
    account = account_of("lab", "GPU-h", world.store.records(), world.clock.now())
    assert account.reserved == 0
    assert 0 < account.used <= 0.5
