"""Will a job run on a slot? Condition by condition, for slots that exist and for slots an annex will bring. Pure.

HTCondor itself evaluates (worker.py); here stand what to ask it and what its answers mean. A slot is looked at twice:
`whole`, as if nothing ran there (can it ever run this job?), and as it is now (is there room?).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from siteannex.pool.ads import count_of, text_of
from siteannex.pool.clauses import expanded, names

Ad = Mapping[str, object]


class Side(StrEnum):
    """Whose condition it is."""

    JOB = "job"
    SLOT = "slot"
    GPU = "gpu"
    """The job's, on each single GPU (`RequireGPUs`)."""


class Says(StrEnum):
    """The answer to one condition, or to all of them."""

    YES = "yes"
    NO = "no"
    BUSY = "busy"
    """It would, when nothing else ran there."""
    UNKNOWN = "unknown"
    """The slot does not exist yet, and what is asked can only be seen on the node."""


@dataclass(frozen=True, slots=True)
class FullAd:
    """An ad as the worker sends it: evaluated, its expressions as text, and whole for sending back."""

    text: str
    values: Ad
    sources: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> FullAd:
        """Read the worker's answer."""
        return cls(str(data["text"]), dict(data["values"]), dict(data["sources"]))

    def source(self, name: str) -> str:
        """An attribute's expression, or "" when it is a plain value or missing."""
        return next((text for key, text in self.sources.items() if key.lower() == name.lower()), "")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A slot that a job could run on."""

    annex: str
    state: str
    """`up`, or for a slot yet to come `pending` or `planned`."""
    ad: FullAd
    predicted: bool = False


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition, as it is asked."""

    side: Side
    expr: str


@dataclass(frozen=True, slots=True)
class Finding:
    """What one condition says of one candidate."""

    condition: Condition
    says: Says
    missing: tuple[str, ...] = ()
    """Attributes it looks for and does not find on the other side."""


@dataclass(frozen=True, slots=True)
class Match:
    """A job against one candidate."""

    candidate: Candidate
    findings: tuple[Finding, ...]

    @property
    def says(self) -> Says:
        """All conditions together: the worst of them."""
        return worst(finding.says for finding in self.findings)


_ORDER = (Says.NO, Says.UNKNOWN, Says.BUSY, Says.YES)


def worst(answers: Any) -> Says:
    """The answer that decides: no before unknown before busy before yes."""
    return min(answers, key=_ORDER.index, default=Says.YES)


def job_conditions(job: FullAd) -> list[Condition]:
    """The job's conditions: its Requirements taken apart, what it wants of each GPU taken apart further."""
    found = [Condition(Side.JOB, text) for text in expanded(job.source("Requirements") or "true", {})]
    wanted = job.source("RequireGPUs")
    gpus = [Condition(Side.GPU, text) for text in expanded(wanted, {})] if wanted else []
    return [*(one for one in found if one.expr.lower() != "true"), *gpus]


def slot_conditions(slot: FullAd) -> list[Condition]:
    """The slot's conditions: Requirements, with START and the resource limits taken apart."""
    sources = {name: text for name, text in slot.sources.items() if name.lower() in _EXPANDED}
    if isinstance(next((value for key, value in slot.values.items() if key.lower() == "start"), None), str):
        sources["Start"] = _OUR_START
    asked = expanded(slot.source("Requirements") or slot.source("Start") or "true", sources)
    return [Condition(Side.SLOT, text) for text in asked if text.lower() != "true"]


_OUR_START = (
    "MY.SiteannexDraining =!= true && TARGET.User =?= MY.AuthenticatedIdentity "
    "&& (TARGET.TargetAnnexName == MY.AnnexName) =?= true"
)
"""An EP that attached directly to a schedd shows the words `Directly attached to ...` as its START, which then is what
tarball/ep.conf.j2 says."""

_EXPANDED = frozenset({"start", "withinresourcelimits", "requirements"})


