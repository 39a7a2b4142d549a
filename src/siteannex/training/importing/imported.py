"""An experiment file made from somebody else's files: its sites, its submit template, its text. Pure."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from siteannex.training.experiment.places import ANY
from siteannex.training.importing.foreign_submit import NEXT_EPOCH, Finding, Translated, needs_next_epoch

_KEY = re.compile(r"[^A-Za-z0-9_-]")
_PLACE_COMMANDS = {"request_cpus": "cpus", "request_gpus": "gpus", "request_memory": "memory", "request_disk": "disk"}
_SIZE = re.compile(r"(\d+)\s*(KB|K|MB|M|GB|G|TB|T)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Imported:
    """An experiment file's text, and what the files it was made from said that never took effect."""

    text: str
    findings: tuple[Finding, ...]


@dataclass(slots=True)
class Sites:
    """The `sites` of an experiment, its template, its environment."""

    sites: dict[str, dict[str, Any]] = field(default_factory=dict)
    template: list[str] = field(default_factory=list)
    environment: dict[str, Any] = field(default_factory=dict)


def site_key(name: str) -> str:
    """A name as `sites` takes it: letters, digits, `-` and `_`, a letter first."""
    key = _KEY.sub("_", name)[:63] or "site"
    return key if key[0].isalpha() and key != ANY else f"s{key[:62]}"


def experiment_name(text: str) -> str:
    """A name as experiments take it."""
    return site_key(text.strip().lower().replace(" ", "_"))


def merge_sites(described: Mapping[str, Translated]) -> Sites:
    """One template for all sites, and for each what differs there: sizes as its own keys, other lines as `submit`."""
    result = Sites()
    bodies = list(described.values())
    common = [line for line in bodies[0].lines if all(line in body.lines for body in bodies)]
    shared = {line.split("=")[0].strip() for line in common}
    varying = [name for name in _PLACE_COMMANDS if name not in shared and all(_sized(body, name) for body in bodies)]
    for line in bodies[0].lines:
        name = line.split("=")[0].strip().lower()
        if line in common:
            result.template.append(line)
        elif name in varying:
            result.template.append(f"{name} = {{site.{_PLACE_COMMANDS[name]}}}")
    if needs_next_epoch([line for body in bodies for line in body.lines]):
        result.template.insert(0, NEXT_EPOCH)
    for key, body in described.items():
        result.sites[key] = _site(body, common, varying)
        result.environment |= body.environment
        result.environment |= {name: {"secret_file": f"secrets/{name}"} for name in body.secrets}
    return result


def _site(body: Translated, common: Sequence[str], varying: Sequence[str]) -> dict[str, Any]:
    site: dict[str, Any] = {}
    if body.annex:
        site["annex"] = body.annex
    elif body.resource:
        site["resource"] = body.resource
    else:
        site["requirements"] = "true"
    for name in varying:
        site[_PLACE_COMMANDS[name]] = _sized(body, name)
    own = [line for line in body.lines if line not in common and line.split("=")[0].strip().lower() not in varying]
    if own:
        site["submit"] = "\n".join(own) + "\n"
    return site


def _sized(body: Translated, name: str) -> int | str | None:
    """The value of a request when it is one plain number or size; sizes in the largest unit that keeps them whole."""
    value = next((line.partition("=")[2].strip() for line in body.lines if line.lower().startswith(f"{name} =")), "")
    if name in ("request_cpus", "request_gpus"):
        return int(value) if value.isdecimal() else None
    match = _SIZE.fullmatch(value)
    return size_text(int(match[1]), match[2]) if match else None


def size_text(number: int, unit: str) -> str:
    """A size in MB or GB, rounded up to whole MB."""
    factors = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2}
    mib = max(1, -int(-number * factors[unit[0].upper()] // 1))
    return f"{mib // 1024}GB" if mib % 1024 == 0 else f"{mib}MB"


def experiment_text(experiment: Mapping[str, Any], header: Sequence[str]) -> str:
    """The experiment as YAML, comments first, submit language as blocks, lists of sites on one line."""
    from ruamel.yaml import YAML
    from ruamel.yaml.comments import CommentedMap, CommentedSeq
    from ruamel.yaml.scalarstring import LiteralScalarString

    def shaped(value: Any, depth: int) -> Any:
        if isinstance(value, Mapping):
            made = CommentedMap({key: shaped(inner, depth + 1) for key, inner in value.items()})
            if depth >= 2 and not any(isinstance(inner, str) and "\n" in inner for inner in value.values()):
                made.fa.set_flow_style()
            return made
        if isinstance(value, list):
            listed = CommentedSeq([shaped(inner, depth + 1) for inner in value])
            if not any(isinstance(inner, Mapping) for inner in value):
                listed.fa.set_flow_style()
            return listed
        return LiteralScalarString(value) if isinstance(value, str) and "\n" in value else value

    writer = YAML(typ="rt")
    writer.width = 116
    out = io.StringIO()
    writer.dump(shaped(experiment, 0), out)
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    return "".join(f"{line}\n" for line in (*(f"# {line}" for line in header), *lines))
