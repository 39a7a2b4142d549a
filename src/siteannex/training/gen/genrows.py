"""The values of a GEN SUBDAG: `a, b product from` and the rows that follow, or a file of rows.

A row is a tuple (one value a variable), a range (all values of one variable), or `NAME: values` (values or a range of
the variable it names). Rows of one GEN are all of one sort. What `product` and `zip` mean, and when one of them must
be written, is in docs/gen-subdag.md.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from siteannex.training.dag.dagfile import Place, split_words, unquote
from siteannex.training.experiment.ranges import Grid, RangeError, looks_like_range, parse_range
from siteannex.training.located import Source, refused

_CELL = re.compile(r"""(?: [^,"'] | "(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*' )+""", re.VERBOSE)
_LABEL = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)[ \t]*:(?=[ \t]|$)")


@dataclass(frozen=True, slots=True)
class Row:
    """One row's text and where it begins."""

    source: Source
    place: Place
    text: str

    def refuse(self, offset: int, message: str) -> Exception:
        """The error at a character of this row."""
        return refused(self.source, Place(self.place.line, self.place.column + offset), message)


@dataclass(frozen=True, slots=True)
class Points:
    """The instances of a region: `count` of them, made as they are asked for; `notes` for the user."""

    variables: tuple[str, ...]
    count: int
    columns: tuple[Sequence[str] | Grid, ...]
    rows: tuple[tuple[str, ...], ...]
    mode: str
    notes: tuple[str, ...]

    def __iter__(self) -> Iterator[dict[str, str]]:
        """Variable -> value, instance by instance; in a product the last variable changes first."""
        combined: Iterator[tuple[str, ...]]
        if self.rows:
            combined = iter(self.rows)
        elif self.mode == "zip":
            combined = zip(*self.columns, strict=True)
        else:
            combined = itertools.product(*self.columns)
        for values in combined:
            yield dict(zip(self.variables, values, strict=True))


def read_points(variables: tuple[str, ...], mode: str, rows: Sequence[Row], where: Row) -> Points:
    """The points of the rows; `mode` is product, zip or "" (not written), `where` is the GEN line, for errors."""
    if not rows:
        raise where.refuse(0, f"GEN has no values: write rows below it, one tuple ({', '.join(variables)}) a line")
    labels = [_LABEL.match(row.text) for row in rows]
    if any(labels):
        return _from_columns(variables, mode, _labelled(variables, rows, labels), where)
    ranges = [looks_like_range(row.text) for row in rows]
    if not any(ranges):
        return _from_tuples(variables, mode, rows, where)
    if not all(ranges):
        odd = rows[ranges.index(not ranges[0])]
        kinds = ("a tuple", "a range") if ranges[0] else ("a range", "a tuple")
        raise odd.refuse(
            0, f"this row is {kinds[0]} and the first is {kinds[1]}; name the variables: {variables[0]}: ..."
        )
    if len(rows) != len(variables):
        row = rows[min(len(variables), len(rows) - 1)]
        raise row.refuse(0, f"{len(rows)} ranges for {len(variables)} variables ({', '.join(variables)}): one each")
    return _from_columns(variables, mode, [_grid(row, 0) for row in rows], where)


def _from_tuples(variables: tuple[str, ...], mode: str, rows: Sequence[Row], where: Row) -> Points:
    if mode == "product":
        raise where.refuse(0, "product combines ranges or named rows; tuples are already one instance each")
    made: list[tuple[str, ...]] = []
    for number, row in enumerate(rows):
        cells = read_cells(row, len(variables))
        texts = tuple(text for text, _ in cells)
        if number == 0 and texts == variables and row.source is not where.source:
            continue  # a file's header
        if len(variables) == 1:
            made.extend((text,) for text in texts)
        elif len(cells) == len(variables):
            made.append(texts)
        else:
            at = cells[len(variables)][1] if len(cells) > len(variables) else len(row.text)
            raise row.refuse(at, f"{len(cells)} values for {len(variables)} variables ({', '.join(variables)})")
    if not made:
        raise where.refuse(0, "GEN makes nothing: there is a header and no row")
    return Points(variables, len(made), (), tuple(made), "tuples", ())


def _from_columns(variables: tuple[str, ...], mode: str, columns: Sequence[Sequence[str] | Grid], where: Row) -> Points:
    counts = [column.count if isinstance(column, Grid) else len(column) for column in columns]
    notes = tuple(column.note for column in columns if isinstance(column, Grid) and column.note)
    told = " x ".join(f"{name} {count}" for name, count in zip(variables, counts, strict=True))
    if not mode and len(columns) > 1:
        if len(set(counts)) == 1 and counts[0] > 1:
            raise where.refuse(
                0,
                f"{told}: all combinations ({math.prod(counts)}) or side by side ({counts[0]})? "
                f"write {variables[-1]} product from, or {variables[-1]} zip from",
            )
        notes = (*notes, f"{told}: all {math.prod(counts)} combinations (product)")
    if mode == "zip":
        if len(set(counts)) > 1:
            raise where.refuse(0, f"zip needs as many values of each variable: {told}")
        return Points(variables, counts[0], tuple(columns), (), "zip", notes)
    return Points(variables, math.prod(counts), tuple(columns), (), "product", notes)


def _labelled(
    variables: tuple[str, ...], rows: Sequence[Row], labels: Sequence[re.Match[str] | None]
) -> list[Sequence[str] | Grid]:
    found: dict[str, Sequence[str] | Grid] = {}
    for row, label in zip(rows, labels, strict=True):
        if label is None:
            raise row.refuse(0, "rows are named above and this one is not: NAME: values")
        name = label.group(1)
        if name not in variables:
            raise row.refuse(0, f"{name} is not a variable of this GEN ({', '.join(variables)})")
        if name in found:
            raise row.refuse(0, f"{name} has a row already")
        begin = label.end() + len(row.text[label.end() :]) - len(row.text[label.end() :].lstrip())
        rest = Row(row.source, Place(row.place.line, row.place.column + begin), row.text[begin:])
        found[name] = (
            _grid(rest, 0) if looks_like_range(rest.text) else [text for text, _ in read_cells(rest, len(variables))]
        )
    missing = [name for name in variables if name not in found]
    if missing:
        raise rows[-1].refuse(0, f"{missing[0]} has no row")
    return [found[name] for name in variables]


def _grid(row: Row, offset: int) -> Grid:
    try:
        return parse_range(row.text[offset:])
    except RangeError as problem:
        raise row.refuse(offset + problem.column, str(problem)) from None


def read_cells(row: Row, wanted: int) -> list[tuple[str, int]]:
    """The values of a tuple and where each begins: comma-separated, or by spaces where a row has no comma."""
    text, begin = row.text, 0
    if text.startswith("(") and text.endswith(")"):
        text, begin = text[1:-1], 1
    if "," not in _without_quotes(text) and wanted > 1:
        words, problem = split_words(text)
        if problem:
            raise row.refuse(begin, problem)
        return [(unquote(word.text), begin + word.offset) for word in words]
    cells, at = [], 0
    while True:
        match = _CELL.match(text, at)
        end = match.end() if match else at
        cell = text[at:end]
        if end < len(text) and text[end] != ",":
            raise row.refuse(begin + end, "a quote is not closed")
        start = begin + at + len(cell) - len(cell.lstrip())
        if not cell.strip():
            raise row.refuse(begin + end, 'a value is missing here; an empty one is written ""')
        if looks_like_range(cell):
            raise row.refuse(start, "a tuple holds values, not ranges; give each variable a row: NAME: values")
        cells.append((unquote(cell.strip()), start))
        if end == len(text):
            return cells
        at = end + 1


def _without_quotes(text: str) -> str:
    return re.sub(r""""(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'""", "", text)
