"""What the body of an event says. Pure; a line that is missing is an empty field, never an error.

Texts are those HTCondor 25.14 writes, and the older ones seen in logs since 2023. Bytes are whole numbers here:
HTCondor's Python bindings pass them through a 32-bit float.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from siteannex.training.eventlog.text import Event, Kind

_NODE = re.compile(rb"(?m)^[ \t]*(?:DAG Node: (\S+)|(?:\[.*?\b)?DAGNodeName = \"([^\"]+)\")")
"""HTCondor 25.14 writes `[ DAGNodeName = "r00-e00"; JobBatchName = "x" ]`."""
_CODES = re.compile(rb"Code (-?\d+) Subcode (-?\d+)")
_CODE_LINE = re.compile(r"\s*Code (-?\d+) Subcode (-?\d+)\s*")
_VALUE = re.compile(rb"\((?:return value|signal) (-?\d+)\)")
_SENT, _RECEIVED = b"  -  Run Bytes Sent By Job", b"  -  Run Bytes Received By Job"
_REASON = re.compile(rb"\n[ \t]*Reason: ([^\n]*)|return value -?\d+\)\n\t(?!\t|\d|Part)([^\n]*)")
"""A requeued job's reason has no label and stands below its return value."""
_ATTRIBUTE = re.compile(r"\n[ \t]*(\w+) = ([^\n]*)", re.ASCII)
_SLOT = re.compile(r"\n[ \t]*SlotName:([^\n]*)")
_ALIAS = re.compile(r"[?&]alias=([^&>\s]+)")
_HOST = re.compile(r"host: (<[^>\s]*>|\S+)")
_QUEUED = re.compile(rb"Seconds spent in queue: (\d+)")
_USAGE = re.compile(r"\s*(\w+)\s*(?:\((\w+)\))?\s*:(.*)")
_SITES = ("GLIDEIN_ResourceName", "SiteannexSite", "AnnexName")
_TRANSFERS = {
    "Entered queue to transfer input files": "input queued",
    "Started transferring input files": "input",
    "Finished transferring input files": "input done",
    "Entered queue to transfer output files": "output queued",
    "Started transferring output files": "output",
    "Finished transferring output files": "output done",
}


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as the EP described it. Memory in MiB, 0 where it is not said."""

    model: str
    memory_mib: int = 0
    capability: str = ""
    uuid: str = ""
    driver: str = ""


@dataclass(frozen=True, slots=True)
class Start:
    """Event 001: where a job runs."""

    host: str
    slot: str
    site: str
    """Where the EP says it is: `GLIDEIN_ResourceName`, else `SiteannexSite`, else `AnnexName`; empty when it says none.
    The last two stand in the event because jobs ask for them (`ulog_execute_attrs`)."""
    annex: str
    batch_job: str
    """The Slurm job that carries the EP."""
    gpus: int
    devices: tuple[Gpu, ...]
    attributes: Mapping[str, str] = field(default_factory=dict)

    @property
    def model(self) -> str:
        """The GPUs' model; several differ only on odd machines, and are joined by `+`."""
        return "+".join(sorted({gpu.model for gpu in self.devices if gpu.model}))


@dataclass(frozen=True, slots=True)
class Use:
    """One row of the table of partitionable resources. Texts, as numbers there have units in the name."""

    usage: str = ""
    request: str = ""
    allocated: str = ""
    assigned: str = ""


@dataclass(frozen=True, slots=True)
class End:
    """Events 004 and 005: how a run of a job ended; None: not said."""

    value: int | None
    signal: int | None
    code: int | None
    subcode: int | None
    reason: str
    sent_bytes: int
    received_bytes: int
    event: Event

    @property
    def usage(self) -> dict[str, Use]:
        """The table of resources, by name with unit, as `Memory (MB)`."""
        return usage_of(self.event)


@dataclass(frozen=True, slots=True)
class Hold:
    """Event 012. `reason` may have several lines."""

    reason: str
    code: int | None
    subcode: int | None


def text_of(event: Event) -> str:
    """The whole event; bytes that are not UTF-8 as `\\xNN`."""
    return event.raw.decode("utf-8", "backslashreplace")


def node_of(event: Event) -> str:
    """Events 000 and 016: the DAG node, or empty."""
    match = _NODE.search(event.raw)
    return _text(match[1] or match[2]) if match else ""


def start_of(event: Event) -> Start:
    """Event 001."""
    text = text_of(event)
    found = {name: value.strip() for name, value in _ATTRIBUTE.findall(text)}
    slot, host = _SLOT.search(text), _HOST.search(text)
    alias = _ALIAS.search(host[1]) if host else None
    named = [name.strip() for name in found.get("AvailableGPUs", "").strip("{} ").split(",") if name.strip()]
    told = {name: _gpu(value) for name, value in found.items() if name.startswith("GPUs_") and value[:1] == "["}
    devices = [gpu for name, gpu in told.items() if name in named] or list(told.values())
    count = _whole(found.get("GPUs", "")) or len(named)
    return Start(
        host=alias[1] if alias else host[1] if host else "",
        slot=slot[1].strip() if slot else "",
        site=next((value for name in _SITES if (value := _said(found, name))), ""),
        annex=_said(found, "AnnexName"),
        batch_job=_said(found, "EPSlurmJobId"),
        gpus=count,
        devices=tuple(devices[:count] if count else devices),
        attributes=found,
    )


