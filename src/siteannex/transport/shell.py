"""`Shell`: framed round trips over one long-lived channel, so that a whole `up` with all its polling opens it once."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence

from siteannex.errors import AnnexError, Evidence
from siteannex.failures import fail
from siteannex.ports import Command
from siteannex.transport.channels import SHELL_COMMAND, ByteChannel, ChannelOpener
from siteannex.transport.frames import AnswerParser, RawResult, new_boundary, render
from siteannex.transport.prompts import Trouble, account_trouble, closing_words

_PATIENCE_S = 0.25
"""Longest single wait, so that a broken link and Ctrl-C are noticed."""


class Shell:
    """A far `/bin/sh` that is opened at the first use and again after it was given up. Safe for several threads."""

    def __init__(self, site: str, opener: ChannelOpener) -> None:
        self._site = site
        self._opener = opener
        self._channel: ByteChannel | None = None
        self._lock = threading.Lock()

    def run(self, commands: Sequence[Command], *, timeout_s: float) -> list[RawResult]:
        """All commands in one round trip, one result each.

        Raises AnnexError: `remote-timeout` (the channel is given up; the commands may have run), `link-broken`,
        or what the opener raises.
        """
        if not commands:
            return []
        boundary = new_boundary()
        script = render(commands, boundary)
        deadline = time.monotonic() + timeout_s
        if not self._lock.acquire(timeout=timeout_s):
            raise fail(
                "remote-timeout",
                self._site,
                f"another command of yours has kept the session at {self._site} busy for {timeout_s:.0f} s",
            )
        try:
            return self._round_trip(script, AnswerParser(len(commands), boundary), deadline, timeout_s)
        except BaseException:
            self._give_up()
            raise
        finally:
            self._lock.release()

    def _round_trip(self, script: bytes, parser: AnswerParser, deadline: float, timeout_s: float) -> list[RawResult]:
        channel = self._channel = self._channel or self._opener(SHELL_COMMAND)
        pending = memoryview(script)
        while not parser.done:
            left = deadline - time.monotonic()
            if left <= 0:
                raise self._timed_out(parser, timeout_s)
            turn = channel.exchange(pending, min(left, _PATIENCE_S))
            pending = pending[turn.sent :]
            parser.feed(turn.stdout, turn.stderr)
            if turn.ended and not parser.done:
                raise self._broken(parser, channel.exit_status())
        return parser.results

    def _timed_out(self, parser: AnswerParser, timeout_s: float) -> AnnexError:
        return fail(
            "remote-timeout",
            self._site,
            f"{self._site} gave no answer in {timeout_s:.0f} s ({len(parser.results)} commands had answered)",
            evidence=_said(parser),
        )

    def _broken(self, parser: AnswerParser, status: int | None) -> AnnexError:
        said = _said(parser)
        how = "the link broke" if status is None else f"the far shell ended with status {status}"
        if not parser.begun:
            words = "\n".join(piece.text for piece in said)
            closed = closing_words(words)
            if trouble := account_trouble(words) or (Trouble("site-maintenance", closed) if closed else None):
                let_in = f"{self._site} let the login in and runs no command: {trouble.meaning}"
                return fail(trouble.code, self._site, let_in, evidence=said)
            return fail("link-broken", self._site, f"{self._site}: {how} before any command ran", evidence=said)
        return fail(
            "link-broken",
            self._site,
            f"{self._site}: {how} in the middle of an answer; whether the command ran is not known",
            evidence=said,
        )

    def release(self) -> None:
        """Close the channel if nobody uses it; the next run opens a new one."""
        with self._lock:
            self._give_up()

    def _give_up(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            with contextlib.suppress(OSError):
                channel.close()


def _said(parser: AnswerParser) -> tuple[Evidence, ...]:
    out, err = parser.unfinished
    named = (("far shell, stdout", out), ("far shell, stderr", err))
    return tuple(Evidence.tail(source, data.decode("utf-8", "replace")) for source, data in named if data.strip())
