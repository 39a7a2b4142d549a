"""What is wrong with a site file, in words: file, line, key, what was expected, the nearest key."""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from siteannex.site.layers import Layer, Location

_MAPPING = "should be a mapping of keys to values"
_DATE = "should be a date: 2026-11-29"
_EXPECTED = {
    "tuple_type": "should be a list: [one, two]",
    "too_short": "should not be empty",
    "dict_type": _MAPPING,
    "mapping_type": _MAPPING,
    "model_type": _MAPPING,
    "model_attributes_type": _MAPPING,
    "string_type": "should be text; put it in quotes",
    "int_type": "should be a whole number",
    "int_parsing": "should be a whole number",
    "int_from_float": "should be a whole number",
    "float_type": "should be a number",
    "float_parsing": "should be a number",
    "bool_type": "should be true or false",
    "bool_parsing": "should be true or false",
    "date_type": _DATE,
    "date_parsing": _DATE,
    "date_from_datetime_parsing": _DATE,
}


def expected(error: Any) -> str:
    """One of pydantic's errors in words for who wrote the file."""
    said = str(error["msg"]).removeprefix("Value error, ").replace("Input should be", "should be", 1)
    return _EXPECTED.get(error["type"], said)


def complaints(
    layers: Sequence[Layer], data: dict[str, Any], model: type[BaseModel], problem: ValidationError
) -> Iterator[str]:
    """One line for each mistake; `data` is what was validated, `layers` the files it came from."""
    for error in problem.errors(include_url=False):
        location = error["loc"]
        if _told_at_the_kind(error, data):
            continue
        layer = max(layers, key=lambda each: each.reach(location))  # the first of equals: the file that was asked for
        key = ".".join(str(part) for part in location)
        yield f"{layer.place(location)}: {key}: {_words(error, data, model)}"


def _words(error: Any, data: dict[str, Any], model: type[BaseModel]) -> str:
    location: Location = error["loc"]
    if error["type"] == "extra_forbidden":
        here = [*keys_at(model, location[:-1]), *(() if location[:-1] else ("extends",))]
        near = difflib.get_close_matches(str(location[-1]), here, n=1)
        return f"no such key; did you mean {near[0]}?" if near else f"no such key; known here: {', '.join(here)}"
    if error["type"] == "missing":
        return "required, and missing" + ("; write null if it is not known" if _may_be_null(model, location) else "")
    if _names_a_kind(location) and isinstance(error["input"], str):
        kinds = list(data.get("nodes") or {})
        near = difflib.get_close_matches(error["input"], kinds, n=1)
        return f"no kind {error['input']!r} under nodes:; " + (
            f"did you mean {near[0]}?" if near else f"there are: {', '.join(kinds) or 'none'}"
        )
    return expected(error)


def _names_a_kind(location: Location) -> bool:
    return len(location) == 4 and location[0] == "partitions" and location[2] == "nodes"


def _told_at_the_kind(error: Any, data: dict[str, Any]) -> bool:
    """Mistakes of a kind of node are told where it stands, not in every partition that names it."""
    location = error["loc"]
    if len(location) == 3 and location[0] == "partitions" and location[2] == "nodes":
        return error["type"] == "too_short" and bool(_value_at(data, location))
    if len(location) < 4 or not _names_a_kind(location[:4]):
        return False
    named = _value_at(data, location[:4])
    return isinstance(named, str) and named in (data.get("nodes") or {})


def _value_at(data: Any, location: Location) -> Any:
    for part in location:
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            return None
    return data


def keys_at(model: type[BaseModel], location: Location) -> list[str]:
    """The keys that a mapping of the file may have."""
    found = _annotation_at(model, location)
    if not (isinstance(found, type) and issubclass(found, BaseModel)):
        return []
    return list(found.model_fields)


def _may_be_null(model: type[BaseModel], location: Location) -> bool:
    parent = _annotation_at(model, location[:-1])
    if not (isinstance(parent, type) and issubclass(parent, BaseModel)):
        return False
    return type(None) in get_args(parent.model_fields[str(location[-1])].annotation)


def _annotation_at(model: type[BaseModel], location: Location) -> Any:
    current: Any = model
    for part in location:
        current = _bare(current)
        if isinstance(current, type) and issubclass(current, BaseModel):
            if part not in current.model_fields:
                return None
            current = current.model_fields[str(part)].annotation
        else:
            arguments = get_args(current)
            current = arguments[0 if isinstance(part, int) else -1] if arguments else None
    return _bare(current)


def _bare(annotation: Any) -> Any:
    """An annotation without Annotated and without "or None"."""
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            annotation = get_args(annotation)[0]
        elif origin in (Union, types.UnionType):
            annotation = next(each for each in get_args(annotation) if each is not type(None))
        else:
            return annotation