def _said(found: Mapping[str, str], name: str) -> str:
    value = found.get(name, "").strip('"')
    return "" if value.lower() in ("undefined", "error") else value


@lru_cache(maxsize=1024)
def _gpu(ad: str) -> Gpu:
    """A site's few GPUs come again in every start."""
    parts = dict(part.strip().split(" = ", 1) for part in ad.strip("[] ").split(";") if " = " in part)
    read = {name: value.strip().strip('"') for name, value in parts.items()}
    return Gpu(
        model=read.get("DeviceName", ""),
        memory_mib=_whole(read.get("GlobalMemoryMb", "")),
        capability=read.get("Capability", ""),
        uuid=read.get("DeviceUuid", "") or read.get("Id", ""),
        driver=read.get("NvidiaDriver", "") or read.get("DriverVersion", ""),
    )


def end_of(event: Event) -> End:
    """Events 004 and 005."""
    raw = event.raw
    value, codes, reason = _VALUE.search(raw), _CODES.search(raw), _REASON.search(raw)
    signalled = value is not None and b"signal" in value[0]
    return End(
        value=int(value[1]) if value and not signalled else None,
        signal=int(value[1]) if value and signalled else None,
        code=int(codes[1]) if codes else None,
        subcode=int(codes[2]) if codes else None,
        reason=_text(reason[1] or reason[2] or b"").strip() if reason else "",
        sent_bytes=_before(raw, _SENT),
        received_bytes=_before(raw, _RECEIVED),
        event=event,
    )


def usage_of(event: Event) -> dict[str, Use]:
    """The table of partitionable resources of any event that has one: columns are found by the heading's places."""
    lines = iter(text_of(event).splitlines())
    heading = next((line for line in lines if "Partitionable Resources" in line), None)
    if heading is None:
        return {}
    colon = heading.index(":")
    names = re.findall(r"\w+", heading[colon:])
    ends = [heading.index(name, colon) + len(name) for name in names]
    table = {}
    for line in lines:
        if (match := _USAGE.fullmatch(line)) is None:
            break
        cells = _cells(line, line.index(":") + 1, colon, ends)
        row = {name.lower(): cell for name, cell in zip(names, cells, strict=True)}
        title = f"{match[1]} ({match[2]})" if match[2] else match[1]
        table[title] = Use(**{name: row.get(name, "") for name in Use.__dataclass_fields__})
    return table


def _cells(line: str, begin: int, colon: int, ends: list[int]) -> list[str]:
    """Numbers stand flush right under their heading; the last column (`Assigned`) flush left."""
    shift = begin - 1 - colon
    cells, start = [], begin
    for end in ends[:-1]:
        cells.append(line[start : end + shift].strip())
        start = end + shift
    return [*cells, line[start:].strip(' "')]


def hold_of(event: Event) -> Hold:
    """Event 012, and 021, whose text has the same shape."""
    lines = text_of(event).splitlines()[1:]
    code = subcode = None
    for place in range(len(lines) - 1, -1, -1):
        if (match := _CODE_LINE.fullmatch(lines[place])) is not None:
            code, subcode = int(match[1]), int(match[2])
            del lines[place]
            break
    return Hold("\n".join(line.strip("\t ") for line in lines if line.strip()), code, subcode)


def reason_of(event: Event) -> str:
    """The free text of events 007, 009, 013, 021 to 024: all lines below the first."""
    return hold_of(event).reason


def transfer_of(event: Event) -> str:
    """Event 040: `input queued`, `input`, `input done`, `output queued`, `output`, `output done`, or empty."""
    first = _text(event.raw.partition(b"\n")[0])
    return next((word for said, word in _TRANSFERS.items() if said in first), "")


def transfer_queue_s(event: Event) -> int:
    """Event 040: seconds it stood in the queue for transfers, 0 where it is not said."""
    return _first(_QUEUED, event.raw)


def kind_of(event: Event) -> Kind | None:
    """None for a number that this version does not know."""
    return Kind(event.number) if 0 <= event.number <= Kind.COMMON_FILES else None


def _first(pattern: re.Pattern[bytes], raw: bytes) -> int:
    match = pattern.search(raw)
    return int(match[1]) if match else 0


def _before(raw: bytes, words: bytes) -> int:
    """The whole number before some words, 0 where they are not there. Some versions write `123.0`."""
    end = raw.find(words)
    text = raw[raw.rfind(b"\n", 0, end) + 1 : end].strip() if end >= 0 else b""
    whole = text.partition(b".")[0]
    return int(whole) if whole.isdigit() else 0


def _whole(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")
