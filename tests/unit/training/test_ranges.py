from __future__ import annotations

from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siteannex.training.experiment.ranges import (
    RangeError,
    by_factor,
    by_step,
    log_spaced,
    looks_like_range,
    parse_range,
)

NUMBERS = st.decimals(min_value=-1000, max_value=1000, allow_nan=False, allow_infinity=False, places=3)


def values(text: str) -> list[str]:
    grid = parse_range(text)
    spelled = list(grid)
    assert len(spelled) == grid.count
    return spelled


def test_the_range_of_the_report_has_exactly_ten_values_spelled_as_written() -> None:
    assert values("0.01 to 0.1 by 0.01") == [*(f"0.0{digit}" for digit in range(1, 10)), "0.1"]


def test_the_range_of_the_talk_has_exactly_a_hundred_values() -> None:
    assert len(values("0.001 to 0.1 by 0.001")) == 100
    assert values("0.001 to 0.1 by 0.001")[-1] == "0.1"


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("0.5 to 2 by 0.5", "0.5 1 1.5 2"),
        ("0.10 to 0.40 by 0.10", "0.10 0.20 0.30 0.40"),
        ("1.0 to 1.5 by 0.25", "1.0 1.25 1.5"),
        ("1e-4 to 1e-3 by 3e-4", "1e-4 4e-4 7e-4 1e-3"),
        ("1e-4 to 2e-4 by 5e-5", "1e-4 1.5e-4 2e-4"),
        ("10 to -10 by -10", "10 0 -10"),
        ("-1e0 to 1e0 by 1e0", "-1e0 0 1e0"),
        ("3 to 3 by 1", "3"),
        (".5 to 1. by .25", ".5 0.75 1."),
        ("100 to 300 by 100", "100 200 300"),
        ("1E2 TO 3E2 BY 1E2", "1E2 2e2 3E2"),
        ("0.0001 to 0.1 times 10", "0.0001 0.001 0.01 0.1"),
        ("64 to 8 times 0.5", "64 32 16 8"),
        ("1e-4 to 1e-2 log 3", "1e-4 1e-3 1e-2"),
        ("1 to 10 log 3", "1 3.16228 10"),
        ("0.01 to 100 log 5", "0.01 0.1 1 10 100"),
    ],
)
def test_both_ends_belong_to_a_range_and_keep_their_spelling(text: str, spelled: str) -> None:
    assert values(text) == spelled.split()
    assert parse_range(text).note == ""


@pytest.mark.parametrize(
    ("text", "last"),
    [("0 to 1 by 0.3", "0.9"), ("1 to 10 times 3", "9"), ("5 to 6 by 2", "5"), ("1e-3 to 8e-3 by 2e-3", "7e-3")],
)
def test_an_end_off_the_grid_is_left_out_and_the_note_says_so(text: str, last: str) -> None:
    assert values(text)[-1] == last
    assert f"the last value is {last}" in parse_range(text).note


@pytest.mark.parametrize(
    ("text", "column", "says"),
    [
        ("1 to 5 by 0", 10, "step of 1 to 5 is 0"),
        ("1 to 5 by -1", 10, "did you mean by 1?"),
        ("5 to 1 by 1", 10, "did you mean by -1?"),
        ("1 to 5 by x", 10, "STEP is 'x', which is not a number"),
        ("x to 5 by 1", 0, "START is 'x'"),
        ("1 to nan by 1", 5, "STOP is 'nan'"),
        ("1 to 1e999 by 1", 5, "exponents up to 308"),
        ("1 to 5 step 1", 7, "write START to STOP by STEP"),
        ("1 .. 5 by 1", 2, "write START to STOP by STEP"),
        ("1 to 5", 0, "write START to STOP by STEP"),
        ("", 0, "write START to STOP by STEP"),
        ("0 to 5 times 2", 13, "both ends must be above 0"),
        ("-1 to 5 log 3", 12, "both ends must be above 0"),
        ("1 to 5 times 1", 13, "leads nowhere"),
        ("1 to 5 times 0.5", 13, "leads away"),
        ("1 to 5 log 1", 11, "at least 2 values"),
        ("1 to 5 log 2.5", 11, "whole number"),
        ("5 to 5 log 2", 11, "all be the same"),
        ("1 to 2 times 1.0000000000000001", 13, "use log COUNT"),
    ],
)
def test_a_range_that_means_nothing_is_an_error_at_its_column(text: str, column: int, says: str) -> None:
    with pytest.raises(RangeError, match=says.replace("?", r"\?").replace("(", r"\(")) as caught:
        parse_range(text)
    assert caught.value.column == column


def test_a_huge_range_is_counted_without_being_made() -> None:
    assert by_step("0", "1", "1e-30").count == 10**30 + 1


@given(NUMBERS, NUMBERS, NUMBERS.filter(bool))
def test_a_range_counts_exactly_and_each_value_lies_on_the_grid(start: Decimal, stop: Decimal, step: Decimal) -> None:
    step = abs(step) if stop >= start else -abs(step)
    grid = by_step(str(start), str(stop), str(step))
    assert grid.count == (Fraction(stop) - Fraction(start)) // Fraction(step) + 1
    if grid.count > 2000:
        return
    made = [Fraction(value) for value in grid]
    assert made == [Fraction(start) + index * Fraction(step) for index in range(grid.count)]
    assert (made[-1] == Fraction(stop)) == (grid.note == "")


@given(
    st.decimals(min_value="0.001", max_value=10, places=3),
    st.decimals(min_value="1.5", max_value=10, places=1),
    st.integers(0, 9),
)
def test_factors_are_exact(start: Decimal, factor: Decimal, count: int) -> None:
    stop = Fraction(start) * Fraction(factor) ** count
    grid = by_factor(str(start), f"{Decimal(stop.numerator) / Decimal(stop.denominator):f}", str(factor))
    assert [Fraction(value) for value in grid] == [Fraction(start) * Fraction(factor) ** k for k in range(count + 1)]


@given(st.integers(2, 50))
def test_log_ranges_rise_by_equal_ratios(count: int) -> None:
    made = [float(value) for value in log_spaced("1e-5", "1e-1", count)]
    assert len(made) == count
    for low, high in pairwise(made):
        assert high / low == pytest.approx(1e4 ** (1 / (count - 1)), rel=1e-4)


@given(st.text())
def test_any_text_is_a_range_or_a_range_error(text: str) -> None:
    with suppress(RangeError):
        assert parse_range(text).count >= 1


def test_what_looks_like_a_range_is_told_from_a_word() -> None:
    assert looks_like_range("0.1 to 1 by x")
    assert not looks_like_range("adam")
    assert not looks_like_range("route to nowhere by 1")
