"""From a request to a plan: never more than a partition gives, the cheapest that fits, and every refusal by name."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siteannex.annex.plan import differences, plan_annex
from siteannex.errors import AnnexError, Stage
from siteannex.model import Join, Plan, Request
from siteannex.site.schema import Caps, Gpus, Partition, Site
from tests.unit.samples import TODAY, node, partition, request, site


def planned(asked: Request, at: Site | None = None) -> Plan:
    return plan_annex(asked, at or site(), annex_id="sweep1-00000001", today=TODAY)


def planned_or_none(asked: Request, at: Site) -> Plan | None:
    try:
        return planned(asked, at)
    except AnnexError:
        return None


def refused(asked: Request, at: Site | None = None) -> str:
    with pytest.raises(AnnexError) as raised:
        planned(asked, at)
    failure = raised.value.failure
    assert (failure.stage, failure.code) == (Stage.PLAN, "request-impossible")
    return "\n".join([failure.summary, *(item.text for item in failure.evidence)])


def test_two_gpus_of_four_bring_half_of_the_node() -> None:
    plan = planned(request(gpus=2))
    assert plan.partition == "gpu-shared"
    assert (plan.pilots, plan.shape.gpus, plan.shape.gpu_type) == (1, 2, "a100")
    assert (plan.shape.cpus, plan.shape.memory_mib) == (8, 32768)
    assert (plan.ceiling_gpu_hours, plan.ceiling_core_hours) == (2.0, 8.0)


def test_no_gpus_is_one_core_and_its_memory_on_the_cheapest_partition() -> None:
    plan = planned(request(gpus=0, lifetime_s=1800))
    assert (plan.partition, plan.pilots, plan.shape.gpus, plan.shape.gpu_type) == ("debug", 1, 0, None)
    assert (plan.shape.cpus, plan.shape.memory_mib) == (1, 4096)
    assert plan.ceiling_gpu_hours == 0


def test_gpus_are_spread_over_as_few_equal_pilots_as_the_node_allows() -> None:
    plan = planned(request(gpus=6))
    assert (plan.pilots, plan.shape.gpus) == (2, 3)


def test_a_job_cap_below_the_node_spreads_further() -> None:
    capped = site(partitions={"gpu": partition(caps=Caps(gpus_per_job=1))})
    plan = planned(request(gpus=3), capped)
    assert (plan.pilots, plan.shape.gpus) == (3, 1)


def test_nodes_asked_are_nodes_given() -> None:
    plan = planned(request(gpus=4, nodes=2))
    assert (plan.pilots, plan.shape.gpus) == (2, 2)
    assert planned(request(gpus=0, nodes=2, partition="gpu-shared")).pilots == 2


def test_an_exclusive_partition_gives_and_bills_the_whole_node() -> None:
    plan = planned(request(gpus=2, partition="gpu"))
    assert (plan.shape.gpus, plan.shape.cpus, plan.shape.memory_mib) == (2, 16, 65536)
    assert (plan.ceiling_gpu_hours, plan.ceiling_core_hours) == (4.0, 16.0)


def test_the_shared_partition_is_chosen_while_it_costs_less() -> None:
    assert planned(request(gpus=2)).partition == "gpu-shared"
    both = site(partitions={"gpu": partition(sharing="exclusive"), "gpu-shared": partition(max_walltime=60)})
    assert planned(request(gpus=2), both).partition == "gpu"


def test_cpus_asked_bring_their_share_of_memory_when_that_is_more() -> None:
    plan = planned(request(gpus=1, cpus=12))
    assert (plan.shape.cpus, plan.shape.memory_mib) == (12, 49152)
    assert planned(request(gpus=1, cpus=1)).shape.memory_mib == 16384


def test_memory_is_never_planned_as_zero_which_slurm_reads_as_the_whole_node() -> None:
    tiny = site(partitions={"p": partition(nodes=(node(memory=8),))})
    assert planned(request(gpus=0), tiny).shape.memory_mib == 1


def test_memory_asked_is_memory_given() -> None:
    assert planned(request(gpus=1, memory_mib=1000)).shape.memory_mib == 1000


def test_the_account_is_the_requests_else_the_sites() -> None:
    assert planned(request()).account == "abc123"
    assert planned(request(account="mine")).account == "mine"
    assert planned(request(), site(account=None)).account is None


def test_a_refusal_names_every_partition_and_its_reason() -> None:
    words = refused(request(gpus=2, lifetime_s=5 * 3600))
    assert "debug: no GPUs here" in words
    assert "gpu-shared: at most 4 h a job, 5 h asked" in words
    assert "gpu: at most 4 h a job, 5 h asked" in words


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (request(gpus=12), "gpu-shared: at most 8 GPUs (2 nodes x 4), 12 asked"),
        (request(gpus=12), "debug: no GPUs here"),
        (request(gpus=3, nodes=2), "3 GPUs do not divide over 2 nodes of at most 4 GPUs"),
        (request(gpus=1, cpus=17), "at most 16 cores a node, 17 asked"),
        (request(gpus=1, memory_mib=65537), "at most 64 GB a node"),
        (request(partition="gpuu"), "no partition 'gpuu' here; known: debug, gpu-shared, gpu"),
        (request(partition="debug"), "debug: no GPUs here"),
    ],
)
def test_a_refusal_says_the_limit_and_what_was_asked(asked: Request, words: str) -> None:
    assert words in refused(replace(asked, lifetime_s=1800))


def test_the_partitions_passed_over_are_told_in_the_notes() -> None:
    assert "not chosen: debug: no GPUs here" in planned(request(gpus=2, lifetime_s=1800)).notes


@pytest.mark.parametrize(
    ("verified", "words"), [(date(2026, 11, 1), "verified 2026-11-01"), (date(2025, 11, 1), "393 days old")]
)
def test_old_facts_are_told_as_old(verified: date, words: str) -> None:
    at = site(partitions={"gpu": partition(verified=verified)})
    assert words in planned(request(), at).notes[0]


def test_differences_name_each_field_that_differs_and_nothing_else() -> None:
    assert differences(request(), request()) == ()
    assert differences(request(gpus=4, join=Join.DIRECT), request(gpus=2)) == (
        "--gpus 4 asked, 2 living",
        "--join direct asked, auto living",
    )


partitions = st.builds(
    lambda sharing, cores, memory, walltime, nodes, cap, gpus: partition(
        sharing=sharing,
        nodes=(node(cores=cores, memory=memory, gpus=gpus),),
        max_walltime=walltime,
        caps=Caps(nodes_per_job=nodes, gpus_per_job=min(cap, gpus.per_node * (nodes or 1)) if cap and gpus else None),
        gpu_request="--gpus={count}" if gpus else None,
    ),
    st.sampled_from(["shared", "exclusive"]),
    st.integers(1, 288),
    st.integers(1, 4 * 1024**2),
    st.integers(60, 7 * 86400),
    st.none() | st.integers(1, 64),
    st.none() | st.integers(1, 32),
    st.none() | st.builds(lambda per_node: Gpus(type="a100", model="A100", per_node=per_node), st.integers(1, 16)),
)
requests = st.builds(
    Request,
    name=st.just("sweep1"),
    site=st.just("lab"),
    gpus=st.integers(0, 64),
    nodes=st.none() | st.integers(1, 40),
    cpus=st.none() | st.integers(1, 300),
    memory_mib=st.none() | st.integers(1, 5 * 1024**2),
    partition=st.none() | st.sampled_from(["p0", "p1"]),
    lifetime_s=st.integers(1, 8 * 86400),
)


@given(requests, st.lists(partitions, min_size=1, max_size=3))
def test_a_plan_never_exceeds_its_partition_and_gives_all_that_was_asked(
    asked: Request, facts: list[Partition]
) -> None:
    at = site(partitions={f"p{index}": each for index, each in enumerate(facts)})
    plan = planned_or_none(asked, at)
    if plan is None:
        told = refused(asked, at)
        assert asked.partition or all(f"{name}: " in told for name in at.partitions)
        return
    chosen, shape = at.partitions[plan.partition], plan.shape
    [kind] = chosen.nodes
    assert asked.partition in (None, plan.partition)
    assert 1 <= shape.cpus <= (kind.cores or 0)
    assert 1 <= shape.memory_mib <= (kind.memory or 0)
    assert plan.walltime_s == asked.lifetime_s <= (chosen.max_walltime or 0)
    assert plan.pilots <= (chosen.caps.nodes_per_job or plan.pilots)
    assert plan.pilots * shape.gpus == asked.gpus
    assert asked.nodes in (None, plan.pilots)
    assert shape.cpus == asked.cpus or asked.cpus is None
    assert shape.memory_mib == asked.memory_mib or asked.memory_mib is None
    if shape.gpus:
        assert kind.gpus is not None
        assert shape.gpus <= min(kind.gpus.per_node, chosen.caps.gpus_per_job or 99)
    billed = kind.gpus.per_node if chosen.sharing == "exclusive" and kind.gpus else shape.gpus
    assert plan.ceiling_gpu_hours == pytest.approx(billed * plan.pilots * plan.walltime_s / 3600, abs=0.001)
    assert plan.ceiling_core_hours >= shape.cpus * plan.pilots * plan.walltime_s / 3600 - 0.001


@given(requests, requests)
def test_two_requests_differ_exactly_where_their_fields_do(asked: Request, living: Request) -> None:
    differ = [name for name in asdict(asked) if name != "name" and asdict(asked)[name] != asdict(living)[name]]
    words = differences(asked, living)
    assert len(words) == len(differ)
    assert all(line.startswith("--") for line in words)
