"""DAGMan's language as text: commands with their positions, nothing lost, nothing refused.

`read_commands` cuts a DAG file into pieces whose `raw` texts, put together again, are the file byte for byte. It never
raises: what HTCondor would refuse is a piece with a `problem`. What the commands mean together is `daggraph.py`.

The rules are those of HTCondor 25.14.1's own parser, tried one by one with `condor_dag_checker`:

- A line is trimmed. Blank lines and lines that begin with `#` or `//` are skipped, also between continued lines.
- A trimmed line that ends in a backslash goes on in the next one, joined by a space. At the end of the file such a
  line is dropped without a word (here: a piece with a problem).
- Keywords ignore case, and `-` and `_` are the same in them. Node names mind case.
- Words end at a space or tab; quotes of both kinds group, and a backslash inside them takes the next character as it
  is. Quotes stay part of a name (`words` are verbatim); around files and VARS values they are dropped (`unquote`).
- `{` or `@=WORD` as submit description opens an inline one, up to a line that is `}` or `@WORD` (or begins with it and
  a space); its lines are never continued.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

_PLAIN_WORD = re.compile(r"[^ \t\r]+")
_QUOTES = r""" "(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*' """
_WORD = re.compile(rf"""(?: [^ \t\r"'] | {_QUOTES} | (?P<open>["'].*) )+""", re.VERBOSE | re.DOTALL)
_QUOTED = re.compile(r""" "((?:\\.|[^"\\])*)" | '((?:\\.|[^'\\])*)' """, re.VERBOSE | re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_SPACES = " \t\n\v\f\r"
_INLINE_AT = {
    "JOB": 2,
    "FINAL": 2,
    "PROVISIONER": 2,
    "SERVICE": 2,
    "SUBMIT_DESCRIPTION": 2,
}
"""Which word of a command may open an inline submit description."""


class Word(NamedTuple):
    """One word as written, and where it begins in its command's logical line."""

    text: str
    offset: int


class Place(NamedTuple):
    """A line and a column of a file, both from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Command:
    """One command, or a stretch of blank and comment lines (then `keyword` is empty).

    `keyword` is in capitals with `_`; `words` begin with the keyword as written. `body` is an inline submit
    description, each line trimmed, without comments, as HTCondor keeps it.
    """

    raw: str
    line: int
    keyword: str = ""
    logical: str = ""
    words: tuple[Word, ...] = ()
    body: str | None = None
    problem: str = ""
    segments: tuple[tuple[int, int, int], ...] = ()

    def place(self, word: int | Word = 0) -> Place:
        """Where a word of this command (by number, or itself) stands in the file; past the last: the end of it."""
        if isinstance(word, int):
            if word >= len(self.words):
                return self.place_of(len(self.logical))
            word = self.words[word]
        return self.place_of(word.offset)

    def place_of(self, offset: int) -> Place:
        """Where a character of the logical line stands in the file."""
        if not self.segments:
            return Place(self.line, 1)
        begin, line, column = self.segments[bisect_right(self.segments, offset, key=lambda item: item[0]) - 1]
        return Place(line, column + offset - begin)

    def rest(self, word: int) -> str:
        """The logical line from a word on, verbatim; empty when there are fewer words."""
        return self.logical[self.words[word].offset :] if word < len(self.words) else ""


class _Line(NamedTuple):
    number: int
    raw: str
    text: str
    indent: int


def load_text(path: Path) -> str:
    """A DAG file's text, every byte kept (bytes that are not UTF-8 too, as Python's surrogates)."""
    return path.read_bytes().decode("utf-8", "surrogateescape")


def save_text(path: Path, text: str) -> None:
    """Write what `load_text` read, byte for byte."""
    path.write_bytes(text.encode("utf-8", "surrogateescape"))


def render(commands: Iterable[Command]) -> str:
    """The file the commands came from: `render(read_commands(text)) == text`."""
    return "".join(command.raw for command in commands)


def read_commands(text: str, first_line: int = 1) -> tuple[Command, ...]:
    """Cut a DAG file into its commands and the blank and comment lines between them."""
    return tuple(_commands(iter(_physical_lines(text, first_line))))


def _physical_lines(text: str, first_line: int) -> list[_Line]:
    """Every line with its number, its raw text with the line end, trimmed, and how far it is indented."""
    lines = []
    for number, raw in enumerate(text.split("\n"), first_line):
        trimmed = raw.strip(_SPACES)
        lines.append(_Line(number, raw + "\n", trimmed, len(raw) - len(raw.lstrip(_SPACES))))
    last = lines.pop()
    if last.raw != "\n":
        lines.append(last._replace(raw=last.raw[:-1]))
    return lines


def is_comment(trimmed: str) -> bool:
    """Whether DAGMan skips a trimmed line."""
    return not trimmed or trimmed[0] == "#" or trimmed.startswith("//")


def _commands(lines: Iterator[_Line]) -> Iterator[Command]:
    skipped: list[_Line] = []
    for line in lines:
        if is_comment(line.text):
            skipped.append(line)
            continue
        if skipped:
            yield Command("".join(item.raw for item in skipped), skipped[0].number)
            skipped = []
        yield _command(line, lines)
    if skipped:
        yield Command("".join(item.raw for item in skipped), skipped[0].number)


def _command(first: _Line, lines: Iterator[_Line]) -> Command:
    raw, logical, segments = [first.raw], first.text, [(0, first.number, first.indent + 1)]
    while logical.endswith("\\"):
        logical = logical[:-1]
        follower = _next_meant(lines, raw)
        if follower is None:
            words, _ = split_words(logical)
            return Command(
                "".join(raw),
                first.number,
                logical=logical,
                words=words,
                problem="the file ends after a backslash: HTCondor drops this line without a word",
                segments=tuple(segments),
            )
        logical += " "
        segments.append((len(logical), follower.number, follower.indent + 1))
        logical += follower.text
    words, problem = split_words(logical)
    keyword = words[0].text.upper().replace("-", "_") if words else ""
    body: str | None = None
    opener = words[_INLINE_AT[keyword]].text if keyword in _INLINE_AT and len(words) > _INLINE_AT[keyword] else ""
    if opener.startswith("{") or opener.startswith("@="):
        ending = "}" if opener[0] == "{" else "@" + opener[2:]
        body, logical, missing = _inline(ending, lines, raw, logical, segments)
        words, problem = split_words(logical)
        problem = problem or missing
    elif problem and _takes_the_rest(keyword, words):
        problem = ""
    return Command("".join(raw), first.number, keyword, logical, words, body, problem, tuple(segments))


def _takes_the_rest(keyword: str, words: tuple[Word, ...]) -> bool:
    """Whether the last word is in a part of the line that HTCondor takes as it is, quotes and all."""
    if keyword == "SCRIPT":
        kinds = [at for at, word in enumerate(words) if word.text.upper() in ("PRE", "POST", "HOLD")]
        return bool(kinds) and len(words) > kinds[0] + 2
    return keyword in ("SET_JOB_ATTR", "ENV")


def _next_meant(lines: Iterator[_Line], raw: list[str]) -> _Line | None:
    """The next line that is no comment; whatever is passed goes to `raw`, so that no byte is lost."""
    for line in lines:
        raw.append(line.raw)
        if not is_comment(line.text):
            return line
    return None


def _inline(
    ending: str, lines: Iterator[_Line], raw: list[str], logical: str, segments: list[tuple[int, int, int]]
) -> tuple[str, str, str]:
    """The body up to its end, the logical line with what stands after the end, and what is wrong."""
    body: list[str] = []
    if ending == "@":
        return "", logical, "@= needs a word that closes the inline description: @=end ... @end"
    for line in lines:
        raw.append(line.raw)
        if line.text == ending or line.text.startswith(ending + " "):
            rest = line.text[len(ending) :]
            if rest:
                segments.append((len(logical), line.number, line.indent + 1 + len(ending)))
            return "\n".join(body), logical + rest, ""
        if not is_comment(line.text):
            body.append(line.text)
    return "\n".join(body), logical, f"the inline submit description is not closed; a line {ending} ends it"


def split_words(text: str) -> tuple[tuple[Word, ...], str]:
    """Words as DAGMan takes them, quotes and all, and what is wrong with the quotes (empty: nothing)."""
    if '"' not in text and "'" not in text:
        return tuple(Word(match.group(), match.start()) for match in _PLAIN_WORD.finditer(text)), ""
    matches = list(_WORD.finditer(text))
    problem = "a quote is not closed" if any(match.group("open") for match in matches) else ""
    return tuple(Word(match.group(), match.start()) for match in matches), problem


def unquote(text: str) -> str:
    """What a word or value means: its quotes gone, and inside them the character after a backslash as it is."""
    return _QUOTED.sub(lambda match: _ESCAPED.sub(r"\1", match.group(1) or match.group(2) or ""), text)
