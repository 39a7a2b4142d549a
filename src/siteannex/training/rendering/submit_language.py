"""HTCondor's submit language as far as a template needs it: its lines, the names it uses, and what is wrong. Pure.

Nothing here evaluates macros. `if` blocks are kept as they are; what stands in them may or may not hold.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from siteannex.training.rendering.submit_commands import AUTOMATIC_VARIABLES, MISTAKEN, SUBMIT_COMMANDS, SUBMIT_PREFIXES
from siteannex.units import parse_memory_mib

_ASSIGNMENT = re.compile(r"\s*([+A-Za-z_][A-Za-z0-9_.]*)\s*(=)\s*(.*?)\s*", re.DOTALL)
_CONTROL = re.compile(r"\s*(if|elif|else|endif)\b", re.IGNORECASE)
_QUEUE = re.compile(r"\s*queue\b", re.IGNORECASE)
_REFERENCE = re.compile(r"(?<!\$)\$(?:F[a-z]*)?\(([A-Za-z_][A-Za-z0-9_.]*)(:[^)]*)?\)")
_FUNCTION_REFERENCE = re.compile(
    r"\$(?:INT|REAL|STRING|SUBSTR|CHOICE|RANDOM_\w+|BASENAME|DIRNAME)\(([A-Za-z_][A-Za-z0-9_.]*)"
)
_IF_DEFINED = re.compile(r"\bdefined\s+([A-Za-z_][A-Za-z0-9_.]*)", re.IGNORECASE)
SIZES = frozenset({"request_memory", "request_disk", "gpus_minimum_memory"})
PLACEHOLDER = re.compile(r"\{([A-Za-z_]+)\.([A-Za-z0-9_]+)\}")


@dataclass(frozen=True, slots=True)
class Line:
    """One logical line. `name` is in small letters, with `my.` before attributes; empty for everything else."""

    number: int
    """In its text, from 1."""
    text: str
    name: str = ""
    value: str = ""
    conditional: bool = False
    """Stands in an `if` block."""
    control: bool = False


@dataclass(frozen=True, slots=True)
class Complaint:
    """What is wrong, on which line of the text, with the failure code."""

    line: int
    code: str
    text: str


def parse(text: str) -> list[Line]:
    """Every line that says something; comments, empty lines and a last plain `queue` are left out."""
    lines: list[Line] = []
    depth = 0
    for number, logical in _logical(text):
        if _QUEUE.fullmatch(logical) or re.fullmatch(r"\s*queue\s+1\s*", logical, re.IGNORECASE):
            continue
        if control := _CONTROL.match(logical):
            word = control[1].lower()
            depth += {"if": 1, "endif": -1}.get(word, 0)
            lines.append(Line(number, logical.strip(), control=True))
        elif match := _ASSIGNMENT.fullmatch(logical):
            name = match[1].lower()
            name = f"my.{name[1:]}" if name.startswith("+") else name
            lines.append(Line(number, logical.strip(), name, match[3], conditional=depth > 0))
        else:
            lines.append(Line(number, logical.strip(), conditional=depth > 0))
    return lines


def _logical(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their continuations joined, as condor_submit joins them: comments end at their own line's end."""
    held, start = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if not held and (not line.strip() or line.lstrip().startswith("#")):
            continue
        start = start if held else number
        if line.rstrip().endswith("\\"):
            held += line.rstrip()[:-1].rstrip() + " "
            continue
        yield start, held + (line.strip() if held else line)
        held = ""
    if held:
        yield start, held


def references(line: Line) -> set[str]:
    """Names of the macros a line must have to mean anything, in small letters; those with a default are not asked."""
    found = {match[1] for match in _REFERENCE.finditer(line.text) if match[2] is None}
    found |= {match[1] for match in _FUNCTION_REFERENCE.finditer(line.text)}
    return {name.lower() for name in found}


def mentions(line: Line) -> set[str]:
    """Names of the macros a line looks at in any way."""
    optional = {match[1].lower() for match in _REFERENCE.finditer(line.text)}
    return references(line) | optional | {match[1].lower() for match in _IF_DEFINED.finditer(line.text)}


def check(lines: Sequence[Line], variables: Iterable[str], *, others: Sequence[Line] = ()) -> list[Complaint]:
    """What is wrong with a text. `others`: texts it shares macros with."""
    every = [*lines, *others]
    defined = {name.lower() for name in variables} | {line.name for line in every if line.name}
    used = set().union(*(mentions(line) for line in every)) if every else set()
    return [
        *_shapes(lines),
        *_commands(lines, used),
        *_twice(lines),
        *_unknown_variables(lines, defined),
        *_units(lines),
    ]


def _shapes(lines: Sequence[Line]) -> Iterator[Complaint]:
    depth = 0
    for line in lines:
        word = line.text.split(None, 1)[0].lower() if line.control else ""
        depth += {"if": 1, "endif": -1}.get(word, 0)
        if depth < 0:
            yield Complaint(line.number, "submit-invalid", f"{line.text!r} without an if")
            depth = 0
        if _QUEUE.match(line.text) and not line.name:
            yield Complaint(line.number, "submit-invalid", f"{line.text!r}: a node is one job; leave queue out")
        elif not (line.name or line.control) or line.value.startswith("="):
            yield Complaint(line.number, "submit-invalid", _not_a_command(line.text))
        if line.name in ("arguments", "environment") and line.value.count('"') % 2:
            yield Complaint(line.number, "quoting-impossible", f"{line.name}: a double quote is not closed")
    if depth > 0:
        yield Complaint(lines[-1].number, "submit-invalid", "an if is not closed by endif")


