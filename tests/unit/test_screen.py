"""The screen: a moving line on a terminal, plain lines elsewhere; and the person's answers."""

from __future__ import annotations

import builtins
import getpass
import io
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from siteannex.cli.screen import LABEL_WIDTH, Screen, TerminalPrompter, WallClock
from siteannex.errors import AnnexError
from siteannex.ports import Prompt
from siteannex.units import format_bytes


def screen(*, terminal: bool, columns: int = 60) -> tuple[Screen, io.StringIO]:
    stream = io.StringIO()
    return Screen(stream, terminal=terminal, columns=lambda: columns), stream


def shown_lines(written: str, columns: int) -> list[str]:
    """What a terminal shows in the end: a carriage return goes back to the line's start and overwrites."""
    lines = [""]
    column = 0
    for piece in re.split(r"([\r\n])", written):
        if piece == "\n":
            lines.append("")
        if piece in ("\r", "\n"):
            column = 0
            continue
        lines[-1] = lines[-1][:column] + piece + lines[-1][column + len(piece) :]
        column += len(piece)
        assert len(lines[-1]) <= columns
    return [line.rstrip() for line in lines]


def test_news_is_a_line_with_its_label_in_a_column() -> None:
    view, stream = screen(terminal=False)
    view.line("plan", "1 pilot")
    view.line("", "ceiling 2 GPU-h")
    assert stream.getvalue() == f"{'plan':<{LABEL_WIDTH}}1 pilot\n{'':<{LABEL_WIDTH}}ceiling 2 GPU-h\n"


def test_without_a_terminal_waiting_is_told_once_until_it_changes() -> None:
    view, stream = screen(terminal=False)
    for seconds in range(5):
        view.live("queue", f"PENDING, Priority [{seconds} s]")
    view.live("queue", "PENDING, Resources [5 s]")
    view.live("batch", "PENDING, Resources [6 s]")
    assert stream.getvalue().splitlines() == [
        "queue    PENDING, Priority",
        "queue    PENDING, Resources",
        "batch    PENDING, Resources",
    ]


def test_without_a_terminal_nothing_ever_moves() -> None:
    view, stream = screen(terminal=False)
    view.progress("ship", "EP software", 5, 10)
    view.live("queue", "PENDING")
    view.line("ready", "yes")
    assert "\r" not in stream.getvalue()
    assert "#" not in stream.getvalue()


def test_on_a_terminal_waiting_moves_in_one_line_and_news_replaces_it() -> None:
    view, stream = screen(terminal=True)
    view.live("queue", "PENDING, a long reason [1 s]")
    view.live("queue", "PENDING [2 s]")
    view.line("ready", "yes")
    assert shown_lines(stream.getvalue(), 60) == ["ready    yes", ""]


def test_the_moving_line_never_wraps() -> None:
    view, stream = screen(terminal=True, columns=30)
    view.live("queue", "x" * 200)
    assert shown_lines(stream.getvalue(), 29)[-1].startswith("queue    xxx")


def test_a_bar_fills_and_its_end_is_always_drawn() -> None:
    view, stream = screen(terminal=True, columns=100)
    for done in range(0, 1001, 100):
        view.progress("ship", "EP software", done * 1000, 1_000_000)
    written = stream.getvalue()
    assert written.rstrip().endswith(f"{format_bytes(1_000_000)} of {format_bytes(1_000_000)}")
    assert "#" * 24 in written
    assert written.count("\r") < 11  # not redrawn for every block


def test_a_bar_of_nothing_is_no_bar() -> None:
    view, stream = screen(terminal=True)
    view.progress("ship", "EP software", 0, 0)
    assert stream.getvalue() == ""


def prompt(**changes: Any) -> Prompt:
    return replace(Prompt("lab", "alice@login.lab", "Password: ", echo=False, kind="password"), **changes)


def test_without_a_person_a_question_is_a_failure_that_says_what_was_asked() -> None:
    view, _ = screen(terminal=False)
    with pytest.raises(AnnexError) as raised:
        TerminalPrompter(view, interactive=False).ask(prompt(text="Verification code: "))
    assert raised.value.failure.code == "no-terminal"
    assert "Verification code:" in raised.value.failure.summary


def test_the_servers_flag_decides_whether_an_answer_is_echoed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []

    def answering(kind: str, answer: str) -> Callable[[str], str]:
        def ask(text: str) -> str:
            asked.append((kind, text))
            return answer

        return ask

    monkeypatch.setattr(builtins, "input", answering("echo", "1"))
    monkeypatch.setattr(getpass, "getpass", answering("hidden", "hunter2"))
    view, stream = screen(terminal=False)
    prompter = TerminalPrompter(view, interactive=True)
    assert prompter.ask(prompt(instructions="Welcome")).reveal() == "hunter2"
    assert prompter.ask(prompt(text="Duo two-factor login\n 1. Push\nPasscode or option: ", echo=True)).reveal() == "1"
    assert [kind for kind, _ in asked] == ["hidden", "echo"]
    assert asked[1][1].strip() == "Passcode or option:"
    assert "|  1. Push" in stream.getvalue()
    assert stream.getvalue().count("alice@login.lab") == 1
    assert "hunter2" not in stream.getvalue()


def test_a_terminal_that_closes_at_the_prompt_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(_: str) -> str:
        raise EOFError

    monkeypatch.setattr(getpass, "getpass", closed)
    view, _ = screen(terminal=False)
    with pytest.raises(AnnexError) as raised:
        TerminalPrompter(view, interactive=True).ask(prompt())
    assert raised.value.failure.code == "no-terminal"


@pytest.mark.parametrize(
    ("answers", "accepted"), [(["yes"], True), (["YES "], True), (["no"], False), (["", "y", "maybe", "yes"], True)]
)
def test_a_host_key_is_accepted_by_a_whole_yes_only(
    monkeypatch: pytest.MonkeyPatch, answers: list[str], accepted: bool
) -> None:
    left = iter(answers)
    monkeypatch.setattr(builtins, "input", lambda _: next(left))
    view, stream = screen(terminal=False)
    assert TerminalPrompter(view, interactive=True).confirm_host_key("login.lab", "ssh-ed25519", "SHA256:x") is accepted
    assert "SHA256:x" in stream.getvalue()
    assert list(left) == []


def test_without_a_person_no_host_key_is_accepted() -> None:
    view, _ = screen(terminal=False)
    assert not TerminalPrompter(view, interactive=False).confirm_host_key("login.lab", "ssh-ed25519", "SHA256:x")


def test_the_real_clock_speaks_utc() -> None:
    clock = WallClock()
    before = clock.now()
    clock.sleep(0)
    assert before.utcoffset() is not None
    assert clock.now() >= before
