"""Find and read site files: the user's own first, then the admin's, then the packaged ones."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from siteannex.errors import Evidence
from siteannex.failures import fail
from siteannex.site.schema import Site


def site_files(directories: Sequence[Path]) -> dict[str, Path]:
    """Name -> file, the first directory that has a name wins. A directory that does not exist is no error."""
    found: dict[str, Path] = {}
    for directory in directories:
        for path in sorted(directory.glob("*.yaml")) if directory.is_dir() else ():
            found.setdefault(path.stem, path)
    return found


def load_site(name: str, directories: Sequence[Path]) -> Site:
    """Read one site by name. AnnexError site-unknown (with the nearest name) or site-invalid (with file and line)."""
    files = site_files(directories)
    if name not in files:
        near = difflib.get_close_matches(name, files, n=1)
        hint = f"Did you mean {near[0]}? " if near else ""
        raise fail(
            "site-unknown",
            name,
            f"no site named {name!r}",
            evidence=[Evidence("site files looked for in", "\n".join(map(str, directories)))],
            hint=f"{hint}siteannex sites list shows the names.",
        )
    return read_site(files[name])


def read_site(path: Path) -> Site:
    """Read and check one file. AnnexError(site-invalid) says file, line, key and what was expected."""
    try:
        data = YAML(typ="rt").load(path.read_text(encoding="utf-8"))
    except MarkedYAMLError as problem:
        line = (problem.problem_mark.line + 1) if problem.problem_mark else 1
        raise _invalid(path, [f"{path}:{line}: {problem.problem or 'not YAML'}"]) from problem
    except (OSError, YAMLError, ValueError) as problem:  # not UTF-8, control characters, no such date
        raise _invalid(path, [f"{path}: {problem}"]) from problem
    if not isinstance(data, CommentedMap):
        raise _invalid(path, [f"{path}:1: a site file is a mapping of keys to values"])
    try:
        site = Site.model_validate(_plain(data))
    except ValidationError as problem:
        raise _invalid(path, list(_complaints(path, data, problem))) from problem
    if site.name != path.stem:
        raise _invalid(path, [f"{path}:1: name: is {site.name!r}, the file says {path.stem!r}"])
    return site


def _plain(value: Any) -> Any:  # YAML may hold anything; pydantic judges it
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return value


def _complaints(path: Path, data: CommentedMap, problem: ValidationError) -> Iterator[str]:
    for error in problem.errors(include_url=False):
        line = _line_of(data, error["loc"])
        key = ".".join(str(part) for part in error["loc"])
        yield f"{path}:{line}: {key}: {error['msg']}{_nearest_key(error)}"


def _nearest_key(error: Any) -> str:
    if error["type"] != "extra_forbidden":
        return ""
    names = sorted(_field_names(Site))
    near = difflib.get_close_matches(str(error["loc"][-1]), names, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _field_names(model: Any) -> set[str]:
    names: set[str] = set()
    for definition in [model.model_json_schema(), *model.model_json_schema().get("$defs", {}).values()]:
        names |= set(definition.get("properties", {}))
    return names


def _line_of(node: Any, location: Sequence[str | int]) -> int:
    """The line of the deepest part of a location that the file really has."""
    line = 1
    for part in location:
        try:
            positions: Any = node.lc
            mark = positions.key(part) if isinstance(node, dict) else positions.item(part)
            line, node = mark[0] + 1, node[part]
        except (AttributeError, KeyError, IndexError, TypeError):
            break
    return line


def _invalid(path: Path, complaints: list[str]) -> Exception:
    return fail(
        "site-invalid",
        path.stem,
        f"{path.name} is not a valid site file",
        evidence=[Evidence(str(path), "\n".join(complaints))],
    )
