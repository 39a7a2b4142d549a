"""What sbatch says when it refuses, in Slurm's own words, and the code each means."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siteannex.errors import Evidence, Stage
from siteannex.failures import FAILURES, fail
from siteannex.ports import CommandResult
from siteannex.scheduler.refusals import advised, inquiry_script, refusal

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
            "limits-exceeded",
        ),
        (FAILED + "Unable to contact slurm controller (connect failure)", "slurm-unreachable"),
        (FAILED + "Socket timed out on send/recv operation", "submit-uncertain"),
        (FAILED + "Zero Bytes were transmitted or received", "submit-uncertain"),
        ("sbatch: unrecognized option '--gpuss=2'", "submit-refused"),
        ("Please specify --gres=gpu:TYPE:NUM", "gres-invalid"),
        ("sbatch: error: Invalid generic resource (gres) specification", "gres-invalid"),
        (
            "sbatch: error: --mem is not allowed here: memory comes with the GPUs\n" + FAILED + "Unspecified error",
            "memory-request-refused",
        ),
        ("Please do not use --mem on this partition", "memory-request-refused"),
        (
            "sbatch: error: QOSMaxWallDurationPerJobLimit\n" + FAILED + "Job violates accounting/QOS policy",
            "limits-exceeded",
        ),
        ("sbatch gave no answer in 60 s and was ended", "submit-uncertain"),
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


@pytest.mark.parametrize(
    ("code", "said", "hint"),
    [
        ("account-invalid", "abc123\nxyz789\n", "abc123, xyz789. Name one: --account abc123"),
        ("partition-invalid", "debug\ngpu\n", "partitions now: debug, gpu. Name one (--partition)"),
        ("qos-invalid", "normal\ntiny\n", "QOS there: normal, tiny."),
        ("walltime-invalid", "debug 30:00\n", "limits: debug 30:00."),
        ("nodes-unavailable", "gpu: 16 CPUs, 64000 MB, gpu:a100:4\n", "gpu: 16 CPUs, 64000 MB, gpu:a100:4."),
        ("gres-invalid", "gpu: gpu:a100:4\n", "gpu: gpu:a100:4."),
        ("limits-exceeded", "tiny|00:05:00|||\n", "tiny|00:05:00|||"),
    ],
)
def test_what_slurm_would_take_is_named(code: str, said: str, hint: str) -> None:
    assert inquiry_script(code)
    told = advised(fail(code, "lab", "no", evidence=[Evidence("sbatch", "no")]), said).failure
    assert hint in told.hint
    assert [piece.text for piece in told.evidence] == ["no", said.strip()]


def test_where_slurm_names_nothing_the_general_hint_stays() -> None:
    refused = fail("account-invalid", "lab", "no")
    assert advised(refused, " \n").failure == refused.failure
    assert inquiry_script("submit-refused") is None
    assert advised(fail("submit-refused", "lab", "no"), "words").failure.evidence == ()


@given(st.sampled_from(["account-invalid", "limits-exceeded", "submit-refused"]), st.text())
def test_any_answer_of_slurm_leaves_a_hint_of_one_line(code: str, said: str) -> None:
    hint = advised(fail(code, "lab", "no"), said).failure.hint
    assert hint
    assert hint.isprintable()
