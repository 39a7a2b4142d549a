"""The shape of a site file. Unknown is null, never a guess; every partition says when and where it was read."""

from __future__ import annotations

import re
from datetime import date
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from siteannex import model
from siteannex.units import parse_duration_s, parse_memory_mib


def _memory(value: object) -> object:
    return parse_memory_mib(value) if isinstance(value, str) else value


def _duration(value: object) -> object:
    return parse_duration_s(value) if isinstance(value, str) else value


MemoryMib = Annotated[int, BeforeValidator(_memory), Field(gt=0)]
"""Written as `256GB`; MiB inside."""
DurationS = Annotated[int, BeforeValidator(_duration), Field(gt=0)]
"""Written as `4h`; seconds inside."""


class _Facts(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PromptRule(_Facts):
    """How to tell what a login question asks for, by the end of its text."""

    match: str
    """Regular expression, searched without regard to case."""
    kind: Literal["password", "otp", "other"]

    @model_validator(mode="after")
    def _compiles(self) -> PromptRule:
        try:
            re.compile(self.match)
        except re.error as problem:
            raise ValueError(f"match is not a regular expression: {problem}") from problem
        return self


class Login(_Facts):
    """Where and how to log in. `~/.ssh/config` of the user may refine host, user, port, keys and jumps."""

    host: str
    port: Annotated[int, Field(gt=0, lt=65536)] = 22
    keys: Literal["required", "allowed", "forbidden"] = "allowed"
    prompts: tuple[PromptRule, ...] = ()
    """In order; the first that matches names the kind. Without a match: `password:` at the end is a password."""
    transport: Literal["paramiko", "openssh"] = "paramiko"


class SessionPolicy(_Facts):
    """Whether an authenticated connection may be kept, and how long without use."""

    persist: bool = True
    idle: DurationS = 8 * 3600


class Gpus(_Facts):
    """The GPUs of one partition's nodes."""

    type: str
    """The batch system's word: `a100`, `v100-32`."""
    model: str
    """The name NVIDIA's driver reports: `NVIDIA A100-SXM4-40GB`."""
    per_node: Annotated[int, Field(gt=0)]
    memory: MemoryMib | None = None
    """Memory of one GPU as the driver reports it; never derived from the name."""
    max_per_job: Annotated[int, Field(gt=0)] | None = None


class Partition(_Facts):
    """One partition, as far as a planner needs it."""

    sharing: Literal["shared", "exclusive"]
    cores_per_node: Annotated[int, Field(gt=0)]
    memory_per_node: MemoryMib
    max_walltime: DurationS
    max_nodes: Annotated[int, Field(gt=0)] | None = None
    gpus: Gpus | None = None
    gpu_request: str | None = None
    """sbatch option with `{type}` and `{count}`, e.g. `--gres=gpu:{type}:{count}`; null: the partition implies them."""
    memory_request: str | None = "--mem={mib}M"
    """sbatch option with `{mib}`; null where a partition refuses to be asked for memory (TACC)."""
    qos: str | None = None
    options: tuple[str, ...] = ()
    """More sbatch options, whole: `--constraint=scratch`."""
    verified: date
    source: str

    @model_validator(mode="after")
    def _request_names_count(self) -> Partition:
        if self.gpu_request is not None and "{count}" not in self.gpu_request:
            raise ValueError("gpu_request must contain {count}")
        if self.memory_request is not None and "{mib}" not in self.memory_request:
            raise ValueError("memory_request must contain {mib}")
        return self


class Directories(_Facts):
    """Where siteannex may write. Shell variables are expanded at the site."""

    home: Annotated[str, Field(pattern=r"^[/$]")] = "$HOME/.siteannex"
    """Shared between login and compute nodes: EP tarball, bundle, progress, log archives."""
    scratch: tuple[str, ...] = ("$SLURM_TMPDIR", "$TMPDIR", "/tmp")  # noqa: S108  (a site's convention, not ours)
    """Node-local candidates for the EP and job sandboxes, the first usable one is taken."""


class EpTweaks(_Facts):
    """What this site needs in the EP's configuration and environment."""

    config: tuple[str, ...] = ()
    """Lines of HTCondor configuration, appended last."""
    environment: tuple[str, ...] = ()
    """Lines of shell run before the EP starts: `module load singularitypro`."""
    network_interface: str | None = None


_USUAL = model.Deadlines()


class Deadlines(_Facts):
    """How long each stage may be silent at this site before that is a failure: `join: 5m` at a slow one."""

    queue: DurationS = _USUAL.queue_s
    ep_start: DurationS = _USUAL.ep_start_s
    step: DurationS = _USUAL.step_s
    join: DurationS = _USUAL.join_s
    unheard: DurationS = _USUAL.unheard_s
    lost: DurationS = _USUAL.lost_s
    silent: DurationS = _USUAL.silent_s

    def seconds(self) -> model.Deadlines:
        """As the judge takes them; what each means is told there."""
        return model.Deadlines(**{f"{name}_s": value for name, value in self})


class Site(_Facts):
    """One site."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,31}$")]
    title: str
    scheduler: str = "slurm"
    arch: Literal["x86_64", "aarch64"] = "x86_64"
    login: Login
    session: SessionPolicy = SessionPolicy()
    account: str | None = None
    """Default account; most users set it in their own copy."""
    partitions: Annotated[dict[str, Partition], Field(min_length=1)]
    directories: Directories = Directories()
    ep: EpTweaks = EpTweaks()
    deadlines: Deadlines = Deadlines()
    verified: date
    source: str
