"""What sbatch says when it refuses, in Slurm's own words, and the code each means."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siteannex.errors import Stage
from siteannex.failures import FAILURES
from siteannex.ports import CommandResult
from siteannex.scheduler.slurm import refusal

FAILED = "sbatch: error: Batch job submission failed: "


@pytest.mark.parametrize(
    ("stderr", "code"),
    [
        (FAILED + "Invalid account or account/partition combination specified", "account-invalid"),
        ("sbatch: error: Project xyz123 is not a valid account", "account-invalid"),
        ("sbatch: error: invalid partition specified: gpuu\n" + FAILED + "Invalid partition name specified", None),
        (FAILED + "Invalid qos specification", "qos-invalid"),
        (FAILED + "Requested node configuration is not available", "nodes-unavailable"),
        (
            "sbatch: error: Memory specification can not be satisfied\n"
            + FAILED
            + "Requested node configuration is not available",
            "nodes-unavailable",
        ),
        ("sbatch: error: Invalid --time specification", "walltime-invalid"),
        (FAILED + "Requested time limit is invalid (missing or exceeds some limit)", "walltime-invalid"),
        (
            FAILED + "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)",
            "submit-refused",
        ),
        (FAILED + "Unable to contact slurm controller (connect failure)", "submit-refused"),
        (FAILED + "Socket timed out on send/recv operation", "submit-uncertain"),
        (FAILED + "Zero Bytes were transmitted or received", "submit-uncertain"),
        ("sbatch: unrecognized option '--gpuss=2'", "submit-refused"),
        ("Please specify --gres=gpu:TYPE:NUM", "submit-refused"),
    ],
)
def test_slurms_words_become_the_code_they_mean(stderr: str, code: str | None) -> None:
    failure = refusal(CommandResult(1, "", stderr), "lab").failure
    assert failure.code == (code or "partition-invalid")
    assert failure.stage is Stage.SUBMIT
    assert failure.evidence[0].text == stderr
    assert failure.evidence[0].source == "sbatch at lab, exit status 1"


def test_words_on_standard_output_count_too() -> None:
    failure = refusal(CommandResult(1, "Invalid qos specification\n", ""), "lab").failure
    assert failure.code == "qos-invalid"


def test_a_silent_refusal_says_that_nothing_was_said() -> None:
    failure = refusal(CommandResult(255, "\n", " "), "lab").failure
    assert (failure.code, failure.summary) == ("submit-refused", "sbatch ended with status 255 and said nothing")


@given(st.integers(1, 255), st.text(), st.text())
def test_any_words_become_a_failure_of_submit(status: int, stdout: str, stderr: str) -> None:
    failure = refusal(CommandResult(status, stdout, stderr), "lab").failure
    assert FAILURES[failure.code].stage is Stage.SUBMIT
