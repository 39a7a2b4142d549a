"""Values the unit tests start from: one site, one plan, and small builders that name only what a test is about."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

from siteannex.model import (
    BatchJob,
    BatchState,
    EpSoftware,
    Join,
    PilotReport,
    PilotShape,
    Plan,
    PoolFacts,
    Request,
    Slot,
)
from siteannex.site.schema import Gpus, Login, NodeKind, Partition, Site

NOW = datetime(2026, 11, 29, 12, 0, 0, tzinfo=UTC)
TODAY = date(2026, 11, 29)
A100 = Gpus(type="a100", model="NVIDIA A100-SXM4-40GB", per_node=4, memory=40536)


def ago(seconds: float) -> datetime:
    """A moment before NOW."""
    return NOW - timedelta(seconds=seconds)


def node(**changes: Any) -> NodeKind:
    """Two 16-core, 64 GB nodes with four A100 each."""
    return NodeKind(**{"name": "a100", "count": 2, "cores": 16, "memory": 65536, "gpus": A100, **changes})


def partition(*, nodes: tuple[NodeKind, ...] | None = None, **changes: Any) -> Partition:
    """A shared partition of two such nodes."""
    facts: dict[str, Any] = {
        "sharing": "shared",
        "nodes": nodes or (node(),),
        "max_walltime": 4 * 3600,
        "gpu_request": "--gres=gpu:{type}:{count}",
        "verified": date(2026, 11, 1),
        "source": "test",
    }
    return Partition(**{**facts, **changes})


def plain_partition(**changes: Any) -> Partition:
    """The same without GPUs."""
    return partition(**{"nodes": (node(name="cpu", gpus=None),), "gpu_request": None, **changes})


def site(**changes: Any) -> Site:
    """A site with a CPU partition, a shared GPU partition and an exclusive one."""
    facts: dict[str, Any] = {
        "name": "lab",
        "title": "test site",
        "login": Login(host="login.lab"),
        "account": "abc123",
        "partitions": {
            "debug": plain_partition(max_walltime=1800),
            "gpu-shared": partition(),
            "gpu": partition(sharing="exclusive"),
        },
        "verified": date(2026, 11, 1),
        "source": "test",
    }
    return Site(**{**facts, **changes})


def request(**changes: Any) -> Request:
    """`up lab --gpus 2 --name sweep1`."""
    return replace(Request(name="sweep1", site="lab", gpus=2), **changes)


def plan(**changes: Any) -> Plan:
    """The plan of that request: one pilot of two GPUs."""
    base = Plan(
        request=request(),
        annex_id="sweep1-00000001",
        partition="gpu-shared",
        account="abc123",
        qos=None,
        pilots=1,
        shape=PilotShape(gpus=2, gpu_type="a100", cpus=8, memory_mib=32768),
        walltime_s=3600,
        idle_s=600,
        ceiling_gpu_hours=2.0,
        ceiling_core_hours=8.0,
    )
    return replace(base, **changes)


def job(job_id: str = "71", state: BatchState = BatchState.RUNNING, **changes: Any) -> BatchJob:
    """A pilot's batch job as Slurm shows it."""
    base = BatchJob(job_id, "sweep1-00000001", state, state_text=str(state), node="c1", start=ago(20))
    return replace(base, **changes)


def report(stage: str, code: str = "ok", text: str = "", *, job_id: str = "71", seconds_ago: float = 5) -> PilotReport:
    """A line of a pilot's progress file."""
    return PilotReport(job_id, stage, code, text or f"{stage} {code}", ago(seconds_ago), "c1")


def slot(job_id: str = "71", **changes: Any) -> Slot:
    """The partitionable slot of a right EP."""
    base = Slot(
        name=f"slot1@ep{job_id}@c1",
        slot_type="Partitionable",
        annex_name="sweep1",
        annex_id="sweep1-00000001",
        batch_job_id=job_id,
        site="lab",
        machine="c1",
        owner="alice@ap.lab",
        state="Unclaimed",
        activity="Idle",
        cpus=8,
        memory_mib=32768,
        gpus=2,
        gpu_model="NVIDIA A100-SXM4-40GB",
        gpu_memory_mib=40536,
        total_cpus=8,
        total_memory_mib=32768,
        total_gpus=2,
        last_heard=NOW,
    )
    return replace(base, **changes)


POOL_FACTS = PoolFacts(
    identity="alice@ap.lab",
    trust_domain="ap.lab",
    collector="ap.lab:9618",
    schedd="ap.lab",
    cm_version="25.14.1",
    join=Join.POOL,
)


def software(path: str = "/nonexistent/ep.tar.gz") -> EpSoftware:
    """A packed EP of the central manager's own version."""
    return EpSoftware(path, "ab" * 32, 21, "25.14.1", "x86_64")
