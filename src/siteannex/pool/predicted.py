"""The slot an annex will bring, as far as its plan and its site's facts tell: a slot ad before there is an EP. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from siteannex.model import Plan
from siteannex.pool.ads import quote
from siteannex.site.schema import Gpus, Site

_ARCHES = {"x86_64": "X86_64", "aarch64": "aarch64"}


@dataclass(frozen=True, slots=True)
class ApWords:
    """What the AP puts into the ads of this user's EPs."""

    identity: str
    """`alice@ap.lab`."""
    version: str
    """HTCondor's version at the AP: what an EP packed there has."""


def predicted_slot(plan: Plan, site: Site, ap: ApWords) -> str:
    """The partitionable slot of one pilot of `plan`, as ClassAd text.

    What cannot be known before the node is (disk, a GPU's driver, the operating system's release) is left out: a
    condition on it has no answer yet. START and the limits are those of tarball/ep.conf.j2 and of HTCondor's default.
    """
    shape = plan.shape
    gpus = [f"GPUs_GPU_{number}" for number in range(1, shape.gpus + 1)]
    attributes = {
        "MyType": quote("Machine"),
        "Name": quote(f"slot1@{plan.annex_id}"),
        "SlotType": quote("Partitionable"),
        "PartitionableSlot": "true",
        "AnnexName": quote(plan.request.name),
        "SiteannexRequestId": quote(plan.annex_id),
        "SiteannexSite": quote(site.name),
        "AuthenticatedIdentity": quote(ap.identity),
        "CondorVersion": quote(f"$CondorVersion: {ap.version} $"),
        "Arch": quote(_ARCHES[site.arch]),
        "OpSys": quote("LINUX"),
        "HasFileTransfer": "true",
        "Cpus": str(shape.cpus),
        "TotalSlotCpus": str(shape.cpus),
        "Memory": str(shape.memory_mib),
        "TotalSlotMemory": str(shape.memory_mib),
        "GPUs": str(shape.gpus),
        "TotalSlotGPUs": str(shape.gpus),
        "AvailableGPUs": f"{{ {', '.join(gpus)} }}",
        **dict.fromkeys(gpus, _gpu(plan, site)),
        **_shared_gpu_facts(plan, site),
        "Start": f"TARGET.User =?= {quote(ap.identity)} && (TARGET.TargetAnnexName == MY.AnnexName) =?= true",
        "WithinResourceLimits": (
            "TARGET.RequestCpus <= MY.Cpus && TARGET.RequestMemory <= MY.Memory "
            "&& (TARGET.RequestGPUs =?= undefined || MY.GPUs >= TARGET.RequestGPUs)"
        ),
        "Requirements": "Start && WithinResourceLimits",
    }
    return "[ " + "; ".join(f"{name} = {text}" for name, text in attributes.items()) + " ]"


def _gpu(plan: Plan, site: Site) -> str:
    facts = {"Id": quote("GPU"), **_gpu_facts(plan, site)}
    return "[ " + "; ".join(f"{name} = {text}" for name, text in facts.items()) + " ]"


def _gpu_facts(plan: Plan, site: Site) -> dict[str, str]:
    gpus = _gpus(plan, site)
    if gpus is None or not plan.shape.gpus:
        return {}
    capability, memory = gpus.compute_capability, gpus.memory or gpus.memory_nominal
    return {
        "DeviceName": quote(gpus.model),
        **({"GlobalMemoryMb": str(memory)} if memory is not None else {}),
        **({"Capability": str(capability)} if capability is not None else {}),
    }


def _gpus(plan: Plan, site: Site) -> Gpus | None:
    kinds = site.partitions[plan.partition].nodes if plan.partition in site.partitions else ()
    named = [kind for kind in kinds if kind.name == plan.node_kind] or kinds[:1]
    return named[0].gpus if named else None


def _shared_gpu_facts(plan: Plan, site: Site) -> dict[str, str]:
    return {f"GPUs_{name}": text for name, text in _gpu_facts(plan, site).items()}
