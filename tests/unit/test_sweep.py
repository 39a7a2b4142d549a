"""`sweep` in a small world with real shells: it removes what it can prove ours and dead, beside a living `up`."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from siteannex.annex.events import What
from siteannex.annex.planning.plan import plan_annex
from siteannex.annex.slurm_site import SlurmSite
from siteannex.annex.store import Annex
from siteannex.annex.sweeping.debris import Kind
from siteannex.annex.sweeping.sweep import Found, Ground, as_data, look, remove
from siteannex.errors import Stage
from siteannex.model import MarkedAd, Plan
from tests.unit.samples import request
from tests.unit.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def ground(world: World) -> Ground:
    return Ground(world.store, world.pool, world.pool, world.clock, world.view)


def accesses(world: World) -> Sequence[SlurmSite]:
    return [SlurmSite(world.site, world.transport)]


def find(world: World, *, at_the_site: bool = True) -> Found:
    return look(accesses(world) if at_the_site else [], ground(world))


def sweep(world: World) -> list[str]:
    """Look, remove; the codes of what could not be removed."""
    return [each.code for each in remove(find(world), accesses(world), ground(world))]


def forget(annex: Annex) -> None:
    """The local state is lost."""
    shutil.rmtree(annex.path)


def test_a_running_pilot_whose_record_is_lost_is_ended_with_its_directory_and_ads(world: World) -> None:
    annex, _ = world.up()
    world.pool.board.append(MarkedAd("slot1@ep71", annex.plan.annex_id, "", "71", "lab", world.clock.now()))
    forget(annex)
    seen = find(world)
    assert {each.kind for each in seen.removable} == {Kind.JOB, Kind.DIRECTORY, Kind.AD}
    assert sweep(world) == []
    assert world.slurm.states() == {"71": "COMPLETED"}, "it was asked to end, and could evict its jobs"
    assert not world.directory(annex).exists()
    assert world.pool.board == []
    assert find(world).findings == (), "sweeping again finds nothing"


def test_a_pending_pilot_whose_record_is_lost_is_cancelled(world: World) -> None:
    annex, _ = world.up(wait=False)
    forget(annex)
    assert sweep(world) == []
    assert world.slurm.states() == {"71": "CANCELLED by 1000"}


def test_living_annexes_are_left_alone(world: World) -> None:
    annex, _ = world.up()
    seen = find(world)
    assert seen.findings == ()
    assert seen.living == 1
    assert sweep(world) == []
    assert world.slurm.states() == {"71": "RUNNING"}
    assert world.directory(annex).exists()


def test_an_annex_between_intent_and_submission_is_living(world: World) -> None:
    """`up` in the middle of its submission: the job is at the site and not yet recorded."""
    seen: list[Found] = []

    def beside(script: str) -> None:
        if "sbatch --parsable" in script and not seen:
            seen.append(find(world))
            assert remove(seen[0], accesses(world), ground(world)) == []

    world.transport.after = beside
    world.up()
    assert seen[0].findings == ()
    assert world.slurm.states() == {"71": "RUNNING"}


def test_another_access_points_annex_is_shown_and_not_touched(world: World) -> None:
    annex, _ = world.up()
    forget(annex)
    (world.slurm.root / "comment.71").write_text(f"siteannex:{annex.plan.annex_id}:ap2.lab/0123abcd")
    (world.directory(annex) / "origin").write_text("ap2.lab/0123abcd\n")
    seen = find(world)
    assert [each.why for each in seen.findings] == ["belongs to another AP (ap2.lab)"] * 2
    assert sweep(world) == []
    assert world.slurm.states() == {"71": "RUNNING"}
    assert world.directory(annex).exists()


def test_what_an_ended_annex_left_is_removed(world: World) -> None:
    annex, _ = world.up()
    world.down(annex, now=True)
    world.slurm.job("99", annex.plan.annex_id, "PENDING")  # a submission that came through late
    (world.slurm.root / "comment.99").write_text(f"siteannex:{annex.plan.annex_id}")
    world.directory(annex).mkdir(parents=True)
    assert {each.why for each in find(world).removable} == {"sweep1 has ended and left it"}
    assert sweep(world) == []
    assert world.slurm.states()["99"].startswith("CANCELLED")
    assert not world.directory(annex).exists()


def test_a_record_that_was_never_closed_is_closed_when_its_end_is_seen(world: World) -> None:
    annex, _ = world.up()
    world.slurm.job("71", annex.plan.annex_id, "COMPLETED", node="c1")
    world.pool.ads.clear()
    [found] = [each for each in find(world).findings if each.kind is Kind.RECORD]
    assert "it has ended" in found.why
    assert sweep(world) == []
    assert annex.state().ended
    assert not world.directory(annex).exists()
    assert find(world).findings == ()


def test_without_the_site_nothing_is_concluded_of_an_annex_there(world: World) -> None:
    annex, _ = world.up()
    world.slurm.job("71", annex.plan.annex_id, "COMPLETED", node="c1")
    world.pool.ads.clear()
    assert find(world, at_the_site=False).findings == ()


def test_an_up_that_was_interrupted_before_submission_is_closed_unless_it_is_at_work(world: World) -> None:
    plan = world.tools().store.create(_plan(world))
    with world.store.lock("sweep1", "lab"):
        assert find(world).findings == ()
    assert [each.kind for each in find(world).removable] == [Kind.RECORD]
    assert sweep(world) == []
    assert plan.state().ended


def _plan(world: World) -> Plan:
    return plan_annex(request(), world.site, annex_id="sweep1-00000001", today=world.clock.now().date())


def test_half_made_state_is_removed_but_not_under_a_commands_hands(world: World) -> None:
    half = world.store.root / "annexes" / "half-00000009"
    half.mkdir(parents=True)
    (half / "plan.json").write_text('{"torn')
    with world.store.lock("half", "lab"):
        assert find(world).findings == ()
    assert [each.what for each in find(world).removable] == [str(half)]
    assert sweep(world) == []
    assert not half.exists()


def test_a_site_whose_squeue_is_down_is_told_and_its_jobs_stay_unknown(world: World) -> None:
    annex, _ = world.up()
    forget(annex)
    world.slurm.set("squeue.down", "slurm_load_jobs error: Unable to contact slurm controller")
    seen = find(world)
    assert "Unable to contact slurm controller" in seen.troubles[0]
    assert sweep(world) == ["release-incomplete"], "the directory may belong to a pilot that runs"
    assert world.directory(annex).exists()
    world.slurm.unset("squeue.down")
    assert sweep(world) == []
    assert not world.directory(annex).exists()


def test_a_pilot_that_does_not_end_is_a_failure_and_the_rest_is_removed(world: World) -> None:
    annex, _ = world.up()
    other, _ = world.up(request(name="second"))
    forget(annex)
    world.down(other, now=True)
    world.directory(other).mkdir(parents=True)
    world.slurm.set("stuck")
    assert sweep(world) == ["release-incomplete"]
    assert not world.directory(other).exists()


def test_without_htcondor_the_sites_are_swept_of_what_is_recorded_here(world: World) -> None:
    annex, _ = world.up()
    world.down(annex, now=True)
    world.directory(annex).mkdir(parents=True)
    world.pool.answers = False
    seen = find(world)
    assert any("HTCondor on this access point was not asked" in text for text in seen.troubles)
    assert Kind.DIRECTORY in {each.kind for each in seen.removable}


def test_what_became_known_between_the_look_and_the_removal_is_not_touched(world: World) -> None:
    annex, _ = world.up()
    kept = annex.path.rename(world.store.root / "away")
    seen = find(world)
    assert seen.removable
    kept.rename(annex.path)
    assert remove(seen, accesses(world), ground(world)) == []
    assert world.slurm.states() == {"71": "RUNNING"}
    assert annex.state().stage is Stage.READY


def test_json_has_what_the_screen_has(world: World) -> None:
    annex, _ = world.up()
    forget(annex)
    data = as_data(find(world))
    assert {each["kind"] for each in data["found"]} == {"job", "directory"}
    assert all(set(each) == {"kind", "place", "what", "annex_id", "why", "removable"} for each in data["found"])


def test_recording_an_adopted_job_does_not_end_its_annex(world: World) -> None:
    annex, _ = world.up(wait=False)
    annex.record(Stage.SUBMIT, What.BEGIN)
    assert find(world).findings == ()
    assert not annex.state().ended
