"""JSON checked against the types that OpenLineage generates from its own schema: names, required fields, values."""

import types
from collections.abc import Mapping
from enum import EnumType
from typing import Any, Union, get_args, get_origin, get_type_hints

import attr
from openlineage.client.event_v2 import RunEvent
from openlineage.client.facet_v2 import (
    BaseFacet,
    dataset_version_dataset,
    error_message_run,
    execution_parameters_run,
    job_type_job,
    parent_run,
)

FACETS: dict[str, type] = {
    "parent": parent_run.ParentRunFacet,
    "errorMessage": error_message_run.ErrorMessageRunFacet,
    "executionParameters": execution_parameters_run.ExecutionParametersRunFacet,
    "jobType": job_type_job.JobTypeJobFacet,
    "version": dataset_version_dataset.DatasetVersionDatasetFacet,
}


def check_event(value: Mapping[str, Any], ours: Mapping[str, type]) -> None:
    """AssertionError or the types' own ValueError, where it is no RunEvent. `ours` are facets that are not theirs."""
    _check(RunEvent, value, {**FACETS, **ours}, "event")


def _check(kind: Any, value: Any, facets: Mapping[str, type], where: str) -> None:
    if get_origin(kind) in (Union, types.UnionType):
        inner = [each for each in get_args(kind) if each is not type(None)]
        assert value is not None or len(inner) < len(get_args(kind)), where
        if value is not None and len(inner) == 1:
            _check(inner[0], value, facets, where)
    elif get_origin(kind) is list:
        assert isinstance(value, list), where
        for number, each in enumerate(value):
            _check(get_args(kind)[0], each, facets, f"{where}[{number}]")
    elif get_origin(kind) is dict:
        assert isinstance(value, dict), where
        item = get_args(kind)[1]
        for name, each in value.items():
            is_facet = isinstance(item, type) and issubclass(item, BaseFacet)
            assert not is_facet or issubclass(facets[name], item), f"{where}.{name} is no {item}"
            _check(facets[name] if is_facet else item, each, facets, f"{where}.{name}")
    elif isinstance(kind, EnumType):
        kind(value)
    elif isinstance(kind, type) and attr.has(kind):
        _check_fields(kind, value, facets, where)
    elif kind is not Any:
        assert isinstance(value, kind), f"{where} is {value!r}, no {kind}"


def _check_fields(kind: type, value: Mapping[str, Any], facets: Mapping[str, type], where: str) -> None:
    fields: dict[str, Any] = {field.name: field for field in attr.fields(kind)}
    hints = get_type_hints(kind)
    assert not set(value) - set(fields), f"{where}: {set(value) - set(fields)}"
    for name, field in fields.items():
        may_lack = field.default is not attr.NOTHING
        assert name in value or may_lack or type(None) in get_args(hints[name]), f"{where}.{name} is missing"
        if name in value:
            _check(hints[name], value[name], facets, f"{where}.{name}")
            if field.validator is not None:
                field.validator(None, field, value[name])
    if issubclass(kind, BaseFacet):
        assert value["_producer"], where
        assert value["_schemaURL"] == kind._get_schema(), where
