"""Messages between clients and the session holder survive the wire, and nothing else does."""

from __future__ import annotations

import json
from datetime import UTC
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siteannex.errors import Secret, StageFailure
from siteannex.failures import failure
from siteannex.transport import messages as m

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
st.register_type_strategy(Secret, text.map(Secret))


def strategy(kind: type) -> st.SearchStrategy[m.Message]:
    return st.from_type(kind)


utc = st.datetimes(timezones=st.just(UTC))
sessions = st.builds(m.SessionInfo, since=utc, idle_until=utc)
finite = st.floats(allow_nan=False, allow_infinity=False)
special: dict[type, st.SearchStrategy[m.Message]] = {
    m.LoggedIn: st.builds(m.LoggedIn, sessions),
    m.SessionList: st.builds(m.SessionList, st.lists(sessions, max_size=3).map(tuple)),
    m.RunRequest: st.builds(m.RunRequest, timeout_s=finite),
}
messages = st.one_of([special.get(kind, strategy(kind)) for kind in get_args(m.Message)])


@given(messages)
def test_every_message_survives_the_wire(message: m.Message) -> None:
    line = m.encode(message)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert m.decode(line) == message


@given(st.binary(max_size=60))
def test_any_other_bytes_are_a_bad_message(line: bytes) -> None:
    with pytest.raises(m.BadMessage):
        m.decode(line)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | finite | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from([kind.__name__ for kind in get_args(m.Message)]), st.dictionaries(text, json_values, max_size=5))
def test_wrong_fields_are_a_bad_message_or_a_whole_one(kind: str, fields: dict[str, object]) -> None:
    line = json.dumps({**fields, "v": m.VERSION, "type": kind}).encode()
    try:
        message = m.decode(line)
    except m.BadMessage:
        return
    assert type(message).__name__ == kind


def test_another_version_is_named() -> None:
    with pytest.raises(m.BadMessage, match=r"version 2; this siteannex speaks 1"):
        m.decode(b'{"v": 2, "type": "Ping"}')


def test_a_bad_field_is_not_quoted() -> None:
    line = json.dumps({"v": 1, "type": "Answer", "secret": ["hunter2"]}).encode()
    with pytest.raises(m.BadMessage) as raised:
        m.decode(line)
    assert "hunter2" not in str(raised.value)
    assert raised.value.__cause__ is None


def test_secrets_are_not_in_a_messages_repr() -> None:
    assert "hunter2" not in repr(m.Answer(Secret("hunter2")))
    assert "hunter2" not in repr(m.LoginRequest("{}", None, Secret("hunter2"), None))


def test_a_failure_travels_whole() -> None:
    sent: StageFailure = failure("code-refused", "lab", "lab refused the code")
    received = m.decode(m.encode(m.Failed(sent)))
    assert isinstance(received, m.Failed)
    assert received.failure == sent
    assert received.failure.stage is sent.stage
