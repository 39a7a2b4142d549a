"""Training runs as OpenLineage run events (https://openlineage.io, spec 2-0-2), by the project's own client types.

One OpenLineage run is one attempt, since a run has one START and one end; the training run is its parent. Each
checkpoint is a dataset whose version is its sha256. Needs the extra `export`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import attr
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    DatasetFacet,
    JobFacet,
    OutputDatasetFacet,
    RunFacet,
    dataset_version_dataset,
    error_message_run,
    execution_parameters_run,
    job_type_job,
    parent_run,
)
from openlineage.client.serde import Serde

from siteannex.training.epoch import VERSION
from siteannex.training.provenance.exports.scrub import scrubbed
from siteannex.training.provenance.exports.told import Attempt, Output, Told
from siteannex.training.provenance.lineage import gpus_of

PRODUCER = f"urn:siteannex:epoch-runner:{VERSION}"


@attr.define
class AttemptRunFacet(RunFacet):
    """Where an attempt ran, and as which job."""

    node: str
    retry: int
    start: int
    job: str | None
    host: str | None
    site: str | None
    slot: str | None
    gpus: list[dict[str, Any]]
    exitStatus: int | None

    @staticmethod
    def _get_schema() -> str:
        return "urn:siteannex:provenance:1:AttemptRunFacet"


@attr.define
class CheckpointOutputFacet(OutputDatasetFacet):
    """What a checkpoint's side-car says of it."""

    epoch: int
    complete: bool
    bytes: int | None
    seconds: float | None
    metrics: dict[str, Any]
    gpuModels: list[str]

    @staticmethod
    def _get_schema() -> str:
        return "urn:siteannex:provenance:1:CheckpointOutputFacet"


def run_events(runs: Sequence[Told]) -> list[RunEvent]:
    """START, OTHER for each checkpoint, and the end of every attempt, in the order of their times."""
    found = [event for run in runs for attempt in run.attempts for event in _attempt(run, attempt)]
    return sorted(found, key=lambda event: str(event.eventTime))


def as_ndjson(events: Sequence[RunEvent]) -> str:
    """One event a line, as OpenLineage's file transport writes them."""
    return "".join(str(Serde.to_json(event)) + "\n" for event in events)


def _attempt(run: Told, attempt: Attempt) -> Iterator[RunEvent]:
    inputs = [*_given(run), *(_loaded(run, each) for each in attempt.inputs)]
    outputs = [_output(run, each) for each in attempt.outputs]
    yield _event(run, attempt, RunState.START, attempt.began, inputs, [])
    for each, dataset in zip(attempt.outputs, outputs, strict=True):
        yield _event(run, attempt, RunState.OTHER, each.at, [], [dataset])
    yield _event(run, attempt, RunState[attempt.outcome], attempt.ended, inputs, outputs)


def _event(
    run: Told,
    attempt: Attempt,
    state: RunState,
    at: datetime,
    inputs: list[InputDataset],
    outputs: list[OutputDataset],
) -> RunEvent:
    facets: dict[str, RunFacet] = {"parent": _parent(run), "siteannex_attempt": _place(attempt)}
    if state is RunState.START:
        facets["executionParameters"] = _parameters(run)
    if state in (RunState.FAIL, RunState.ABORT):
        facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(
            message=attempt.reason, programmingLanguage="python", producer=PRODUCER
        )
    kind = job_type_job.JobTypeJobFacet(
        processingType="BATCH", integration="SITEANNEX", jobType="TRAINING", producer=PRODUCER
    )
    job_facets: dict[str, JobFacet] = {"jobType": kind}
    return RunEvent(
        eventType=state,
        eventTime=at.astimezone(UTC).isoformat(timespec="milliseconds"),
        run=Run(runId=attempt.id, facets=facets),
        job=Job(namespace=run.experiment, name=attempt.node, facets=job_facets),
        inputs=inputs,
        outputs=outputs,
        producer=PRODUCER,
    )


def _parent(run: Told) -> RunFacet:
    return parent_run.ParentRunFacet(
        run=parent_run.Run(runId=run.id), job=parent_run.Job(namespace=run.experiment, name=run.name), producer=PRODUCER
    )


def _place(attempt: Attempt) -> RunFacet:
    place = attempt.place
    return AttemptRunFacet(
        node=attempt.node,
        retry=attempt.retry,
        start=attempt.start,
        job=attempt.job,
        host=place["host"],
        site=place["site"],
        slot=None if place["slot"] is None else str(place["slot"]),
        gpus=place["gpus"] or [],
        exitStatus=attempt.status,
        producer=PRODUCER,
    )


def _parameters(run: Told) -> RunFacet:
    facts = run.facts["run"]
    values = {"seed": facts.get("seed"), **facts.get("parameters", {})}
    each = [
        execution_parameters_run.ExecutionParameter(key=str(key), name=str(key), value=str(value))
        for key, value in values.items()
    ]
    return execution_parameters_run.ExecutionParametersRunFacet(parameters=each, producer=PRODUCER)


def _version(sha256: object) -> dict[str, DatasetFacet]:
    facet = dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=str(sha256), producer=PRODUCER)
    return {"version": facet}


def _given(run: Told) -> list[InputDataset]:
    """The data and the container that the experiment names with their digests."""
    software = run.facts["software"]
    named = [(kind, software.get(kind)) for kind in ("dataset", "container", "code")]
    return [InputDataset(namespace=run.experiment, name=kind, facets=_version(value)) for kind, value in named if value]


def _loaded(run: Told, parent: dict[str, Any]) -> InputDataset:
    name = f"{run.name}/checkpoints/{parent['file']}"
    return InputDataset(namespace=run.experiment, name=name, facets=_version(parent["sha256"]))


def _output(run: Told, output: Output) -> OutputDataset:
    payload, car = output.payload, output.car
    facet = CheckpointOutputFacet(
        epoch=payload["epoch"],
        complete=bool(payload["complete"]),
        bytes=car.said.checkpoint.bytes if car else None,
        seconds=car.said.training.seconds if car else None,
        metrics=scrubbed(car.said.training.metrics) if car else {},
        gpuModels=list(gpus_of(car.said)) if car else [],
        producer=PRODUCER,
    )
    name = f"{run.name}/checkpoints/{payload['file']}"
    return OutputDataset(
        namespace=run.experiment,
        name=name,
        facets=_version(payload["sha256"]),
        outputFacets={"siteannex_checkpoint": facet},
    )
