"""Submit language of MLDAG's templates and DAGs, turned into that of an experiment file. Pure.

Everything that never took effect there is left out and told as a finding: a bare `TARGET... == ...` line (a macro of
that name, no requirement), an `environment` that a later one replaced, commands HTCondor does not have.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from siteannex.training.dag.dagfile import unquote
from siteannex.training.rendering.submit_commands import SUBMIT_COMMANDS, SUBMIT_PREFIXES

_ASSIGNMENT = re.compile(r"([+A-Za-z_][\w.]*)\s*=(?!=)\s*(.*)", re.DOTALL)
_CONTROL = re.compile(r"(if|elif|else|endif)\b", re.IGNORECASE)
_QUEUE = re.compile(r"queue(\s+1)?", re.IGNORECASE)
_RESOURCE = re.compile(r'TARGET\.GLIDEIN_ResourceName\s*==\s*"([^"]*)"', re.IGNORECASE)
_SECRET = re.compile(r"key|token|secret|passw|credential", re.IGNORECASE)
_SIZE_UNITS = {"request_memory": "MB", "gpus_minimum_memory": "MB", "request_disk": "KB"}
"""The unit HTCondor takes when a number has none."""
MACROS = {
    "epoch": "$INT(next_epoch)",
    "run_uuid": "$(run_id)",
    "random_seed": "$(seed)",
    "resourcename": "{site.name}",
}
"""What MLDAG's VARS are called here. Its `epoch` is how many epochs must be done, ours the index of the last one."""
NEXT_EPOCH = "next_epoch = $(epoch) + 1"
_MACRO = re.compile(r"\$\((epoch|run_uuid|random_seed|resourcename)(?::[^)]*)?\)", re.IGNORECASE)
_REFERENCE = re.compile(r"\$\w*\(([A-Za-z_][\w.]*)|\bdefined\s+([A-Za-z_][\w.]*)", re.IGNORECASE)
_RESUME = re.compile(r"\bcontinue_from_checkpoint\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something the user should know about the files they bring, and where it stands (`file:line`)."""

    place: str
    text: str


def gathered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Each text once, with its first place and how many more there are."""
    places: dict[str, list[str]] = {}
    for finding in findings:
        places.setdefault(finding.text, []).append(finding.place)
    return tuple(
        Finding(found[0] + (f" (and {len(found) - 1} more)" if len(found) > 1 else ""), text)
        for text, found in places.items()
    )


@dataclass(slots=True)
class Translated:
    """A submit description in our words. `annex` and `resource` are what it wanted to bind its jobs to."""

    lines: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    secrets: list[str] = field(default_factory=list)
    annex: str = ""
    resource: str = ""
    findings: list[Finding] = field(default_factory=list)


def translate(lines: Iterable[tuple[str, str]]) -> Translated:
    """Translate the lines of a submit description, each with its place in a file."""
    lines = list(lines)
    used = {name.lower() for _, line in lines for pair in _REFERENCE.findall(line) for name in pair}
    result = Translated()
    set_at: dict[str, int] = {}
    depth = 0
    environment_place = ""
    for place, raw in lines:
        line = raw.strip()
        if not line or line.startswith("#") or _QUEUE.fullmatch(line):
            continue
        if control := _CONTROL.match(line):
            depth += {"if": 1, "endif": -1}.get(control[1].lower(), 0)
            result.lines.append(_renamed(line))
            continue
        match = _ASSIGNMENT.fullmatch(line)
        if match is None:
            _not_an_assignment(result, place, line)
            continue
        name, value = match[1], match[2].strip()
        small = f"my.{name[1:]}".lower() if name.startswith("+") else name.lower()
        if small == "my.targetannexname":
            result.annex = unquote(value)
        elif small in ("environment", "env", "environment2"):
            if environment_place:
                text = f"this environment replaced the one at {environment_place}, which never took effect"
                result.findings.append(Finding(place, text))
            environment_place = place
            _environment(result, place, value)
        elif small in MACROS:
            result.findings.append(
                Finding(place, f"left out: {line} (every job gets its epoch, run and seed by itself)")
            )
        elif not _means_something(small, used):
            result.findings.append(Finding(place, f"left out: {name} is no submit command and never took effect"))
        else:
            kept = _renamed(f"{name} = {_with_unit(small, value)}")
            if small in set_at and not depth and f"$({small}" not in value.lower():
                result.findings.append(Finding(place, f"{name} was set twice; only this one took effect"))
                result.lines[set_at[small]] = ""
            if not depth:
                set_at[small] = len(result.lines)
            result.lines.append(kept)
    result.lines = [line for line in result.lines if line]
    return result


def _means_something(name: str, used: set[str]) -> bool:
    """Whether HTCondor does anything with a command of that name, or another line uses it as a macro."""
    known = name in SUBMIT_COMMANDS or name.startswith(("my.", "request_", *SUBMIT_PREFIXES))
    return known or name in used


def needs_next_epoch(lines: Sequence[str]) -> bool:
    """Whether translated lines count epochs the way MLDAG did."""
    return any("next_epoch" in line for line in lines)


def _renamed(line: str) -> str:
    return _RESUME.sub("resume", _MACRO.sub(lambda match: MACROS[match[1].lower()], line))


def _with_unit(name: str, value: str) -> str:
    return value + _SIZE_UNITS[name] if name in _SIZE_UNITS and value.isdecimal() else value


def _not_an_assignment(result: Translated, place: str, line: str) -> None:
    if resource := _RESOURCE.fullmatch(line):
        name = resource[1]
        result.resource = "" if name.startswith("$(") else name
        text = (
            "a line TARGET.GLIDEIN_ResourceName == ... of its own is no requirement: it never bound jobs to a site. "
            "From here on resource: does; look whether slots of that name exist"
        )
        result.findings.append(Finding(place, text))
        return
    result.findings.append(Finding(place, f"left out: {line}: no submit command; it never took effect"))


def _environment(result: Translated, place: str, value: str) -> None:
    result.environment.clear()
    result.secrets.clear()
    for name, text in _variables(value):
        if _SECRET.search(name) and text:
            result.secrets.append(name)
            told = (
                f"{name} stands here in clear text: withdraw it, and put a new one into secrets/{name} (chmod 600). "
                f"Without command: the job finds it as that file: export {name}=$(cat secrets/{name})"
            )
            result.findings.append(Finding(place, told))
        else:
            result.environment[name] = _renamed(text)


def _variables(value: str) -> list[tuple[str, str]]:
    """The variables of an `environment` command, in HTCondor's new syntax (all in double quotes) or its old one."""
    if value.startswith('"') and value.endswith('"') and len(value) > 1:
        inner = value[1:-1].replace('""', '"')
        words = re.findall(r"(?:[^\s']|'(?:[^']|'')*')+", inner)
        pairs = [re.sub(r"'((?:[^']|'')*)'", lambda match: match[1].replace("''", "'"), word) for word in words]
    else:
        pairs = value.split(";")
    return [(name.strip(), text) for name, equals, text in (pair.partition("=") for pair in pairs) if equals]
