"""ClassAds to values and values to constraints, as pure text and mappings.

An ad is taken as `Mapping[str, object]`: strings, numbers, booleans, None (undefined or error), lists and nested
mappings. What a site's EP advertises is not ours to trust: a missing, undefined or wrongly typed attribute becomes
the empty value of its field, never an exception.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from siteannex.model import JobCounts, KeeperAd, MarkedAd, Slot

Ad = Mapping[str, object]

_VERSION = re.compile(r"(\d{1,6})\.(\d{1,6})\.(\d{1,6})")
_DYNAMIC_NAME = re.compile(r"slot\d+_\d+@")
_GPU_TAG = re.compile(r"gpus_gpu_\w+")
_LATEST_EPOCH_S = 253_402_300_799
"""The last second of the year 9999, beyond which datetime gives up."""

IDLE, RUNNING, HELD = 1, 2, 5
"""JobStatus (https://htcondor.readthedocs.io, job ClassAd attributes)."""


def slot_from_ad(ad: Ad) -> Slot:
    """Read a startd's slot ad, of HTCondor 23 or 25. Never raises: what cannot be read is left empty."""
    look = _Look(ad)
    model, memory_mib = gpu_kind(ad)
    cpus, memory, gpus = look.count("Cpus"), look.count("Memory"), look.count("GPUs")
    return Slot(
        name=look.text("Name"),
        slot_type=_slot_type(look),
        annex_name=look.text("AnnexName"),
        annex_id=look.text("SiteannexRequestId"),
        batch_job_id=look.text("EPSlurmJobId"),
        site=look.text("SiteannexSite"),
        machine=look.text("Machine"),
        owner=look.text("AuthenticatedIdentity"),
        state=look.text("State"),
        activity=look.text("Activity"),
        cpus=cpus,
        memory_mib=memory,
        gpus=gpus,
        gpu_model=model,
        gpu_memory_mib=memory_mib,
        total_cpus=look.count("TotalSlotCpus", "TotalCpus") or cpus,
        total_memory_mib=look.count("TotalSlotMemory", "TotalMemory") or memory,
        total_gpus=look.count("TotalSlotGPUs", "TotalGPUs") or gpus,
        job=look.text("JobId"),
        last_heard=look.moment("LastHeardFrom"),
        version=parse_version(look.text("CondorVersion")),
        ends_at=look.moment("SiteannexEndsAt"),
        draining=look.value("SiteannexDraining") is True,
        failed_code=look.text("SiteannexCode"),
        failed_text=look.text("SiteannexText"),
        failed_seen=look.text("SiteannexSeen").replace(" | ", "\n"),
    )


def marked_ad(ad: Ad) -> MarkedAd:
    """Whose an ad is. Never raises."""
    look = _Look(ad)
    return MarkedAd(
        name=look.text("Name"),
        annex_id=look.text("SiteannexRequestId"),
        origin=look.text("SiteannexOrigin"),
        job_id=look.text("EPSlurmJobId"),
        site=look.text("SiteannexSite"),
        last_heard=look.moment("LastHeardFrom"),
    )


def keeper_ad(ad: Ad) -> KeeperAd:
    """What a keeper told. Never raises."""
    look = _Look(ad)
    return KeeperAd(
        annex_id=look.text("SiteannexRequestId"),
        stage=look.text("SiteannexStage"),
        code=look.text("SiteannexCode"),
        text=look.text("SiteannexText"),
        used_gpu_s=look.count("SiteannexUsedGpuS"),
        reserved_gpu_s=look.count("SiteannexReservedGpuS"),
        cap_gpu_s=look.count("SiteannexCapGpuS"),
        pilots=look.count("SiteannexPilots"),
        waiting=look.count("SiteannexWaiting"),
        lease_left_s=look.count("SiteannexLeaseLeftS"),
        interval_s=look.count("SiteannexNextWakeS"),
        told_at=look.moment("LastHeardFrom"),
    )


def gpu_kind(ad: Ad) -> tuple[str, int]:
    """Model and memory (MiB) of a slot's GPUs, ("", 0) when the ad does not say.

    Properties that all GPUs share stand in the slot ad itself (`GPUs_DeviceName`, `GPUs_GlobalMemoryMb`; older:
    `CUDADeviceName`); each GPU also has an ad of its own (`GPUs_GPU_1a2b3c4d = [...]`), which `AvailableGPUs` lists
    while it is free. Of unlike GPUs the smallest memory is given: that is what every one of them offers.
    """
    look = _Look(ad)
    model = look.text("GPUs_DeviceName", "CUDADeviceName")
    memory = look.count("GPUs_GlobalMemoryMb", "GPUsGlobalMemoryMb", "CUDAGlobalMemoryMb")
    if model and memory:
        return model, memory
    devices = [_Look(device) for device in _gpu_ads(ad)]
    models = sorted({text for device in devices if (text := device.text("DeviceName"))})
    sizes = [size for device in devices if (size := device.count("GlobalMemoryMb"))]
    return model or " + ".join(models), memory or min(sizes, default=0)


def _gpu_ads(ad: Ad) -> list[Ad]:
    """The nested ads that describe single GPUs, wherever they stand."""
    found = [
        value
        for key, value in ad.items()
        if isinstance(key, str) and _GPU_TAG.fullmatch(key.lower()) and isinstance(value, Mapping)
    ]
    listed = _Look(ad).value("AvailableGPUs")
    if not found and isinstance(listed, list | tuple):
        found = [value for value in listed if isinstance(value, Mapping)]
    return found


def _slot_type(look: _Look) -> str:
    said = look.text("SlotType").capitalize()
    if said in ("Partitionable", "Dynamic", "Static"):
        return said
    if look.value("PartitionableSlot") is True:
        return "Partitionable"
    if look.value("DynamicSlot") is True or _DYNAMIC_NAME.match(look.text("Name")):
        return "Dynamic"
    return "Static"


class _Look:
    """Reads an ad by attribute name in any letter case, as ClassAds do, and by the type the reader needs."""

    def __init__(self, ad: Ad) -> None:
        self._values = {key.lower(): value for key, value in ad.items() if isinstance(key, str)}

    def value(self, name: str) -> object:
        return self._values.get(name.lower())

    def text(self, *names: str) -> str:
        """The first of the attributes that is a non-empty string or a whole number."""
        for name in names:
            value = self.value(name)
            if isinstance(value, str) and value:
                return value
            if isinstance(value, int) and not isinstance(value, bool):
                return str(value)
        return ""

    def count(self, *names: str) -> int:
        """The first of the attributes that is a number, as a whole number not below 0."""
        for name in names:
            value = self.value(name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            if math.isfinite(value):
                return max(0, int(value))
        return 0

    def moment(self, name: str) -> datetime | None:
        """A time given in seconds since 1970."""
        seconds = self.count(name)
        return datetime.fromtimestamp(seconds, UTC) if 0 < seconds <= _LATEST_EPOCH_S else None


def text_of(ad: Ad, *names: str) -> str:
    """The first of the named attributes that is a string or whole number, or ""."""
    return _Look(ad).text(*names)


def count_of(ad: Ad, *names: str) -> int:
    """The first of the named attributes that is a number, or 0."""
    return _Look(ad).count(*names)


def parse_version(text: str) -> str:
    """`25.14.1` out of `$CondorVersion: 25.14.1 2026-09-24 BuildID: ... $`; "" when there is none."""
    match = _VERSION.search(text)
    return match.group(0) if match else ""


def count_jobs(ads: Iterable[Ad], names: Iterable[str]) -> dict[str, JobCounts]:
    """Count job ads by the annex they name. Every asked name is a key; annex names compare as ClassAds compare
    strings, without letter case, because the AP matches jobs to annexes that way.
    """
    statuses: dict[str, list[int]] = {name.lower(): [] for name in names}
    for ad in ads:
        target = text_of(ad, "TargetAnnexName").lower()
        if target in statuses:
            statuses[target].append(count_of(ad, "JobStatus"))
    return {
        name: JobCounts(
            waiting=statuses[name.lower()].count(IDLE),
            running=statuses[name.lower()].count(RUNNING),
            held=statuses[name.lower()].count(HELD),
        )
        for name in names
    }


def quote(text: str) -> str:
    r"""A ClassAd string literal.

    HTCondor has two dialects of string literals which read a backslash differently: what is a harmless `\\"` to one
    leaves the string open to the other. So nothing is escaped here: a quote, a backslash, a control character or a
    lone surrogate is refused with ValueError. None of our identities, ids and names has one.
    """
    if any(char in '"\\' or ord(char) < 32 or ord(char) == 127 or 0xD800 <= ord(char) < 0xE000 for char in text):
        raise ValueError(f"{text!r} has a character that cannot stand in a ClassAd string")
    return f'"{text}"'


def slots_constraint(identity: str, annex_id: str | None) -> str:
    """Slots of siteannex that `identity` owns, of one annex or of all. ValueError for text that cannot be quoted."""
    return f"{marked_constraint(identity, annex_id)} && SiteannexKeeper =!= true"


def keepers_constraint(identity: str) -> str:
    """What the keepers of `identity`'s annexes have told."""
    return f"{marked_constraint(identity, None)} && SiteannexKeeper =?= true"


def marked_constraint(identity: str, annex_id: str | None) -> str:
    """Every ad of `identity`'s annexes, slots and others, of one annex or of all."""
    ours = f"AuthenticatedIdentity =?= {quote(identity)} && SiteannexRequestId isnt undefined"
    return ours if annex_id is None else f"{ours} && SiteannexRequestId =?= {quote(annex_id)}"


def jobs_constraint(owner: str, names: Iterable[str]) -> str:
    """Jobs of `owner` that wait, run or are held and name one of the annexes. Names nobody can have are left out."""
    literals = ", ".join(quoted for name in names if (quoted := _quoted_or_none(name)))
    wanted = f"member(TargetAnnexName, {{{literals}}})"
    return (
        f"Owner =?= {quote(owner)} && {wanted} "
        f"&& (JobStatus == {IDLE} || JobStatus == {RUNNING} || JobStatus == {HELD})"
    )


def waiting_constraint(owner: str) -> str:
    """Idle jobs of `owner` that name any annex, or (of an experiment) any of several: then by an expression that is
    undefined as long as they look at no slot."""
    named = '(TargetAnnexName isnt undefined || SiteannexTargetSite =?= "any")'
    return f"Owner =?= {quote(owner)} && {named} && JobStatus == {IDLE}"


def _quoted_or_none(text: str) -> str | None:
    try:
        return quote(text)
    except ValueError:
        return None


def name_constraint(name: str) -> str:
    """Ads of the daemon with this Name."""
    return f"Name =?= {quote(name)}"
