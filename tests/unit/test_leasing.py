"""A lease on paper: what it may be, what it reserves, whom it is for, and what status says of it."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from siteannex.annex.events import AnnexState
from siteannex.annex.leasing import (
    check_join,
    check_lease,
    fitting_expression,
    keeper_of,
    keeper_text,
    lease_text,
    waiting_constraint,
)
from siteannex.annex.planning.demand import standing
from siteannex.annex.planning.ledger import Record, account_of, price
from siteannex.annex.planning.plan import differences
from siteannex.annex.status import advice
from siteannex.annex.store import plan_from_data
from siteannex.errors import AnnexError
from siteannex.model import Join, KeeperAd, Lease, Plan
from siteannex.site.schema import Keeper, Site
from tests.unit.samples import NOW, ago, plan, request, site
from tests.unit.world import World

LEASE = Lease(14 * 86400, 200.0, 2)


def leased(lease: Lease = LEASE, **changes: Any) -> Plan:
    return plan(request=request(lease=lease), **changes)


def kept(**changes: Any) -> Site:
    return site(keeper=Keeper(kind="batch", partition="debug", **changes))


def told(**changes: Any) -> KeeperAd:
    ad = KeeperAd("sweep1-00000001", "resting", "", "nothing waits", 226800, 0, 720000, 0, 0, 9 * 86400, 900, ago(0))
    return replace(ad, **changes)


def test_a_lease_goes_through_the_plan_s_file_and_old_plans_have_none() -> None:
    data = json.loads(json.dumps(asdict(leased())))
    assert plan_from_data(data) == leased()
    del data["request"]["lease"]
    assert plan_from_data(data).request.lease is None


@pytest.mark.parametrize(
    ("lease", "changes", "word"),
    [
        (LEASE, {"pilots": 3}, "--max-pilots is 2"),
        (Lease(14 * 86400, 1.0), {}, "2 GPU-h of 1"),
        (Lease(1800, 200.0), {}, "longer than the lease"),
        (Lease(40 * 86400, 200.0), {}, "30 d at most"),
        (LEASE, {"shape": replace(plan().shape, gpus=0)}, "no GPU"),
    ],
)
def test_a_lease_that_contradicts_what_is_asked_is_refused(lease: Lease, changes: Any, word: str) -> None:
    with pytest.raises(AnnexError) as refused:
        check_lease(leased(lease, **changes), kept(max_lease=30 * 86400))
    assert refused.value.failure.code == "lease-impossible"
    assert word in refused.value.failure.summary


def test_where_no_keeper_may_live_there_is_no_lease() -> None:
    with pytest.raises(AnnexError) as refused:
        check_lease(leased(), site())
    assert refused.value.failure.code == "keeper-unavailable"
    check_lease(plan(), site())


def test_a_token_that_can_submit_jobs_is_not_left_at_a_site_for_weeks() -> None:
    check_join(kept(), Join.POOL)
    with pytest.raises(AnnexError) as refused:
        check_join(kept(), Join.DIRECT)
    assert refused.value.failure.code == "lease-impossible"


def test_a_keeper_s_partition_must_be_one_of_the_site() -> None:
    with pytest.raises(ValueError, match="none of the partitions"):
        site(keeper=Keeper(kind="batch", partition="elsewhere"))


def test_a_lease_is_reserved_in_full_and_what_ran_is_used() -> None:
    assert price(leased()) == (200.0, "GPU-h")
    state = AnnexState(submit_begun=True, job_ids=("71", "72"), submitted_at=ago(7200), ran={"71": 1800.0})
    account = account_of("lab", "GPU-h", [Record(leased(), state)], NOW, cap=250)
    assert (account.used, account.reserved, account.left) == (1.0, 199.0, 50.0)
    ended = replace(state, ended=True, ended_at=NOW, ran={"71": 1800.0, "72": 3600.0})
    assert account_of("lab", "GPU-h", [Record(leased(), ended)], NOW).used == 3.0


def test_the_plan_says_what_is_granted_and_what_the_keeper_costs() -> None:
    assert lease_text(LEASE, kept()) == (
        "lease 14 d, at most 200 GPU-h and 2 pilots at once; its keeper wakes every 15 m in debug: "
        "about 2 core-minutes a day"
    )


def test_only_jobs_that_a_pilot_could_hold_count_as_demand() -> None:
    asked = waiting_constraint(leased(), "alice@ap.lab")
    assert asked == 'Owner == "alice" && JobStatus == 1 && TargetAnnexName == "sweep1"'
    text = fitting_expression(leased(), kept())
    for limit in ("RequestCpus <= 8", "RequestGPUs <= 2", "RequestMemory <= 32768", "GPUsMinMemory <= ", "<= 8.0"):
        assert limit in text


def test_status_says_it_in_one_line() -> None:
    text = keeper_text(told(), NOW)
    assert text == "resting, lease 9 d, 63 of 200 GPU-h used, 0 waiting (nothing waits)"
    late = keeper_text(told(told_at=ago(3600)), NOW)
    assert "lease 8 d 23 h" in late
    assert "last heard 1 h ago" in late
    spent = told(code="lease-spent", text="too little is left", used_gpu_s=716400)
    assert keeper_text(spent, NOW) == "lease-spent: too little is left; 199 of 200 GPU-h used"


def test_the_newest_word_counts() -> None:
    old, new = told(told_at=NOW - timedelta(hours=1)), told(waiting=3)
    assert keeper_of("sweep1-00000001", [old, new, told(annex_id="other-1", told_at=NOW)]) == new
    assert keeper_of("none-1", [old]) is None


def test_another_lease_is_another_request() -> None:
    [words] = differences(request(lease=LEASE), request())
    assert words == "--lease 14 d, 200 GPU-h, 2 pilots asked, not living"


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.site = kept()
    (made.slurm.root / "purged").touch()
    return made


ASKED = request(lease=Lease(14 * 86400, 20.0))


def test_up_with_a_lease_leaves_a_keeper_and_a_token_for_the_lease_s_length(world: World) -> None:
    annex, verdict = world.up(ASKED)
    assert verdict is not None
    assert verdict.ready
    assert world.pool.tokens == [(Join.POOL, 14 * 86400)]
    assert annex.state().keeper == "72"
    assert "no login is needed while the lease lasts" in world.view.text
    directory = world.directory(annex)
    assert "L_CAP_GPU_S=72000" in (directory / "lease.sh").read_text()
    assert {"keeper.sh", "keeper-ledger.sh", "keep.sh"} <= {path.name for path in directory.iterdir()}

    world.up(ASKED)
    assert "its keeper brings pilots back" in world.view.text
    assert len(world.slurm.states()) == 2, "nothing is submitted twice"


def test_an_up_that_was_cut_before_the_keeper_goes_on_with_it(world: World) -> None:
    (world.slurm.root / "refuse.72").write_text("sbatch: error: Socket timed out on send/recv operation\n")
    assert world.failing_up(ASKED).code == "submit-uncertain"
    annex, _ = world.up(ASKED)
    assert annex.state().keeper == "73"
    assert annex.state().job_ids == ("71",)


def test_down_ends_the_keeper_before_the_pilots_and_leaves_nothing(world: World) -> None:
    annex, _ = world.up(ASKED)
    world.down(annex, now=True)
    ended = (world.slurm.root / "scancel.log").read_text().splitlines()
    assert f"--name={annex.plan.annex_id}.keeper" in ended[0]
    assert not world.directory(annex).exists()
    assert not [state for state in world.slurm.states().values() if state in ("PENDING", "RUNNING")]


def test_status_shows_a_resting_annex_and_how_a_keeper_ended(world: World) -> None:
    annex, _ = world.up(ASKED)
    world.pool.ads.clear()
    world.pool.told = [told(annex_id=annex.plan.annex_id, told_at=world.clock.now())]
    [row] = world.status()
    assert row.stage_text == "RESTING"
    assert any("63 of 200 GPU-h used" in line for line in advice([row], world.clock.now()))
    assert standing([row]) == {"sweep1": "its keeper brings a pilot: siteannex status sweep1"}
    world.pool.told = [told(annex_id=annex.plan.annex_id, code="lease-spent", told_at=world.clock.now())]
    [row] = world.status()
    assert row.stage_text != "RESTING"
    assert any("lease-spent" in line for line in advice([row], world.clock.now()))


def test_a_keeper_that_is_heard_no_more_does_not_keep_up_from_looking(world: World) -> None:
    annex, _ = world.up(ASKED)
    world.pool.ads.clear()
    world.clock.sleep(2 * 86400)
    for job in annex.state().job_ids:
        world.slurm.job(job, annex.plan.annex_id, "COMPLETED", node="c1")
    again, _ = world.up(ASKED)
    assert again.plan.annex_id != annex.plan.annex_id
    assert annex.state().ended
