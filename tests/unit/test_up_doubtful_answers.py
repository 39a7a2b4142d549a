"""`up` where an answer is missing, empty, late or wrong: nothing is ended that may live, nothing is submitted twice."""

from __future__ import annotations

import getpass
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from siteannex.annex.store import Annex
from siteannex.errors import AnnexError, Stage
from siteannex.failures import fail
from siteannex.model import Deadlines
from tests.unit.samples import report, request
from tests.unit.stub_slurm import run_shell
from tests.unit.world import World

NO_CONTROLLER = "scancel: error: Kill job error: Unable to contact slurm controller (connect failure)"
UNREACHABLE = "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)"
TWO = request(gpus=8)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def assert_lives_until_down(world: World, annex: Annex) -> None:
    """Not ended and said so; `down` ends it once Slurm can be told to."""
    assert not annex.state().ended
    assert world.store.living("sweep1") == annex
    assert "run siteannex down sweep1" in world.view.text
    assert "so that it spends no more" not in world.view.text
    assert world.directory(annex).exists()
    world.clock.on_sleep = lambda: None
    world.slurm.unset("scancel.down")
    world.down(annex, now=True)
    assert annex.state().ended
    assert not {"PENDING", "RUNNING"} & set(world.slurm.states().values())
    assert not world.directory(annex).exists()


# --- a scancel that fails


def test_a_hopeless_pilot_that_cannot_be_cancelled_is_not_recorded_as_ended(world: World) -> None:
    world.slurm.set("scancel.down", NO_CONTROLLER)
    world.clock.on_sleep = lambda: world.slurm.job("71", "sweep1-00000001", "PENDING", reason="PartitionTimeLimit")
    assert world.failing_up().code == "pending-forever"
    assert world.slurm.states() == {"71": "PENDING"}
    assert_lives_until_down(world, world.latest())


def test_a_failed_pilot_that_cannot_be_cancelled_is_not_recorded_as_ended(world: World) -> None:
    world.slurm.set("scancel.down", NO_CONTROLLER)

    def fail_it() -> None:
        world.slurm.job("71", "sweep1-00000001", "RUNNING", node="c1")
        world.reports(report("EP_START", "scratch-unusable"))

    world.clock.on_sleep = fail_it
    assert world.failing_up().code == "scratch-unusable"
    assert_lives_until_down(world, world.latest())


def test_a_first_pilot_that_cannot_be_cancelled_after_the_second_was_refused_lives(world: World) -> None:
    world.slurm.set("scancel.down", NO_CONTROLLER)
    world.slurm.set("refuse.72", "sbatch: error: Batch job submission failed: Invalid qos specification")
    assert world.failing_up(TWO).code == "qos-invalid"
    assert set(world.slurm.states()) == {"71"}
    assert_lives_until_down(world, world.latest())


def test_after_such_a_refusal_up_again_completes_the_annex_and_submits_the_first_pilot_once(world: World) -> None:
    world.slurm.set("scancel.down", NO_CONTROLLER)
    world.slurm.set("refuse.72", "sbatch: error: Batch job submission failed: Invalid qos specification")
    world.failing_up(TWO)
    annex, verdict = world.up(TWO)
    assert verdict is not None
    assert verdict.ready == 2
    assert annex.state().job_ids == ("71", "73")
    assert len(world.store.annexes()) == 1


# --- a squeue that shows nothing


def test_a_squeue_that_shows_nothing_right_after_submission_is_waited_for(world: World) -> None:
    world.slurm.set("unseen")
    world.slurm.set("sacct.off")

    def appears_late() -> None:
        if sum(world.clock.slept) > 60 and (world.slurm.root / "unseen").exists():
            assert not world.latest().state().ended
            world.slurm.unset("unseen")
            world.wake()

    world.clock.on_sleep = appears_late
    annex, verdict = world.up()
    assert verdict is not None
    assert (verdict.stage, verdict.ready) == (Stage.READY, 1)
    assert world.slurm.cancels() == []
    assert not annex.state().ended


