"""A request on EC2's types: the cheapest that fits, its ceiling, the quota it needs, and why not another."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siteannex.cloud.plan import CloudPlan, attempts, plan_cloud, quota_of
from siteannex.errors import AnnexError, StageFailure
from siteannex.model import Request
from siteannex.resources import data_dir
from siteannex.site.loader import read_any
from siteannex.site.other_kinds import AwsSite
from siteannex.site.partitions import REPORTED_SHARE


def aws() -> AwsSite:
    site = read_any(data_dir("sites") / "aws.yaml")
    assert isinstance(site, AwsSite)
    return site


AWS = aws()
ASKED = Request(name="aws", site="aws", gpus=4, gpu_memory_mib=40 * 1024, lifetime_s=6 * 3600)


def refused(request: Request, *, budget: float | None = None) -> StageFailure:
    with pytest.raises(AnnexError) as raised:
        plan_cloud(request, AWS, budget=budget)
    return raised.value.failure


def types(plan: CloudPlan) -> list[str]:
    return [each.instance_type for each in plan.choices]


def test_the_cheapest_type_that_fits_goes_first_and_the_ceiling_is_that_of_the_dearest_tried() -> None:
    plan = plan_cloud(ASKED, AWS)
    first = plan.choices[0]
    assert (first.instance_type, first.count, first.gpus, first.gpu_model) == ("g6e.xlarge", 4, 1, "L40S")
    assert first.ceiling == round(4 * 1.861 * 6, 2)
    assert plan.ceiling == max(each.ceiling for each in plan.choices)
    assert plan.ceiling_gpu_hours == 24
    assert plan.markets == ("on-demand",)


def test_one_instance_for_a_job_of_four_gpus() -> None:
    plan = plan_cloud(replace(ASKED, nodes=1), AWS)
    assert types(plan)[0] == "g6e.12xlarge"
    assert {each.count for each in plan.choices} == {1}
    assert plan.quotas[0].vcpus == max(each.vcpus for each in plan.choices)


def test_gpus_that_come_beyond_those_asked_are_said_and_billed() -> None:
    plan = plan_cloud(replace(ASKED, gpu_type="a100"), AWS)
    assert plan.choices[0].instance_type == "p4d.24xlarge"
    assert plan.ceiling_gpu_hours == 48
    assert plan.notes[0].startswith("8 GPUs come, 4 were asked")


def test_the_quota_is_the_familys_and_the_markets() -> None:
    codes = {
        (kind, market): quota.code
        for kind in ("g4dn.xlarge", "g6e.xlarge", "p4d.24xlarge", "p5en.48xlarge", "p6-b200.48xlarge")
        for market in ("on-demand", "spot")
        if (quota := quota_of(AWS, kind, market))
    }
    assert codes == {
        ("g4dn.xlarge", "on-demand"): "L-DB2E81BA",
        ("g4dn.xlarge", "spot"): "L-3819A6DF",
        ("g6e.xlarge", "on-demand"): "L-DB2E81BA",
        ("g6e.xlarge", "spot"): "L-3819A6DF",
        ("p4d.24xlarge", "on-demand"): "L-417A185B",
        ("p4d.24xlarge", "spot"): "L-7212CCBC",
        ("p5en.48xlarge", "on-demand"): "L-417A185B",
        ("p5en.48xlarge", "spot"): "L-C4BD4855",
        ("p6-b200.48xlarge", "on-demand"): "L-417A185B",
        ("p6-b200.48xlarge", "spot"): "L-C4BD4855",
    }
    assert quota_of(AWS, "trn1.2xlarge", "on-demand") is None, "t is for t3, not for trn1"


def test_a_quota_that_sources_disagree_about_says_so() -> None:
    plan = plan_cloud(replace(ASKED, gpus=8, gpu_type="b200", preemptible=True), AWS)
    assert plan.markets == ("spot", "on-demand")
    assert [(need.market, need.vcpus, bool(need.doubts)) for need in plan.quotas] == [
        ("spot", 192, True),
        ("on-demand", 192, False),
    ]
    assert "servicequotas/home/services/ec2/quotas/L-417A185B" in plan.quotas[1].page(plan.region)


def test_a_launch_tries_spot_before_on_demand_then_the_types_then_their_zones() -> None:
    plan = plan_cloud(replace(ASKED, nodes=1, preemptible=True), AWS)
    first, second = types(plan)[:2]
    order = list(attempts(plan, {first: ["a", "b"], second: ["c"]}))
    assert [(each.market, each.choice.instance_type, each.zone) for each in order] == [
        ("spot", first, "a"),
        ("spot", first, "b"),
        ("spot", second, "c"),
        ("on-demand", first, "a"),
        ("on-demand", first, "b"),
        ("on-demand", second, "c"),
    ]


def test_a_type_can_be_named_and_a_misspelt_one_is_guessed() -> None:
    assert types(plan_cloud(replace(ASKED, partition="g7e.2xlarge"), AWS)) == ["g7e.2xlarge"]
    problem = refused(replace(ASKED, partition="g6e.12xlarg"))
    assert problem.code == "request-impossible"
    assert problem.hint.startswith("Did you mean g6e.12xlarge?")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"gpu_type": "a40"}, "not a40"),
        ({"gpu_memory_mib": 300 * 1024}, "300 GB asked"),
        ({"gpu_capability": 13.0}, "13.0 asked"),
        ({"gpu_type": "t4", "bf16": True, "gpu_memory_mib": None}, "no bf16"),
        ({"gpus": 16, "nodes": 1}, "16 a pilot asked"),
        ({"cpus": 500}, "500 asked"),
        ({"gpu_type": "v100", "gpu_memory_mib": None}, "no image is known to carry a driver for p3dn"),
        ({"partition": "p5e.48xlarge"}, "its price is not known"),
        ({"gpus": 0, "gpu_memory_mib": None}, "no GPUs are asked"),
    ],
)
def test_what_does_not_fit_says_the_fact_that_forbids_it(changes: dict[str, object], words: str) -> None:
    problem = refused(replace(ASKED, **changes))  # type: ignore[arg-type]
    assert problem.code == "request-impossible"
    assert words in problem.summary


def test_a_budget_leaves_out_what_is_dearer_and_refuses_when_nothing_is_left() -> None:
    whole = plan_cloud(ASKED, AWS)
    small = plan_cloud(ASKED, AWS, budget=whole.choices[0].ceiling)
    assert types(small) == types(whole)[:1]
    assert small.ceiling == whole.choices[0].ceiling
    assert any("more than the budget" in text for text in small.passed_over)
    problem = refused(ASKED, budget=10)
    assert problem.code == "budget-exceeded"
    assert "34.66 USD more than the budget of 10 USD" in problem.summary


@given(
    gpus=st.integers(1, 40),
    memory=st.none() | st.integers(1024, 200 * 1024),
    nodes=st.none() | st.integers(1, 8),
    bf16=st.booleans(),
    spot=st.booleans(),
    hours=st.integers(1, 48),
    budget=st.none() | st.floats(1, 5000),
)
def test_a_plan_gives_what_was_asked_and_never_costs_more_than_the_budget(
    gpus: int, memory: int | None, nodes: int | None, bf16: bool, spot: bool, hours: int, budget: float | None
) -> None:
    request = Request("aws", "aws", gpus, nodes, gpu_memory_mib=memory, bf16=bf16, preemptible=spot)
    request = replace(request, lifetime_s=hours * 3600)
    try:
        plan = plan_cloud(request, AWS, budget=budget)
    except AnnexError:
        assert refused(request, budget=budget).code in ("request-impossible", "budget-exceeded")
        return
    assert budget is None or plan.ceiling <= budget
    for choice in plan.choices:
        facts = AWS.instances[choice.instance_type]
        assert choice.count * choice.gpus >= gpus
        assert nodes is None or choice.count == nodes
        assert choice.gpu_memory_mib >= int((memory or 0) * REPORTED_SHARE)
        assert choice.ceiling == round((facts.price or 0) * choice.count * hours, 2) <= plan.ceiling
        for market in plan.markets:
            quota = quota_of(AWS, choice.instance_type, market)
            assert quota is not None
            need = next(each for each in plan.quotas if each.name == quota.name)
            assert need.vcpus >= choice.vcpus * choice.count
