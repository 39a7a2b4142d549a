"""Events: lines that read back as they were written, torn and foreign lines, and the state they add up to."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siteannex.annex.events import (
    AnnexState,
    Event,
    What,
    failure_from_data,
    failure_to_data,
    fold,
    from_line,
    to_line,
)
from siteannex.errors import Evidence, Stage, StageFailure
from siteannex.failures import failure
from tests.unit.samples import NOW

texts = st.text(st.characters(codec=None))  # half surrogates too: they come out of foreign JSON
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
zones = st.integers(-12, 14).map(lambda hours: timezone(timedelta(hours=hours)))
moments = st.datetimes(timezones=zones)
events = st.builds(Event, moments, st.sampled_from(Stage), st.sampled_from(What), st.dictionaries(texts, values))
failures = st.builds(
    StageFailure,
    st.sampled_from(Stage),
    texts,
    texts,
    texts,
    st.lists(st.builds(Evidence, texts, texts)).map(tuple),
    texts,
    st.booleans(),
)


def event(stage: Stage, what: What, seconds: float = 0, **data: Any) -> Event:
    return Event(NOW + timedelta(seconds=seconds), stage, what, data)


@given(events)
def test_an_event_reads_back_as_it_was_written(one: Event) -> None:
    line = to_line(one)
    assert from_line(line) == one
    assert len(line.splitlines()) == 1
    assert line.isascii()


@given(events, st.data())
def test_a_torn_line_is_no_event(one: Event, data: st.DataObject) -> None:
    line = to_line(one)
    assert from_line(line[: data.draw(st.integers(0, len(line) - 1))]) is None


@pytest.mark.parametrize(
    "line",
    [
        "",
        "null",
        "[]",
        "42",
        '"x"',
        "{}",
        "[" * 100_000,
        '{"v":1,"at":"2026-11-29T12:00:00","stage":"PLAN","what":"done","data":{}}',
        '{"v":1,"at":"2026-11-29T12:00:00+00:00","stage":"LUNCH","what":"done","data":{}}',
        '{"v":1,"at":"2026-11-29T12:00:00+00:00","stage":"PLAN","what":"eaten","data":{}}',
        '{"v":1,"at":"2026-11-29T12:00:00+00:00","stage":"PLAN","what":"done","data":[]}',
        '{"v":1,"at":5,"stage":"PLAN","what":"done","data":{}}',
        '{"v":1,"at":"2026-11-29T12:00:00+00:00","stage":[],"what":{},"data":{}}',
    ],
)
def test_a_foreign_line_is_no_event(line: str) -> None:
    assert from_line(line) is None


@given(st.text() | values.map(json.dumps))
def test_any_line_is_an_event_or_none(line: str) -> None:
    assert from_line(line) is None or isinstance(from_line(line), Event)


@given(failures)
def test_a_failure_reads_back_as_it_was_written(one: StageFailure) -> None:
    assert failure_from_data(json.loads(json.dumps(failure_to_data(one)))) == one


@given(values)
def test_what_is_no_failure_is_none(data: Any) -> None:
    assert failure_from_data(data) is None


@given(st.lists(events))
def test_any_events_fold_into_a_state(some: list[Event]) -> None:
    assert isinstance(fold(some), AnnexState)


awkward = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(("job_ids", "bytes_sent", "failure", "ended", "text", "join", "collector"), values),
)


@given(st.lists(st.builds(Event, moments, st.sampled_from(Stage), st.sampled_from(What), awkward)))
def test_events_with_odd_values_fold_too_because_a_line_may_be_mended_by_hand(some: list[Event]) -> None:
    state = fold(some)
    assert all(isinstance(job_id, str) for job_id in state.job_ids)


@given(st.lists(events))
def test_an_ended_annex_stays_ended(some: list[Event]) -> None:
    ended = [fold(some[:count]).ended for count in range(len(some) + 1)]
    assert ended == sorted(ended)


def test_no_events_are_a_plan_not_begun() -> None:
    assert fold([]) == AnnexState()
    assert fold([]).stage is Stage.PLAN


def test_an_effect_begun_and_not_done_is_remembered_as_interrupted() -> None:
    begun = [event(Stage.PLAN, What.DONE), event(Stage.CONNECT, What.BEGIN)]
    assert fold(begun).begun is Stage.CONNECT
    assert fold([*begun, event(Stage.CONNECT, What.DONE)]).begun is None
    refused = event(Stage.CONNECT, What.FAILED, failure=failure_to_data(failure("code-refused", "lab", "no")))
    assert fold([*begun, refused]).begun is None


def test_a_submission_begun_is_never_forgotten() -> None:
    state = fold([event(Stage.SUBMIT, What.BEGIN), event(Stage.CONNECT, What.FAILED)])
    assert state.submit_begun
    assert not fold([event(Stage.SHIP, What.BEGIN)]).submit_begun


def test_job_ids_add_up_and_count_once() -> None:
    state = fold(
        [
            event(Stage.SUBMIT, What.DONE, job_ids=["71"]),
            event(Stage.SUBMIT, What.DONE, job_ids=["72", "71"], adopted=True),
        ]
    )
    assert state.job_ids == ("71", "72")


def test_the_first_ready_is_kept_and_clears_an_earlier_failure() -> None:
    broken = failure_to_data(failure("link-broken", "lab", "the link broke"))
    state = fold(
        [
            event(Stage.CONNECT, What.FAILED, failure=broken, ended=False),
            event(Stage.READY, What.SEEN, 10),
            event(Stage.DRAIN, What.SEEN, 20),
            event(Stage.READY, What.SEEN, 30),
        ]
    )
    assert state.ready_at == NOW + timedelta(seconds=10)
    assert state.failure is None
    assert state.since == NOW + timedelta(seconds=30)


def test_a_failure_that_left_nothing_behind_ends_the_annex() -> None:
    refused = failure("account-invalid", "lab", "sbatch refused the pilot")
    state = fold([event(Stage.SUBMIT, What.FAILED, failure=failure_to_data(refused), ended=True)])
    assert (state.failure, state.ended) == (refused, True)


def test_released_ends_the_annex_with_its_words() -> None:
    state = fold([event(Stage.READY, What.SEEN), event(Stage.RELEASED, What.DONE, text="taken down")])
    assert (state.ended, state.end_text, state.stage) == (True, "taken down", Stage.RELEASED)


def test_how_it_joins_and_what_was_sent_is_kept() -> None:
    state = fold(
        [
            event(Stage.SHIP, What.DONE, bytes_sent=14_100_000),
            event(Stage.SUBMIT, What.BEGIN, join="pool", collector="ap.lab:9618", bytes_sent=9000),
            event(Stage.SUBMIT, What.DONE, bytes_sent=9000),
        ]
    )
    assert (state.join, state.collector, state.bytes_sent) == ("pool", "ap.lab:9618", 14_109_000)


def test_events_carry_their_moment_with_its_zone() -> None:
    assert '"at": "2026-11-29T12:00:00+00:00"' in to_line(
        Event(datetime(2026, 11, 29, 12, tzinfo=UTC), Stage.PLAN, What.DONE)
    )
