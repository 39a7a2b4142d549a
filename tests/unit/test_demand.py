"""Which annexes are wanted, of what jobs name and what there is."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siteannex.annex.planning.demand import Need, Wanted, as_data, need_of, standing, waiting_text, wanted
from siteannex.annex.store import Annex
from siteannex.pool.job_queue import Demand
from tests.unit.paper_queue import GPU_JOB, JOB, PaperQueue, ad
from tests.unit.samples import request
from tests.unit.world import World

SITES = {"expanse": "expanse", "big": "delta"}


def need(*annexes: str, jobs: int = 1, **changes: object) -> Need:
    return replace(Need(annexes, jobs), **changes)  # type: ignore[arg-type]


def test_jobs_of_one_annex_are_counted_together_and_the_most_waited_for_comes_first() -> None:
    found = wanted([need("expanse", jobs=2), need("Big", jobs=4), need("Expanse", jobs=3)], {}, SITES)
    assert [(each.annex, each.site, each.waiting) for each in found] == [("expanse", "expanse", 5), ("Big", "delta", 4)]


def test_an_annex_that_stands_is_left_alone() -> None:
    assert wanted([need("EXPANSE", jobs=2)], {"expanse": "coming"}, SITES) == ()


def test_a_name_of_no_site_is_wanted_without_one() -> None:
    [found] = wanted([need("nowhere")], {}, SITES)
    assert found.site is None
    [line] = waiting_text([found])
    assert line.endswith("siteannex up SITE --name nowhere would bring one up")
    assert as_data(found)["command"] == "siteannex up SITE --name nowhere"


def test_a_site_that_was_said_goes_before_one_that_is_guessed() -> None:
    [found] = wanted([need("expanse", jobs=2), need("expanse", waiting=False, site="anvil")], {}, SITES)
    assert found.site == "anvil"


def test_jobs_that_take_any_of_several_ask_for_none_while_one_stands() -> None:
    assert wanted([need("expanse", "big")], {"big": "up"}, SITES) == ()


def test_jobs_that_take_any_of_several_join_those_that_wait_for_one_of_them() -> None:
    [found] = wanted([need("expanse", "big", jobs=3), need("big", jobs=1)], {}, SITES)
    assert (found.annex, found.waiting) == ("big", 4)


def test_jobs_that_take_any_of_several_ask_for_the_first_whose_site_is_known() -> None:
    [found] = wanted([need("nowhere", "big")], {}, SITES)
    assert (found.annex, found.site) == ("big", "delta")


def test_what_a_dag_announces_counts_until_its_jobs_are_in_the_queue() -> None:
    announced = need("expanse", jobs=8, waiting=False)
    assert Wanted("expanse", "expanse", (announced,)).jobs == 8
    assert Wanted("expanse", "expanse", (announced, need("expanse", jobs=2))).jobs == 2


@given(
    st.lists(
        st.builds(
            Need,
            st.lists(st.sampled_from(["a", "A", "b", "c", "expanse"]), min_size=1, max_size=3).map(tuple),
            st.integers(1, 50),
            st.booleans(),
        )
    ),
    st.sets(st.sampled_from(["a", "b", "expanse"])),
)
def test_every_need_is_answered_once_or_has_an_annex_that_stands(needs: list[Need], up: set[str]) -> None:
    found = wanted(needs, dict.fromkeys(up, "up"), SITES)
    names = [each.annex.lower() for each in found]
    assert len(set(names)) == len(names)
    assert not set(names) & up
    open_needs = [each for each in needs if not {annex.lower() for annex in each.annexes} & up]
    assert sorted(map(repr, open_needs)) == sorted(repr(each) for one in found for each in one.needs)


def test_status_says_how_many_wait_and_the_command() -> None:
    one = wanted([need("expanse", jobs=12)], {}, SITES)
    assert waiting_text(one) == ("12 jobs wait for expanse, which is not up: siteannex up --pending",)
    two = wanted([need("expanse", jobs=8), need("big")], {}, SITES)
    assert waiting_text(two) == ("9 jobs wait for annexes that are not up (expanse 8, big 1): siteannex up --pending",)
    announced = wanted([need("big", waiting=False)], {}, SITES)
    assert waiting_text(announced) == ("DAGs ask for big, not up: siteannex up --pending",)
    assert waiting_text(()) == ()


# --- jobs as HTCondor reads them


def of(text: str) -> Need | None:
    [job] = PaperQueue().read([text])
    return need_of(Demand(job, 3))


def test_a_jobs_size_is_read_with_what_its_gpus_must_be() -> None:
    found = of(ad(JOB, GPU_JOB, AllowedExecuteDuration="7200"))
    assert found is not None
    assert (found.annexes, found.jobs, found.gpus, found.memory_mib) == (("sweep1",), 3, 1, 128)
    assert (found.gpu_capability, found.longest_s) == (7.5, 7200)
    assert found.gpu_memory_mib is not None
    assert found.gpu_memory_mib * 0.92 >= 60000


def test_a_job_of_any_site_names_all_of_them() -> None:
    any_of = 'IfThenElse(member(TARGET.AnnexName, {"expanse", "delta-big"}), TARGET.AnnexName, undefined)'
    found = of(ad(JOB, TargetAnnexName=any_of))
    assert found is not None
    assert found.annexes == ("expanse", "delta-big")


def test_a_job_that_names_none_needs_none() -> None:
    assert of(ad(JOB, TargetAnnexName="")) is None


# --- annexes as they stand


@pytest.fixture
def annex(world: World) -> Annex:
    found, _ = world.up(request(name="Sweep1"))
    return found


@pytest.fixture
def world(tmp_path: object) -> World:
    return World(tmp_path)  # type: ignore[arg-type]


@pytest.mark.usefixtures("annex")
def test_an_annex_that_is_ready_is_up(world: World) -> None:
    assert standing(world.status()) == {"sweep1": "up"}


def test_a_pilot_in_the_queue_is_coming(world: World) -> None:
    world.up(request(name="sweep1"), wait=False)
    assert standing(world.status()) == {"sweep1": "coming"}
    assert standing(world.status(remote=True)) == {"sweep1": "coming"}


def test_an_annex_whose_eps_have_gone_is_not_there(world: World, annex: Annex) -> None:
    world.pool.ads.clear()
    assert not annex.state().ended
    assert standing(world.status()) == {}


def test_an_annex_beyond_its_walltime_is_not_there(world: World, annex: Annex) -> None:
    world.pool.ads.clear()
    world.clock.moment += timedelta(seconds=annex.plan.walltime_s + 60)
    assert standing(world.status()) == {}


def test_an_annex_that_was_taken_down_is_not_there(world: World, annex: Annex) -> None:
    world.down(annex, now=True)
    assert standing(world.status()) == {}


def test_a_draining_annex_and_a_failed_one_are_told(world: World) -> None:
    annex, _ = world.up(request(name="sweep1"), wait=False)
    world.start("71")
    whole = list(world.pool.ads)
    world.pool.ads[:] = [replace(slot, total_gpus=0) for slot in whole]
    assert standing(world.status()) == {"sweep1": f"failed: siteannex why {annex.name}"}
    world.pool.ads[:] = [replace(slot, draining=True) for slot in whole]
    assert standing(world.status()) == {"sweep1": f"on its way out: siteannex status {annex.name}"}