def _not_a_command(text: str) -> str:
    condition = re.search(r"[=!<>]=|=\?=|=!=|&&|\|\|", text)
    instead = f"; a condition belongs in requirements = {text}" if condition else "; a line is NAME = VALUE"
    return f"{text!r} is no submit command and would take no effect{instead}"


def _commands(lines: Sequence[Line], used: set[str]) -> Iterator[Complaint]:
    for line in lines:
        name = line.name
        if not name or line.value.startswith("=") or name.startswith("my.") or name in used or name in SUBMIT_COMMANDS:
            continue
        if name.startswith(SUBMIT_PREFIXES) or name.endswith(("_oauth_permissions", "_oauth_resource")):
            continue
        near = MISTAKEN.get(name) or _nearest(name)
        if name.startswith("request_") and not near:
            continue  # a machine resource of the pool's own
        why = "is no submit command, and no $(...) uses it: it would be ignored"
        yield Complaint(
            line.number, "submit-command-unknown", f"{name} {why}" + (f"; did you mean {near}?" if near else "")
        )


def _nearest(name: str) -> str:
    """The command that was probably meant; of `request_...` the ends are compared, which pools may choose freely."""
    if name.startswith("request_"):
        ends = {known.removeprefix("request_") for known in SUBMIT_COMMANDS if known.startswith("request_")}
        found = difflib.get_close_matches(name.removeprefix("request_"), ends, n=1, cutoff=0.7)
        return f"request_{found[0]}" if found else ""
    return next(iter(difflib.get_close_matches(name, SUBMIT_COMMANDS, n=1, cutoff=0.75)), "")


def _twice(lines: Sequence[Line]) -> Iterator[Complaint]:
    first: dict[str, int] = {}
    for line in lines:
        if not line.name or line.conditional or line.name in mentions(line):
            continue
        if line.name in first:
            text = f"{line.name} is set on line {first[line.name]} already; only the last one would hold"
            yield Complaint(line.number, "submit-invalid", text)
        first.setdefault(line.name, line.number)


def _unknown_variables(lines: Sequence[Line], defined: set[str]) -> Iterator[Complaint]:
    known = defined | AUTOMATIC_VARIABLES
    for line in lines:
        for name in sorted(references(line) - known):
            if not name.startswith("my."):
                yield Complaint(line.number, "variable-unknown", unknown_variable(name, defined))


def unknown_variable(name: str, defined: set[str]) -> str:
    """The sentence about a `$(name)` that nothing defines."""
    near = difflib.get_close_matches(name, defined, n=1)
    return f"$({name}) is defined nowhere" + (f"; did you mean $({near[0]})?" if near else "")


def _units(lines: Sequence[Line]) -> Iterator[Complaint]:
    for line in lines:
        if line.name in SIZES and re.fullmatch(r"\d+(\.\d+)?", line.value):
            try:
                parse_memory_mib(line.value)
            except ValueError as problem:
                yield Complaint(line.number, "unit-missing", f"{line.name}: {problem}")


def fill(lines: Iterable[Line], site: dict[str, str]) -> list[Line]:
    """Lines with `{site.NAME}` filled. KeyError when a name is not there: the check comes first."""

    def put(match: re.Match[str]) -> str:
        return site[match[2]] if match[1] == "site" else match[0]

    return [
        replace(line, text=PLACEHOLDER.sub(put, line.text), value=PLACEHOLDER.sub(put, line.value)) for line in lines
    ]


def check_placeholders(lines: Sequence[Line], known: Iterable[str]) -> Iterator[Complaint]:
    """Names of `{site.NAME}` (or of anything else written like it) that do not exist."""
    names = sorted(known)
    for line in lines:
        for group, name in PLACEHOLDER.findall(line.text):
            if group == "site" and name not in names:
                near = difflib.get_close_matches(name, names, n=1)
                hint = f"; did you mean {{site.{near[0]}}}?" if near else f"; there are {', '.join(names)}"
                yield Complaint(line.number, "variable-unknown", f"{{site.{name}}} is no name of a site{hint}")
            elif group in ("sites", "resource", "resources"):
                text = f"{{{group}.{name}}} is not filled here; write {{site.{name}}}"
                yield Complaint(line.number, "variable-unknown", text)


def effective(*texts: Sequence[Line]) -> list[Line]:
    """Several texts as one: a command set anew by a later text replaces the earlier ones that stand outside an `if`."""
    result: list[Line] = []
    for text in texts:
        plain = {line.name for line in text if line.name and not line.conditional and line.name not in mentions(line)}
        result = [line for line in result if line.conditional or line.name not in plain]
        result.extend(text)
    return result


def last(lines: Sequence[Line], name: str) -> str | None:
    """The value that a command has outside `if` blocks, None when it is not set."""
    return next((line.value for line in reversed(lines) if line.name == name and not line.conditional), None)


def without(lines: Iterable[Line], *names: str) -> list[Line]:
    """The lines that do not set any of these."""
    return [line for line in lines if line.name not in names]


def arguments(words: Sequence[str]) -> str:
    """Words as condor_submit's arguments in the new syntax, quotes and all."""
    quoted = [_quoted(word) for word in words]
    return '"' + " ".join(quoted) + '"'


def environment(variables: dict[str, str]) -> str:
    """Variables as condor_submit's environment in the new syntax."""
    return '"' + " ".join(f"{name}={_quoted(value)}" for name, value in variables.items()) + '"'


def _quoted(word: str) -> str:
    plain = word.replace('"', '""')
    return "'" + plain.replace("'", "''") + "'" if not word or re.search(r"[\s']|\$\(", word) else plain
