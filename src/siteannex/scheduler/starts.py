"""When a waiting pilot may start and what would start sooner: one round trip of squeue, sacctmgr, `sbatch --test-only`.

Pure text. `sbatch --test-only` (sbatch(1)) submits nothing: slurmctld says when a job like that would start. Its words
are src/sbatch's: `Job 5 to start at TIME using 8 processors on nodes c1 in partition gpu`; before 17.11 without the
partition. Everything else it prints is a refusal, or a site's greeting.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone

from siteannex.scheduler.limits import ASSOC_COLUMNS, QOS_COLUMNS, Limits, parse_walltime, read_table
from siteannex.scheduler.slurm import FIND_SLURM, parse_moment

_JOBS, _AHEAD, _PARTITIONS, _NOW, _TRY = "@jobs", "@ahead", "@partitions", "@now", "@try"
_QOS, _OWN, _ACCOUNT, _PARTITION = "@qos", "@own", "@account", "@partition"
_TAGS = (_JOBS, _AHEAD, _QOS, _OWN, _ACCOUNT, _PARTITION, _PARTITIONS, _NOW, _TRY)
_PARTITION_QOS = re.compile(r"(?:^|\s)QoS=(\S+)", re.IGNORECASE)
_STARTS = re.compile(r"\bJob [0-9]+ to start at (\S+)")
_ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
_OFFSET = re.compile(r"([+-])(\d\d)(\d\d)")
_GREETING = re.compile(r"^(?:sbatch: )?(?:error: )?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Trial:
    """What Slurm said to a job it was only asked about."""

    start: datetime | None
    text: str = ""
    """Its refusal when it would not start at all."""


@dataclass(frozen=True, slots=True)
class Standing:
    """One waiting job among the others of its partition."""

    job_id: str
    qos: str = ""
    account: str = ""
    start: datetime | None = None
    reason: str = ""
    ahead: int | None = None
    """Waiting jobs of the same partition with a higher priority, as far as the site shows them."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What the site said about waiting."""

    standings: tuple[Standing, ...] = ()
    limits: Limits = field(default_factory=Limits)
    partition_qos: str = ""
    """The QOS whose limits count for every job of the partition, before the job's own QOS."""
    walltimes: Mapping[str, int] = field(default_factory=dict)
    """By partition, the longest job it takes now, in seconds; one without a limit is not in it. `sbatch --test-only`
    does not look at this limit everywhere."""
    trials: Mapping[str, Trial] = field(default_factory=dict)
    """By partition."""
    now: datetime | None = None


def starts_script(job_ids: Sequence[str], partition: str, tries: Mapping[str, Sequence[str]]) -> str:
    """Ask about waiting jobs and, by partition, about jobs that could be submitted with those sbatch options."""
    ids, part = ",".join(job_ids) or "0", shlex.quote(partition)  # without an id squeue would show every job
    lines = [
        f"{FIND_SLURM}export SLURM_TIME_FORMAT=%s",
        f"echo {_JOBS}; squeue -h -j {shlex.quote(ids)} -o '%A|%q|%a|%Q|%S|%r' 2>/dev/null",
        f"echo {_AHEAD}; squeue -h -r -t PENDING -p {part} -o '%A|%Q' 2>/dev/null | head -n 5000",
        f"echo {_QOS}; sacctmgr -P show qos format={QOS_COLUMNS} 2>/dev/null",
        f'echo {_OWN}; sacctmgr -P show assoc where user="$(id -un)" format={ASSOC_COLUMNS} 2>/dev/null',
        f"for a in $(squeue -h -j {shlex.quote(ids)} -o %a 2>/dev/null | sort -u | head -n 3); do",
        f'echo {_ACCOUNT}; sacctmgr -P show assoc where account="$a" user="" format={ASSOC_COLUMNS} 2>/dev/null; done',
        f"echo {_PARTITION}; scontrol -o show partition {part} 2>/dev/null",
        f"echo {_PARTITIONS}; sinfo -h -o '%R|%l' 2>/dev/null",
        f'echo "{_NOW} $(date "+%s %z")"',
        *(
            f"echo {_TRY} {shlex.quote(name)}; "
            f"sbatch --test-only {' '.join(map(shlex.quote, options))} --wrap=true 2>&1 </dev/null"
            for name, options in tries.items()
        ),
        "true",
    ]
    return "\n".join(lines)


