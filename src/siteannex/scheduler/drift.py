"""What a site file says beside what the site says: every difference, and what to write to mend it. Pure.

It stands with the scheduler, whose words it compares; `site/` reads files and knows no batch system.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from siteannex.scheduler.cluster import Cluster, LivePartition, NodeGroup, live_groups
from siteannex.scheduler.draft import (
    Keys,
    Seen,
    caps_of,
    draft_kinds,
    draft_partition,
    effective_walltime,
    live_caps,
)
from siteannex.scheduler.starts import Trial
from siteannex.site.gpus import find_model
from siteannex.site.schema import Gpus, NodeKind, Partition, Site
from siteannex.units import format_duration, format_memory, write_duration, write_memory

Change = dict[tuple[str, ...], Any]
_ABOUT_GPUS = re.compile(r"gres|generic resource|node configuration is not available", re.IGNORECASE)
"""What sbatch says to GPUs it does not know by that spelling, from release to release."""
_LEAST_SHARE, _MOST_SHARE = 0.85, 1.03
"""A job can ask a little less than the memory that Slurm configures, never more."""


@dataclass(frozen=True, slots=True)
class Drift:
    """One difference. `key` is the place in the site's file."""

    key: str
    here: str
    there: str
    source: str
    """The command whose answer `there` is."""
    change: Mapping[tuple[str, ...], Any] = field(default_factory=dict)
    """Place in the file -> what to write (None takes it away); empty where a person must decide."""


def drifts(
    site: Site, cluster: Cluster, seen: Seen, *, account: str | None = None, trials: Mapping[str, Trial] | None = None
) -> tuple[Drift, ...]:
    """Every difference, in the file's order. `trials`: what `sbatch --test-only` said of one small job a partition."""
    fresh = _Fresh.of(site, cluster)
    return (
        *_head(site, cluster, account),
        *(
            each
            for name, facts in site.partitions.items()
            for each in _partition(site, name, facts, cluster, seen, fresh)
        ),
        *_kind_counts(site, cluster),
        *_new_partitions(site, cluster, seen, fresh),
        *_refused(site, cluster, trials or {}),
    )


def _head(site: Site, cluster: Cluster, account: str | None) -> Iterator[Drift]:
    if cluster.arch and cluster.arch != site.arch:
        yield Drift("arch", site.arch, cluster.arch, "uname -m", {("arch",): cluster.arch})
    if cluster.version and site.scheduler.version and not _same_version(site.scheduler.version, cluster.version):
        change: Change = {("scheduler", "version"): cluster.version}
        yield Drift("scheduler.version", site.scheduler.version, cluster.version, "sbatch --version", change)
    charged = account or site.account
    if charged and cluster.accounts and charged not in cluster.accounts:
        yield Drift("account", charged, f"yours are {', '.join(cluster.accounts)}", "sacctmgr show assoc")


def _same_version(here: str, there: str) -> bool:
    """`24.11` and `24.11.5` are the same release."""
    return here.split(".")[:2] == there.split(".")[:2]


@dataclass(frozen=True, slots=True)
class _Fresh:
    """How kinds of node are called that the file may not know: one name for each, and none that means another."""

    site: Site
    kinds: Keys
    names: Mapping[NodeGroup, str]

    @classmethod
    def of(cls, site: Site, cluster: Cluster) -> _Fresh:
        kinds, used = draft_kinds(cluster, list(cluster.partitions), site.nodes)
        pairs = ((name, live_groups(cluster, name)) for name in cluster.partitions)
        return cls(
            site,
            kinds,
            {group: kind for name, groups in pairs for group, kind in zip(groups, used[name], strict=True)},
        )

    def name(self, group: NodeGroup) -> str:
        """The file's own name where it describes such nodes already, else a new one."""
        return next((name for name, kind in self.site.nodes.items() if _describes(kind, group)), self.names[group])

    def written(self, groups: Sequence[NodeGroup]) -> Change:
        """What must be written under `nodes:` for these."""
        names = {self.name(group) for group in groups} - self.site.nodes.keys()
        return {("nodes", name): self.kinds[name] for name in sorted(names)}


