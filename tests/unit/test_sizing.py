"""How large a wanted annex should be: never beyond what waits, the site's caps, or the budget."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from siteannex.annex.planning.demand import Need, Wanted
from siteannex.annex.planning.ledger import price
from siteannex.annex.planning.sizing import Bounds, Sized, sized
from siteannex.cli.settings import site_directories
from siteannex.site.loader import load_site
from siteannex.site.partitions import Caps, Charge, Preemption
from siteannex.site.schema import Defaults, Scheduler, Site
from tests.unit.samples import TODAY, partition, site


def wants(jobs: int = 1, **size: Any) -> Wanted:
    return Wanted("lab", "lab", (replace(Need(("lab",), jobs, memory_mib=128), **size),))


def asked(found: Sized) -> tuple[str, int, int, int]:
    """(partition, pilots, GPUs of each, cores of each)."""
    assert found.plan is not None, found.reason
    return found.plan.partition, found.plan.pilots, found.plan.shape.gpus, found.plan.shape.cpus


def test_gpu_jobs_get_a_pilot_each_because_small_ones_start_sooner() -> None:
    assert asked(sized(wants(3, gpus=1), site(), Bounds(), TODAY)) == ("gpu-shared", 3, 1, 4)
    assert asked(sized(wants(2, gpus=2, cpus=2), site(), Bounds(), TODAY)) == ("gpu-shared", 2, 2, 8)


def test_jobs_without_gpus_share_one_pilot() -> None:
    found = sized(wants(10, cpus=1, memory_mib=1024), site(), Bounds(lifetime_s=600), TODAY)
    assert asked(found) == ("debug", 1, 0, 10)
    assert found.jobs == 10


def test_a_job_larger_than_its_gpus_share_of_the_node_gets_what_it_asks() -> None:
    found = sized(wants(1, gpus=1, cpus=6, memory_mib=30000), site(), Bounds(), TODAY)
    assert asked(found) == ("gpu-shared", 1, 1, 6)
    assert found.plan is not None
    assert found.plan.shape.memory_mib == 30720


def test_a_cap_lets_the_rest_take_turns() -> None:
    capped = site(partitions={"gpu": partition(caps=Caps(gpus_per_user=6))})
    found = sized(wants(100, gpus=1), capped, Bounds(), TODAY)
    assert (asked(found), found.jobs) == (("gpu", 6, 1, 4), 6)


def test_a_cap_on_jobs_makes_larger_pilots() -> None:
    capped = site(partitions={"gpu": partition(caps=Caps(running_per_user=2))})
    found = sized(wants(100, gpus=1), capped, Bounds(), TODAY)
    assert (asked(found)[:3], found.jobs) == (("gpu", 2, 4), 8)


def test_whole_nodes_are_filled() -> None:
    whole = site(partitions={"gpu": partition(sharing="exclusive")})
    found = sized(wants(5, gpus=1), whole, Bounds(), TODAY)
    assert (asked(found), found.jobs) == (("gpu", 2, 4, 16), 5)


def test_the_budget_bounds_the_pilots_and_one_too_small_for_any_job_is_told() -> None:
    assert asked(sized(wants(8, gpus=1), site(), Bounds(left={"GPU-h": 3.5}), TODAY))[:2] == ("gpu-shared", 3)
    found = sized(wants(8, gpus=1), site(), Bounds(left={"GPU-h": 0.5}), TODAY)
    assert (found.plan, found.reason) == (
        None,
        "over budget: room for one job reserves 1 GPU-h, and 0.5 are left there",
    )


def test_a_charge_in_the_sites_unit_is_what_the_budget_counts() -> None:
    dear = partition(charge=Charge(unit="SU", per="gpu_hour", factor=10.0))
    found = sized(wants(8, gpus=1), site(partitions={"gpu": dear}), Bounds(left={"SU": 25, "GPU-h": 1}), TODAY)
    assert asked(found)[:2] == ("gpu", 2)
    assert found.plan is not None
    assert price(found.plan) == (20, "SU")


def test_the_user_may_say_fewer_pilots() -> None:
    assert asked(sized(wants(8, gpus=1), site(), Bounds(pilots=2), TODAY))[:2] == ("gpu-shared", 2)


def test_it_lasts_two_jobs_as_long_as_the_site_allows() -> None:
    def lasts(longest_s: int | None, asked_s: int | None = None) -> int:
        found = sized(wants(1, gpus=1, longest_s=longest_s), site(), Bounds(lifetime_s=asked_s), TODAY)
        assert found.plan is not None, found.reason
        return found.plan.walltime_s

    assert [lasts(None), lasts(5400), lasts(3 * 3600), lasts(None, 600)] == [3600, 10800, 14400, 600]
    found = sized(wants(1, gpus=1, longest_s=5 * 3600), site(), Bounds(), TODAY)
    assert found.plan is None
    assert "at most 4 h a job" in found.reason


def test_the_sites_own_lifetime_is_the_usual_one() -> None:
    found = sized(wants(1, gpus=1), site(defaults=Defaults(lifetime=7200)), Bounds(), TODAY)
    assert found.plan is not None
    assert found.plan.walltime_s == 7200


def test_partitions_that_must_be_asked_for_are_not_taken() -> None:
    shy = {
        "a": partition(restricted="for tests only"),
        "b": partition(preemption=Preemption(grace=60)),
        "c": partition(sharing="exclusive"),
    }
    assert asked(sized(wants(1, gpus=1), site(partitions=shy), Bounds(), TODAY))[0] == "c"


def test_only_partitions_where_htcondor_would_match_the_jobs_are_taken() -> None:
    job = wants(2, gpus=1, partitions=frozenset({"gpu"}))
    assert asked(sized(job, site(), Bounds(), TODAY))[0] == "gpu"


def test_jobs_that_can_run_nowhere_there_are_told_and_the_others_served() -> None:
    never = Need(("lab",), 5, gpus=4, partitions=frozenset())
    both = Wanted("lab", "lab", (*wants(2, gpus=1, partitions=frozenset({"gpu-shared"})).needs, never))
    found = sized(both, site(), Bounds(), TODAY)
    assert (asked(found)[:3], found.jobs) == (("gpu-shared", 2, 1), 2)
    assert found.notes[0].startswith("5 of its jobs can never run at lab")
    assert sized(Wanted("lab", "lab", (never,)), site(), Bounds(), TODAY).reason.startswith("none of its jobs")


def test_a_job_too_large_for_the_site_names_the_fact() -> None:
    found = sized(wants(1, gpus=1, memory_mib=900_000), site(), Bounds(), TODAY)
    assert found.plan is None
    assert "at most 64 GB a node" in found.reason


def test_a_missing_account_is_told_for_that_site() -> None:
    found = sized(wants(), site(account=None, scheduler=Scheduler(account_required=True)), Bounds(), TODAY)
    assert "takes no job without an account" in found.reason


SHIPPED = [
    load_site(name, site_directories())
    for name in ("expanse", "anvil", "delta", "bridges-2", "stampede3", "lab", "lab2")
]


@given(
    st.sampled_from(SHIPPED),
    st.integers(1, 3000),
    st.integers(0, 4),
    st.integers(1, 16),
    st.integers(0, 40_000),
    st.none() | st.floats(0.1, 5000),
)
def test_no_size_exceeds_what_waits_the_budget_or_a_cap(
    there: Site, jobs: int, gpus: int, cpus: int, memory_mib: int, budget: float | None
) -> None:
    units = {facts.charge.unit for facts in there.partitions.values() if facts.charge} | {"GPU-h", "core-h"}
    bounds = Bounds(left={} if budget is None else dict.fromkeys(units, budget), account="abc")
    found = sized(wants(jobs, gpus=gpus, cpus=cpus, memory_mib=memory_mib), there, bounds, TODAY)
    if found.plan is None:
        assert found.reason
        return
    plan, facts = found.plan, there.partitions[found.plan.partition]
    assert 1 <= found.jobs <= jobs
    assert plan.pilots <= jobs
    assert budget is None or price(plan)[0] <= budget
    assert plan.shape.gpus >= gpus
    assert plan.shape.cpus >= cpus
    assert plan.shape.memory_mib >= memory_mib
    assert facts.caps.gpus_per_user is None or plan.pilots * plan.shape.gpus <= facts.caps.gpus_per_user or not gpus
    assert facts.caps.running_per_user is None or plan.pilots <= facts.caps.running_per_user
