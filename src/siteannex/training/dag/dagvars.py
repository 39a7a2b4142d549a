"""The `key="value"` pairs of a VARS command: reading them as HTCondor does, and writing them so that it cannot err."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from siteannex.training.dag.dagfile import Command, unquote

_KEY = re.compile(r"""[^ \t\r="']+""")
_EQUALS = re.compile(r"[ \t\r]*=[ \t\r]*")
_VALUE = re.compile(r"""(?: [^ \t\r"'] | "(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*' )+""", re.VERBOSE | re.DOTALL)
_SPACE = re.compile(r"[ \t\r]*")


class PairProblem(NamedTuple):
    """What is wrong with a pair, and where in the logical line."""

    offset: int
    message: str


@dataclass(frozen=True, slots=True)
class Pairs:
    """What a VARS command sets. `placement` is PREPEND, APPEND or "" (then DAGMAN_DEFAULT_APPEND_VARS decides)."""

    values: Mapping[str, str]
    placement: str
    problems: tuple[PairProblem, ...]


def read_pairs(command: Command) -> Pairs:
    """The pairs of a VARS command; `+name` is `My.name`. What follows a broken pair is not read."""
    words, text = command.words, command.logical
    at = words[2].offset if len(words) > 2 else len(text)
    placement = ""
    if len(words) > 2 and words[2].text.upper() in ("PREPEND", "APPEND"):
        placement = words[2].text.upper()
        at = words[3].offset if len(words) > 3 else len(text)
    values: dict[str, str] = {}
    problems: list[PairProblem] = []
    while at < len(text):
        key = _KEY.match(text, at)
        equals = _EQUALS.match(text, key.end()) if key else None
        value = _VALUE.match(text, equals.end()) if equals else None
        if key is None or equals is None or value is None or value.group().startswith("="):
            problems.append(PairProblem(at, 'VARS takes key="value" pairs'))
            break
        name = f"My.{key.group()[1:]}" if key.group().startswith("+") else key.group()
        if name.lower().startswith("queue"):
            problems.append(PairProblem(at, f"a variable cannot be called {name}: HTCondor refuses names in queue..."))
        values[name] = unquote(value.group())
        spaces = _SPACE.match(text, value.end())
        at = spaces.end() if spaces else value.end()
    return Pairs(values, placement, tuple(problems))


def quoted(value: str) -> str:
    """A value in double quotes, the only two escapes HTCondor's old and new parsers agree on inside."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def vars_line(node: str, values: Mapping[str, str], placement: str = "PREPEND") -> str:
    """One VARS command. PREPEND by default: appended, `if defined NAME` in the submit description would be false."""
    pairs = " ".join(f"{key}={quoted(value)}" for key, value in values.items())
    return f"VARS {node} {placement} {pairs}\n"