def _describes(kind: NodeKind, group: NodeGroup) -> bool:
    """Whether a kind says all of these nodes: their GPUs, cores and memory."""
    told = kind.cores is not None and (kind.memory or kind.memory_nominal) is not None
    same = (kind.gpus is None) == (group.gpus == 0) and _same_gpus(kind.gpus, group)
    return told and same and not any(_kind(kind, group))


def _partition(site: Site, name: str, facts: Partition, cluster: Cluster, seen: Seen, fresh: _Fresh) -> Iterator[Drift]:
    if facts.request_by == "qos":
        yield from _qos_partition(name, facts, cluster)
        return
    live = cluster.partitions.get(name)
    if live is None:
        yield _gone(site, name, facts, cluster, seen)
        return
    where = f"partitions.{name}"
    if live.state not in ("UP", "UNKNOWN"):
        yield Drift(f"{where}", "usable", f"state {live.state}", "scontrol show partition")
    walltime = effective_walltime(cluster, live)
    if walltime is not None and walltime != facts.max_walltime:
        here = format_duration(facts.max_walltime) if facts.max_walltime else "unknown"
        change: Change = {("partitions", name, "max_walltime"): write_duration(walltime)}
        if facts.default_walltime and facts.default_walltime > walltime:
            change[("partitions", name, "default_walltime")] = write_duration(walltime)
        yield Drift(f"{where}.max_walltime", here, format_duration(walltime), _walltime_source(live, walltime), change)
    sharing = "exclusive" if live.exclusive else "shared"
    if live.exclusive and facts.sharing != sharing:
        change = {("partitions", name, "sharing"): sharing}
        yield Drift(f"{where}.sharing", facts.sharing, sharing, "scontrol show partition", change)
    yield from _caps(name, facts, live_caps(cluster, live), known=bool(cluster.qos_of(name)), enforced=cluster.enforced)
    yield from _nodes(name, facts, cluster, fresh)


def _walltime_source(live: LivePartition, walltime: int) -> str:
    return "scontrol show partition" if live.max_walltime == walltime else "sacctmgr show qos"


def _qos_partition(name: str, facts: Partition, cluster: Cluster) -> Iterator[Drift]:
    rows = {row.get("name"): row for row in cluster.limits.qos}
    if not rows:
        return
    if facts.qos not in rows:
        yield Drift(f"partitions.{name}.qos", str(facts.qos), "no such QOS", "sacctmgr show qos", _taken(name))
        return
    yield from _caps(name, facts, caps_of(rows[facts.qos]), known=True, enforced=cluster.enforced)


def _taken(name: str) -> Change:
    return {("partitions", name): None}


def _gone(site: Site, name: str, facts: Partition, cluster: Cluster, seen: Seen) -> Drift:
    """Renamed, when a partition that the file does not know has the same walltime and the same nodes."""
    unknown = [each for each in cluster.partitions.values() if each.name not in site.partitions and not each.hidden]
    alike = [
        each
        for each in unknown
        if effective_walltime(cluster, each) == facts.max_walltime
        and all(_best(kind, live_groups(cluster, each.name)) is not None for kind in facts.nodes)
    ]
    ranked = difflib.get_close_matches(name, [each.name for each in alike], n=1, cutoff=0.0)
    key, source = f"partitions.{name}", "scontrol show partition"
    new = ranked[0] if ranked else None
    default: Change = {("default_partition",): new} if site.default_partition == name else {}
    if new is None:
        return Drift(key, "in the file", "no such partition", source, _taken(name) | default)
    kept = draft_partition(cluster, cluster.partitions[new], [kind.name for kind in facts.nodes], seen)
    kept |= _untold(facts)
    return Drift(key, name, f"renamed to {new}?", source, {**_taken(name), ("partitions", new): kept, **default})


