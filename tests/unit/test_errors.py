"""Secrets stay hidden, evidence bounded, stages in order, and every code in the source is in the catalogue."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import siteannex
from siteannex.annex.judging.ends import _ENDINGS
from siteannex.errors import EVIDENCE_LIMIT_CHARS, AnnexError, Evidence, Secret, Stage, StageFailure
from siteannex.failures import FAILURES, fail, failure
from siteannex.resources import data_dir
from siteannex.scheduler.refusals import REFUSALS

SOURCE = Path(siteannex.__file__).parent


def test_a_secret_shows_neither_by_repr_nor_by_str_nor_inside_another_value() -> None:
    secret = Secret("hunter2")
    assert "hunter2" not in f"{secret} {secret!r} {[secret]} {secret!s:>20}"
    assert secret.reveal() == "hunter2"


def test_evidence_blanks_every_secret_it_is_told_of() -> None:
    seen = Evidence.tail("sshd", "user alice pass hunter2, again hunter2", (Secret("hunter2"), Secret("")))
    assert seen.text == "user alice pass <secret>, again <secret>"


@given(st.text(max_size=3 * EVIDENCE_LIMIT_CHARS), st.text(min_size=1, max_size=8))
def test_evidence_is_bounded_and_keeps_the_end(text: str, end: str) -> None:
    seen = Evidence.tail("x", text + end)
    assert len(seen.text) <= EVIDENCE_LIMIT_CHARS + 3
    assert (text + end).strip().endswith(seen.text.removeprefix("..."))


def test_stages_are_ordered_from_plan_to_released() -> None:
    assert [stage.order for stage in Stage] == list(range(12))
    assert Stage.PLAN.order < Stage.SUBMIT.order < Stage.BATCH_JOB.order < Stage.READY.order < Stage.RELEASED.order


def test_a_failure_takes_stage_hint_and_retryable_from_the_catalogue() -> None:
    built = failure("host-unreachable", "lab", "login.lab does not answer", evidence=[Evidence("tcp", "timed out")])
    kind = FAILURES["host-unreachable"]
    assert (built.stage, built.hint, built.retryable) == (kind.stage, kind.hint, kind.retryable)
    assert built.evidence == (Evidence("tcp", "timed out"),)


def test_a_hint_that_knows_more_replaces_the_general_one() -> None:
    assert failure("site-unknown", "x", "no", hint="Did you mean lab?").hint == "Did you mean lab?"
    assert failure("site-unknown", "x", "no", hint="").hint == ""


def test_a_code_outside_the_catalogue_cannot_be_built() -> None:
    with pytest.raises(KeyError):
        failure("no-such-code", "lab", "x")


def test_the_exception_carries_the_failure_and_says_it_in_a_line() -> None:
    problem = fail("token-refused", "lab", "condor_token_fetch said no")
    assert isinstance(problem, AnnexError)
    assert isinstance(problem.failure, StageFailure)
    assert str(problem) == "PLAN: token-refused: condor_token_fetch said no"


@pytest.mark.parametrize("code", sorted(FAILURES))
def test_every_failure_is_named_and_explained(code: str) -> None:
    kind = FAILURES[code]
    assert code == code.lower().replace("_", "-").strip("-")
    assert kind.meaning.endswith(".")
    assert kind.hint


def test_every_code_named_in_the_source_is_in_the_catalogue() -> None:
    named = {code for path in sorted(SOURCE.rglob("*.py")) for code in _codes_named_in(path)}
    assert len(named) > 20
    assert not named - set(FAILURES)


def test_every_code_chosen_by_a_table_is_in_the_catalogue() -> None:
    assert {refusal.code for refusal in REFUSALS} <= set(FAILURES)
    assert set(_ENDINGS.values()) <= set(FAILURES)


def test_every_code_a_pilot_can_report_is_in_the_catalogue() -> None:
    pilot = "".join(path.read_text(encoding="utf-8") for path in data_dir("tarball").glob("*.sh"))
    named = set(re.findall(r"\bfail ([a-z]+(?:-[a-z]+)+)\b", pilot))
    assert len(named) > 8
    assert not named - set(FAILURES)


def _codes_named_in(path: Path) -> Iterator[str]:
    """First arguments of fail(...) and failure(...), where they are written out."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and node.args and _called(node.func) in ("fail", "failure"):
            first = node.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield first.value


def _called(function: ast.expr) -> str:
    if isinstance(function, ast.Name):
        return function.id
    return function.attr if isinstance(function, ast.Attribute) else ""
