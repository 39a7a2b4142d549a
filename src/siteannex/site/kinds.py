"""All kinds of site, and the JSON schema editors check site files with."""

from __future__ import annotations

import json
from typing import Any

from pydantic import TypeAdapter

from siteannex.site.other_kinds import AwsSite, OpenStackSite, TargetSite
from siteannex.site.schema import Site

AnySite = Site | AwsSite | OpenStackSite | TargetSite
MODELS: dict[str, type[AnySite]] = {"slurm": Site, "aws": AwsSite, "openstack": OpenStackSite, "target": TargetSite}

_WHOLE, _PART = "#/$defs/", "#/$defs/part."


def json_schema() -> dict[str, Any]:
    """The schema of a site file: whole, or with `extends:`, where every key may be left out and null takes one away."""
    whole: dict[str, Any] = TypeAdapter(AnySite).json_schema(mode="validation")
    definitions = whole.pop("$defs")
    _written_by_name(definitions)
    parts = {
        f"part.{name}": _part(json.loads(json.dumps(definition).replace(_WHOLE, _PART)))
        for name, definition in definitions.items()
    }
    extending = json.loads(json.dumps(whole).replace(_WHOLE, _PART))
    for model in MODELS.values():
        parts[f"part.{model.__name__}"]["properties"]["extends"] = {
            "type": "string",
            "description": "Name of the site whose keys hold where this file says nothing.",
        }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "siteannex site file",
        "if": {"required": ["extends"]},
        "then": extending,
        "else": whole,
        "$defs": definitions | parts,
    }


def schema_text() -> str:
    """The schema as `sites/schema.json` holds it."""
    return json.dumps(json_schema(), indent=1) + "\n"


def _written_by_name(definitions: dict[str, Any]) -> None:
    """In a file, a partition names its kinds of node."""
    definitions["Partition"]["properties"]["nodes"]["items"] = {"type": "string"}
    definitions["NodeKind"]["properties"].pop("name")


def _part(definition: Any) -> Any:
    if isinstance(definition, list):
        return [_part(each) for each in definition]
    if not isinstance(definition, dict):
        return definition
    part = {key: _part(value) for key, value in definition.items() if key not in ("required", "minProperties")}
    for holder in ("properties", "additionalProperties"):
        inner = part.get(holder)
        if holder == "properties" and isinstance(inner, dict):
            part[holder] = {key: _or_null(value) for key, value in inner.items()}
        elif isinstance(inner, dict):
            part[holder] = _or_null(inner)
    return part


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    return schema if "const" in schema else {"anyOf": [schema, {"type": "null"}]}
