"""Where an attempt runs, and as which job: the ads that HTCondor leaves beside it."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Any, NamedTuple

from .gpus import number_or_none
from .task import Json

JOB_NUMBERS = {"cluster": "ClusterId", "proc": "ProcId"}


def read_ad(path: str | None) -> dict[str, str]:
    """The `Name = value` lines of a ClassAd file that HTCondor left for the job; strings without their quotes."""
    found = {}
    try:
        text = Path(path).read_text(errors="replace") if path else ""
    except OSError:
        return {}
    for line in text.splitlines():
        name, equals, value = line.partition(" = ")
        if equals:
            value = value.strip()
            quoted = len(value) > 1 and value[0] == '"' == value[-1]
            found[name.strip()] = value[1:-1].replace('\\"', '"') if quoted else value
    return found


def advertised_gpus(ad: dict[str, str]) -> list[Json]:
    """The GPUs as the slot's ad tells of them."""
    found = []
    for name, text in sorted(ad.items()):
        if name.startswith("GPUs_") and text.startswith("["):
            fields = dict(re.findall(r'(\w+) = "?([^";\]]*)"?', text))
            memory = number_or_none(fields.get("GlobalMemoryMb", ""))
            found.append(
                {
                    "uuid": fields.get("DeviceUuid", name[5:]),
                    "model": fields.get("DeviceName"),
                    "driver": fields.get("DriverVersion") or fields.get("MaxSupportedVersion"),
                    "memory_mib": memory,
                }
            )
    return found


def transfer_seconds(scratch: str | None) -> float | None:
    """Seconds from the first to the last file that came into the sandbox, by the node's own clock."""
    try:
        times = [entry.stat().st_ctime for entry in Path(scratch).rglob("*")] if scratch else []
    except OSError:
        return None
    return round(max(times) - min(times), 3) if times else None


class Place(NamedTuple):
    """Where this attempt runs, and as which job."""

    job: Json
    start: int
    host: str
    slot: str | None
    site: str | None
    annex: str | None
    gpus: list[Json]
    vacate_s: float | None
    """Seconds between HTCondor's SIGTERM and its SIGKILL."""

    @classmethod
    def found(cls, env: Any) -> Place:
        """From the ads HTCondor leaves beside the job; empty outside HTCondor."""
        job, machine = read_ad(env.get("_CONDOR_JOB_AD")), read_ad(env.get("_CONDOR_MACHINE_AD"))
        schedd = job.get("GlobalJobId", "").partition("#")[0] or None
        numbers = {name: int(job[key]) if job.get(key, "").isdigit() else None for name, key in JOB_NUMBERS.items()}
        start = int(job["NumShadowStarts"]) if job.get("NumShadowStarts", "").isdigit() else 0
        said = (machine.get("MachineMaxVacateTime", ""), job.get("JobMaxVacateTime", ""))
        limits = [seconds for seconds in map(number_or_none, said) if seconds is not None]
        return cls(
            job=dict(numbers, schedd=schedd),
            start=start,
            host=socket.gethostname(),
            slot=machine.get("Name") or env.get("_CONDOR_SLOT"),
            site=machine.get("GLIDEIN_ResourceName") or machine.get("SiteannexSite") or machine.get("AnnexName"),
            annex=machine.get("AnnexName"),
            gpus=advertised_gpus(machine),
            vacate_s=min(limits) if limits else None,
        )