def read_outlook(text: str) -> Outlook:
    """Read the answer. Never raises on foreign text; what is not understood is left out."""
    sections = _sections(text)
    now, zone = _clock(sections)
    priorities = [_number(line.partition("|")[2]) for line in _lines(sections, _AHEAD)]
    return Outlook(
        standings=tuple(_standing(line, priorities) for line in _lines(sections, _JOBS) if line.count("|") >= 5),
        limits=Limits(
            read_table(_lines(sections, _QOS)),
            (
                *read_table(_lines(sections, _OWN)),
                *(row for rows in _all(sections, _ACCOUNT) for row in read_table(rows)),
            ),
        ),
        partition_qos=_partition_qos(_lines(sections, _PARTITION)),
        walltimes=_walltimes(_lines(sections, _PARTITIONS)),
        trials={name: _trial(lines, zone) for tag, name, lines in sections if tag == _TRY and name},
        now=now,
    )


def _sections(text: str) -> list[tuple[str, str, list[str]]]:
    found: list[tuple[str, str, list[str]]] = []
    for line in text.splitlines():
        tag, _, rest = line.partition(" ")
        if tag in _TAGS:
            found.append((tag, rest.strip(), []))
        elif found and line.strip():
            found[-1][2].append(line.strip())
    return found


def _lines(sections: Sequence[tuple[str, str, list[str]]], wanted: str) -> list[str]:
    return next(iter(_all(sections, wanted)), [])


def _all(sections: Sequence[tuple[str, str, list[str]]], wanted: str) -> list[list[str]]:
    return [lines for tag, _, lines in sections if tag == wanted]


def _partition_qos(lines: Sequence[str]) -> str:
    found = _PARTITION_QOS.search(" ".join(lines))
    return found[1] if found and found[1].upper() not in ("N/A", "(NULL)") else ""


def _clock(sections: Sequence[tuple[str, str, list[str]]]) -> tuple[datetime | None, timezone]:
    said = next((rest for tag, rest, _ in sections if tag == _NOW), "")
    seconds, _, offset = said.partition(" ")
    match = _OFFSET.fullmatch(offset.strip())
    if match is None:
        return parse_moment(seconds), UTC
    ahead = timedelta(hours=int(match[2]), minutes=int(match[3]))
    try:
        return parse_moment(seconds), timezone(-ahead if match[1] == "-" else ahead)
    except ValueError:
        return parse_moment(seconds), UTC


def _standing(line: str, priorities: Sequence[int | None]) -> Standing:
    job_id, qos, account, priority, start, reason = line.split("|", 5)
    own = _number(priority)
    above = sum(each is not None and each > own for each in priorities) if own is not None and priorities else None
    cleaned = reason.strip()
    reason = "" if cleaned == "None" else cleaned
    return Standing(job_id, qos.strip(), account.strip(), parse_moment(start), reason, above)


def _number(text: str) -> int | None:
    cleaned = text.strip()
    return int(cleaned) if cleaned.isascii() and cleaned.isdigit() and len(cleaned) < 20 else None


def _walltimes(lines: Sequence[str]) -> dict[str, int]:
    pairs = (line.rpartition("|") for line in lines)
    return {name.strip(): limit for name, _, text in pairs if (limit := parse_walltime(text)) is not None}


def _trial(lines: Sequence[str], zone: timezone) -> Trial:
    for line in lines:
        if match := _STARTS.search(line):
            return Trial(_moment(match[1], zone))
    return Trial(None, _GREETING.sub("", lines[-1]) if lines else "sbatch said nothing")


def _moment(text: str, zone: timezone) -> datetime | None:
    if _ISO.fullmatch(text):
        try:
            return datetime.fromisoformat(text).replace(tzinfo=zone)
        except ValueError:
            return None
    return parse_moment(text)
