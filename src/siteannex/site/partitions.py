"""Partitions and the nodes behind them: what a job may ask, how it asks, and what it is charged."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field, model_validator

from siteannex.site.fields import Count, DurationS, Facts, MemoryMib, Sourced
from siteannex.site.gpus import GpuModel, find_model

REPORTED_SHARE = 0.92
"""A driver reports up to 8 % less than the memory a card is sold with (24 GB: 22888 MiB at AWS)."""
REQUESTABLE_SHARE = 0.9
"""Slurm gives out up to 10 % less than a node's memory (Delta: 5 to 10 %)."""


class Gpus(Facts):
    """The GPUs of one kind of node."""

    type: str
    """The batch system's word, `a100` or `v100-32`; where its GPUs have none, the word users say."""
    model: str
    """A name of the catalogue (`A100`), or the driver's whole name where it was seen (`NVIDIA A100-SXM4-40GB`)."""
    per_node: Count
    memory: MemoryMib | None = None
    """Memory of one GPU as the driver reports it; null until it was seen."""
    memory_nominal: MemoryMib | None = None
    """Memory of one GPU as the site writes it (`80GB`)."""
    capability: float | None = None
    """CUDA compute capability, only where the catalogue does not know the model."""
    bf16: bool | None = None

    @property
    def known(self) -> GpuModel | None:
        """The catalogue's entry."""
        return find_model(self.model)

    @property
    def compute_capability(self) -> float | None:
        """As HTCondor advertises it, None when nobody knows."""
        return self.capability or (self.known.capability if self.known else None)

    @property
    def has_bf16(self) -> bool | None:
        """Whether bfloat16 arithmetic is native, None when nobody knows."""
        return self.bf16 if self.bf16 is not None else (self.known.bf16 if self.known else None)

    @property
    def memory_floor(self) -> int | None:
        """MiB that one GPU surely reports: what was seen, else 8 % under what the site writes."""
        if self.memory is not None:
            return self.memory
        return int(self.memory_nominal * REPORTED_SHARE) if self.memory_nominal else None

    @model_validator(mode="after")
    def _memory_fits_its_name(self) -> Gpus:
        if self.memory and self.memory_nominal and self.memory > self.memory_nominal * 1.03:
            raise ValueError("memory (as reported) is more than memory_nominal")
        return self


class NodeKind(Facts):
    """One kind of node. A partition may have several."""

    name: str = ""
    """Its key under `nodes:`; filled in."""
    count: Count | None = None
    cores: Count | None
    """Cores a job can ask of one node."""
    memory: MemoryMib | None
    """Memory a job can ask of one node; null when only the size of the machine is known."""
    memory_nominal: MemoryMib | None = None
    """The size of the machine."""
    gpus: Gpus | None = None
    constraint: str | None = None
    """Slurm feature expression that selects this kind where a partition mixes kinds: `gpu&hbm80g`."""
    cpus_per_gpu: Count | None = None
    """The cores that go with one GPU by the site's own rule."""
    memory_per_gpu: MemoryMib | None = None
    charge_factor: Annotated[float, Field(ge=0)] | None = None
    """Instead of the partition's factor."""
    local_scratch: MemoryMib | None = None
    """Size of the node's own disk."""

    @property
    def memory_usable(self) -> int | None:
        """MiB that a job can surely ask: what is known, else 10 % under the machine's size."""
        if self.memory is not None:
            return self.memory
        return int(self.memory_nominal * REQUESTABLE_SHARE) if self.memory_nominal else None

    @model_validator(mode="after")
    def _shares_fit_the_node(self) -> NodeKind:
        if self.memory and self.memory_nominal and self.memory > self.memory_nominal:
            raise ValueError("memory (requestable) is more than memory_nominal")
        if self.gpus is None:
            if self.cpus_per_gpu or self.memory_per_gpu:
                raise ValueError("cpus_per_gpu and memory_per_gpu need gpus")
            return self
        if self.cpus_per_gpu and self.cores and self.cpus_per_gpu * self.gpus.per_node > self.cores:
            raise ValueError(f"cpus_per_gpu x {self.gpus.per_node} GPUs is more than cores")
        whole = self.memory or self.memory_nominal
        if self.memory_per_gpu and whole and self.memory_per_gpu * self.gpus.per_node > whole:
            raise ValueError(f"memory_per_gpu x {self.gpus.per_node} GPUs is more than memory")
        return self


