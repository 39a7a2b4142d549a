"""Ranges of numbers as people write them, exact to the last digit: `0.01 to 0.1 by 0.01` is ten values.

Three kinds, all with both ends included:

- `START to STOP by STEP`: equal steps. A STOP that the steps do not hit is left out, and the grid says so in a note.
- `START to STOP times FACTOR`: equal factors, exact as well.
- `START to STOP log COUNT`: COUNT values at equal ratios, rounded to six significant digits between the ends.

Floats are never used: a float loop makes 99 of the 100 values of `0.001 to 0.1 by 0.001`. Values are text, since that
is what a DAG carries: the ends are spelled as written, those between with as few decimals as they need (but no fewer
than all three numbers were written with: `0.10 to 0.50 by 0.10` has `0.20`), or as `2e-4` where START or STEP has an
exponent. A grid is lazy: its `count` is known before any value is made, so that a ceiling can be kept.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Context, Decimal

_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_WORD = re.compile(r"\S+")
_KINDS = ("by", "times", "log")
_EXPONENT_LIMIT = 308
_DIGITS_LIMIT = 40
_LOG_DIGITS = 6
_EXACT = Context(prec=1400, Emax=999_999, Emin=-999_999)


class RangeError(ValueError):
    """What is wrong with a range, and `column`: where in the given text, from 0."""

    def __init__(self, message: str, column: int = 0) -> None:
        super().__init__(message)
        self.column = column


@dataclass(frozen=True, slots=True)
class Grid:
    """A range's values, made as they are asked for. `note` is empty, or says what was left out."""

    kind: str
    start: str
    stop: str
    step: str
    count: int
    note: str = ""

    def __iter__(self) -> Iterator[str]:
        """The `count` values, each as it is to be written."""
        last = "" if self.note else self.stop
        for index in range(self.count):
            if index == 0:
                yield self.start
            elif index == self.count - 1 and last:
                yield last
            else:
                yield self._spelled(self._value(index))

    def _value(self, index: int) -> Decimal:
        first, step = Decimal(self.start), Decimal(self.step)
        if self.kind == "by":
            return _EXACT.add(first, _EXACT.multiply(step, Decimal(index)))
        if self.kind == "times":
            return _EXACT.multiply(first, _EXACT.power(step, index))
        context = Context(prec=_LOG_DIGITS + 12)
        ratio = context.ln(context.divide(Decimal(self.stop), first))
        exact = context.multiply(first, context.exp(context.divide(context.multiply(ratio, index), self.count - 1)))
        return Context(prec=_LOG_DIGITS).plus(exact)

    def _spelled(self, value: Decimal) -> str:
        if "e" in (self.start + (self.step if self.kind != "log" else "")).lower():
            digits = value.normalize(_EXACT).as_tuple().digits
            fraction = "".join(map(str, digits[1:]))
            sign = "-" if value < 0 else ""
            return f"{sign}{digits[0]}{'.' if fraction else ''}{fraction}e{value.adjusted()}" if value else "0"
        fewest = min(_decimals(self.start), _decimals(self.stop), _decimals(self.step)) if self.kind == "by" else 0
        whole, _, fraction = f"{value:f}".partition(".")
        fraction = fraction.rstrip("0").ljust(fewest, "0")
        return f"{whole}.{fraction}" if fraction else whole


def by_step(start: str, stop: str, step: str) -> Grid:
    """`start`, `start + step`, ... up to `stop`, itself included. RangeError: step 0, wrong sign, not a number."""
    first, last, width = _number(start, "START"), _number(stop, "STOP"), _number(step, "STEP")
    if not width:
        raise RangeError(f"the step of {start} to {stop} is 0")
    if (last - first) * width < 0:
        other = step.removeprefix("-") if width < 0 else f"-{step.removeprefix('+')}"
        raise RangeError(f"{start} to {stop} by {step} is empty: the step has the wrong sign; did you mean by {other}?")
    span = _EXACT.subtract(last, first)
    count = int(_EXACT.divide_int(span, width)) + 1
    grid = Grid("by", start, stop, step, count)
    rest = _EXACT.remainder(span, width)
    return _trimmed(grid, last=_EXACT.subtract(last, rest)) if rest else grid


