"""From what a cluster says of itself to the keys of a site file. Pure; nothing is written that was not seen."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from siteannex.scheduler.cluster import Cluster, LivePartition, NodeGroup, live_groups
from siteannex.scheduler.limits import Row, parse_walltime, tres_count
from siteannex.site.gpus import find_model
from siteannex.units import write_duration, write_memory

Keys = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Seen:
    """When and where the facts were read, for `verified:` and `source:`."""

    on: date
    source: str


def draft_kinds(
    cluster: Cluster, partitions: Sequence[str], taken: Collection[str] = ()
) -> tuple[Keys, dict[str, tuple[str, ...]]]:
    """(`nodes:`, partition -> names of its kinds, as `live_groups` orders them): one kind for each configuration met.

    `taken`: names that a file has given to other kinds.
    """
    kinds: Keys = {}
    names: dict[tuple[object, ...], str] = {}
    used: dict[str, tuple[str, ...]] = {}
    for partition in partitions:
        found = []
        for group in live_groups(cluster, partition):
            key = (group.cores, group.memory_mib, group.gpu_type, group.gpus)
            if key not in names:
                names[key] = _free_name(group, {*kinds, *taken})
                kinds[names[key]] = draft_kind(group)
            kind = kinds[names[key]]
            kind["count"] = max(kind["count"], group.count)
            found.append(names[key])
        used[partition] = tuple(found)
    return kinds, used


def _free_name(group: NodeGroup, taken: Collection[str]) -> str:
    name = (group.gpu_type or ("gpu" if group.gpus else "cpu")).lower()
    return next(
        each
        for number in range(1, len(taken) + 2)
        if (each := name if number == 1 else f"{name}-{number}") not in taken
    )


def draft_kind(group: NodeGroup) -> Keys:
    """One kind of node. GPU memory stays unknown until an EP has seen it."""
    kind: Keys = {"count": group.count, "cores": group.cores, "memory": write_memory(group.memory_mib)}
    if group.gpus:
        model = find_model(group.gpu_type or "")
        kind["gpus"] = {
            "type": group.gpu_type or "gpu",
            "model": model.name if model else (group.gpu_type or "gpu"),
            "per_node": group.gpus,
        }
    return kind


def draft_partition(cluster: Cluster, live: LivePartition, kinds: Sequence[str], seen: Seen) -> Keys:
    """One partition."""
    groups = live_groups(cluster, live.name)
    walltime = effective_walltime(cluster, live)
    default = live.default_walltime
    facts: Keys = {
        "sharing": "exclusive" if live.exclusive else "shared",
        "nodes": list(kinds),
        "max_walltime": write_duration(walltime) if walltime else None,
    }
    if default and (walltime is None or default <= walltime):
        facts["default_walltime"] = write_duration(default)
    if caps := live_caps(cluster, live):
        facts["caps"] = caps
    if any(group.gpus for group in groups):
        typed = all(group.gpu_type for group in groups if group.gpus)
        facts["gpu_request"] = "--gres=gpu:{type}:{count}" if typed else "--gres=gpu:{count}"
    if narrow := _narrow(live):
        facts["restricted"] = narrow
    facts |= {"verified": seen.on, "source": seen.source}
    return facts


def _narrow(live: LivePartition) -> str:
    """Who may use the partition, where not everybody may."""
    accounts = [f"accounts {', '.join(live.allow_accounts)}"] if live.allow_accounts else []
    groups = [f"groups {', '.join(live.allow_groups)}"] if live.allow_groups else []
    return f"{' and '.join([*accounts, *groups])} only" if accounts or groups else ""


def effective_walltime(cluster: Cluster, live: LivePartition) -> int | None:
    """Seconds: the partition's limit and its QOS's, whichever is shorter."""
    limits = (live.max_walltime, parse_walltime(cluster.qos_of(live.name).get("maxwall", "")))
    return min((limit for limit in limits if limit), default=None)


def live_caps(cluster: Cluster, live: LivePartition) -> Keys:
    """`caps:` as partition and QOS say, known ones only."""
    nodes = {"nodes_per_job": live.max_nodes} if live.max_nodes else {}
    return nodes | caps_of(cluster.qos_of(live.name))


def caps_of(row: Row) -> Keys:
    """What one row of `sacctmgr show qos` limits."""
    found = {
        "gpus_per_job": tres_count(row.get("maxtres", ""), "gres/gpu"),
        "gpus_per_user": tres_count(row.get("maxtrespu", ""), "gres/gpu"),
        "gpus_per_account": tres_count(row.get("maxtrespa", ""), "gres/gpu"),
        "cores_per_job": tres_count(row.get("maxtres", ""), "cpu"),
        "cores_per_user": tres_count(row.get("maxtrespu", ""), "cpu"),
        "nodes_per_user": tres_count(row.get("maxtrespu", ""), "node"),
        "running_per_user": tres_count(f"jobs={row.get('maxjobspu', '')}", "jobs"),
        "submitted_per_user": tres_count(f"jobs={row.get('maxsubmitpu', '')}", "jobs"),
    }
    return {name: count for name, count in found.items() if count}


@dataclass(frozen=True, slots=True)
class LoginSeen:
    """What was met while logging in."""

    host: str
    auth: tuple[Keys, ...] = ()
    """Steps as `login.auth` takes them, in order."""
    port: int = 22


def draft_site(name: str, title: str, login: LoginSeen, cluster: Cluster, seen: Seen) -> Keys:
    """A whole site file: every partition that is up and not hidden."""
    usable = [each for each in cluster.partitions.values() if each.state == "UP" and not each.hidden]
    kinds, used = draft_kinds(cluster, [each.name for each in usable])
    default = next((each.name for each in usable if each.default), None)
    accounts = cluster.accounts
    data: Keys = {
        "name": name,
        "title": title,
        "kind": "slurm",
        "arch": cluster.arch if cluster.arch in ("x86_64", "aarch64") else "x86_64",
        "os": cluster.os,
        "scheduler": {"kind": "slurm", "version": cluster.version},
        "login": {
            "host": login.host,
            **({"port": login.port} if login.port != 22 else {}),
            **({"auth": [dict(step) for step in login.auth]} if login.auth else {}),
        },
        "account": accounts[0] if len(accounts) == 1 else None,
        "nodes": kinds,
        "partitions": {
            each.name: draft_partition(cluster, each, used[each.name], seen) for each in usable if used[each.name]
        },
        "default_partition": default,
        "directories": {"scratch": ["$SLURM_TMPDIR", "$TMPDIR", *cluster.scratch]},
        "verified": seen.on,
        "source": seen.source,
    }
    return {key: value for key, value in data.items() if value is not None}
