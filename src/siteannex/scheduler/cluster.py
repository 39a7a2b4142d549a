"""A Slurm cluster as it describes itself: partitions, kinds of node, limits, the user's accounts. Pure text.

Slurm 20.11 to 26.05 print the same keys in `scontrol show partition -o` and more of them with time; what is not there
is None. `sinfo -e` keeps nodes of different configuration apart. Some sites print `infinite` for a partition and keep
the limits in its QOS: read both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from siteannex.scheduler.limits import QOS_COLUMNS, Limits, Row, parse_walltime, read_table
from siteannex.scheduler.slurm import FIND_SLURM

_TAGS = ("@version", "@machine", "@partitions", "@nodes", "@qos", "@own", "@config", "@scratch", "@done")
_OWN_COLUMNS = "Account,User,Partition,QOS,DefaultQOS,MaxTRES,MaxJobs,MaxSubmit,MaxWall"
_KEYS = re.compile(r"(?:^|\s)([A-Za-z]+)=")
_GRES = re.compile(r"gpu(?::(?P<type>[A-Za-z0-9_.-]+?))?:(?P<count>\d{1,4})(?:\(|$)")
_UNSET = frozenset({"", "(null)", "n/a", "none", "unlimited", "infinite", "all"})


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes of one partition that are configured alike."""

    partition: str
    count: int
    cores: int
    """CPUs as Slurm counts them."""
    memory_mib: int
    gpu_type: str | None
    """Slurm's GRES type; None for untyped GPUs, or none."""
    gpus: int
    features: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LivePartition:
    """One partition. None: no limit, or not told."""

    name: str
    state: str
    max_walltime: int | None
    default_walltime: int | None
    exclusive: bool
    hidden: bool
    default: bool
    qos: str | None
    max_nodes: int | None
    min_nodes: int | None
    allow_accounts: tuple[str, ...] = ()
    allow_groups: tuple[str, ...] = ()
    allow_qos: tuple[str, ...] = ()
    preempt_mode: str | None = None


@dataclass(frozen=True, slots=True)
class Cluster:
    """All of it, as one user sees it."""

    version: str | None = None
    """`24.11.5`."""
    arch: str | None = None
    """As `uname -m` prints it."""
    os: str | None = None
    name: str | None = None
    partitions: Mapping[str, LivePartition] = field(default_factory=dict)
    nodes: tuple[NodeGroup, ...] = ()
    limits: Limits = field(default_factory=Limits)
    """QOS rows, and the user's associations."""
    enforced: bool | None = None
    """Whether Slurm enforces limits of QOSes and associations; None when it does not say."""
    preemption: bool | None = None
    scratch: tuple[str, ...] = ()
    """Directories of those asked for that exist at the login node."""

    @property
    def accounts(self) -> tuple[str, ...]:
        """The user's accounts, in the site's order."""
        return tuple(dict.fromkeys(row["account"] for row in self.limits.associations if row.get("account")))

    def qos_of(self, partition: str) -> Row:
        """The row of the partition's own QOS, else of the user's default one, else the only `normal`; {} for none."""
        own = self.partitions[partition].qos if partition in self.partitions else None
        usual = next((row["def qos"] for row in self.limits.associations if row.get("def qos")), "normal")
        rows = {row.get("name", ""): row for row in self.limits.qos}
        return rows.get(own or "", rows.get(usual, {}))


SCRATCH_ASKED = ("/scratch", "/local_scratch", "/lscratch", "/tmp")  # noqa: S108  (asked about, not written)


def cluster_script() -> str:
    """Ask everything in one round trip; what a site refuses to tell stays empty."""
    return f"""{FIND_SLURM}echo @version; sbatch --version 2>/dev/null
echo @machine; uname -m; sed -n 's/^PRETTY_NAME="\\(.*\\)"$/\\1/p' /etc/os-release 2>/dev/null
echo @partitions; scontrol show partition -a -o 2>/dev/null
echo @nodes; sinfo -h -a -e -o '%R|%D|%c|%m|%G|%f' 2>/dev/null
echo @qos; sacctmgr -P show qos format={QOS_COLUMNS} 2>/dev/null
echo @own; sacctmgr -P show assoc where user="$(id -un)" format={_OWN_COLUMNS} 2>/dev/null
echo @config; scontrol show config 2>/dev/null | grep -iE '^(ClusterName|PreemptType|AccountingStorageEnforce) '
echo @scratch; for d in {" ".join(SCRATCH_ASKED)}; do [ -d "$d" ] && echo "$d"; done
echo @done"""