def test_a_job_slurm_never_shows_is_given_up_at_last_cancelled_by_id_and_by_name(world: World) -> None:
    world.slurm.set("unseen")
    world.slurm.set("sacct.off")
    world.clock.on_sleep = lambda: None
    assert world.failing_up().code == "batch-job-lost"
    assert sum(world.clock.slept) >= Deadlines().lost_s
    assert world.slurm.cancels() == ["71", f"--user={getpass.getuser()} --name=sweep1-00000001"]
    assert world.slurm.states() == {"71": "CANCELLED by 1000"}


# --- Slurm that is not there, just now


def test_an_up_that_was_killed_and_then_finds_no_slurm_keeps_its_pilot(world: World) -> None:
    class Killed(BaseException):
        pass

    def kill(script: str) -> None:
        if "sbatch --parsable" in script:
            raise Killed

    world.transport.after = kill
    with pytest.raises(Killed):
        world.up()
    world.transport.after = lambda _: None
    programs = world.slurm.bin.rename(world.slurm.root / "elsewhere")
    assert world.failing_up().code == "slurm-missing"
    assert not world.latest().state().ended
    assert world.directory(world.latest()).exists()
    programs.rename(world.slurm.bin)
    annex, verdict = world.up()
    assert verdict is not None
    assert verdict.ready == 1
    assert (annex.state().job_ids, world.slurm.submissions()) == (("71",), 1)


# --- what the user's own start-up files set at the site


def test_the_stub_heeds_a_users_environment_as_the_real_ones_do(world: World) -> None:
    (world.transport.home / "batch.sh").write_text("#!/bin/sh\n#SBATCH --job-name=x\n", encoding="utf-8")

    def run(script: str, **environment: str) -> tuple[int, str]:
        answer = run_shell(
            "/bin/sh", script, stub=world.slurm, home=world.transport.home, environment=dict(environment)
        )
        return answer.status, answer.stdout

    assert run("sbatch batch.sh", SBATCH_ACCOUNT="nosuch")[0] == 1
    assert run("sbatch batch.sh", SLURM_CLUSTERS="elsewhere")[0] == 1
    assert run("sbatch batch.sh", SBATCH_TIMELIMIT="5", SBATCH_ACCOUNT="other") == (0, "73\n")
    assert world.slurm.charged("73") == "other 5"
    assert run("squeue --name=x", SQUEUE_PARTITION="nowhere") == (0, "")
    assert run("squeue --name=x")[1].startswith("73|x|PENDING")


@pytest.mark.parametrize(
    "environment",
    [
        {"SBATCH_ACCOUNT": "nosuch"},
        {"SBATCH_ACCOUNT": "other", "SBATCH_TIMELIMIT": "5"},
        {"SQUEUE_PARTITION": "nowhere", "SCANCEL_PARTITION": "nowhere"},
        {"SLURM_CLUSTERS": "elsewhere"},
    ],
)
def test_a_users_environment_at_the_site_changes_neither_plan_nor_watch_nor_end(
    world: World, environment: dict[str, str]
) -> None:
    world.transport.environment = environment
    annex, verdict = world.up()
    assert verdict is not None
    assert verdict.ready == 1
    assert world.slurm.charged("71") == "abc123 1:00:00"
    assert [pilot.job is not None for pilot in verdict.pilots] == [True]
    world.down(annex, now=True)
    assert annex.state().ended
    assert world.slurm.states() == {"71": "COMPLETED"}


def test_where_slurms_own_settings_lie_still_reaches_it(world: World) -> None:
    world.transport.environment = {"SLURM_CONF": "/opt/slurm/slurm.conf"}
    (world.slurm.bin / "sbatch").write_text(f'#!/bin/sh\nprintf "%s" "$SLURM_CONF" >{world.slurm.root}/conf\n')
    world.failing_up()
    assert (world.slurm.root / "conf").read_text(encoding="utf-8") == "/opt/slurm/slurm.conf"


# --- two pilots, one good