_UNTOLD = {"memory_request", "options", "qos", "charge", "allocation", "preemption", "restricted"}


def _untold(facts: Partition) -> Keys:
    """What a person wrote of a partition and no command of Slurm tells, as the file writes it."""
    kept: Keys = facts.model_dump(include=_UNTOLD, exclude_defaults=True)
    for inner, key, written in (
        (kept.get("charge"), "minimum", write_duration),
        ((kept.get("charge") or {}).get("bundle"), "memory", write_memory),
        (kept.get("preemption"), "exempt", write_duration),
        (kept.get("preemption"), "grace", write_duration),
    ):
        if inner and inner.get(key) is not None:
            inner[key] = written(inner[key])
    return kept | {"gpu_request": facts.gpu_request}


def _caps(name: str, facts: Partition, live: Keys, *, known: bool, enforced: bool | None) -> Iterator[Drift]:
    """Limits that the site tells and the file does not, or otherwise. Where the site told no QOS, nothing is known."""
    here = {key: value for key, value in facts.caps.model_dump().items() if value is not None}
    if not facts.max_gpus_per_node:
        live = {key: value for key, value in live.items() if not key.startswith("gpus_")}
    for key, there in live.items():
        if here.get(key) != there:
            change: Change = {("partitions", name, "caps", key): there}
            source = "scontrol show partition" if key == "nodes_per_job" else "sacctmgr show qos"
            yield Drift(f"partitions.{name}.caps.{key}", str(here.get(key, "no limit")), str(there), source, change)
    told = {"gpus_per_job", "gpus_per_user", "gpus_per_account", "running_per_user", "submitted_per_user"}
    for key in sorted((here.keys() & told) - live.keys()) if known and enforced is not False else ():
        change = {("partitions", name, "caps", key): None}
        yield Drift(f"partitions.{name}.caps.{key}", str(here[key]), "no limit", "sacctmgr show qos", change)


def _nodes(name: str, facts: Partition, cluster: Cluster, fresh: _Fresh) -> Iterator[Drift]:
    groups = live_groups(cluster, name)
    if not groups:
        return
    met: list[NodeGroup] = []
    for kind in facts.nodes:
        group = _best(kind, groups)
        if group is None:
            has = ", ".join(sorted({_group_words(each) for each in groups}))
            yield Drift(f"partitions.{name}.nodes", _kind_words(kind), f"none such; it has {has}", "sinfo")
            continue
        met.append(group)
        yield from _kind(kind, group)
    if any(kind.gpus for kind in facts.nodes):
        for group in groups:
            if group.gpus and group not in met:
                yield _new_kind(name, facts, group, fresh)


def _best(kind: NodeKind, groups: Sequence[NodeGroup]) -> NodeGroup | None:
    """The group of nodes that the kind most probably means: the right GPUs, then the nearest size."""
    fitting = [group for group in groups if _same_gpus(kind.gpus, group)]
    plain = [group for group in fitting if not group.gpus] if kind.gpus is None else []
    size = kind.memory or kind.memory_nominal or 0
    return min(
        plain or fitting,
        key=lambda group: (abs(group.cores - (kind.cores or group.cores)), abs(group.memory_mib - size)),
        default=None,
    )


def _same_gpus(gpus: Gpus | None, group: NodeGroup) -> bool:
    if gpus is None:
        return True  # a partition for CPU jobs may well stand on nodes with GPUs
    if not group.gpus:
        return False
    if group.gpu_type is None or group.gpu_type.lower() == gpus.type.lower():
        return True
    model = find_model(group.gpu_type)
    return model is not None and model is gpus.known


