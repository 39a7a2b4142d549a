"""The GEN SUBDAG command itself: its words, and which of the following lines are its rows."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass

from siteannex.training.dag.dagfile import Command, Place, is_comment, read_commands, render, unquote
from siteannex.training.dag.daggraph import KEYWORDS, RESERVED
from siteannex.training.experiment.ranges import looks_like_range
from siteannex.training.gen.genrows import Row
from siteannex.training.located import Source, refused

SHAPE = "GEN SUBDAG NAME FILE VARIABLE[, VARIABLE ...] [product|zip] [submit DESCRIPTION] from ..."
PREDEFINED = ("run", "index", "region")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAME = re.compile(r"[A-Za-z0-9_.-]+")


@dataclass(frozen=True, slots=True)
class Header:
    """What a GEN command asks for; `rows` are its values, `values_file` says instead where they are."""

    name: str
    template: str
    variables: tuple[str, ...]
    mode: str
    submit: str
    rows: tuple[Row, ...]
    values_file: str
    where: Row
    template_place: Place
    values_place: Place
    notes: tuple[str, ...] = ()


def take_header(source: Source, commands: list[Command]) -> tuple[Header, list[Command]]:
    """Read the GEN command that `commands` begin with, and its rows; also what follows it."""
    command = commands[0]
    where = Row(source, command.place(), command.logical)
    lines = _segment_rows(source, command)
    words = [word.text for word in command.words]
    if len(words) < 2 or words[1].upper() != "SUBDAG":
        raise refused(source, command.place(1), f"GEN makes sub-DAGs only: {SHAPE}")
    start = next((at for at, word in enumerate(words) if word.lower() == "from"), None)
    if start is None:
        raise refused(source, command.place(len(words)), f"the word from is missing: {SHAPE}")
    fields = _fields(source, command, start)
    from_end = command.words[start].offset + len("from")
    rest = [row for row in (_after(source, command, row, from_end) for row in lines) if row is not None]
    rows, following, notes = _rows(source, command, rest, commands[1:])
    values_file, values_place = "", command.place(start)
    same_line = [row for row in rest if row.place.line == command.place(start).line]
    if same_line and _is_file(same_line[0].text):
        if len(rows) > 1:
            raise rows[1].refuse(0, f"values come from the file {same_line[0].text}; rows below it are too much")
        values_file, values_place, rows = unquote(same_line[0].text), same_line[0].place, []
    name, template, variables, mode, submit = fields
    return (
        Header(
            *(name, template, variables, mode, submit, tuple(rows), values_file),
            *(where, command.place(3), values_place, notes),
        ),
        following,
    )


def _fields(source: Source, command: Command, start: int) -> tuple[str, str, tuple[str, ...], str, str]:
    """Name, template, variables, mode and submit description, from the words before `from`."""
    words = [word.text for word in command.words]
    if start < 5:
        raise refused(source, command.place(start), f"a name, a file and a variable come before from: {SHAPE}")
    name, template = words[2], unquote(words[3])
    if _NAME.fullmatch(name) is None or name.upper() in RESERVED:
        raise refused(source, command.place(2), f"a region cannot be called {name}: letters, digits, _ - .")
    at, mode, submit = start, "", ""
    if at - 2 > 4 and words[at - 2].lower() == "submit":
        submit, at = words[at - 1], at - 2
    if at > 5 and words[at - 1].lower() in ("product", "zip"):
        mode, at = words[at - 1].lower(), at - 1
    begin, end = command.words[4].offset, command.words[at].offset
    variables: list[str] = []
    offset = begin
    for part in command.logical[begin:end].split(","):
        variable, place = part.strip(), command.place_of(offset + len(part) - len(part.lstrip()))
        offset += len(part) + 1
        if _VARIABLE.fullmatch(variable) is None:
            near = difflib.get_close_matches(variable.split()[-1].lower() if variable else "", ("product", "zip"), n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise refused(source, place, f"{variable!r} is not a variable; they are separated by commas{hint}")
        if variable in variables or variable in PREDEFINED[1:]:
            told = "is named twice" if variable in variables else "is what GEN itself sets"
            raise refused(source, place, f"{variable} {told}")
        variables.append(variable)
    return name, template, tuple(variables), mode, submit


def _segment_rows(source: Source, command: Command) -> list[Row]:
    """The physical lines of a continued command."""
    ends = [segment[0] for segment in command.segments[1:]] + [len(command.logical)]
    return [
        Row(source, Place(line, column), command.logical[begin:end].strip())
        for (begin, line, column), end in zip(command.segments, ends, strict=True)
    ]


def _after(source: Source, command: Command, row: Row, offset: int) -> Row | None:
    """What of a physical line stands after an offset of the logical line."""
    edge = command.place_of(offset)
    if row.place.line < edge.line:
        return None
    if row.place.line > edge.line:
        return row
    text = row.text[max(0, edge.column - row.place.column) :]
    column = edge.column + len(text) - len(text.lstrip())
    return Row(source, Place(edge.line, column), text.strip()) if text.strip() else None


def _rows(
    source: Source, command: Command, rest: list[Row], following: list[Command]
) -> tuple[list[Row], list[Command], tuple[str, ...]]:
    """The rows on the command's own lines and below, what follows them, and what the user should know."""
    for number, row in enumerate(rest):
        if row.place.line > command.line and _is_command(row.text):
            again = _from_line(command, row.place.line) + render(following)
            note = f"{source.spot(row.place)}: the backslash before this line was taken as the end of GEN"
            return rest[:number], list(read_commands(again, row.place.line)), (note,)
    rows = list(rest)
    taken = 0
    for number, piece in enumerate(following):
        if not piece.logical:
            continue
        if piece.keyword == "END" and len(piece.words) == 1:
            taken = number + 1
            break
        if _is_command(piece.logical):
            break
        segments = _segment_rows(source, piece)
        cut = next((at for at, row in enumerate(segments) if at and _is_command(row.text)), len(segments))
        rows += segments[:cut]
        taken = number + 1
        if cut < len(segments):
            line = segments[cut].place.line
            note = f"{source.spot(segments[cut].place)}: the backslash before this line was taken as the end of GEN"
            again = _from_line(piece, line) + render(following[taken:])
            return rows, list(read_commands(again, line)), (note,)
    return rows, following[taken:], ()


def _from_line(command: Command, line: int) -> str:
    """A command's raw text from a line of the file on."""
    return "\n".join(command.raw.split("\n")[line - command.line :])


def _is_command(text: str) -> bool:
    words = text.split(None, 1)
    keyword = words[0].upper().replace("-", "_") if words else ""
    return keyword in KEYWORDS or keyword == "GEN"


def _is_file(text: str) -> bool:
    """One bare word that is no number stands for a file of rows."""
    if not text or any(char in text for char in " \t,()") or looks_like_range(text):
        return False
    return re.fullmatch(r"[+-]?[\d.]+(?:[eE][+-]?\d+)?", text) is None


def file_rows(source: Source) -> tuple[Row, ...]:
    """The rows of a values file: its lines, without blank ones and comments."""
    rows = []
    for number, line in enumerate(source.text.split("\n"), 1):
        text = line.strip()
        if not is_comment(text):
            rows.append(Row(source, Place(number, len(line) - len(line.lstrip()) + 1), text))
    return tuple(rows)


Reader = Callable[[str], str]
"""Gives the text of a file named in a DAG; OSError when it cannot be read."""
