"""Reading Slurm: every state, odd fields, commands that fail; never an exception, never a wrong success."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siteannex.model import BatchState
from siteannex.scheduler.reasons import HOPELESS_REASONS
from siteannex.scheduler.slurm import (
    QueueAnswer,
    format_walltime,
    parse_moment,
    parse_state,
    read_query,
    read_submitted,
)

NAME = "sweep1-00000001"

STATES = {
    # squeue(1) and sacct(1), JOB STATE CODES
    "PENDING": BatchState.PENDING,
    "CONFIGURING": BatchState.PENDING,
    "EXPEDITING": BatchState.PENDING,
    "REQUEUED": BatchState.PENDING,
    "REQUEUE_FED": BatchState.PENDING,
    "REQUEUE_HOLD": BatchState.PENDING,
    "RESV_DEL_HOLD": BatchState.PENDING,
    "SPECIAL_EXIT": BatchState.PENDING,
    "RUNNING": BatchState.RUNNING,
    "RESIZING": BatchState.RUNNING,
    "SIGNALING": BatchState.RUNNING,
    "STOPPED": BatchState.RUNNING,
    "SUSPENDED": BatchState.RUNNING,
    "COMPLETING": BatchState.ENDING,
    "STAGE_OUT": BatchState.ENDING,
    "COMPLETED": BatchState.COMPLETED,
    "FAILED": BatchState.FAILED,
    "LAUNCH_FAILED": BatchState.FAILED,
    "RECONFIG_FAIL": BatchState.FAILED,
    "CANCELLED": BatchState.CANCELLED,
    "REVOKED": BatchState.CANCELLED,
    "TIMEOUT": BatchState.TIMEOUT,
    "DEADLINE": BatchState.TIMEOUT,
    "NODE_FAIL": BatchState.NODE_FAIL,
    "BOOT_FAIL": BatchState.NODE_FAIL,
    "OUT_OF_MEMORY": BatchState.OUT_OF_MEMORY,
    "PREEMPTED": BatchState.PREEMPTED,
}


def squeue(state: str = "RUNNING", job_id: str = "71", name: str = NAME, **fields: str) -> str:
    shown = {"node": "c1", "start": "1700000000", "end": "1700003600", "reason": "None", **fields}
    return "|".join([job_id, name, state, shown["node"], shown["start"], shown["end"], shown["reason"]])


def sacct(state: str = "COMPLETED", job_id: str = "71", name: str = NAME, **fields: str) -> str:
    shown = {"node": "c1", "start": "1700000000", "end": "Unknown", "exit": "0:0", "reason": "None", **fields}
    return "|".join([job_id, name, state, shown["node"], shown["start"], shown["end"], shown["exit"], shown["reason"]])


def answer(queue: str = "", accounting: str = "", *, queue_ok: bool = True, accounting_ok: bool = True) -> QueueAnswer:
    words = {True: "ok", False: "failed"}
    text = f"@squeue {words[queue_ok]}\n{queue}\n@sacct {words[accounting_ok]}\n{accounting}\n"
    return read_query(text, NAME)


@pytest.mark.parametrize(("word", "state"), STATES.items())
@pytest.mark.parametrize("tail", ["", " by 1234", "+", " "])
def test_every_state_is_read_with_or_without_its_tail(word: str, tail: str, state: BatchState) -> None:
    assert parse_state(word + tail) is state
    assert parse_state(word.lower() + tail) is state


@pytest.mark.parametrize("word", ["", "  ", "SOMETHING_NEW", "RUNNINGS", "N/A", "?", "42"])
def test_an_unknown_state_is_unknown_and_taken_to_live(word: str) -> None:
    assert parse_state(word) is BatchState.UNKNOWN
    assert parse_state(word).living


def test_every_state_either_lives_or_has_ended() -> None:
    assert {state for state in BatchState if state.living} == {
        BatchState.PENDING,
        BatchState.RUNNING,
        BatchState.ENDING,
        BatchState.UNKNOWN,
    }
    assert all(state.ended is not state.living for state in BatchState)


@pytest.mark.parametrize(
    "text", ["N/A", "Unknown", "None", "", " ", "0", "-5", "INVALID", "2026-11-29T12:00:00", "٣", "9" * 12, "1.5"]
)
def test_a_time_that_is_no_unix_second_is_not_known(text: str) -> None:
    assert parse_moment(text) is None


def test_unix_seconds_are_utc() -> None:
    assert parse_moment(" 1700000000 ") == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)


@given(st.integers(1, 366 * 86400))
def test_a_walltime_is_written_so_that_slurm_reads_the_same_seconds(seconds: int) -> None:
    hours, minutes, secs = map(int, format_walltime(seconds).split(":"))
    assert hours * 3600 + minutes * 60 + secs == seconds
    assert minutes < 60
    assert secs < 60


def test_a_running_pilot_is_read_whole() -> None:
    [job] = answer(squeue()).jobs or ()
    assert (job.job_id, job.state, job.node, job.reason) == ("71", BatchState.RUNNING, "c1", "")
    assert job.start == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert job.end == datetime(2023, 11, 14, 23, 13, 20, tzinfo=UTC)


@pytest.mark.parametrize(
    "reason", ["Priority", "ReqNodeNotAvail, UnavailableNodes:c[1-2]", "a|b|c", "(Resources)", "QOSMaxGRESPerUser"]
)
def test_a_reason_keeps_its_spaces_and_bars(reason: str) -> None:
    [job] = answer(squeue("PENDING", reason=reason, node="", start="N/A", end="N/A")).jobs or ()
    assert (job.state, job.reason, job.start, job.end) == (BatchState.PENDING, reason, None, None)


def test_squeue_wins_while_it_knows_the_job() -> None:
    [job] = answer(squeue("RUNNING"), sacct("PENDING", node="None assigned")).jobs or ()
    assert (job.state, job.node) == (BatchState.RUNNING, "c1")


def test_accounting_tells_how_a_job_ended_that_both_know() -> None:
    [job] = answer(squeue("FAILED"), sacct("FAILED", exit="127:0")).jobs or ()
    assert (job.state, job.exit_code) == (BatchState.FAILED, "127:0")


def test_a_job_requeued_under_its_id_is_what_squeue_says() -> None:
    [job] = answer(squeue("PENDING"), sacct("PREEMPTED")).jobs or ()
    assert job.state is BatchState.PENDING


def test_a_job_that_left_squeue_is_known_from_accounting() -> None:
    [job] = answer("", sacct("CANCELLED by 1234", exit="0:15")).jobs or ()
    assert (job.state, job.state_text, job.exit_code) == (BatchState.CANCELLED, "CANCELLED by 1234", "0:15")


@pytest.mark.parametrize(
    ("line", "who"),
    [
        ("@user 1234 mary", "mary (uid 1234)"),
        ("@user 1234", "you"),
        ("@user 1234 ", "uid 1234"),
        ("@user 99 mary", "uid 1234"),
        ("@user 1234 mary; rm -rf /", "uid 1234"),
        ("", "uid 1234"),
    ],
)
def test_who_cancelled_a_job_is_told_by_name_where_the_site_knows_it(line: str, who: str) -> None:
    [job] = answer("", sacct("CANCELLED by 1234") + "\n" + line).jobs or ()
    assert job.cancelled_by == who


@pytest.mark.parametrize("state", ["CANCELLED", "CANCELLED+", "CANCELLED by mary", "FAILED", "CANCELLED by "])
def test_nobody_is_named_where_accounting_names_nobody(state: str) -> None:
    [job] = answer("", sacct(state)).jobs or ()
    assert job.cancelled_by == ""


def test_an_end_that_both_know_keeps_the_reason_that_only_squeue_has() -> None:
    [job] = answer(squeue("NODE_FAIL", reason="NodeDown"), sacct("NODE_FAIL", exit="1:0")).jobs or ()
    assert (job.reason, job.exit_code) == ("NodeDown", "1:0")


def test_an_empty_squeue_is_nothing_there() -> None:
    assert answer() == QueueAnswer(())


def test_a_failed_squeue_is_not_known_and_keeps_its_words() -> None:
    seen = answer("slurm_load_jobs error: Socket timed out on send/recv operation", queue_ok=False)
    assert seen.jobs is None
    assert "Socket timed out" in seen.complaint


def test_a_failed_squeue_is_not_known_even_when_accounting_knows_some() -> None:
    seen = answer("slurm_load_jobs error: Unable to contact slurm controller", sacct("COMPLETED"), queue_ok=False)
    assert seen.jobs is None


def test_accounting_switched_off_takes_nothing_from_squeue() -> None:
    off = "Slurm accounting storage is disabled"
    seen = answer(squeue(), off, accounting_ok=False)
    assert [job.job_id for job in seen.jobs or ()] == ["71"]
    assert seen.complaint == off
    assert answer("", off, accounting_ok=False).jobs == ()


def test_both_failing_is_not_known() -> None:
    seen = answer("no", "no", queue_ok=False, accounting_ok=False)
    assert seen == QueueAnswer(None, "no\nno")


@pytest.mark.parametrize(
    "text", ["", "Permission denied\n", "@squeue\n", "@squeue maybe\n71|x", "Welcome to Stampede3"]
)
def test_an_answer_without_our_tags_is_not_known(text: str) -> None:
    assert read_query(text, NAME).jobs is None


@pytest.mark.parametrize(
    "line",
    [
        squeue(name="someone-else"),
        squeue(job_id="71_2"),
        squeue(job_id=""),
        squeue(job_id="٧١"),
        squeue(job_id="7" * 5000),
        "71|" + NAME,
        "Welcome to Stampede3 | 71 | " + NAME,
    ],
)
def test_a_line_that_is_not_our_pilot_is_passed_over(line: str) -> None:
    assert answer(line, line).jobs == ()


def test_two_pilots_are_two_jobs_in_the_order_of_their_ids() -> None:
    jobs = answer(squeue(job_id="101") + "\n" + squeue("PENDING", job_id="99")).jobs or ()
    assert [(job.job_id, job.state) for job in jobs] == [("99", BatchState.PENDING), ("101", BatchState.RUNNING)]


foreign = st.text(alphabet=st.sampled_from("@squeuacctokfailed |\n\r\x85\u20280123456789RUNING-_N/A")) | st.text()
field = st.sampled_from(
    [
        "71",
        "72",
        NAME,
        "RUNNING",
        "CANCELLED by 7",
        "@user 7 x",
        "N/A",
        "UNLIMITED",
        "INVALID",
        "71_2",
        "71;expanse",
        "",
        "c1",
        "x y",
        "1700000000",
        "|",
    ]
)
lines = st.lists(field, max_size=9).map("|".join) | foreign
tags = st.sampled_from(["@squeue ok", "@squeue failed", "@sacct ok", "@sacct failed", "@sacct", "@squeue ok "])


@given(st.lists(tags | lines).map("\n".join) | st.text())
def test_any_answer_is_read_and_only_our_names_count(text: str) -> None:
    seen = read_query(text, NAME)
    if "@squeue ok" not in text:
        assert seen.jobs is None
    for job in seen.jobs or ():
        assert job.name == NAME
        assert job.job_id.isascii()
        assert job.job_id.isdigit()
        assert f"{job.job_id}|{NAME}|" in text


@given(st.text())
def test_any_state_and_any_time_is_read(text: str) -> None:
    assert parse_state(text) in BatchState
    moment = parse_moment(text)
    assert moment is None or moment.tzinfo is UTC


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("@pilot 1 31337421\n", ("31337421",)),
        ("@pilot 1 31337421;expanse\n", ("31337421",)),
        ("@pilot 1 Submitted batch job 31337421\n", ("31337421",)),
        ("@pilot 1 Submitted batch job 31337421 on cluster expanse\n", ("31337421",)),
        ("@pilot 1 31337421\n@pilot 2 31337422\n", ("31337421", "31337422")),
        ("@pilot 1     Welcome to the Stampede3 Supercomputer\n@pilot 1 31337421\n", ("31337421",)),
        ("@pilot 1 Current Balance: 497,218.77\n@pilot 1 31337421\n", ("31337421",)),
        ("@pilot 1 3\n@pilot 1 31337421\n", ("31337421",)),
        ("@pilot 1 --> Verifying valid submit host (login3)...OK\n@pilot 1 31337421\n", ("31337421",)),
        ("31337421\n", ()),
        ("@pilot 1 \n", ()),
        ("@pilot 1 Stampede3\n", ()),
        ("@pilot 1 ٣١\n", ()),
        ("@pilot 1 " + "7" * 40 + "\n", ()),
        ("@pilot 1 -5\n", ()),
        ("", ()),
    ],
)
def test_only_the_job_id_itself_is_taken_for_a_job_id(text: str, ids: tuple[str, ...]) -> None:
    assert read_submitted(text) == ids


@given(st.lists(st.text(alphabet="@pilot 0123456789;Submitedbachjo\n") | st.text()).map("\n".join))
def test_any_submit_output_gives_job_ids_or_none(text: str) -> None:
    for job_id in read_submitted(text):
        assert job_id.isascii()
        assert job_id.isdigit()


def test_reasons_that_no_waiting_mends_are_told_in_words() -> None:
    assert {"PartitionTimeLimit", "BadConstraints", "QOSMaxWallDurationPerJobLimit"} <= set(HOPELESS_REASONS)
    assert not {"Priority", "Resources", "QOSMaxGRESPerUser", "ReqNodeNotAvail", "None", ""} & set(HOPELESS_REASONS)
