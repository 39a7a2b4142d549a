"""Sites that are no batch system: clouds, whose instances become EPs, and targets, where jobs go without an annex."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from siteannex.site.fields import Confidence, Count, DurationS, Facts, MemoryMib, Sourced
from siteannex.site.schema import Defaults, NamedSite


class InstanceGpus(Facts):
    """The GPUs of one instance type."""

    model: str
    """A name of the catalogue."""
    count: Count
    memory: MemoryMib | None = None
    """Memory of one GPU as reported; null until it was seen."""
    memory_nominal: MemoryMib | None = None
    share: Annotated[float, Field(gt=0, le=1)] | None = None
    """Less than 1 for a slice of one GPU (vGPU)."""


class Instance(Facts):
    """One instance type (AWS) or flavor (OpenStack)."""

    vcpus: Count
    memory: MemoryMib
    gpus: InstanceGpus | None = None
    nvme_gb: Count | None = None
    """Local disk in GB as the provider counts."""
    price: Annotated[float, Field(ge=0)] | None = None
    """For an hour, in the site's price unit; null: not known."""
    arch: Literal["x86_64", "aarch64"] = "x86_64"
    on_request: bool = False
    """Not open to every allocation."""
    confidence: Confidence | None = None
    doubts: tuple[str, ...] = ()


class Prices(Sourced):
    """What the instance table's prices are, and from when."""

    unit: str
    """USD or SU."""
    region: str | None = None


class Quota(Facts):
    """A provider's limit that covers some instance types; its number is the account's own."""

    name: str
    code: str
    market: Literal["on-demand", "spot"]
    families: Annotated[tuple[str, ...], Field(min_length=1)]
    """Beginnings of instance type names it covers: `g`, `p5`."""
    confidence: Confidence | None = None
    doubts: tuple[str, ...] = ()


class Image(Facts):
    """A machine image with GPU driver, found by name at launch."""

    arch: Literal["x86_64", "aarch64"]
    os: str
    parameter: str
    """SSM public parameter that holds the AMI id of a region."""
    user: str | None
    scratch: str | None = None
    """Where it mounts the instance's local disk."""
    families: tuple[str, ...] = ()
    """Instance families its driver supports."""


class AwsSite(NamedSite):
    """AWS EC2: instances become EPs."""

    kind: Literal["aws"]
    default_region: str
    prices: Prices
    instances: Annotated[Mapping[str, Instance], Field(min_length=1)]
    quotas: tuple[Quota, ...]
    images: Annotated[tuple[Image, ...], Field(min_length=1)]
    defaults: Defaults = Defaults()


class OpenStackSite(NamedSite):
    """An OpenStack cloud; siteannex has no provider for it yet, its facts are kept."""

    kind: Literal["openstack"]
    auth: str
    endpoints: Mapping[str, str | None]
    prices: Prices
    instances: Annotated[Mapping[str, Instance], Field(min_length=1)]
    users: Mapping[str, str] = {}
    """Login name by image family."""
    defaults: Defaults = Defaults()


class TargetSite(NamedSite):
    """A pool that jobs reach by what they ask for; there is nothing to bring up."""

    kind: Literal["target"]
    requirements: str | None
    """ClassAd expression a job adds to its requirements to run there; null: none is needed."""
    job_lines: tuple[str, ...] = ()
    """Submit lines a job needs there, whole: `+JobDurationCategory = "Medium"`."""
    gpu_job_lines: tuple[str, ...] = ()
    """More of them for a job with GPUs."""
    site_attribute: str | None
    """The machine attribute that names the place a job really ran at."""
    walltimes: Mapping[str, DurationS] = {}
    """How long a job may run, by the pool's own words for kinds of job."""
