"""A job's and a slot's conditions in words a researcher knows: one table of rules. Pure.

Every rule names a kind of condition, how to tell it, what the job asks, what the slot has, and who wrote it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from siteannex.pool.ads import count_of, gpu_kind, text_of
from siteannex.pool.clauses import mentions, names
from siteannex.pool.matching import Ad, Condition, Finding, Match, Says, Side, worst
from siteannex.units import format_memory

YOU, SUBMIT, AP, ANNEX = "you", "condor_submit", "your AP", "siteannex"
"""Who wrote a condition, as far as it can be told."""

AP_DEFAULTS = frozenset(
    {
        # OSPool access points set these for their users: https://portal.osg-htc.org/documentation/htc_workloads/
        "jobdurationcategory",
        "projectname",
        "has_singularity",
        "singularity_can_use_sif",
        "isosgvojob",
        "isblackhole",
        "hascvmfs",
    }
)
"""Attributes that access points are known to set or ask for by themselves."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What one candidate says to one row."""

    says: Says
    has: str
    """What the slot has instead, or "" when there is nothing to add."""

    @property
    def text(self) -> str:
        """As it stands in the table: `no: 30720 MB`."""
        words = {Says.BUSY: "yes, but busy now", Says.UNKNOWN: "seen only on the node"}.get(self.says, str(self.says))
        return f"{words}: {self.has}" if self.has and self.says in (Says.YES, Says.NO) else words


@dataclass(frozen=True, slots=True)
class Row:
    """One thing the job asks (or the slot asks of it), against every candidate."""

    kind: str
    asks: str
    by: str
    cells: tuple[Cell | None, ...]
    """None where a candidate does not ask that."""
    conditions: tuple[str, ...]
    """The expressions behind it, verbatim."""

    @property
    def failing(self) -> bool:
        """True when some candidate does not simply say yes."""
        return any(cell is not None and cell.says is not Says.YES for cell in self.cells)


@dataclass(frozen=True, slots=True)
class _Rule:
    kind: str
    by: str
    sides: tuple[Side, ...]
    fits: Callable[[str], bool]
    asks: Callable[[Ad, str], str]
    has: Callable[[Ad], str]


_BOTH = (Side.JOB, Side.SLOT)


def _mib(ad: Ad, name: str) -> str:
    return f"{count_of(ad, name)} MB"


