"""A job queue and a collector written on paper; HTCondor's own bindings read and evaluate what stands there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from siteannex.pool.ads import IDLE, count_of, text_of
from siteannex.pool.condor import CondorPool
from siteannex.pool.job_queue import Demand, JobQueue
from siteannex.pool.matching import Ad, FullAd
from siteannex.pool.predicted import ApWords
from tests.unit.samples import NOW

IDLE_SINCE = int(NOW.timestamp()) - 7800

# As condor_submit and an AP with `use feature:HPC_ANNEX` of HTCondor 25.14.1 write them.
JOB = {
    "ClusterId": "4711",
    "ProcId": "0",
    "Owner": '"alice"',
    "User": '"alice@ap.lab"',
    "JobStatus": "1",
    "QDate": str(IDLE_SINCE),
    "EnteredCurrentStatus": str(IDLE_SINCE),
    "RequestCpus": "1",
    "RequestMemory": "128",
    "RequestDisk": "10240",
    "TargetAnnexName": '"sweep1"',
    "Requirements": (
        'ifThenElse(TARGET.AuthenticatedIdentity =?= undefined,true,"alice@ap.lab" == TARGET.AuthenticatedIdentity)'
        ' && (MY.TargetAnnexName == TARGET.AnnexName) && ((TARGET.Arch == "X86_64") && (TARGET.OpSys == "LINUX")'
        ' && (versionGE(split(TARGET.CondorVersion)[1],"25.12.0") || (TARGET.Disk >= RequestDisk))'
        " && (TARGET.Memory >= RequestMemory) && (TARGET.HasFileTransfer))"
    ),
}
GPU_JOB = {
    "RequestGPUs": "1",
    "GPUsMinMemory": "60000",
    "GPUsMinCapability": "7.5",
    "RequireGPUs": "Capability >= GPUsMinCapability && GlobalMemoryMb >= GPUsMinMemory",
    "Requirements": JOB["Requirements"].replace(
        "(TARGET.HasFileTransfer)",
        "(countMatches(MY.RequireGPUs,TARGET.AvailableGPUs) >= RequestGPUs) && (TARGET.HasFileTransfer)",
    ),
}
GPU = '[ Id = "GPU-{0}"; Capability = 8.0; DeviceName = "A100-SXM4-40GB"; GlobalMemoryMb = 40536 ]'
SLOT = {
    "Name": '"slot1@ep1@c1"',
    "SlotType": '"Partitionable"',
    "AnnexName": '"sweep1"',
    "SiteannexRequestId": '"sweep1-00000001"',
    "SiteannexSite": '"lab"',
    "SiteannexEndsAt": "1795966800",
    "AuthenticatedIdentity": '"alice@ap.lab"',
    "CondorVersion": '"$CondorVersion: 25.14.1 2026-10-16 $"',
    "Arch": '"X86_64"',
    "OpSys": '"LINUX"',
    "OpSysMajorVer": "13",
    "HasFileTransfer": "true",
    "Cpus": "8",
    "TotalSlotCpus": "8",
    "Memory": "32768",
    "TotalSlotMemory": "32768",
    "Disk": "12000000",
    "TotalSlotDisk": "12000000.0",
    "GPUs": "2",
    "TotalSlotGPUs": "2",
    "AvailableGPUs": "{ GPUs_GPU_a, GPUs_GPU_b }",
    "GPUs_GPU_a": GPU.format("a"),
    "GPUs_GPU_b": GPU.format("b"),
    "GPUs_Capability": "8.0",
    "GPUs_DeviceName": '"A100-SXM4-40GB"',
    "GPUs_GlobalMemoryMb": "40536",
    "Start": (
        '(time() < 99999999999 && false == false) && TARGET.User =?= "alice@ap.lab" '
        "&& (TARGET.TargetAnnexName == MY.AnnexName) =?= True"
    ),
    "WithinResourceLimits": (
        "MY.Cpus > 0 && TARGET.RequestCpus <= MY.Cpus && MY.Memory > 0 && TARGET.RequestMemory <= MY.Memory "
        "&& MY.Disk > 0 && TARGET.RequestDisk <= MY.Disk "
        "&& (TARGET.RequestGPUs =?= undefined || MY.GPUs >= TARGET.RequestGPUs)"
    ),
    "Requirements": "Start && WithinResourceLimits",
}


def ad(*parts: Mapping[str, str], **changes: str) -> str:
    """ClassAd text of attributes given as expressions; later ones win, "" leaves one out."""
    attributes: dict[str, str] = {}
    for part in (*parts, changes):
        attributes.update(part)
    return "[ " + "; ".join(f"{name} = {text}" for name, text in attributes.items() if text) + " ]"


class PaperQueue(JobQueue):
    """alice's queue at ap.lab."""

    def __init__(self, jobs: Sequence[str] = (), slots: Sequence[str] = (), past: Ad | None = None) -> None:
        super().__init__(CondorPool())
        self.jobs, self.slot_texts, self.gone = jobs, slots, past
        self.negotiator: bool | None = True

    def ap(self) -> ApWords:
        return ApWords("alice@ap.lab", "25.14.1")

    def owner(self) -> str:
        return "alice"

    def by_id(self, cluster: int, process: int | None) -> list[FullAd]:
        found = [job for job in self.read(self.jobs) if count_of(job.values, "ClusterId") == cluster]
        return [job for job in found if process in (None, count_of(job.values, "ProcId"))]

    def by_node(self, name: str) -> list[FullAd]:
        return [job for job in self.read(self.jobs) if text_of(job.values, "DAGNodeName") == name]

    def past(self, cluster: int, process: int | None) -> Ad | None:
        return self.gone

    def slots(self) -> list[FullAd]:
        return self.read(self.slot_texts)

    def waiting_for(self, annex_name: str) -> list[Demand]:
        jobs = [job for job in self.read(self.jobs) if text_of(job.values, "TargetAnnexName") == annex_name]
        return [Demand(job, 1) for job in jobs if count_of(job.values, "JobStatus") == IDLE]

    def waiting(self, *, whole: bool) -> list[Demand]:
        return [Demand(job, 1) for job in self.read(self.jobs) if count_of(job.values, "JobStatus") == IDLE]

    def ap_words(self) -> frozenset[str]:
        return frozenset({"wantsquid"})

    def negotiates(self) -> bool | None:
        return self.negotiator
