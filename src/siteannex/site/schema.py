"""The shape of a site file. Unknown is null, never a guess; every partition says when and where it was read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from siteannex import model
from siteannex.site.fields import DurationS, Facts, MemoryMib, Sourced
from siteannex.site.login import AuthStep, Login, PromptRule, SessionPolicy
from siteannex.site.partitions import Bundle, Caps, Charge, Gpus, NodeKind, Partition, Preemption

__all__ = [
    "AuthStep",
    "Bundle",
    "Caps",
    "Charge",
    "Container",
    "Deadlines",
    "Defaults",
    "Directories",
    "EpTweaks",
    "Gpus",
    "Keeper",
    "Login",
    "NamedSite",
    "Network",
    "NodeKind",
    "Partition",
    "Preemption",
    "PromptRule",
    "Scheduler",
    "SessionPolicy",
    "Site",
]


class NamedSite(Sourced):
    """What every kind of site says."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,31}$")]
    title: str
    notes: tuple[str, ...] = ()
    """Quirks that no key can say."""


class Scheduler(Facts):
    """The batch system and its dialect."""

    kind: str = "slurm"
    version: str | None = None
    """As last seen."""
    account_required: bool | None = None
    list_accounts: str | None = None
    """What a user types at the login node to see their accounts."""


class Directories(Facts):
    """Where siteannex may write, and the site's own places. Shell variables are expanded at the site."""

    home: Annotated[str, Field(pattern=r"^[/$]")] = "$HOME/.siteannex"
    """Shared between login and compute nodes: EP tarball, bundle, progress, log archives."""
    scratch: tuple[str, ...] = ("$SLURM_TMPDIR", "$TMPDIR", "/tmp")  # noqa: S108  (a site's convention, not ours)
    """Node-local candidates for the EP and job sandboxes, the first usable one is taken."""
    shared_scratch: tuple[str, ...] = ()
    """The parallel file system's places for a user."""
    home_quota: str | None = None
    purge: str | None = None
    """When files vanish from scratch by themselves."""


class EpTweaks(Facts):
    """What this site needs in the EP's configuration and environment."""

    config: tuple[str, ...] = ()
    """Lines of HTCondor configuration, appended last."""
    environment: tuple[str, ...] = ()
    """Lines of shell run before the EP starts: `module load gcc`."""
    network_interface: str | None = None
    """The interface or address pattern that EPs advertise: `ib0`, `172.18.*`."""


class Container(Facts):
    """How jobs run containers on the compute nodes."""

    runtime: Literal["apptainer", "singularity", "podman", "shifter"]
    load: str | None = None
    """The line of shell that makes it available; null: it is on PATH."""


class Network(Facts):
    """What compute nodes may reach. Null: not known; the pilot probes."""

    https: bool | None = None
    """Port 443 outwards."""
    htcondor: bool | None = None
    """Port 9618 outwards."""
    proxy: str | None = None


class Defaults(Facts):
    """What `up` takes here when the user says nothing."""

    lifetime: DurationS | None = None
    idle: DurationS | None = None
    budget: Annotated[float, Field(gt=0)] | None = None
    """The most that siteannex may reserve here, in the charge's unit."""


_USUAL = model.Deadlines()


class Keeper(Facts):
    """Whether a keeper may live in this site's batch system and bring pilots back within a lease."""

    kind: Literal["batch", "none"] = "none"
    """`batch`: a one-core job that resubmits itself. `none`: the site forbids it, or nobody has asked."""
    partition: str | None = None
    interval: DurationS = 15 * 60
    """From one wake to the next."""
    walltime: DurationS = 5 * 60
    """Of one wake's job; it usually takes seconds."""
    memory: MemoryMib = 1024
    options: tuple[str, ...] = ()
    """More sbatch options, whole."""
    max_lease: DurationS | None = None


class Deadlines(Facts):
    """How long each stage may be silent at this site before that is a failure: `join: 5m` at a slow one."""

    queue: DurationS = _USUAL.queue_s
    submit: DurationS = _USUAL.submit_s
    ep_start: DurationS = _USUAL.ep_start_s
    step: DurationS = _USUAL.step_s
    join: DurationS = _USUAL.join_s
    unheard: DurationS = _USUAL.unheard_s
    lost: DurationS = _USUAL.lost_s
    silent: DurationS = _USUAL.silent_s

    def seconds(self) -> model.Deadlines:
        """As the judge takes them; what each means is told there."""
        return model.Deadlines(**{f"{name}_s": value for name, value in self})


class Site(NamedSite):
    """A cluster with a batch system, where pilots bring up EPs."""

    kind: Literal["slurm"] = "slurm"
    scheduler: Scheduler = Scheduler()
    arch: Literal["x86_64", "aarch64"] = "x86_64"
    os: str | None = None
    login: Login
    session: SessionPolicy = SessionPolicy()
    account: str | None = None
    """Default account; most users set it in their own copy."""
    nodes: Mapping[str, NodeKind] = {}
    """The kinds of node, by a name of your choice; partitions refer to them."""
    partitions: Annotated[Mapping[str, Partition], Field(min_length=1)]
    default_partition: str | None = None
    directories: Directories = Directories()
    container: Container | None = None
    network: Network = Network()
    ep: EpTweaks = EpTweaks()
    defaults: Defaults = Defaults()
    deadlines: Deadlines = Deadlines()
    keeper: Keeper = Keeper()

    @property
    def environment(self) -> tuple[str, ...]:
        """Lines of shell run before the EP starts: the container runtime's, then the site's own."""
        load = self.container.load if self.container else None
        return (*([load] if load else []), *self.ep.environment)

    @model_validator(mode="before")
    @classmethod
    def _nodes_by_name(cls, data: Any) -> Any:
        """Put each named kind of node in the place of its name."""
        if not isinstance(data, dict) or not isinstance(data.get("nodes"), dict):
            return data
        kinds = {
            name: {**kind, "name": name} if isinstance(kind, dict) else kind for name, kind in data["nodes"].items()
        }
        partitions = data.get("partitions")
        if isinstance(partitions, dict):
            partitions = {name: _with_kinds(facts, kinds) for name, facts in partitions.items()}
        return {**data, "nodes": kinds, "partitions": partitions}

    @model_validator(mode="after")
    def _default_partition_is_one(self) -> Site:
        if self.default_partition is not None and self.default_partition not in self.partitions:
            raise ValueError(f"default_partition {self.default_partition!r} is none of the partitions")
        return self

    @model_validator(mode="after")
    def _keeper_has_a_partition(self) -> Site:
        if self.keeper.kind == "batch" and self.keeper.partition not in self.partitions:
            raise ValueError(f"keeper.partition {self.keeper.partition!r} is none of the partitions")
        return self


def _with_kinds(facts: Any, kinds: Mapping[str, Any]) -> Any:
    if not isinstance(facts, dict) or not isinstance(facts.get("nodes"), list | tuple):
        return facts
    named = [kinds.get(each, each) if isinstance(each, str) else each for each in facts["nodes"]]
    return {**facts, "nodes": named}
