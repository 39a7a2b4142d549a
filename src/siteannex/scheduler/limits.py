"""Limits of QOSes and associations, and which of them a pending reason means. Pure text.

`sacctmgr -P show qos|assoc format=...` prints a header line and a line each; what an older sacctmgr does not know it
refuses whole, and then nothing is known. Names of limits: https://slurm.schedmd.com/resource_limits.html.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

QOS_COLUMNS = (
    "Name,MaxTRES,MaxTRESPU,MaxTRESPA,MaxJobsPU,MaxJobsPA,MaxSubmitPU,MaxSubmitPA,MaxWall,GrpTRES,GrpJobs,GrpSubmit"
)
ASSOC_COLUMNS = "Account,User,Partition,MaxTRES,MaxJobs,MaxSubmit,MaxWall,GrpTRES,GrpJobs,GrpSubmit"

_REASON = re.compile(
    r"(?P<whose>QOS|Assoc)(?P<how>Max|Grp)(?P<thing>GRES|C[Pp][Uu]|Memory|Mem|Nodes?|SubmitJobs?|Jobs?|WallDuration|Wall)"
    r"(?P<per>PerJob|PerUser|PerAccount)?(?:Limit)?"
)
_THINGS = {
    "gres": "gres/gpu",
    "cpu": "cpu",
    "memory": "mem",
    "mem": "mem",
    "node": "node",
    "nodes": "node",
    "job": "jobs",
    "jobs": "jobs",
    "submitjob": "submit",
    "submitjobs": "submit",
    "wallduration": "wall",
    "wall": "wall",
}
_MEMORY = re.compile(r"(\d{1,15})([KMGTP]?)")
_MIB = {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1024**2, "P": 1024**3}
_WALLTIME = re.compile(r"(?:(\d{1,5})-)?(\d{1,7})(?::(\d{1,2}))?(?::(\d{1,2}))?", re.ASCII)

Row = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Limits:
    """What the site tells of its limits: rows as sacctmgr prints them, by column."""

    qos: tuple[Row, ...] = ()
    associations: tuple[Row, ...] = ()
    """The user's own, and (with an empty User) the account's."""


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit with its number. `thing` is a TRES (`gres/gpu`, `cpu`, `mem`, `node`) or `jobs`, `submit`, `wall`."""

    owner: str
    """`QOS normal`, `account abc123`, `your association with abc123`."""
    per: str
    """`job`, `user`, `account` or `all` (everybody under it together)."""
    thing: str
    allowed: int
    """Memory in MiB, walltime in seconds, all else a count."""


def read_table(lines: Sequence[str]) -> tuple[Row, ...]:
    """Rows under sacctmgr's header line; () when there is none."""
    if not lines:
        return ()
    header = [name.strip().lower() for name in lines[0].split("|")]
    return tuple(
        dict(zip(header, cells, strict=False)) for line in lines[1:] if len(cells := line.split("|")) >= len(header) > 1
    )


def limit_behind(reason: str, limits: Limits, qos: Sequence[str], account: str, gpu_type: str = "") -> Limit | None:
    """The limit that a reason such as QOSMaxGRESPerUser means; None when the site does not tell it.

    `qos` in the order in which they count: a partition's own before the job's.
    """
    match = _REASON.fullmatch(reason.strip())
    if match is None:
        return None
    thing = _THINGS[match["thing"].lower()]
    if match["whose"] == "QOS":
        rows = [(f"QOS {name}", row) for name in qos for row in limits.qos if row.get("name") == name]
        per = {"PerUser": "user", "PerAccount": "account"}.get(match["per"] or "", "job")
    else:
        own = [row for row in limits.associations if row.get("user") and row.get("account") == account]
        shared = [row for row in limits.associations if not row.get("user") and row.get("account") == account]
        rows = [(f"your association with {account}", row) for row in own] + [
            (f"account {account}", row) for row in shared
        ]
        per = "job" if thing not in ("jobs", "submit") else "user"
    per = "all" if match["how"] == "Grp" else per
    column = _column(thing, per, qos=match["whose"] == "QOS")
    for owner, row in rows:
        allowed = _allowed(row.get(column, ""), thing, gpu_type)
        if allowed is not None:
            return Limit(owner, per, thing, allowed)
    return None


def _column(thing: str, per: str, *, qos: bool) -> str:
    kind = {"jobs": "jobs", "submit": "submit", "wall": "wall"}.get(thing, "tres")
    if per == "all":
        return f"grp{kind}"
    return f"max{kind}" + ({"user": "pu", "account": "pa"}.get(per, "") if qos else "")


def _allowed(text: str, thing: str, gpu_type: str) -> int | None:
    if thing == "wall":
        return parse_walltime(text)
    if thing in ("jobs", "submit"):
        return _count(text)
    pairs = dict(_pair(each) for each in text.split(",") if "=" in each)
    value = pairs.get(f"{thing}:{gpu_type}".lower(), pairs.get(thing, ""))
    return _mib(value) if thing == "mem" else _count(value)


def tres_count(text: str, thing: str) -> int | None:
    """One count of a TRES list: `gres/gpu` of `cpu=37,gres/gpu=3` is 3; None when it is not limited."""
    return _count(dict(_pair(each) for each in text.split(",") if "=" in each).get(thing, ""))


def _pair(text: str) -> tuple[str, str]:
    key, _, value = text.partition("=")
    return key.strip().lower(), value.strip()


def _count(text: str) -> int | None:
    cleaned = text.strip()
    return int(cleaned) if cleaned.isascii() and cleaned.isdigit() and len(cleaned) < 20 else None


def _mib(text: str) -> int | None:
    match = _MEMORY.fullmatch(text.strip().upper())
    return int(int(match[1]) * _MIB[match[2]]) if match else None


def parse_walltime(text: str) -> int | None:
    """Seconds of Slurm's six forms of a time: M, M:S, H:M:S, D-H, D-H:M, D-H:M:S; None for `infinite` and the rest."""
    match = _WALLTIME.fullmatch(text.strip())
    if match is None:
        return None
    days, *parts = (int(part) if part else None for part in match.groups())
    numbers = [part for part in parts if part is not None]
    from_hours = days is not None or len(numbers) == 3
    units = (3600, 60, 1) if from_hours else (60, 1)
    return (days or 0) * 86400 + sum(number * unit for number, unit in zip(numbers, units, strict=False))