def test_of_two_pilots_the_failed_one_is_told_and_cancelled_and_the_other_is_ready(world: World) -> None:
    def one_each() -> None:
        if not world.pool.ads:
            world.start("71")
            world.slurm.job("72", "sweep1-00000001", "RUNNING", node="c2")
            world.reports(report("EP_START", "scratch-unusable", "/scratch is mounted noexec", job_id="72"))

    world.clock.on_sleep = one_each
    annex, verdict = world.up(TWO)
    assert verdict is not None
    assert (verdict.stage, verdict.ready, verdict.failure) == (Stage.READY, 1, None)
    assert "job 72 FAILED: scratch-unusable" in world.view.text
    assert "job 72 cancelled, so that it spends no more" in world.view.text
    assert "1 of 2 pilots" in world.view.text
    assert world.slurm.states() == {"71": "RUNNING", "72": "CANCELLED by 1000"}
    assert not annex.state().ended
    [row] = world.status(remote=True)
    assert row.stage_text == "READY"
    assert [pilot.failure.code if pilot.failure else "ok" for pilot in row.verdict.pilots] == ["ok", "scratch-unusable"]


def test_of_two_pilots_the_one_that_can_never_start_is_cancelled(world: World) -> None:
    def one_each() -> None:
        if not world.pool.ads:
            world.start("71")
            world.slurm.job("72", "sweep1-00000001", "PENDING", reason="QOSMaxGRESPerJob")

    world.clock.on_sleep = one_each
    _, verdict = world.up(TWO)
    assert verdict is not None
    assert verdict.ready == 1
    assert "job 72 FAILED: pending-forever" in world.view.text
    assert "more GPUs than the QOS allows" in world.view.text
    assert world.slurm.states() == {"71": "RUNNING", "72": "CANCELLED by 1000"}


def test_of_two_pilots_the_failed_one_that_cannot_be_cancelled_does_not_hide_the_ready_one(world: World) -> None:
    world.slurm.set("scancel.down", NO_CONTROLLER)

    def one_each() -> None:
        if not world.pool.ads:
            world.start("71")
            world.slurm.job("72", "sweep1-00000001", "PENDING", reason="QOSMaxGRESPerJob")

    world.clock.on_sleep = one_each
    annex, verdict = world.up(TWO)
    assert verdict is not None
    assert verdict.ready == 1
    assert "job 72 not cancelled (" in world.view.text
    assert "siteannex down sweep1 ends it with the others" in world.view.text
    assert "1 of 2 pilots" in world.view.text
    world.slurm.unset("scancel.down")
    world.down(annex, now=True)
    assert world.slurm.states() == {"71": "COMPLETED", "72": "CANCELLED by 1000"}


def test_a_failed_pilot_that_ended_by_itself_is_told_and_not_cancelled(world: World) -> None:
    def one_each() -> None:
        if not world.pool.ads:
            world.start("71")
            world.slurm.job("72", "sweep1-00000001", "NODE_FAIL", node="c2")

    world.clock.on_sleep = one_each
    world.up(TWO)
    assert "job 72 FAILED: batch-job-node-failed" in world.view.text
    assert world.slurm.cancels() == []


# --- an end that is not one yet


def test_a_pilot_that_says_it_ended_while_slurm_still_runs_it_is_draining_and_nothing_is_submitted(
    world: World,
) -> None:
    world.up()
    world.pool.ads.clear()
    world.reports(report("READY"), report("RELEASED", text="idle"))
    for _ in range(2):
        problem = world.failing_up()
        assert (problem.code, problem.stage) == ("annex-draining", Stage.DRAIN)
    assert world.slurm.submissions() == 1
    assert world.slurm.cancels() == []
    assert not world.latest().state().ended
    world.slurm.job("71", "sweep1-00000001", "COMPLETED", node="c1")
    second, _ = world.up()
    assert second.plan.annex_id == "sweep1-00000002"


# --- whose login


def test_the_login_an_annex_was_brought_up_with_is_used_again(world: World) -> None:
    world.up(user="carol")
    world.pool.ads.clear()
    world.held = None
    world.up(wait=False)
    assert world.users == ["carol", "carol"]
    assert world.up(user="carol", wait=False)[0] == world.latest()
    world.wake()
    problem = world.failing_up(user="dave")
    assert problem.code == "request-differs"
    assert problem.evidence[0].text == "login dave asked, carol living"
    assert world.slurm.submissions() == 1


