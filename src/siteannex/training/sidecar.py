"""A checkpoint's side-car as the AP reads it; `docs/provenance-sidecar.schema.json` is made from this."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Seconds = Annotated[float, Field(ge=0)]


class _Read(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class File(_Read):
    """The checkpoint itself."""

    file: str
    sha256: Sha256
    bytes: int = Field(ge=0)
    complete: bool = Field(description="the epoch is finished in it; else it was saved on the way")
    step: int | None


class Parent(_Read):
    """What the training command really loaded before it made this checkpoint."""

    sha256: Sha256 | None
    file: str | None
    kind: Literal["epoch", "time", "initial", "none"]


class Run(_Read):
    """The training run."""

    id: str
    name: str
    index: int
    stage: Literal["train", "finetune"]
    seed: int
    parameters: dict[str, Any]
    parameters_sha256: Sha256 = Field(
        description="of the parameters as JSON: sorted keys, no spaces, numbers as written; the manifest has the same"
    )


class Job(_Read):
    """The HTCondor job; nulls outside HTCondor."""

    cluster: int | None
    proc: int | None
    schedd: str | None


class Attempt(_Read):
    """One start of one job of one DAG node."""

    node: str
    retry: int = Field(description="DAGMan's retry number, from 0")
    start: int = Field(description="starts of this job before this one")
    job: Job


class Gpu(_Read):
    """One GPU."""

    uuid: str
    model: str | None
    driver: str | None
    memory_mib: float | None


class Where(_Read):
    """The machine. `gpus` is what nvidia-smi said on the node, `advertised_gpus` what the slot's ad said."""

    host: str
    site: str | None
    targeted_site: str | None
    annex: str | None
    slot: str | None
    gpus: tuple[Gpu, ...]
    advertised_gpus: tuple[Gpu, ...]


class Software(_Read):
    """Versions. `command` is what the training command said of itself: library versions, batch size, precision."""

    runner: str
    python: str
    kernel: str
    arch: str
    code: str | None
    container: str | None
    dataset: str | None
    command: dict[str, Any]


class Training(_Read):
    """How the epoch went. `seconds` from its begin (or the command's start) to this checkpoint."""

    metrics: dict[str, Any]
    started: datetime
    seconds: Seconds
    transfer_in_s: Seconds | None
    unpack_s: Seconds | None
    start_up_s: Seconds | None = Field(description="from the command's start to its first line of metrics")
    gpu: dict[str, Any] = Field(description="by UUID: mean and maximum of utilization, memory, power and clock")


class SideCar(_Read):
    """`<checkpoint>.provenance.json`: where a checkpoint comes from."""

    schema_version: Literal[1]
    experiment: str
    run: Run
    epoch: int = Field(ge=0, description="from 0 in each stage")
    attempt: Attempt
    checkpoint: File
    parent: Parent
    where: Where
    software: Software
    training: Training
    written: datetime


def schema() -> dict[str, Any]:
    """Its JSON Schema (draft 2020-12)."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **SideCar.model_json_schema()}
