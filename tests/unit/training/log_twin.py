"""Event logs as HTCondor writes them, of made-up jobs in the shape of the real ones; and the real ones if there."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from types import MappingProxyType

from tests.unit.training.mldag_twin import real_training

REAL_LOGS = ("aws.job.log", "ospool.dag.nodes.log", "sites.dag.nodes.log", "sites.dag.dagman.log")
BEGIN = datetime(2026, 5, 6, 11, 0, 0)


def stamp(after_s: float, begin: datetime = BEGIN) -> str:
    """Seconds after the beginning, as a log has it."""
    return f"{begin + timedelta(seconds=after_s):%Y-%m-%d %H:%M:%S}"


def event(number: int, cluster: int, after_s: float, first: str, *lines: str, begin: datetime = BEGIN) -> str:
    """One event with its separator."""
    return "\n".join([f"{number:03} ({cluster}.000.000) {stamp(after_s, begin)} {first}", *lines, "...", ""])


def submitted(cluster: int, after_s: float, node: str, begin: datetime = BEGIN) -> str:
    """Event 000."""
    host = "<192.0.2.1:9618?addrs=192.0.2.1-9618&alias=ap.example.org&noUDP&sock=schedd_1_2>"
    return event(0, cluster, after_s, f"Job submitted from host: {host}", f"    DAG Node: {node}", begin=begin)


def transfer(cluster: int, after_s: float, what: str, begin: datetime = BEGIN) -> str:
    """Event 040: `Started transferring input files`."""
    return event(40, cluster, after_s, what, begin=begin)


def executing(
    cluster: int,
    after_s: float,
    *,
    site: str = "",
    gpus: int = 1,
    model: str = "NVIDIA A40",
    begin: datetime = BEGIN,
    host: str = "gpu01.example.org",
    told: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Event 001. `told`: attributes that the job asked for by `ulog_execute_attrs`."""
    names = [f"GPUs_GPU_{at:08x}" for at in range(gpus)]
    lines = [
        f"\tSlotName: slot1_1@{host}",
        *(f'\t{name} = "{value}"' for name, value in told.items()),
        f"\tAvailableGPUs = {{ {','.join(names)} }}",
        '\tCondorScratchDir = "/tmp/execute/dir_1"',
        "\tCpus = 4",
        *([f'\tGLIDEIN_ResourceName = "{site}"'] if site else []),
        f"\tGPUs = {gpus}",
        *(
            f'\t{name} = [ Id = "GPU-{name[-8:]}"; Capability = 8.6; DeviceName = "{model}"; '
            f'DeviceUuid = "{name[-8:]}-0000"; NvidiaDriver = "575.57.08"; DriverVersion = 12.9; '
            "GlobalMemoryMb = 45739 ]"
            for name in names
        ),
        "\tMemory = 65536",
    ]
    where = f"<192.0.2.7:9618?addrs=192.0.2.7-9618&alias={host}&noUDP>"
    return event(1, cluster, after_s, f"Job executing on host: {where}", *lines, begin=begin)


def usage(gpus: int = 1) -> list[str]:
    """The table of an ended run."""
    return [
        "\tPartitionable Resources :       Usage   Request Allocated Assigned",
        "\t   Cpus                 :        1.39         4         4 ",
        "\t   Disk (KB)            : 69174362    104857600 104857600 ",
        f'\t   GPUs                 :        0            {gpus}         {gpus} "GPU-00000000"',
        "\t   GpusMemory (MB)      :      333                        ",
        "\t   Memory (MB)          :    86213        80000     80000 ",
        "\t   TimeSlotBusy (s)     :      955                        ",
    ]


CPU = [
    "\t\tUsr 0 00:12:17, Sys 0 00:02:23  -  Run Remote Usage",
    "\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Run Local Usage",
]


def evicted(
    cluster: int, after_s: float, reason: str = "Startd was shutdown", code: int = 1013, begin: datetime = BEGIN
) -> str:
    """Event 004."""
    lines = [
        "\t(0) CPU times",
        *CPU,
        "\t0  -  Run Bytes Sent By Job",
        "\t1158408111  -  Run Bytes Received By Job",
        f"\tReason: {reason}",
        *usage(),
    ]
    return event(4, cluster, after_s, f"Job was evicted. Code {code} Subcode 0", *lines, begin=begin)


def terminated(cluster: int, after_s: float, value: int = 0, begin: datetime = BEGIN) -> str:
    """Event 005."""
    totals = [line.replace("Run", "Total") for line in CPU]
    lines = [
        f"\t(1) Normal termination (return value {value})",
        *CPU,
        *totals,
        "\t692773480  -  Run Bytes Sent By Job",
        "\t26493789161  -  Run Bytes Received By Job",
        "\t692773480  -  Total Bytes Sent By Job",
        "\t26493789161  -  Total Bytes Received By Job",
        *usage(),
    ]
    return event(5, cluster, after_s, "Job terminated.", *lines, begin=begin)


def held(cluster: int, after_s: float, *reason: str, code: int = 13, subcode: int = 256) -> str:
    """Event 012."""
    lines = [*(f"\t{line}" for line in reason), f"\tCode {code} Subcode {subcode}"]
    return event(12, cluster, after_s, "Job was held.", *lines)


def aborted(cluster: int, after_s: float) -> str:
    """Event 009."""
    return event(9, cluster, after_s, "Job was aborted.", "\tvia condor_rm (by user alice)")


def size(cluster: int, after_s: float) -> str:
    """Event 006."""
    lines = ["\t18  -  MemoryUsage of job (MB)", "\t17676  -  ResidentSetSize of job (KB)"]
    return event(6, cluster, after_s, "Image size of job updated: 17676", *lines)


def campaign_log() -> str:
    """Two runs of two epochs: one is evicted and held on its way, one fails once and is tried again by DAGMan."""
    return "".join(
        [
            submitted(11, 0, "run0-train_epoch0"),
            submitted(12, 1, "run1-train_epoch0"),
            transfer(11, 100, "Started transferring input files"),
            transfer(11, 160, "Finished transferring input files"),
            executing(11, 160, site="Lake-CE1", gpus=2),
            size(11, 200),
            executing(12, 300, model="NVIDIA L40S"),
            evicted(11, 760),
            terminated(12, 900, value=1),
            submitted(13, 910, "run1-train_epoch0"),
            held(11, 1000, "Transfer input files failure", "second line"),
            event(13, 11, 2000, "Job was released.", "\tvia condor_release (by user alice)"),
            executing(11, 2100, site="Lake-CE1"),
            executing(13, 2200, model="NVIDIA L40S"),
            terminated(11, 5700),
            submitted(14, 5710, "run0-train_epoch1"),
            terminated(13, 5800),
        ]
    )


def logs(folder: Path) -> dict[str, Path]:
    """The logs to try things on: the real ones where they are, always the twin (written into `folder`)."""
    twin = folder / "twin.nodes.log"
    twin.write_text(campaign_log())
    real = real_training()
    return {"twin": twin} | ({} if real is None else {name: real / name for name in REAL_LOGS})