def test_a_login_known_by_its_host_alone_asks_for_nobody_in_particular(world: World) -> None:
    world.transport.login = "expanse"  # transport openssh: ssh_config knows the user
    annex, _ = world.up()
    assert annex.state().login == "expanse"
    world.pool.ads.clear()
    world.held = None
    world.up(wait=False)
    assert world.users == [None, None]
    assert world.slurm.submissions() == 1


# --- clocks and links


@pytest.mark.parametrize("minutes", [-10, 10])
def test_a_site_whose_clock_is_wrong_is_watched_by_its_own(
    world: World, minutes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from siteannex.annex import watch

    honest = watch.gather
    skew = timedelta(minutes=minutes)

    def gather(*words: object) -> object:
        seen = honest(*words)  # type: ignore[arg-type]
        there = world.clock.now() + skew
        jobs = tuple(replace(job, start=there - timedelta(seconds=20)) for job in seen.batch or ())
        said = tuple(replace(said, at=there - timedelta(seconds=5)) for said in seen.reports or ())
        return replace(seen, batch=jobs, reports=said, site_now=there)

    monkeypatch.setattr(watch, "gather", gather)

    def goes_on() -> None:
        world.slurm.job("71", "sweep1-00000001", "RUNNING", node="c1")
        if len(world.clock.slept) > 2:
            world.reports(report("AP_CONNECT"))
        if len(world.clock.slept) > 4 and not world.pool.ads:
            world.start("71")

    world.clock.on_sleep = goes_on
    _, verdict = world.up()
    assert verdict is not None
    assert verdict.ready == 1


def silent(world: World, for_s: float) -> None:
    """The site gives no answer for so long, from the first wait on."""

    def before(script: str) -> None:
        if "squeue" in script and 0 < sum(world.clock.slept) < for_s:
            raise fail("remote-timeout", "lab", "no answer within 60 s")

    world.transport.before = before


def test_a_site_that_is_silent_for_minutes_during_the_watch_is_waited_for(world: World) -> None:
    silent(world, 200)
    _, verdict = world.up()
    assert verdict is not None
    assert verdict.ready == 1
    assert any("the site gives no answer" in text for _, text in world.view.lives)


def test_a_site_that_stays_silent_is_told_after_five_minutes_and_the_pilot_goes_on(world: World) -> None:
    silent(world, 10_000)
    with pytest.raises(AnnexError) as raised:
        world.up()
    assert raised.value.failure.code == "remote-timeout"
    assert 300 <= sum(world.clock.slept) < 330
    assert not world.latest().state().ended
    assert world.slurm.states() == {"71": "RUNNING"}


def test_another_trouble_with_the_link_is_told_at_once(world: World) -> None:
    def before(script: str) -> None:
        if "squeue" in script:
            raise fail("link-broken", "lab", "the link broke")

    world.transport.before = before
    assert world.failing_up().code == "link-broken"
    assert world.clock.slept == []


# --- a controller that is down when pilots are submitted


def test_a_controller_that_was_down_from_the_start_leaves_nothing_to_end(world: World) -> None:
    world.slurm.set("refuse.71", UNREACHABLE)
    world.slurm.set("squeue.down", UNREACHABLE)
    world.slurm.set("scancel.down", UNREACHABLE)
    failure = world.failing_up()
    assert failure.code == "slurm-unreachable"
    assert failure.retryable
    assert world.latest().state().ended
    assert not world.directory(world.latest()).exists()


def test_a_controller_that_went_down_after_the_first_pilot_leaves_an_annex_that_up_completes(world: World) -> None:
    world.slurm.set("refuse.72", UNREACHABLE)
    assert world.failing_up(TWO).code == "slurm-unreachable"
    assert not world.latest().state().ended
    assert "siteannex up again completes sweep1" in world.view.text
    annex, verdict = world.up(TWO)
    assert verdict is not None
    assert verdict.ready == 2
    assert annex.state().job_ids == ("71", "73")
    assert len(world.store.annexes()) == 1
