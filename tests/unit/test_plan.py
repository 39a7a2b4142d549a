"""From a request to a plan: never more than a partition gives, the cheapest that fits, and every refusal by name."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from siteannex.annex.planning.plan import choose, differences, passed_over, plan_annex
from siteannex.errors import AnnexError, Stage
from siteannex.failures import FAILURES
from siteannex.model import Join, Plan, Request
from siteannex.site.schema import Caps, Charge, Gpus, Preemption, Scheduler, Site
from tests.unit.samples import TODAY, node, partition, plain_partition, request, site


def planned(asked: Request, at: Site | None = None) -> Plan:
    return plan_annex(asked, at or site(), annex_id="sweep1-00000001", today=TODAY)


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


def test_an_exclusive_partition_gives_and_bills_whole_nodes() -> None:
    plan = planned(request(gpus=2, partition="gpu"))
    assert (plan.pilots, plan.shape.gpus, plan.shape.cpus, plan.shape.memory_mib) == (1, 4, 16, 65536)
    assert (plan.ceiling_gpu_hours, plan.ceiling_core_hours) == (4.0, 16.0)
    assert "gpu gives whole nodes: you get and pay for 4 GPUs" in plan.notes
    assert planned(request(gpus=7, partition="gpu")).pilots == 2


def test_the_user_may_cut_pilots_small() -> None:
    plan = planned(request(gpus=4, gpus_per_pilot=1))
    assert (plan.pilots, plan.shape.gpus) == (4, 1)


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
    assert planned(request(gpus=0, partition="p"), tiny).shape.memory_mib == 1


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
        (request(gpus=12), "gpu-shared: at most 8 GPUs of this kind, 12 needed"),
        (request(gpus=12), "debug: no GPUs here"),
        (request(gpus=3, nodes=2, partition="gpu-shared"), "3 GPUs do not divide over 2 nodes of at most 4 GPUs"),
        (request(gpus=1, cpus=17), "at most 16 cores a node, 17 asked"),
        (request(gpus=1, memory_mib=65537), "at most 64 GB a node"),
        (request(partition="gpuu"), "no partition 'gpuu' here; known: debug, gpu-shared, gpu"),
        (request(partition="debug"), "debug: no GPUs here"),
    ],
)
def test_a_refusal_says_the_limit_and_what_was_asked(asked: Request, words: str) -> None:
    assert words in refused(replace(asked, lifetime_s=1800))


def test_partitions_of_the_wrong_sort_are_passed_over_in_silence_and_the_others_with_their_reason() -> None:
    assert planned(request(gpus=2, lifetime_s=1800)).passed_over == ("gpu: fits, bills 2 GPU-h",)
    everything = passed_over(choose(request(gpus=2), site()), whole=True)
    assert everything == ["gpu: fits, bills 4 GPU-h", "debug: no GPUs here"]


def test_without_gpus_nodes_that_have_some_are_left_to_those_who_need_them() -> None:
    assert "gpu: its nodes are for GPU jobs" in refused(request(gpus=0, lifetime_s=3600))


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"gpu_type": "h100"}, "its GPUs are a100, not h100"),
        ({"gpu_memory_mib": 60 * 1024}, "its a100 have 39.6 GB each, 60 GB asked"),
        ({"gpu_capability": 9.0}, "its a100 have capability 8.0, 9.0 asked"),
    ],
)
def test_gpus_that_do_not_do_are_refused_by_what_they_lack(wish: dict[str, Any], words: str) -> None:
    assert words in refused(request(**wish))


@pytest.mark.parametrize(
    "wish",
    [
        {"gpu_type": "A100"},
        {"gpu_type": "nvidia_a100-sxm4-40gb"},
        {"gpu_memory_mib": 40 * 1024},
        {"gpu_capability": 8.0, "bf16": True},
    ],
)
def test_gpus_are_known_by_every_spelling_and_by_the_memory_they_are_sold_with(wish: dict[str, Any]) -> None:
    assert planned(request(**wish)).partition == "gpu-shared"


def test_memory_that_nobody_has_seen_is_not_taken_for_enough() -> None:
    at = site(partitions={"p": partition(nodes=(node(gpus=Gpus(type="x", model="A100", per_node=4)),))})
    assert "the memory of its x is not known" in refused(request(gpu_memory_mib=1024), at)
    assert "its x have no bf16" in refused(
        request(bf16=True),
        site(partitions={"p": partition(nodes=(node(gpus=Gpus(type="x", model="V100", per_node=4)),))}),
    )


def test_preemptible_and_restricted_partitions_are_only_taken_when_asked_for() -> None:
    at = site(
        partitions={
            "ours": partition(restricted="members of the lab only"),
            "cheap": partition(preemption=Preemption(grace=300), charge=Charge(unit="SU", per="gpu_hour", factor=0.5)),
            "usual": partition(charge=Charge(unit="SU", per="gpu_hour")),
        }
    )
    assert planned(request(), at).partition == "usual"
    cheap = planned(request(preemptible=True), at)
    assert (cheap.partition, cheap.charge, cheap.charge_unit) == ("cheap", 1.0, "SU")
    assert "its jobs can be preempted" in cheap.notes
    assert planned(request(partition="ours"), at).partition == "ours"


def test_a_refusal_names_the_nearest_requests_that_fit() -> None:
    with pytest.raises(AnnexError) as raised:
        planned(request(gpus=12, gpu_memory_mib=60 * 1024, lifetime_s=1800))
    assert raised.value.failure.hint == FAILURES["request-impossible"].hint
    with pytest.raises(AnnexError) as raised:
        planned(request(gpus=12, lifetime_s=1800))
    assert raised.value.failure.hint == "nearest that fits: --gpus 8"
    with pytest.raises(AnnexError) as raised:
        planned(request(gpus=2, lifetime_s=86400))
    assert raised.value.failure.hint == "nearest that fits: --lifetime 4h"


def test_a_site_that_takes_no_job_without_an_account_is_not_rung_without_one() -> None:
    strict = site(account=None, scheduler=Scheduler(account_required=True, list_accounts="accounts"))
    with pytest.raises(AnnexError) as raised:
        planned(request(), strict)
    assert raised.value.failure.code == "account-missing"
    assert "accounts lists yours there" in raised.value.failure.hint
    assert planned(request(account="mine"), strict).account == "mine"


def test_doubtful_facts_are_told() -> None:
    doubtful = partition(confidence="doubtful", doubts=("3 or 4 GPUs a job",))
    assert "in doubt: 3 or 4 GPUs a job" in planned(request(), site(partitions={"gpu": doubtful})).notes


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


def test_a_charge_by_gpus_says_nothing_of_a_pilot_without_one() -> None:
    charged = partition(charge=Charge(unit="SU", per="gpu_hour"))
    found = planned(request(gpus=0, partition="gpu"), site(partitions={"gpu": charged}))
    assert (found.charge, found.ceiling_core_hours) == (None, 1.0)


def test_whole_nodes_for_a_few_cores_are_told() -> None:
    found = planned(request(gpus=0, cpus=2), site(partitions={"cpu": plain_partition(sharing="exclusive")}))
    assert "cpu gives whole nodes: you pay for all 16 cores of each" in found.notes
    assert found.ceiling_core_hours == 16.0
