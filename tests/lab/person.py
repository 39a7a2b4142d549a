"""A person on the access point: types commands in a terminal and answers a login's questions."""

from __future__ import annotations

import io
import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pexpect

from lab import Lab

QUESTIONS = {
    "known": r"\(yes/no\) ",
    "password": r"Password: ",
    "code": r"Verification code: ",
    "menu": r"Passcode or option \(\d-\d\): ",
}


@dataclass(frozen=True, slots=True)
class Screenful:
    """What a command showed and how it ended. `answered_at` is the moment of the last typed answer (monotonic)."""

    status: int
    text: str
    seconds: float
    answers: tuple[str, ...]
    seconds_after_answers: float

    def json(self) -> Any:
        """The JSON document in the text."""
        start = min(at for at in (self.text.find("{"), self.text.find("[")) if at >= 0)
        return json.JSONDecoder().raw_decode(self.text[start:])[0]


@dataclass(frozen=True, slots=True)
class Person:
    """`user` on the AP; `account` at the site (its password and codes)."""

    lab: Lab
    user: str = "alice"
    account: str = "alice"

    def start(
        self, *arguments: str, timeout_s: float = 120, through: Sequence[str] = ("siteannex",)
    ) -> pexpect.spawn[str]:
        """Start `siteannex ...` in a terminal on the AP; `through` is what stands before the arguments."""
        argv = self.lab.argv("ap", [*through, *arguments], user=self.user, tty=True)
        return pexpect.spawn(argv[0], argv[1:], encoding="utf-8", timeout=timeout_s, dimensions=(50, 160))

    def types(self, *arguments: str, timeout_s: float = 120, through: Sequence[str] = ("siteannex",)) -> Screenful:
        """Run `siteannex ...`, answering whatever the login asks, to its end."""
        started = answered_at = time.monotonic()
        child = self.start(*arguments, timeout_s=timeout_s, through=through)
        shown = io.StringIO()
        child.logfile_read = shown
        kinds = list(QUESTIONS)
        answers: list[str] = []
        while (index := child.expect([*QUESTIONS.values(), pexpect.EOF])) < len(kinds):
            child.sendline(self.answer(kinds[index]))
            answers.append(kinds[index])
            answered_at = time.monotonic()
        child.close()
        status = child.exitstatus if child.exitstatus is not None else 128 + (child.signalstatus or 0)
        ended = time.monotonic()
        return Screenful(status, _plain(shown.getvalue()), ended - started, tuple(answers), ended - answered_at)

    def answer(self, kind: str) -> str:
        """What this person types at a question."""
        if kind == "password":
            return self.lab.password(self.account)
        if kind == "code":
            return self.lab.code(self.account, fresh=True)
        return {"known": "yes", "menu": "1"}[kind]

    def shell(self, script: str, timeout_s: float = 120) -> str:
        """Run a shell script on the AP as this person; its output. Fails when the script fails."""
        done = self.lab.exec("ap", ["sh", "-c", script], user=self.user, timeout=timeout_s)
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        return done.stdout.strip()


def _plain(text: str) -> str:
    """A terminal's output as a reader sees it at the end: moved-over lines gone."""
    without_colour = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    lines = [line.rstrip("\r").rsplit("\r", 1)[-1].rstrip() for line in without_colour.split("\n")]
    return "\n".join(lines)
