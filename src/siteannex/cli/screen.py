"""The terminal: lines that stay, one line that moves, a progress bar, and the person's answers."""

from __future__ import annotations

import getpass
import os
import sys
import textwrap
from collections.abc import Callable
from datetime import UTC, datetime
from time import monotonic, sleep
from typing import TextIO

from siteannex.errors import Secret
from siteannex.failures import fail
from siteannex.ports import Prompt
from siteannex.units import format_bytes

LABEL_WIDTH = 9
_BAR_WIDTH = 24
_REDRAW_S = 0.1


class WallClock:
    """The real clock."""

    def now(self) -> datetime:
        """The current moment in UTC."""
        return datetime.now(UTC)

    def sleep(self, seconds: float) -> None:
        """Wait."""
        sleep(seconds)


class Screen:
    """A View on a text stream. On a terminal the last line may move; elsewhere every line is printed once."""

    def __init__(self, stream: TextIO, *, terminal: bool, columns: Callable[[], int] = lambda: 100) -> None:
        self._stream, self._terminal, self._columns = stream, terminal, columns
        self._moving = ""
        self._last_live = ""
        self._drawn_at = 0.0

    def line(self, label: str, text: str) -> None:
        """News that stays."""
        self._wipe()
        first, *rest = self._wrapped(printable(text))
        print(f"{label:<{LABEL_WIDTH}}{first}", file=self._stream)
        for more in rest:
            print(" " * LABEL_WIDTH + more, file=self._stream)
        self._stream.flush()

    def _wrapped(self, text: str) -> list[str]:
        """On a terminal broken at words, so that a narrow one breaks no number in two; whole elsewhere."""
        width = self._columns() - LABEL_WIDTH - 1
        if not self._terminal or width < 20:
            return [text]
        return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]

    def live(self, label: str, text: str) -> None:
        """The moving line; without a terminal only what is new (elapsed times in [] are not news)."""
        if self._terminal:
            self._draw(f"{label:<{LABEL_WIDTH}}{printable(text)}")
        elif (news := f"{label} {text.rpartition(' [')[0] or text}") != self._last_live:
            self._last_live = news
            print(f"{label:<{LABEL_WIDTH}}{printable(text.rpartition(' [')[0] or text)}", file=self._stream, flush=True)

    def progress(self, label: str, text: str, done: int, total: int) -> None:
        """A bar on a terminal; nothing elsewhere (the line that follows says the total)."""
        if not self._terminal or total <= 0 or (monotonic() - self._drawn_at < _REDRAW_S and done < total):
            return
        self._drawn_at = monotonic()
        filled = _BAR_WIDTH * done // total
        bar = "#" * filled + "-" * (_BAR_WIDTH - filled)
        self._draw(f"{label:<{LABEL_WIDTH}}{text} [{bar}] {format_bytes(done)} of {format_bytes(total)}")

    def _draw(self, text: str) -> None:
        shown = text[: self._columns() - 1]
        self._stream.write("\r" + shown.ljust(len(self._moving)))
        self._stream.flush()
        self._moving = shown

    def _wipe(self) -> None:
        if self._moving:
            self._stream.write("\r" + " " * len(self._moving) + "\r")
            self._moving = ""


def printable(text: str) -> str:
    """Foreign text for a terminal: control characters (a site's banner could move the cursor) become `?`."""
    return "".join(char if char.isprintable() or char in "\t\n" else "?" for char in text)


class TerminalPrompter:
    """Asks the person at the controlling terminal, with the server's own words."""

    def __init__(self, screen: Screen, *, interactive: bool) -> None:
        self._screen, self._interactive = screen, interactive
        self._announced: set[str] = set()

    def ask(self, prompt: Prompt) -> Secret:
        """Show the server's prompt; echo only when the server says so. AnnexError(no-terminal) without a person."""
        if not self._interactive:
            raise fail("no-terminal", prompt.site, f"the login asks {prompt.text.strip()!r} and nobody can answer")
        if prompt.login not in self._announced:
            self._announced.add(prompt.login)
            self._screen.line("connect", prompt.login)
        if prompt.instructions.strip():
            self.tell(prompt.instructions)
        *before, last = prompt.text.split("\n")
        self.tell("\n".join(before))
        label = " " * LABEL_WIDTH + printable(last)
        try:
            return Secret(input(label) if prompt.echo else getpass.getpass(label))
        except EOFError as gone:
            raise fail("no-terminal", prompt.site, "the terminal was closed at the prompt") from gone

    def confirm_host_key(self, host: str, key_type: str, fingerprint: str) -> bool:
        """Show an unknown host's fingerprint and ask; without a person the answer is no."""
        if not self._interactive:
            return False
        self._screen.line("connect", f"{host} is not in your known_hosts. Its {key_type} key:")
        self._screen.line("", fingerprint)
        question = "Is that the one the site publishes? (yes/no) "
        while (answer := input(" " * LABEL_WIDTH + question).strip().lower()) not in ("yes", "no"):
            question = "Please type yes or no (yes/no) "
        return answer == "yes"

    def tell(self, text: str) -> None:
        """What the server says: its banner, its menu."""
        for line in text.strip("\n").splitlines():
            self._screen.line("", f"| {line}" if line.strip() else "|")


def make_screen(*, json_output: bool) -> Screen:
    """The screen of this process: standard output, or standard error when standard output carries JSON."""
    stream = sys.stderr if json_output else sys.stdout
    return Screen(stream, terminal=stream.isatty(), columns=lambda: _columns(stream))


def _columns(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or 100
    except OSError:
        return 100
