"""One site file and those it extends, with the lines its keys stand on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import MarkedYAMLError, YAMLError

_BY_NAME = {"partitions", "nodes", "instances"}
Location = Sequence[str | int]
"""Keys and list indexes from the top of a file to one value."""


class UnreadableError(Exception):
    """A file that is no mapping of keys, or extends what is not there; the text names file and line."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One file as it was written."""

    path: Path
    data: CommentedMap

    def reach(self, location: Location) -> int:
        """How many parts of a location this file really has."""
        return len(self._walk(location))

    def place(self, location: Location) -> str:
        """`file:line` of the deepest part of a location that this file has."""
        return f"{self.path}:{([1, *self._walk(location)])[-1]}"

    def value(self, location: Location) -> Any:
        """What stands there, None where nothing does."""
        node: Any = self.data
        for part in location:
            try:
                node = node[part]
            except (KeyError, IndexError, TypeError):
                return None
        return node

    def _walk(self, location: Location) -> list[int]:
        node: Any = self.data
        lines: list[int] = []
        for part in location:
            try:
                marks = node.lc
                mark = marks.key(part) if hasattr(node, "keys") else marks.item(part)
                node = node[part]
            except (AttributeError, KeyError, IndexError, TypeError):
                break
            lines.append(mark[0] + 1)
        return lines


def read_layers(path: Path, directories: Sequence[Path]) -> tuple[Layer, ...]:
    """The file, then what it extends, then what that extends. Raises UnreadableError."""
    layers = [read_layer(path)]
    while (name := layers[-1].data.get("extends")) is not None:
        layers.append(read_layer(_extended(str(name), layers, directories)))
    return tuple(layers)


def merged(layers: Sequence[Layer]) -> dict[str, Any]:
    """All layers as one, plain: the first file's keys win, mapping by mapping."""
    data: dict[str, Any] = {}
    for layer in reversed(layers):
        data = overlaid(data, plain(layer.data))
    if data.pop("extends", None) is not None:
        data["name"] = str(layers[0].data.get("name", layers[0].path.stem))
        for named in _BY_NAME & data.keys():
            if isinstance(data[named], dict):  # taken away here, and not there (any more) in what is extended
                data[named] = {name: facts for name, facts in data[named].items() if facts is not None}
    return data


def overlaid(base: Any, change: Any) -> Any:
    """`change` laid over `base`. Null takes a mapping or a list away; of a single value it says "unknown" or "none"."""
    if not isinstance(base, dict) or not isinstance(change, dict):
        return change
    result = dict(base)
    for key, value in change.items():
        if value is None and isinstance(base.get(key), dict | list):
            del result[key]
        else:
            result[key] = overlaid(base.get(key), value)
    return result


def _extended(name: str, layers: Sequence[Layer], directories: Sequence[Path]) -> Path:
    """The file of that name. A file that extends its own name means the one it hides, further down the search order."""
    here = layers[-1].path
    places = list(directories) or [here.parent]
    if name == here.stem:
        own = next((index for index, place in enumerate(places) if place == here.parent), -1)
        places = places[own + 1 :]
    found = next((place / f"{name}.yaml" for place in places if (place / f"{name}.yaml").is_file()), None)
    line = layers[-1].place(("extends",))
    if found is None:
        raise UnreadableError(
            f"{line}: extends: no site {name!r} in {', '.join(map(str, places)) or 'any directory below'}"
        )
    if any(found == layer.path for layer in layers):
        raise UnreadableError(f"{line}: extends: {name!r} leads back to {found}")
    return found


def read_layer(path: Path, what: str = "a site file") -> Layer:
    """One file as it was written. Raises UnreadableError."""
    try:
        data = YAML(typ="rt").load(path.read_text(encoding="utf-8"))
    except MarkedYAMLError as problem:
        line = (problem.problem_mark.line + 1) if problem.problem_mark else 1
        raise UnreadableError(f"{path}:{line}: {problem.problem or 'not YAML'}") from problem
    except (OSError, YAMLError, ValueError, TypeError) as problem:  # not UTF-8, no such date, a mapping as a key
        raise UnreadableError(f"{path}: {problem}") from problem
    if not isinstance(data, CommentedMap):
        raise UnreadableError(f"{path}:1: {what} is a mapping of keys to values")
    return Layer(path, data)


def plain(value: Any) -> Any:  # YAML may hold anything; pydantic judges it
    """Mappings and lists without ruamel's marks, keys as text."""
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return value
