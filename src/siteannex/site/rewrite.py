"""Write changes into a site file of the user's own, keeping what the user wrote and how."""

from __future__ import annotations

import io
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap

from siteannex.private import write_private
from siteannex.site.loader import load_any

Change = Mapping[tuple[str, ...], Any]


def yaml_text(data: Mapping[str, Any]) -> str:
    """A mapping as a site file's text."""
    stream = io.StringIO()
    _yaml().dump(_commented(data), stream)
    return stream.getvalue()


def write_changes(name: str, change: Change, directories: Sequence[Path]) -> Path:
    """Change the user's copy of a site (the first of `directories`), or start one that extends the file it hides.

    What the result would be is read before anything stays: AnnexError(site-invalid) leaves the file as it was.
    """
    path = directories[0] / f"{name}.yaml"
    before = path.read_text(encoding="utf-8") if path.is_file() else None
    data = _yaml().load(before) if before is not None else CommentedMap({"extends": name})
    for place, value in change.items():
        _set(data, place, value, extends="extends" in data)
    stream = io.StringIO()
    _yaml().dump(data, stream)
    path.parent.mkdir(parents=True, exist_ok=True)
    _replace(path, stream.getvalue())
    try:
        load_any(name, directories)
    except BaseException:
        if before is None:
            path.unlink()
        else:
            _replace(path, before)
        raise
    return path


def _set(data: CommentedMap, place: Sequence[str], value: Any, *, extends: bool) -> None:
    """Null takes something of the extended file away; in a whole file the key itself goes."""
    node = data
    for key in place[:-1]:
        if not isinstance(node.get(key), dict):
            node[key] = CommentedMap()
        node = node[key]
    if value is None and not extends:
        node.pop(place[-1], None)
    else:
        node[place[-1]] = _commented(value)


def _commented(value: Any) -> Any:
    if isinstance(value, Mapping):
        return CommentedMap({key: _commented(inner) for key, inner in value.items()})
    return [_commented(inner) for inner in value] if isinstance(value, list | tuple) else value


def _yaml() -> YAML:
    yaml = YAML(typ="rt")
    yaml.preserve_quotes = True
    yaml.width = 118
    yaml.representer.ignore_aliases = lambda _: True
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.representer.add_representer(
        type(None), lambda writer, _: writer.represent_scalar("tag:yaml.org,2002:null", "null")
    )
    return yaml


def _replace(path: Path, text: str) -> None:
    """The file as a whole or as it was, whatever happens; where it is a link, what it leads to."""
    real = path.resolve()
    new = real.with_name(f"{real.name}.new")
    write_private(new, text)
    if real.exists():
        shutil.copymode(real, new)
    new.replace(real)
