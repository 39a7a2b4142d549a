"""A failure on the screen says what, seen, so, do; its exit code says the stage."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siteannex.annex.events import failure_from_data
from siteannex.cli.failure_view import EXIT_CODES, exit_code, render, show
from siteannex.errors import Evidence, Stage
from siteannex.failures import FAILURES, failure

BROKEN = failure(
    "collector-unreachable",
    "lab",
    "c1 gets no answer from ap.lab:9618",
    evidence=[Evidence("MasterLog of pilot 71", "attempt to connect failed\nConnection timed out (errno = 110)")],
)


def test_every_stage_has_an_exit_code_of_its_own_that_no_shell_uses() -> None:
    assert set(EXIT_CODES) == set(Stage)
    assert len(set(EXIT_CODES.values())) == len(Stage)
    assert not {0, 1, 2, 126, 127} & set(EXIT_CODES.values())
    assert all(0 < exit_code(stage) < 126 for stage in Stage)


def test_a_failure_says_what_was_seen_what_it_means_and_what_to_do() -> None:
    assert render(BROKEN).splitlines() == [
        "join     FAILED: collector-unreachable",
        "  what   c1 gets no answer from ap.lab:9618",
        "  seen   MasterLog of pilot 71:",
        "         attempt to connect failed",
        "         Connection timed out (errno = 110)",
        "  so     The batch job and the EP are healthy; the network from the node to the collector is not.",
        f"  do     {FAILURES['collector-unreachable'].hint}",
    ]


@pytest.mark.parametrize("code", sorted(FAILURES))
def test_every_failure_is_rendered_with_its_code_summary_and_hint(code: str) -> None:
    told = failure(code, "lab", "what happened")
    text = render(told)
    assert text.startswith(f"{FAILURES[code].stage.label:<9}FAILED: {code}\n")
    assert "  what   what happened" in text
    assert f"  do     {FAILURES[code].hint}" in text


def test_a_summary_that_is_the_meaning_is_not_said_twice() -> None:
    meaning = FAILURES["gpus-missing"].meaning
    assert "  so " not in render(failure("gpus-missing", "lab", meaning.rstrip(".") + " (c1)"))


def test_words_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    show(BROKEN, as_json=False)
    written = capsys.readouterr()
    assert (written.out, written.err) == ("", render(BROKEN) + "\n")


def test_json_goes_to_standard_output_and_reads_back(capsys: pytest.CaptureFixture[str]) -> None:
    show(BROKEN, as_json=True)
    written = capsys.readouterr()
    assert written.err == ""
    assert failure_from_data(json.loads(written.out)["failure"]) == BROKEN


@given(st.sampled_from(sorted(FAILURES)), st.text(), st.lists(st.builds(Evidence, st.text(), st.text())))
def test_any_failure_can_be_rendered(code: str, summary: str, evidence: list[Evidence]) -> None:
    assert code in render(failure(code, "lab", summary, evidence=evidence))
