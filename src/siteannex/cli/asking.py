"""What a user asks of a site: the options that `up` and `plan` share, and the request they make."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from siteannex.model import Lease, Request
    from siteannex.site.other_kinds import AwsSite
    from siteannex.site.schema import Site

MIN_LIFETIME_S, MIN_MEMORY_MIB = 120, 256
USUAL_LIFETIME, USUAL_IDLE = "1h", "10m"

Gpus = Annotated[int, typer.Option(min=0, help="GPUs of the whole annex.")]
GpusPerPilot = Annotated[int | None, typer.Option(min=1, help="GPUs of each pilot; small ones start sooner.")]
GpuType = Annotated[str | None, typer.Option(help="GPU model or the site's word for it: a100, v100-32.")]
GpuMemory = Annotated[str | None, typer.Option(help="Least memory of one GPU as sold, e.g. 60GB.")]
GpuCapability = Annotated[float | None, typer.Option(min=1.0, help="Least CUDA compute capability, e.g. 8.0.")]
Bf16 = Annotated[bool, typer.Option("--bf16", help="Only GPUs with native bfloat16.")]
Nodes = Annotated[int | None, typer.Option(min=1, help="Number of pilots, each on a node.")]
Cpus = Annotated[int | None, typer.Option(min=1, help="CPUs of each pilot.")]
Mem = Annotated[str | None, typer.Option(help="Memory of each pilot, e.g. 16GB.")]
PartitionName = Annotated[
    str | None, typer.Option("--partition", help="Partition (AWS: instance type); default: the cheapest that fits.")
]
Preemptible = Annotated[
    bool, typer.Option("--preemptible", help="Partitions that preempt jobs, and spot instances, may be chosen.")
]
Account = Annotated[str | None, typer.Option(help="Allocation to charge.")]
Lifetime = Annotated[
    str | None, typer.Option(help=f"Walltime of the pilots, e.g. 4h. Default: the site's, else {USUAL_LIFETIME}.")
]
Idle = Annotated[
    str | None, typer.Option(help=f"End after this long without a job. Default: the site's, else {USUAL_IDLE}.")
]

LeaseLength = Annotated[
    str | None,
    typer.Option("--lease", help="Leave a keeper at the site that brings pilots back without a login, so long: 14d."),
]
MaxGpuHours = Annotated[float | None, typer.Option(min=0, help="With --lease: the most its pilots may use in all.")]
MaxPilots = Annotated[int | None, typer.Option(min=1, help="With --lease: the most at once; 1 if not said.")]


@dataclass(frozen=True, slots=True)
class Asked:
    """The words of the command line, for any number of sites."""

    gpus: int = 0
    gpus_per_pilot: int | None = None
    gpu_type: str | None = None
    gpu_memory: str | None = None
    gpu_capability: float | None = None
    bf16: bool = False
    nodes: int | None = None
    cpus: int | None = None
    mem: str | None = None
    partition: str | None = None
    preemptible: bool = False
    account: str | None = None
    lifetime: str | None = None
    idle: str | None = None
    join: str = "auto"
    lease: str | None = None
    max_gpu_hours: float | None = None
    max_pilots: int | None = None

    def request(self, name: str, site: Site | AwsSite) -> Request:
        """The request to one site, whose defaults hold where nothing was said. BadParameter: words that make none."""
        from siteannex.model import Join, Request
        from siteannex.units import parse_duration_s

        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]{0,62}", name):
            raise typer.BadParameter("a name is a letter, then letters, digits, '_', '.' or '-'", param_hint="--name")
        if self.join not in set(Join):
            raise typer.BadParameter("auto, pool or direct", param_hint="--join")
        self._gpus_make_sense()
        try:
            lifetime_s = parse_duration_s(self.lifetime) if self.lifetime else site.defaults.lifetime
            idle_s = parse_duration_s(self.idle) if self.idle else site.defaults.idle
        except ValueError as problem:
            raise typer.BadParameter(str(problem)) from problem
        request = Request(
            name=name,
            site=site.name,
            gpus=self.gpus,
            gpus_per_pilot=self.gpus_per_pilot,
            gpu_type=self.gpu_type,
            gpu_memory_mib=_memory(self.gpu_memory, "--gpu-memory"),
            gpu_capability=self.gpu_capability,
            bf16=self.bf16,
            nodes=self.nodes,
            cpus=self.cpus,
            memory_mib=_memory(self.mem, "--mem"),
            partition=self.partition,
            preemptible=self.preemptible,
            account=self.account,
            lifetime_s=lifetime_s or parse_duration_s(USUAL_LIFETIME),
            idle_s=idle_s or parse_duration_s(USUAL_IDLE),
            join=Join(self.join),
            lease=self._lease(),
        )
        if request.lifetime_s < MIN_LIFETIME_S:
            raise typer.BadParameter("an EP needs two minutes at least", param_hint="--lifetime")
        if request.memory_mib is not None and request.memory_mib < MIN_MEMORY_MIB:
            raise typer.BadParameter("an EP needs 256MB at least", param_hint="--mem")
        return request

    def _lease(self) -> Lease | None:
        from siteannex.model import Lease
        from siteannex.units import parse_duration_s

        if self.lease is None:
            if self.max_gpu_hours is not None or self.max_pilots is not None:
                raise typer.BadParameter("it bounds a lease; --lease 14d says how long", param_hint="--max-gpu-hours")
            return None
        if self.max_gpu_hours is None:
            raise typer.BadParameter("a lease needs a bound: --max-gpu-hours 200", param_hint="--lease")
        try:
            lease_s = parse_duration_s(self.lease)
        except ValueError as problem:
            raise typer.BadParameter(str(problem), param_hint="--lease") from problem
        return Lease(lease_s, self.max_gpu_hours, self.max_pilots or 1)

    def _gpus_make_sense(self) -> None:
        wishes = {
            "--gpus-per-pilot": self.gpus_per_pilot,
            "--gpu-type": self.gpu_type,
            "--gpu-memory": self.gpu_memory,
            "--gpu-capability": self.gpu_capability,
            "--bf16": self.bf16 or None,
        }
        said = [option for option, value in wishes.items() if value is not None]
        if said and not self.gpus:
            raise typer.BadParameter(f"{said[0]} says which GPUs; --gpus says how many", param_hint="--gpus")
        if self.gpus_per_pilot is not None and self.gpus % self.gpus_per_pilot:
            raise typer.BadParameter(
                f"{self.gpus} GPUs are no multiple of {self.gpus_per_pilot}", param_hint="--gpus-per-pilot"
            )
        if self.gpus_per_pilot is not None and self.nodes not in (None, self.gpus // self.gpus_per_pilot):
            raise typer.BadParameter("--nodes and --gpus-per-pilot contradict each other", param_hint="--nodes")


def _memory(text: str | None, option: str) -> int | None:
    from siteannex.units import parse_memory_mib

    try:
        return parse_memory_mib(text) if text else None
    except ValueError as problem:
        raise typer.BadParameter(str(problem), param_hint=option) from problem
