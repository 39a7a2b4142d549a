"""Whatever is asked: no plan exceeds a fact of its partition, and every refusal names a fact that really forbids it.

On generated sites and on every site file of this repository.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siteannex.annex.planning.layout import Layout, Refusal, lay_out
from siteannex.annex.planning.plan import choose, differences
from siteannex.model import Request
from siteannex.site.loader import read_any
from siteannex.site.partitions import REPORTED_SHARE
from siteannex.site.schema import Caps, Gpus, NodeKind, Partition, Site
from tests.unit.samples import node, partition

SITE_FILES = sorted((Path(__file__).parents[2] / "sites").glob("*.yaml"))
SITES = [site for path in SITE_FILES if isinstance(site := read_any(path, [path.parent]), Site)]


def caps(**given_caps: int | None) -> Caps:
    """The caps that a schema takes: each no more than the next wider one."""
    known = {name: value for name, value in given_caps.items() if value is not None}
    if "gpus_per_job" in known and "gpus_per_user" in known:
        known["gpus_per_user"] = max(known["gpus_per_user"], known["gpus_per_job"])
    if "running_per_user" in known and "submitted_per_user" in known:
        known["submitted_per_user"] = max(known["submitted_per_user"], known["running_per_user"])
    if "cores_per_job" in known and "cores_per_user" in known:
        known["cores_per_user"] = max(known["cores_per_user"], known["cores_per_job"])
    return Caps.model_validate(known)


def some(largest: int) -> st.SearchStrategy[int | None]:
    return st.none() | st.integers(1, largest)


gpus = st.none() | st.builds(
    Gpus,
    type=st.just("a100"),
    model=st.sampled_from(["A100", "V100", "Max 1550", "unheard of"]),
    per_node=st.integers(1, 16),
    memory_nominal=some(200 * 1024),
)
nodes = st.builds(
    lambda cores, memory, count, gpus: node(cores=cores, memory=memory, count=count, gpus=gpus),
    some(288),
    some(4 * 1024**2),
    some(64),
    gpus,
)
all_caps = st.builds(
    caps,
    gpus_per_job=some(16),
    gpus_per_user=some(64),
    cores_per_job=some(288),
    cores_per_user=some(1000),
    memory_per_job=some(4 * 1024**2),
    running_per_user=some(40),
    submitted_per_user=some(60),
    nodes_per_user=some(40),
)


def _partition(sharing: str, kind: NodeKind, walltime: int | None, limits: Caps) -> Partition:
    request = "--gpus={count}" if kind.gpus else None
    if kind.gpus and limits.gpus_per_job and limits.gpus_per_job > kind.gpus.per_node:
        limits = limits.model_copy(update={"gpus_per_job": None})
    return partition(sharing=sharing, nodes=(kind,), max_walltime=walltime, caps=limits, gpu_request=request)


partitions = st.builds(_partition, st.sampled_from(["shared", "exclusive"]), nodes, some(7 * 86400), all_caps)
requests = st.builds(
    Request,
    name=st.just("sweep1"),
    site=st.just("lab"),
    gpus=st.integers(0, 64),
    nodes=some(40),
    gpu_type=st.none() | st.sampled_from(["a100", "h100", "v100-32"]),
    gpu_memory_mib=some(200 * 1024),
    gpu_capability=st.none() | st.sampled_from([7.0, 8.0, 9.0]),
    bf16=st.booleans(),
    cpus=some(300),
    memory_mib=some(5 * 1024**2),
    partition=st.just("p"),
    lifetime_s=st.integers(1, 8 * 86400),
)


def broken_facts(layout: Layout, asked: Request) -> Iterator[str]:
    """Every fact of its partition that a layout exceeds; told from the facts alone."""
    facts, kind, shape, pilots = layout.facts, layout.kind, layout.shape, layout.pilots
    limits, whole = facts.caps, facts.sharing == "exclusive"
    cores = kind.cores if whole and kind.cores else shape.cpus
    held = {
        "max_walltime": (asked.lifetime_s, facts.max_walltime),
        "nodes.cores": (shape.cpus, kind.cores),
        "nodes.memory": (shape.memory_mib, kind.memory_usable),
        "gpus.per_node": (shape.gpus, kind.gpus.per_node if kind.gpus else 0),
        "gpus_per_job": (shape.gpus, limits.gpus_per_job),
        "gpus_per_user": (shape.gpus * pilots, limits.gpus_per_user),
        "gpus_per_account": (shape.gpus * pilots, limits.gpus_per_account),
        "cores_per_job": (cores, limits.cores_per_job),
        "cores_per_user": (cores * pilots, limits.cores_per_user),
        "memory_per_job": (shape.memory_mib, limits.memory_per_job),
        "running_per_user": (pilots, limits.running_per_user),
        "submitted_per_user": (pilots, limits.submitted_per_user),
        "nodes_per_user": (pilots if whole else 0, limits.nodes_per_user),
        "nodes.count": (pilots if whole else 0, kind.count),
        "GPUs there are": (shape.gpus * pilots, kind.count * kind.gpus.per_node if kind.count and kind.gpus else None),
    }
    yield from (name for name, (needed, most) in held.items() if most is not None and needed > most)


def gives_what_was_asked(layout: Layout, asked: Request) -> bool:
    shape, kind = layout.shape, layout.kind
    enough = layout.pilots * shape.gpus >= asked.gpus and shape.cpus >= max(1, asked.cpus or 1)
    exact = layout.facts.sharing == "exclusive" or layout.pilots * shape.gpus == asked.gpus
    memory = asked.memory_mib in (None, shape.memory_mib) and shape.memory_mib >= 1
    if not asked.gpus:
        return enough and memory and asked.nodes in (None, layout.pilots)
    assert kind.gpus is not None
    floor = int((asked.gpu_memory_mib or 0) * REPORTED_SHARE)
    right = (kind.gpus.memory_floor or 0) >= floor and (kind.gpus.compute_capability or 0) >= (
        asked.gpu_capability or 0
    )
    return enough and exact and memory and right and (kind.gpus.has_bf16 is True or not asked.bf16)


def without(fact: str, facts: Partition) -> Partition | None:
    """The partition with the fact that a refusal named taken away; None where it is no limit but what nodes are."""
    holder, _, key = fact.rpartition(".")
    if fact == "max_walltime":
        return facts.model_copy(update={"max_walltime": None})
    if holder == "caps":
        assert getattr(facts.caps, key) is not None, f"{fact} is not in the site's file"
        return facts.model_copy(update={"caps": facts.caps.model_copy(update={key: None})})
    if fact == "nodes.count":
        kinds = tuple(kind.model_copy(update={"count": None}) for kind in facts.nodes)
        return facts.model_copy(update={"nodes": kinds})
    return None


def check(asked: Request, name: str, facts: Partition) -> None:
    for number, kind in enumerate(facts.nodes):
        found = lay_out(asked, name, facts, kind)
        if isinstance(found, Layout):
            assert list(broken_facts(found, asked)) == []
            assert gives_what_was_asked(found, asked)
            assert found.bill.gpu_hours >= round(found.pilots * found.shape.gpus * asked.lifetime_s / 3600, 3)
            continue
        assert found.text
        freer = without(found.fact, facts)
        if freer is not None:
            now = lay_out(asked, name, freer, freer.nodes[number])
            assert not (isinstance(now, Refusal) and now.fact == found.fact), f"{found.fact} did not forbid it"


@given(requests, partitions)
def test_no_layout_exceeds_a_fact_and_every_refusal_names_one_that_forbids(asked: Request, facts: Partition) -> None:
    check(asked, "p", facts)


@pytest.mark.parametrize("site", SITES, ids=lambda site: site.name)
@given(asked=requests)
def test_so_it_is_at_every_real_site(site: Site, asked: Request) -> None:
    for name, facts in site.partitions.items():
        check(replace(asked, site=site.name, partition=name), name, facts)


@given(requests, st.lists(partitions, min_size=1, max_size=3))
def test_the_chosen_layout_costs_no_more_than_any_other_that_fits(asked: Request, facts: list[Partition]) -> None:
    at = SITES[0].model_copy(update={"partitions": {f"p{number}": each for number, each in enumerate(facts)}})
    choice = choose(replace(asked, partition=None), at)
    assert len(choice.fits) + len(choice.refusals) == len(facts)
    hours = [layout.bill.gpu_hours or layout.bill.core_hours for layout in choice.fits]
    assert hours == sorted(hours)


@given(requests, requests)
def test_two_requests_differ_exactly_where_their_fields_do(asked: Request, living: Request) -> None:
    differ = [name for name in asdict(asked) if name != "name" and asdict(asked)[name] != asdict(living)[name]]
    words = differences(asked, living)
    assert len(words) == len(differ)
    assert all(line.startswith("--") for line in words)