def _kind(kind: NodeKind, group: NodeGroup) -> Iterator[Drift]:
    """One kind of node beside the nodes it means. Slurm may count hardware threads, two to a core."""
    where, place = f"nodes.{kind.name}", ("nodes", kind.name)
    if kind.cores is not None and group.cores not in (kind.cores, 2 * kind.cores):
        yield Drift(f"{where}.cores", str(kind.cores), str(group.cores), "sinfo", {(*place, "cores"): group.cores})
    size = kind.memory or kind.memory_nominal
    if size is not None and not group.memory_mib * _LEAST_SHARE <= size <= group.memory_mib * (
        _MOST_SHARE if kind.memory else 1.15
    ):
        key = "memory" if kind.memory else "memory_nominal"
        change: Change = {(*place, key): write_memory(group.memory_mib)}
        yield Drift(f"{where}.{key}", format_memory(size), format_memory(group.memory_mib), "sinfo", change)
    gpus = kind.gpus
    if gpus is None:
        return
    if group.gpus != gpus.per_node:
        change = {(*place, "gpus", "per_node"): group.gpus}
        yield Drift(f"{where}.gpus.per_node", str(gpus.per_node), str(group.gpus), "sinfo", change)
    if group.gpu_type is not None and group.gpu_type != gpus.type:
        change = {(*place, "gpus", "type"): group.gpu_type}
        yield Drift(f"{where}.gpus.type", gpus.type, group.gpu_type, "sinfo", change)


def _new_kind(name: str, facts: Partition, group: NodeGroup, fresh: _Fresh) -> Drift:
    kinds = [*(each.name for each in facts.nodes), fresh.name(group)]
    change: Change = {**fresh.written([group]), ("partitions", name, "nodes"): kinds}
    return Drift(f"partitions.{name}.nodes", "not in the file", _group_words(group), "sinfo", change)


def _kind_counts(site: Site, cluster: Cluster) -> Iterator[Drift]:
    """How many nodes of each kind: in the partition that has most of them."""
    for name, kind in site.nodes.items():
        counts = [
            group.count
            for partition, facts in site.partitions.items()
            if any(each.name == name for each in facts.nodes)
            and (group := _best(kind, live_groups(cluster, partition))) is not None
        ]
        if kind.count is not None and counts and max(counts) != kind.count:
            change: Change = {("nodes", name, "count"): max(counts)}
            yield Drift(f"nodes.{name}.count", str(kind.count), str(max(counts)), "sinfo", change)


def _new_partitions(site: Site, cluster: Cluster, seen: Seen, fresh: _Fresh) -> Iterator[Drift]:
    gone = [name for name in site.partitions if name not in cluster.partitions]
    for live in cluster.partitions.values():
        if live.name in site.partitions or live.hidden or live.state != "UP":
            continue
        if any(
            ("partitions", live.name) in _gone(site, name, site.partitions[name], cluster, seen).change for name in gone
        ):
            continue  # told as renamed
        groups = live_groups(cluster, live.name)
        change: Change = fresh.written(groups)
        own = list(dict.fromkeys(fresh.name(group) for group in groups))
        change[("partitions", live.name)] = draft_partition(cluster, live, own, seen)
        words = ", ".join(_group_words(group) for group in groups)
        yield Drift(f"partitions.{live.name}", "not in the file", f"new: {words}", "scontrol show partition", change)


def _refused(site: Site, cluster: Cluster, trials: Mapping[str, Trial]) -> Iterator[Drift]:
    for name, trial in trials.items():
        if trial.start is None and trial.text and name in cluster.partitions:
            asked = site.partitions[name].gpu_request or "a small job"
            key = "gpu_request" if _ABOUT_GPUS.search(trial.text) else "(job)"
            yield Drift(f"partitions.{name}.{key}", asked, f"refused: {trial.text}", "sbatch --test-only")


def _group_words(group: NodeGroup) -> str:
    gpus = f"{group.gpus} {group.gpu_type or 'GPUs'}, " if group.gpus else ""
    return f"{group.count} nodes of {gpus}{group.cores} cores, {format_memory(group.memory_mib)}"


def _kind_words(kind: NodeKind) -> str:
    gpus = f"{kind.gpus.per_node} {kind.gpus.type}, " if kind.gpus else ""
    return f"{kind.name}: {gpus}{kind.cores or '?'} cores"