def cases(job: FullAd, candidates: Sequence[Candidate]) -> list[dict[str, Any]]:
    """What to ask the worker: each candidate whole, then each as it is now."""
    conditions = job_conditions(job)
    asked = [[*conditions, *slot_conditions(candidate.ad)] for candidate in candidates]
    return [
        {
            "slot": candidate.ad.text,
            "set": whole(candidate.ad.values) if emptied else {},
            "questions": [{"side": one.side, "expr": one.expr} for one in questions],
        }
        for emptied in (True, False)
        for candidate, questions in zip(candidates, asked, strict=True)
    ]


def whole(slot: Ad) -> dict[str, str]:
    """What to set anew in a partitionable slot's ad so that it reads as if nothing ran there."""
    if text_of(slot, "SlotType").lower() != "partitionable":
        return {}
    totals = {
        name: str(total)
        for name, attribute in (("Cpus", "TotalSlotCpus"), ("Memory", "TotalSlotMemory"), ("Disk", "TotalSlotDisk"))
        if (total := count_of(slot, attribute))
    }
    gpus = [name for name in slot if name.lower().startswith("gpus_gpu_")]
    if gpus:
        totals |= {"GPUs": str(len(gpus)), "AvailableGPUs": f"{{ {', '.join(gpus)} }}"}
    return totals


def matches(job: FullAd, candidates: Sequence[Candidate], answers: Sequence[Sequence[Ad]]) -> list[Match]:
    """Read the worker's answers to `cases`, in its order."""
    conditions = job_conditions(job)
    count = len(candidates)
    found = []
    for candidate, empty, now in zip(candidates, answers[:count], answers[count:], strict=True):
        asked = [*conditions, *slot_conditions(candidate.ad)]
        findings = [
            _finding(one, before, after, job, candidate) for one, before, after in zip(asked, empty, now, strict=True)
        ]
        found.append(Match(candidate, tuple(_gpus_apart(findings))))
    return found


def _finding(one: Condition, empty: Ad, now: Ad, job: FullAd, candidate: Candidate) -> Finding:
    needed = _gpus_needed(job.values, candidate.ad.values) if one.side is Side.GPU else 0
    missing = tuple(str(name) for name in _list(empty.get("missing")))
    if _holds(empty.get("value"), needed):
        return Finding(one, Says.YES if _holds(now.get("value"), needed) else Says.BUSY, missing)
    if candidate.predicted and missing:
        return Finding(one, Says.UNKNOWN, missing)
    return Finding(one, Says.NO, missing)


def _gpus_needed(job: Ad, slot: Ad) -> int:
    """How many of a slot's GPUs must meet a wish: as many as the job asks, or all there are (their number is another
    condition)."""
    return max(1, min(count_of(job, "RequestGPUs"), count_of(slot, "TotalSlotGPUs", "GPUs")))


def _gpus_apart(findings: list[Finding]) -> list[Finding]:
    """The count of fitting GPUs says no whenever one wish about them does. Where each such wish has a line of its own,
    that line tells, and the count keeps to counting.
    """
    wishes = [one for one in findings if one.condition.side is Side.GPU]
    decided = [one.says for one in wishes if one.says in (Says.NO, Says.UNKNOWN)]
    if not decided:
        return findings
    return [
        Finding(one.condition, Says.YES, one.missing)
        if one.condition.side is Side.JOB
        and "requiregpus" in names(one.condition.expr)
        and one.says in (Says.NO, Says.UNKNOWN)
        else one
        for one in findings
    ]


def _holds(value: object, needed: int) -> bool:
    if needed:
        return isinstance(value, int | float) and value >= needed
    # HTCondor takes a number other than 0 for true; undefined and error are no match
    return isinstance(value, bool | int | float) and bool(value)


def _list(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else []


def best_of_each_annex(found: Sequence[Match]) -> list[Match]:
    """One match an annex: that of its slot which comes nearest to running the job."""
    best: dict[str, Match] = {}
    for match in found:
        known = best.get(match.candidate.annex)
        if known is None or _nearness(match) > _nearness(known):
            best[match.candidate.annex] = match
    return list(best.values())


def _nearness(match: Match) -> tuple[int, int]:
    failing = sum(finding.says is not Says.YES for finding in match.findings)
    return _ORDER.index(match.says), -failing