def by_factor(start: str, stop: str, factor: str) -> Grid:
    """`start`, `start * factor`, ... up to `stop`, itself included. RangeError: signs, a factor that leads nowhere."""
    first, last, width = _number(start, "START"), _number(stop, "STOP"), _number(factor, "FACTOR")
    _same_sign(start, stop, first, last)
    if width <= 0 or width == 1:
        raise RangeError(f"the factor {factor} leads nowhere; it must be above 0 and not 1")
    if (abs(last) - abs(first)) * (width - 1) < 0:
        raise RangeError(f"{start} to {stop} times {factor} is empty: the factor leads away from {stop}")
    count, value = 1, first
    while abs(_EXACT.multiply(value, width) - first) <= abs(last - first):
        value = _EXACT.multiply(value, width)
        count += 1
        if len(value.as_tuple().digits) > _EXACT.prec // 2:
            raise RangeError(f"{start} to {stop} times {factor} has too many values or digits; use log COUNT")
    grid = Grid("times", start, stop, factor, count)
    return grid if value == last else _trimmed(grid, last=value)


def log_spaced(start: str, stop: str, count: int) -> Grid:
    """`count` values from `start` to `stop` at equal ratios, ends as written, six digits between them."""
    first, last = _number(start, "START"), _number(stop, "STOP")
    _same_sign(start, stop, first, last)
    if count < 2 and not (count == 1 and first == last):
        raise RangeError(f"a log range from {start} to {stop} has at least 2 values, not {count}")
    if first == last and count > 1:
        raise RangeError(f"{count} values from {start} to {stop} would all be the same")
    return Grid("log", start, stop, str(count), count)


def parse_range(text: str) -> Grid:
    """Read `START to STOP by STEP`, `... times FACTOR` or `... log COUNT`. RangeError says what and at which column."""
    words = [(match.group(), match.start()) for match in _WORD.finditer(text)]
    shape = "write START to STOP by STEP (or times FACTOR, or log COUNT)"
    if len(words) != 5 or words[1][0].lower() != "to" or words[3][0].lower() not in _KINDS:
        wrong = next((at for at, word in zip((1, 3), ("to", None), strict=True) if _differs(words, at, word)), 0)
        raise RangeError(f"{text.strip()!r} is not a range: {shape}", words[wrong][1] if wrong < len(words) else 0)
    (start, at), (stop, stop_at), kind, (step, step_at) = words[0], words[2], words[3][0].lower(), words[4]
    for number, name, place in ((start, "START", at), (stop, "STOP", stop_at), (step, "STEP", step_at)):
        _number(number, name, place)
    try:
        if kind == "by":
            return by_step(start, stop, step)
        if kind == "times":
            return by_factor(start, stop, step)
        if not step.isdecimal():
            raise RangeError(f"log takes a whole number of values, not {step}")
        return log_spaced(start, stop, int(step))
    except RangeError as problem:
        raise RangeError(str(problem), step_at) from None


def looks_like_range(text: str) -> bool:
    """Whether a text is meant as a range: its second word is `to`, after a number."""
    words = text.split()
    return len(words) >= 2 and words[1].lower() == "to" and _NUMBER.fullmatch(words[0]) is not None


def _differs(words: list[tuple[str, int]], at: int, expected: str | None) -> bool:
    if at >= len(words):
        return False
    word = words[at][0].lower()
    return word != expected if expected else word not in _KINDS


def _number(text: str, name: str, column: int = 0) -> Decimal:
    if _NUMBER.fullmatch(text) is None:
        raise RangeError(f"{name} is {text!r}, which is not a number", column)
    value = Decimal(text)
    if len(value.as_tuple().digits) > _DIGITS_LIMIT or abs(value.adjusted()) > _EXPONENT_LIMIT:
        raise RangeError(
            f"{name} is {text!r}; numbers have at most {_DIGITS_LIMIT} digits and exponents up to {_EXPONENT_LIMIT}",
            column,
        )
    return value


def _same_sign(start: str, stop: str, first: Decimal, last: Decimal) -> None:
    if not math.copysign(1, first) == math.copysign(1, last) or not first or not last:
        raise RangeError(f"{start} to {stop} cannot go by ratios: both ends must be above 0, or both below")


def _trimmed(grid: Grid, last: Decimal) -> Grid:
    """The same grid with the note that STOP was not hit; the note also keeps STOP out of the values."""
    spelled = grid._spelled(last) if grid.count > 1 else grid.start
    asked = f"{grid.start} to {grid.stop} {grid.kind} {grid.step}"
    told = f"{asked}: {grid.stop} is not on the grid; the last value is {spelled}"
    return Grid(grid.kind, grid.start, grid.stop, grid.step, grid.count, told)


def _decimals(text: str) -> int:
    return len(text.lower().partition("e")[0].partition(".")[2])
