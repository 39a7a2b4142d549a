"""Which annexes are wanted: jobs and DAGs that name one, against the annexes there are. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from siteannex.annex.status import Row
from siteannex.errors import Stage
from siteannex.pool.ads import count_of, text_of
from siteannex.pool.job_queue import Demand
from siteannex.pool.matching import FullAd
from siteannex.site.partitions import REPORTED_SHARE

_QUOTED = re.compile(r'"([A-Za-z][A-Za-z0-9_.-]*)"')


@dataclass(frozen=True, slots=True)
class Need:
    """Jobs alike that want an annex, and the size of one of them."""

    annexes: tuple[str, ...]
    """The annex they name; several when any one of these will do."""
    jobs: int
    waiting: bool = True
    """They are in the queue; False for what a DAG or an experiment file says before there are jobs."""
    site: str | None = None
    """The site file, where it was said."""
    gpus: int = 0
    cpus: int = 1
    memory_mib: int = 0
    gpu_memory_mib: int | None = None
    """The least memory of one GPU as cards are sold."""
    gpu_capability: float | None = None
    longest_s: int | None = None
    """The longest one job may run."""
    job: FullAd | None = field(default=None, compare=False, repr=False)
    """One of them, to be matched."""
    partitions: frozenset[str] | None = None
    """Where HTCondor would match it; None: not asked."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """An annex that is not there and that something waits for."""

    annex: str
    site: str | None
    """None: no site is known for that name."""
    needs: tuple[Need, ...]

    @property
    def waiting(self) -> int:
        """Jobs in the queue that wait for it."""
        return sum(need.jobs for need in self.needs if need.waiting)

    @property
    def jobs(self) -> int:
        """Jobs it is to have room for; what a DAG announced counts only while none of its jobs is in the queue."""
        return self.waiting or max((need.jobs for need in self.needs), default=0)


def need_of(demand: Demand) -> Need | None:
    """The need of idle jobs that are alike; None when they name no annex."""
    values = demand.job.values
    named = text_of(values, "TargetAnnexName")
    several = dict.fromkeys(_QUOTED.findall(demand.job.source("TargetAnnexName")))
    annexes = (named,) if named else tuple(several)
    if not annexes:
        return None
    return Need(
        annexes=annexes,
        jobs=demand.count,
        gpus=count_of(values, "RequestGPUs"),
        cpus=max(1, count_of(values, "RequestCpus")),
        memory_mib=count_of(values, "RequestMemory"),
        gpu_memory_mib=math.ceil(least / REPORTED_SHARE) if (least := count_of(values, "GPUsMinMemory")) else None,
        gpu_capability=_number(values.get("GPUsMinCapability")),
        longest_s=count_of(values, "AllowedExecuteDuration") or count_of(values, "AllowedJobDuration") or None,
        job=demand.job,
    )


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def standing(rows: Iterable[Row]) -> dict[str, str]:
    """Name in lower case -> how it stands, of annexes that are up or coming or must be looked after first."""
    found = {}
    for row in rows:
        words = _stands(row)
        if words:
            found[row.annex.name.lower()] = words
    return found


def _stands(row: Row) -> str:
    """`up`, `coming`, or what is the matter; "" when nothing of it is left to run a job."""
    if row.kept and not row.annex.state().ended:
        return f"its keeper brings a pilot: siteannex status {row.annex.name}"
    if row.annex.state().ended or row.verdict.stage is Stage.RELEASED:
        return ""
    if row.verdict.failure is not None:
        return f"failed: siteannex why {row.annex.name}"
    if row.verdict.stage is Stage.DRAIN:
        # No slot any more after READY: it was idle, or its walltime is over, and Slurm was not asked.
        return f"on its way out: siteannex status {row.annex.name}" if row.slots else ""
    if not row.annex.state().submit_begun and not row.verdict.pilots:
        return "" if row.verdict.text.startswith(("interrupted", "not submitted")) else "coming"
    return "up" if row.verdict.ready else "coming"


def wanted(needs: Sequence[Need], standing: Mapping[str, str], sites: Mapping[str, str]) -> tuple[Wanted, ...]:
    """The annexes to bring up, the one most jobs wait for first.

    `standing`: as that function gives it; those are left alone. `sites`: annex name in lower case -> its site, for
    needs that do not say one. Jobs that take any of several annexes ask for none while one of them stands, and join
    those that wait for one of them anyway.
    """
    groups: dict[str, list[Need]] = {}
    names: dict[str, str] = {}
    for need in sorted(needs, key=lambda each: len(each.annexes)):
        keys = [annex.lower() for annex in need.annexes]
        if any(key in standing for key in keys):
            continue
        site_known = [key for key in keys if need.site is not None or key in sites]
        chosen = next((key for key in keys if key in groups), (site_known or keys)[0])
        names.setdefault(chosen, need.annexes[keys.index(chosen)])
        groups.setdefault(chosen, []).append(need)
    found = [Wanted(names[key], _site(key, group, sites), tuple(group)) for key, group in groups.items()]
    return tuple(sorted(found, key=lambda each: (-each.waiting, -each.jobs, each.annex)))


def _site(key: str, needs: Sequence[Need], sites: Mapping[str, str]) -> str | None:
    return next((need.site for need in needs if need.site is not None), None) or sites.get(key)


def judged(need: Need, partitions: Iterable[str]) -> Need:
    """The same, with the partitions whose slots HTCondor would match."""
    return replace(need, partitions=frozenset(partitions))


def waiting_text(found: Sequence[Wanted]) -> tuple[str, ...]:
    """Below the table of `status`: `12 jobs wait for expanse, which is not up: siteannex up --pending`."""
    known = [each for each in found if each.site is not None]
    jobs = sum(each.waiting for each in known)
    lines = []
    if len(known) == 1 and jobs:
        lines.append(f"{_jobs(jobs)} for {known[0].annex}, which is not up: siteannex up --pending")
    elif jobs:
        counts = ", ".join(f"{each.annex} {each.waiting}" for each in known if each.waiting)
        lines.append(f"{_jobs(jobs)} for annexes that are not up ({counts}): siteannex up --pending")
    elif known:
        lines.append(f"DAGs ask for {', '.join(each.annex for each in known)}, not up: siteannex up --pending")
    lines += [f"{_jobs(each.waiting)} for {each.annex}: {unknown_text(each)}" for each in found if each.site is None]
    return tuple(lines)


def unknown_text(each: Wanted) -> str:
    """What to do about a name that no site is known for."""
    return f"no annex or site has that name; siteannex up SITE --name {each.annex} would bring one up"


def _jobs(count: int) -> str:
    return f"{count} job{'s wait' if count != 1 else ' waits'}"


def as_data(each: Wanted) -> dict[str, object]:
    """As a row of `status --json`."""
    return {
        "annex": each.annex,
        "site": each.site,
        "stage": "WANTED",
        "text": f"{_jobs(each.waiting)} for it",
        "jobs": {"waiting": each.waiting, "running": 0, "held": 0},
        "command": "siteannex up --pending" if each.site else f"siteannex up SITE --name {each.annex}",
    }
