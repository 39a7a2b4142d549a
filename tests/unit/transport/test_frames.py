"""Framed scripts really run by /bin/sh, and answers cut at any place."""

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from siteannex.ports import Command
from siteannex.transport.frames import (
    SCRIPT_LIMIT_BYTES,
    AnswerParser,
    RawResult,
    new_boundary,
    quote,
    render,
)

BOUNDARY = "siteannex-0123"


def stream(parts: list[tuple[int, bytes]], noise: bytes, *, with_status: bool) -> bytes:
    """What the far shell sends on one stream."""
    text = noise + b"\n" + BOUNDARY.encode() + b" begin\n"
    for index, (status, body) in enumerate(parts):
        text += body + b"\n" + BOUNDARY.encode() + b" %d" % index
        text += (b" %d\n" % status) if with_status else b"\n"
    return text


def fed(parser: AnswerParser, out: bytes, err: bytes, size: int) -> None:
    for start in range(0, max(len(out), len(err)), size):
        parser.feed(out[start : start + size], err[start : start + size])


outputs = st.one_of(
    st.binary(max_size=200),
    st.lists(st.sampled_from([b"\n", BOUNDARY.encode()[:9], b" 0 0\n", b"x"]), max_size=30).map(b"".join),
)
answers = st.lists(st.tuples(st.integers(0, 255), outputs, outputs), min_size=1, max_size=5)


@given(answers=answers, noise=outputs, size=st.integers(1, 64))
def test_any_bytes_come_back_whole_in_chunks_of_any_size(
    answers: list[tuple[int, bytes, bytes]], noise: bytes, size: int
) -> None:
    out = stream([(status, body) for status, body, _ in answers], noise, with_status=True)
    err = stream([(status, body) for status, _, body in answers], noise, with_status=False)
    parser = AnswerParser(len(answers), BOUNDARY)
    fed(parser, out, err, size)
    assert parser.done
    assert parser.results == [RawResult(status, body, complaint) for status, body, complaint in answers]


@given(answers=answers, cut=st.integers(0, 2000))
def test_a_cut_answer_is_never_taken_for_a_whole_one(answers: list[tuple[int, bytes, bytes]], cut: int) -> None:
    out = stream([(status, body) for status, body, _ in answers], b"", with_status=True)
    parser = AnswerParser(len(answers), BOUNDARY)
    parser.feed(out[: min(cut, len(out) - 1)], stream([(0, b"")] * len(answers), b"", with_status=False))
    assert not parser.done
    assert len(parser.results) < len(answers)


def test_what_came_before_the_first_boundary_is_dropped_and_kept_as_evidence() -> None:
    parser = AnswerParser(1, BOUNDARY)
    parser.feed(b"Welcome to LAB, no newline", b"rc: command not found")
    assert not parser.begun
    assert parser.unfinished == (b"Welcome to LAB, no newline", b"rc: command not found")


texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=60)


@settings(max_examples=100, deadline=None)
@given(
    argument=texts,
    stdin=st.one_of(
        texts, st.sampled_from(["a\nEOF\n", "$HOME `id` \\", "'", "\n", "tail\n\n", "\\0101\\n%s", "s\x80"])
    ),
    status=st.integers(0, 255),
)
def test_a_real_shell_hands_text_through_unchanged(argument: str, stdin: str, status: int) -> None:
    boundary = new_boundary()
    commands = [
        Command(f"printf %s {quote(argument)}; exit {status}"),
        Command("cat", stdin=stdin),
        Command("cat >&2", stdin=stdin),
    ]
    noise = b"printf 'no newline at the end'; printf 'nor here' >&2\n"
    ended = subprocess.run(
        ["/bin/sh"], input=noise + render(commands, boundary), capture_output=True, check=True, timeout=30
    )
    parser = AnswerParser(3, boundary)
    parser.feed(ended.stdout, ended.stderr)
    assert parser.done
    assert parser.results == [
        RawResult(status, argument.encode(), b""),
        RawResult(0, stdin.encode(), b""),
        RawResult(0, b"", stdin.encode()),
    ]


def test_a_command_that_reads_its_input_does_not_eat_the_next_command() -> None:
    boundary = new_boundary()
    script = render([Command("cat; wc -c"), Command("echo still here")], boundary)
    ended = subprocess.run(["/bin/sh"], input=script, capture_output=True, check=True, timeout=30)
    parser = AnswerParser(2, boundary)
    parser.feed(ended.stdout, ended.stderr)
    assert parser.results[1].stdout == b"still here\n"


def test_a_syntax_error_in_one_command_leaves_the_others_alone() -> None:
    boundary = new_boundary()
    script = render([Command("if then ("), Command("echo fine")], boundary)
    ended = subprocess.run(["/bin/sh"], input=script, capture_output=True, check=True, timeout=30)
    parser = AnswerParser(2, boundary)
    parser.feed(ended.stdout, ended.stderr)
    assert parser.results[0].status != 0
    assert parser.results[0].stderr
    assert parser.results[1] == RawResult(0, b"fine\n", b"")


@pytest.mark.parametrize(
    "command", [Command("a\0b"), Command("cat", stdin="\0"), Command("x" * SCRIPT_LIMIT_BYTES + "y")]
)
def test_what_no_shell_can_carry_is_refused_here(command: Command) -> None:
    with pytest.raises(ValueError, match="command for a site"):
        render([command], BOUNDARY)


def test_boundaries_differ() -> None:
    assert new_boundary() != new_boundary()


def test_bytes_that_are_no_text_are_shown_as_replacement_characters() -> None:
    assert RawResult(0, b"\xff\xfea", b"").decoded().stdout == "��a"
