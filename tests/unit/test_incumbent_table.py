"""HTCondor's own table of queues beside our site files: they agree, or the table says why not, and by whose word."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from siteannex.resources import data_dir
from siteannex.site.loader import load_site
from siteannex.site.schema import NodeKind, Partition, Site

ROWS: list[dict[str, Any]] = YAML(typ="safe").load(Path(__file__).with_name("incumbent_table.yaml").read_text("utf-8"))
COMPARED = ("nodes", "hours", "cores", "memory_mib", "gpus", "jobs")


@lru_cache
def site(name: str) -> Site:
    return load_site(name, (data_dir("sites"),))


def ours(row: dict[str, Any]) -> tuple[Partition, NodeKind]:
    name, partition, kind = row["ours"].split("/")
    facts = site(name).partitions[partition]
    return facts, next(each for each in facts.nodes if each.name == kind)


def least(*limits: float | None) -> float | None:
    return min((limit for limit in limits if limit is not None), default=None)


def held(row: dict[str, Any]) -> dict[str, set[float | None]]:
    """What our file says of each thing compared; two numbers where we know the machine's and a job's memory."""
    facts, kind = ours(row)
    gpus = least(kind.gpus.per_node, facts.caps.gpus_per_job) if kind.gpus else 0
    memory: set[float | None] = {facts.caps.memory_per_job}
    if facts.caps.memory_per_job is None:
        memory = {each for each in (kind.memory, kind.memory_nominal) if each}
    return {
        "nodes": {least(facts.caps.nodes_per_job, kind.count)},
        "hours": {facts.max_walltime / 3600 if facts.max_walltime else None},
        "cores": {least(kind.cores, facts.caps.cores_per_job)},
        "memory_mib": memory,
        "gpus": {gpus},
        "jobs": {facts.caps.running_per_user},
    }


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['system']}-{row['queue']}")
def test_a_queue_agrees_with_ours_or_the_difference_has_its_reason(row: dict[str, Any]) -> None:
    mine, reasons = held(row), row.get("differs", {})
    different = {key for key in COMPARED if key in row and row[key] not in mine[key]}
    assert different == set(reasons), {key: (row[key], mine[key]) for key in different ^ set(reasons)}
    assert all(reasons.values())


def test_both_typos_of_the_table_are_among_the_differences() -> None:
    typos = {row["memory_mib"] for row in ROWS if "typo" in row.get("differs", {}).get("memory_mib", "")}
    assert typos == {512 * 1023, 256 * 1204}


@pytest.mark.parametrize("name", ["expanse", "bridges-2", "anvil"])
def test_h100_nodes_that_the_table_does_not_know_are_in_ours(name: str) -> None:
    there = {kind.gpus.known.name for kind in site(name).nodes.values() if kind.gpus and kind.gpus.known}
    assert "H100" in there
    compared = [kind for row in ROWS if row["ours"].startswith(f"{name}/") for kind in [ours(row)[1]]]
    assert not any(kind.gpus and kind.gpus.known and kind.gpus.known.name == "H100" for kind in compared)