def _disk(kib: int) -> str:
    return format_memory(kib // 1024)


def _literal(text: str, otherwise: str) -> str:
    found = re.search(r'"((?:\\.|[^"\\])*)"', text)
    return found.group(1) if found else otherwise


def _target(job: Ad, _: str) -> str:
    name = text_of(job, "TargetAnnexName")
    return f'TargetAnnexName = "{name}"' if name else "TargetAnnexName (the job sets none)"


def _gpu_count(job: Ad, _: str) -> str:
    return _counted(count_of(job, "RequestGPUs"), "GPU")


def _counted(count: int, thing: str) -> str:
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


_CONTAINER_ATTRIBUTES = ("HasContainer", "HasSIF", "HasDockerURL", "HasSandboxImage", "HasSingularity", "HasDocker")
"""What a container needs, as condor_submit asks it (25.14.1): one row for them all."""


def _containers(slot: Ad) -> str:
    """What the pilot found and tried on the node, else what the startd says."""
    if said := text_of(slot, "SiteannexContainers"):
        return said.removesuffix(" here")
    lacks_namespaces = any(key.lower() == "hasusernamespaces" and value is False for key, value in slot.items())
    return "no user namespaces there" if lacks_namespaces else "no apptainer that works"


def _plug_ins(slot: Ad) -> str:
    methods = text_of(slot, "HasFileTransferPluginMethods")
    return f"plug-ins for {', '.join(methods.split(','))} only" if methods else "no transfer plug-ins"


def _until(slot: Ad) -> str:
    return "it takes no new jobs: its walltime ends soon" if count_of(slot, "SiteannexEndsAt") else "START says no"


_RULES = (
    _Rule("annex", YOU, _BOTH, mentions("TargetAnnexName"), _target, lambda slot: text_of(slot, "AnnexName")),
    _Rule(
        "identity",
        AP,
        (Side.JOB,),
        mentions("AuthenticatedIdentity"),
        lambda _, text: f"an EP of {_literal(text, 'yours')}",
        lambda slot: text_of(slot, "AuthenticatedIdentity"),
    ),
    _Rule(
        "owner",
        ANNEX,
        (Side.SLOT,),
        mentions("User", "Owner"),
        lambda job, _: f"jobs of {text_of(job, 'User', 'Owner')}",
        lambda slot: f"it takes only jobs of {text_of(slot, 'AuthenticatedIdentity')}",
    ),
    _Rule(
        "gpus",
        YOU,
        _BOTH,
        mentions("RequestGPUs", "GPUs", "AvailableGPUs"),
        _gpu_count,
        lambda slot: str(count_of(slot, "TotalSlotGPUs", "GPUs")),
    ),
    _Rule(
        "memory",
        YOU,
        _BOTH,
        mentions("RequestMemory", "Memory"),
        lambda job, _: f"memory {_mib(job, 'RequestMemory')}",
        lambda slot: f"{count_of(slot, 'TotalSlotMemory', 'Memory')} MB",
    ),
    _Rule(
        "disk",
        SUBMIT,
        _BOTH,
        mentions("RequestDisk", "Disk"),
        lambda job, _: f"disk {_disk(count_of(job, 'RequestDisk'))}",
        lambda slot: _disk(count_of(slot, "TotalSlotDisk", "Disk")),
    ),
    _Rule(
        "cpus",
        YOU,
        _BOTH,
        mentions("RequestCpus", "Cpus"),
        lambda job, _: _counted(count_of(job, "RequestCpus"), "CPU"),
        lambda slot: str(count_of(slot, "TotalSlotCpus", "Cpus")),
    ),
    _Rule(
        "processor",
        SUBMIT,
        (Side.JOB,),
        mentions("Arch"),
        lambda _, text: f"processor {_literal(text, text)}",
        lambda slot: text_of(slot, "Arch"),
    ),
    _Rule(
        "system",
        SUBMIT,
        (Side.JOB,),
        mentions("OpSys"),
        lambda _, text: f"system {_literal(text, text)}",
        lambda slot: text_of(slot, "OpSys"),
    ),
    _Rule(
        "container",
        SUBMIT,
        (Side.JOB,),
        mentions(*_CONTAINER_ATTRIBUTES),
        lambda job, _: f"a container, {text_of(job, 'ContainerImage', 'DockerImage') or 'by apptainer'}",
        _containers,
    ),
    _Rule(
        "plug-in",
        SUBMIT,
        (Side.JOB,),
        mentions("HasFileTransferPluginMethods"),
        lambda _, text: f"transfer by {_literal(text, 'a plug-in')}://",
        _plug_ins,
    ),
    _Rule(
        "transfer",
        SUBMIT,
        (Side.JOB,),
        mentions("HasFileTransfer", "FileSystemDomain"),
        lambda *_: "file transfer",
        lambda slot: "a file system of its own" if text_of(slot, "FileSystemDomain") else "",
    ),
    _Rule(
        "walltime",
        ANNEX,
        (Side.SLOT,),
        lambda text: bool(re.search(r"\btime\(\)", text)),
        lambda *_: "walltime left",
        _until,
    ),
    _Rule(
        "draining",
        ANNEX,
        (Side.SLOT,),
        lambda text: (
            bool(re.fullmatch(r"(true|false)\s*==\s*false", text, re.IGNORECASE)) or mentions("SiteannexDraining")(text)
        ),
        lambda *_: "an EP that takes new jobs",
        lambda _: "it is being taken down",
    ),
    _Rule(
        "duration",
        AP,
        _BOTH,
        mentions("JobDurationCategory"),
        lambda job, _: f'JobDurationCategory = "{text_of(job, "JobDurationCategory")}"',
        lambda _: "",
    ),
)

_GPU_PROPERTIES = {
    "globalmemorymb": "GPU memory",
    "capability": "GPU capability",
    "maxsupportedversion": "GPU driver's CUDA",
    "driverversion": "GPU driver",
    "devicename": "GPU model",
}
_COMPARED = re.compile(r"(?:TARGET\.)?(\w+)\s*(>=|<=|==|=\?=|is|>|<)\s*(?:MY\.)?(\w+|[\d.]+|\"[^\"]*\")")


def _gpu_asks(job: Ad, text: str) -> tuple[str, str]:
    """(kind, words) of a wish about each GPU: `GPU memory >= 60000 MB`."""
    found = _COMPARED.fullmatch(text)
    label = _GPU_PROPERTIES.get(found.group(1).lower()) if found else None
    if found is None or label is None:
        return f"gpu {text}", f"each GPU: {text}"
    kind, sign = found.group(1).lower(), found.group(2).replace("=?=", "==").replace("is", "==")
    wanted = text_or_number(job, found.group(3))
    return f"gpu-{kind}", f"{label} {sign} {_gpu_value(kind, wanted)}"


def text_or_number(ad: Ad, word: str) -> object:
    """The value of an attribute, or the word itself when it is a literal."""
    return next((value for key, value in ad.items() if key.lower() == word.lower()), word)


def _gpu_value(kind: str, value: object) -> str:
    number = _number(value)
    if kind == "globalmemorymb":
        return f"{value} MB"
    if kind == "maxsupportedversion" and number is not None and number >= 1000:
        return f"{int(number) // 1000}.{int(number) % 1000 // 10}"
    return str(value)


def _number(value: object) -> float | None:
    try:
        return float(str(value))
    except ValueError:
        return None


def _gpu_has(kind: str, slot: Ad) -> str:
    if not count_of(slot, "TotalSlotGPUs", "GPUs"):
        return "no GPU there"
    model, memory = gpu_kind(slot)
    attribute = kind.removeprefix("gpu-")
    if attribute == "globalmemorymb":
        return f"{memory} MB" + (f" ({model})" if model else "")
    if attribute == "devicename":
        return model
    value = next((each for key, each in slot.items() if key.lower() == f"gpus_{attribute}"), None)
    seen = _gpu_value(attribute, value) if value is not None else "not said"
    return f"{seen} ({model})" if model else seen


def rows(job: Ad, found: Sequence[Match], ap_words: frozenset[str] = frozenset()) -> list[Row]:
    """Every condition of every match, alike ones in one row. `ap_words`: attributes that the AP's own rules mention."""
    order: dict[tuple[str, str], str] = {}
    cells: dict[tuple[str, str], list[list[tuple[Finding, str]]]] = {}
    for column, match in enumerate(found):
        for finding in match.findings:
            kind, asks, by, has = _worded(finding.condition, job, match.candidate.ad.values, ap_words)
            key = (kind, asks)
            order.setdefault(key, by)
            cells.setdefault(key, [[] for _ in found])[column].append((finding, has))
    found_rows = [
        Row(
            kind=key[0],
            asks=key[1],
            by=by,
            cells=tuple(_cell(each) for each in cells[key]),
            conditions=tuple(dict.fromkeys(f.condition.expr for each in cells[key] for f, _ in each)),
        )
        for key, by in order.items()
    ]
    return sorted(found_rows, key=lambda row: _place(row.kind))


_FIRST = ("annex", "gpus", "gpu-", "memory", "cpus", "disk")


def _place(kind: str) -> int:
    """What people think of first stands first."""
    return next((at for at, start in enumerate(_FIRST) if kind.startswith(start)), len(_FIRST))


def _cell(said: list[tuple[Finding, str]]) -> Cell | None:
    return Cell(worst(finding.says for finding, _ in said), said[0][1]) if said else None


def _worded(one: Condition, job: Ad, slot: Ad, ap_words: frozenset[str]) -> tuple[str, str, str, str]:
    if one.side is Side.GPU:
        kind, asks = _gpu_asks(job, one.expr)
        return kind, asks, YOU, _gpu_has(kind, slot)
    rule = next((each for each in _RULES if one.side in each.sides and each.fits(one.expr)), None)
    if rule is not None:
        return rule.kind, rule.asks(job, one.expr), rule.by, rule.has(slot)
    by = AP if names(one.expr) & (ap_words | AP_DEFAULTS) else (YOU if one.side is Side.JOB else ANNEX)
    asks = one.expr if one.side is Side.JOB else f"the EP asks: {one.expr}"
    return f"{one.side} {one.expr}", asks, by, _mentioned(one.expr, slot)


def _mentioned(expr: str, slot: Ad) -> str:
    """What the slot has of the attributes an unknown condition mentions: `OpSysMajorVer = 13`."""
    wanted = names(expr)
    seen: Mapping[str, object] = {key: value for key, value in slot.items() if key.lower() in wanted}
    shown = [f"{key} = {value}" for key, value in sorted(seen.items()) if isinstance(value, str | int | float)]
    return ", ".join(shown[:3])