def read_cluster(text: str) -> Cluster | None:
    """Read the answer; None when it was cut off or holds no partition. Never raises on foreign text."""
    sections = _sections(text)
    partitions = [found for line in sections.get("@partitions", ()) if (found := _partition(line)) is not None]
    if "@done" not in sections or not partitions:
        return None
    machine = sections.get("@machine", [])
    config = dict(_setting(line) for line in sections.get("@config", ()))
    return Cluster(
        version=next((match[0] for line in sections.get("@version", ()) if (match := _version(line))), None),
        arch=machine[0] if machine else None,
        os=machine[1] if len(machine) > 1 else None,
        name=config.get("clustername"),
        partitions={each.name: each for each in partitions},
        nodes=tuple(group for line in sections.get("@nodes", ()) for group in _groups(line)),
        limits=Limits(read_table(sections.get("@qos", [])), read_table(sections.get("@own", []))),
        enforced=_enforced(config.get("accountingstorageenforce")),
        preemption=None if (kind := config.get("preempttype")) is None else "none" not in kind,
        scratch=tuple(line for line in sections.get("@scratch", ()) if line in SCRATCH_ASKED),
    )


def _enforced(words: str | None) -> bool | None:
    return None if words is None else any(word in words for word in ("limits", "qos", "safe"))


def _sections(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in text.splitlines():
        if line.strip() in _TAGS:
            current = found.setdefault(line.strip(), [])
        elif current is not None and line.strip():
            current.append(line.strip())
    return found


def _version(line: str) -> re.Match[str] | None:
    return re.search(r"\d{2}\.\d{2}(?:\.\d{1,3})?", line)


def _setting(line: str) -> tuple[str, str]:
    key, _, value = line.partition("=")
    return key.strip().lower(), value.strip().lower() if key.strip().lower() != "clustername" else value.strip()


def _partition(line: str) -> LivePartition | None:
    """One line of `scontrol show partition -o`."""
    keys = _pairs(line)
    name = keys.get("partitionname", "")
    if not name:
        return None
    oversubscribe = keys.get("oversubscribe", keys.get("shared", "")).lower()
    return LivePartition(
        name=name,
        state=keys.get("state", "").upper() or "UNKNOWN",
        max_walltime=parse_walltime(keys.get("maxtime", "")),
        default_walltime=parse_walltime(keys.get("defaulttime", "")),
        exclusive=oversubscribe.startswith("exclusive"),
        hidden=keys.get("hidden", "").lower() == "yes",
        default=keys.get("default", "").lower() == "yes",
        qos=_word(keys.get("qos", "")),
        max_nodes=_count(keys.get("maxnodes", "")),
        min_nodes=_count(keys.get("minnodes", "")) or None,
        allow_accounts=_list(keys.get("allowaccounts", "")),
        allow_groups=_list(keys.get("allowgroups", "")),
        allow_qos=_list(keys.get("allowqos", "")),
        preempt_mode=_word(keys.get("preemptmode", "")),
    )


def _pairs(line: str) -> dict[str, str]:
    """`Key=value Key=value`, where values may hold spaces and `=`."""
    marks = list(_KEYS.finditer(line))
    ends = [*(mark.start() for mark in marks[1:]), len(line)]
    return {mark[1].lower(): line[mark.end() : end].strip() for mark, end in zip(marks, ends, strict=False)}


def _groups(line: str) -> list[NodeGroup]:
    fields = line.split("|", 5)
    if len(fields) < 6:
        return []
    partition, count, cores, memory, gres, features = (field.strip() for field in fields)
    numbers = [_count(text.rstrip("+")) for text in (count, cores, memory)]
    if not partition or any(number is None for number in numbers):
        return []
    nodes, cpus, mib = (number or 0 for number in numbers)
    kinds = [match for part in gres.split(",") if (match := _GRES.match(part.strip()))]
    tags = tuple(part for part in features.split(",") if part.lower() not in _UNSET)
    if not kinds:
        return [NodeGroup(partition, nodes, cpus, mib, None, 0, tags)]
    return [NodeGroup(partition, nodes, cpus, mib, kind["type"], int(kind["count"]), tags) for kind in kinds]


def _word(text: str) -> str | None:
    return None if text.strip().lower() in _UNSET else text.strip()


def _list(text: str) -> tuple[str, ...]:
    return () if text.strip().lower() in _UNSET else tuple(part for part in text.strip().split(",") if part)


def _count(text: str) -> int | None:
    cleaned = text.strip()
    return int(cleaned) if cleaned.isascii() and cleaned.isdigit() and len(cleaned) < 10 else None


def live_groups(cluster: Cluster, partition: str) -> Sequence[NodeGroup]:
    """The kinds of node of one partition; those that differ in features alone as one."""
    merged: dict[tuple[int, int, str | None, int], NodeGroup] = {}
    for group in cluster.nodes:
        if group.partition == partition:
            key = (group.cores, group.memory_mib, group.gpu_type, group.gpus)
            known = merged.get(key)
            count = group.count + (known.count if known else 0)
            features = tuple(sorted({*group.features, *(known.features if known else ())}))
            merged[key] = NodeGroup(partition, count, *key, features=features)
    return tuple(merged.values())