class Caps(Facts):
    """Limits beside the walltime. Null: no limit known."""

    min_nodes_per_job: Count | None = None
    nodes_per_job: Count | None = None
    nodes_per_user: Count | None = None
    """In use at one time, as the next ones."""
    gpus_per_job: Count | None = None
    gpus_per_user: Count | None = None
    gpus_per_account: Count | None = None
    cores_per_job: Count | None = None
    cores_per_user: Count | None = None
    memory_per_job: MemoryMib | None = None
    running_per_user: Count | None = None
    submitted_per_user: Count | None = None
    """Running and waiting together."""

    @model_validator(mode="after")
    def _in_order(self) -> Caps:
        rising = (
            ("min_nodes_per_job", "nodes_per_job", "nodes_per_user"),
            ("gpus_per_job", "gpus_per_user", "gpus_per_account"),
            ("cores_per_job", "cores_per_user"),
            ("running_per_user", "submitted_per_user"),
        )
        for names in rising:
            known = [(name, getattr(self, name)) for name in names if getattr(self, name) is not None]
            for (less, low), (more, high) in pairwise(known):
                if low > high:
                    raise ValueError(f"{less} ({low}) is more than {more} ({high})")
        return self


class Preemption(Facts):
    """What happens when another job takes the nodes. Null: not known."""

    exempt: DurationS | None = None
    """A job is safe this long after its start."""
    grace: DurationS | None = None
    """From the signal to the end."""
    requeue: bool | None = None
    """Whether Slurm queues the job again by itself."""


class Bundle(Facts):
    """What one charged GPU brings; a job that takes a larger share of cores or memory is charged for that."""

    cores: Count | None = None
    memory: MemoryMib | None = None


class Charge(Facts):
    """How use becomes a number on the account."""

    unit: str
    """The site's own word: SU, node-hour."""
    per: Literal["gpu_hour", "core_hour", "node_hour"]
    factor: Annotated[float, Field(ge=0)] | None = 1.0
    """Units for each; null: not known."""
    bundle: Bundle | None = None
    minimum: DurationS | None = None
    """A shorter job is charged as this long."""
    credits: Annotated[float, Field(gt=0)] | None = None
    """ACCESS credits that buy one unit."""


class Partition(Sourced):
    """One partition, or one QOS where the site asks for those instead."""

    sharing: Literal["shared", "exclusive"]
    nodes: Annotated[tuple[NodeKind, ...], Field(min_length=1)]
    """In the file: names of kinds under the site's `nodes:`."""
    max_walltime: DurationS | None
    default_walltime: DurationS | None = None
    caps: Caps = Caps()
    preemption: Preemption | None = None
    """Null: jobs run to their end."""
    request_by: Literal["partition", "qos"] = "partition"
    """qos: the site has one queue and `--qos` chooses; no `--partition` is written."""
    qos: str | None = None
    gpu_request: str | None = None
    """sbatch option with `{count}` and, where needed, `{type}`; null: the partition implies its GPUs."""
    memory_request: str | None = "--mem={mib}M"
    """sbatch option with `{mib}`, always written; null where a partition refuses to be asked for memory (TACC)."""
    options: tuple[str, ...] = ()
    """More sbatch options, whole: `--constraint=scratch`."""
    charge: Charge | None = None
    allocation: str | None = None
    """The kind of allocation it needs where the site has several, as users see it: `xxxx-delta-gpu`."""
    restricted: str | None = None
    """Who may use it, where not everybody may; never chosen unless named."""

    @property
    def max_gpus_per_node(self) -> int:
        """The most GPUs one node here has; 0 in a CPU partition."""
        return max(kind.gpus.per_node if kind.gpus else 0 for kind in self.nodes)

    @model_validator(mode="after")
    def _requests_can_be_written(self) -> Partition:
        if self.gpu_request is not None and "{count}" not in self.gpu_request:
            raise ValueError("gpu_request must contain {count}")
        if self.gpu_request is not None and not self.max_gpus_per_node:
            raise ValueError("gpu_request needs a kind of node with gpus")
        if self.memory_request is not None and "{mib}" not in self.memory_request:
            raise ValueError("memory_request must contain {mib}")
        if self.request_by == "qos" and self.qos is None:
            raise ValueError("request_by is qos: say which qos")
        if self.default_walltime and self.max_walltime and self.default_walltime > self.max_walltime:
            raise ValueError("default_walltime is more than max_walltime")
        most = self.max_gpus_per_node * (self.caps.nodes_per_job or 10**6)
        if most and self.caps.gpus_per_job and self.caps.gpus_per_job > most:
            raise ValueError(f"caps.gpus_per_job is more than the {most} GPUs of nodes_per_job nodes")
        return self
