"""`up`: the straight line, its repetition, its refusals; with real shells and a stub Slurm, no login node needed."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import pytest

from siteannex.annex.texts import ceiling_text, plan_text
from siteannex.annex.up import dry_run
from siteannex.errors import AnnexError, Stage
from siteannex.failures import fail
from siteannex.model import EpSoftware, JobCounts
from siteannex.site.schema import Site
from tests.unit.samples import TODAY, plan, report, request, site
from tests.unit.world import World

REFUSED = "sbatch: error: Batch job submission failed: Invalid qos specification"
TIMED_OUT = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def code_of(raised: pytest.ExceptionInfo[AnnexError]) -> str:
    return raised.value.failure.code


def test_a_fresh_up_submits_its_pilots_and_waits_until_they_are_ready(world: World) -> None:
    world.pool.counts["sweep1"] = JobCounts(waiting=3)
    annex, verdict = world.up(request(gpus=6))
    assert verdict is not None
    assert (verdict.stage, verdict.ready, verdict.failure) == (Stage.READY, 2, None)
    assert world.slurm.states() == {"71": "RUNNING", "72": "RUNNING"}
    state = annex.state()
    assert (state.job_ids, state.stage, state.join) == (("71", "72"), Stage.READY, "pool")
    assert "3 of your jobs wait for it" in world.view.text
    assert 'MY.TargetAnnexName = "sweep1"' in world.view.text


def test_what_goes_to_the_site_is_private_and_the_token_is_only_there(world: World) -> None:
    annex, _ = world.up()
    directory = world.directory(annex)
    assert (directory / "token").read_text(encoding="utf-8") == "token-1\n"
    assert stat.S_IMODE((directory / "token").stat().st_mode) == 0o600
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    kept = "".join(path.read_text(encoding="utf-8") for path in annex.path.iterdir())
    assert "token-1" not in kept + world.view.text
    assert (annex.path / "batch.sh").is_file()


def test_without_waiting_up_returns_once_submitted(world: World) -> None:
    annex, verdict = world.up(wait=False)
    assert verdict is None
    assert annex.state().job_ids == ("71",)
    assert world.clock.slept == []


def test_a_second_up_reports_the_living_annex_and_submits_nothing(world: World) -> None:
    first, _ = world.up()
    second, verdict = world.up()
    assert second.plan.annex_id == first.plan.annex_id
    assert verdict is not None
    assert verdict.ready == 1
    assert (world.slurm.submissions(), world.logins, len(world.pool.tokens)) == (1, 1, 1)
    assert "lives already" in world.view.text


def test_the_ep_software_is_shipped_once_for_all_annexes(world: World) -> None:
    world.up()
    world.up(request(name="sweep2"))
    assert len(world.transport.puts) == 1
    assert "EP software already at lab" in world.view.text


def test_a_different_request_under_the_same_name_is_refused_with_the_difference(world: World) -> None:
    world.up()
    with pytest.raises(AnnexError) as raised:
        world.up(request(gpus=4))
    assert code_of(raised) == "request-differs"
    assert raised.value.failure.evidence[0].text == "--gpus 4 asked, 2 living"
    assert world.slurm.submissions() == 1


def test_a_name_in_use_by_another_command_is_busy(world: World) -> None:
    with world.store.lock("sweep1", "lab"), pytest.raises(AnnexError) as raised:
        world.up()
    assert code_of(raised) == "annex-busy"


def test_an_impossible_request_leaves_no_annex_and_logs_in_nowhere(world: World) -> None:
    with pytest.raises(AnnexError) as raised:
        world.up(request(gpus=100))
    assert code_of(raised) == "request-impossible"
    assert world.store.living("sweep1") is None
    assert world.logins == 0


def test_software_newer_than_the_central_manager_is_refused_before_the_login(world: World) -> None:
    world.software = replace(world.software, version="26.0.1")
    with pytest.raises(AnnexError) as raised:
        world.up()
    assert code_of(raised) == "ep-newer-than-cm"
    assert world.logins == 0
    latest = world.store.latest("sweep1")
    assert latest is not None
    assert latest.state().ended


def test_another_processor_at_the_site_is_refused_before_anything_is_shipped(world: World) -> None:
    world.site = site(arch="aarch64")
    world.software = replace(world.software, arch="aarch64")
    with pytest.raises(AnnexError) as raised:
        world.up()
    assert code_of(raised) == "site-arch-differs"
    assert world.transport.puts == []


def test_a_login_node_without_slurm_is_told(world: World) -> None:
    (world.slurm.bin / "sbatch").unlink()
    with pytest.raises(AnnexError) as raised:
        world.up()
    assert "not on the PATH of your account there" in raised.value.failure.summary


def test_a_refusal_ends_the_annex_with_slurms_words_and_leaves_nothing(world: World) -> None:
    world.slurm.set("refuse.72", REFUSED)
    with pytest.raises(AnnexError) as raised:
        world.up(request(gpus=6))
    assert code_of(raised) == "qos-invalid"
    assert REFUSED in raised.value.failure.evidence[0].text
    latest = world.store.latest("sweep1")
    assert latest is not None
    assert (latest.state().ended, latest.state().failure) == (True, raised.value.failure)
    assert world.slurm.states() == {"71": "CANCELLED by 1000"}
    assert not world.directory(latest).exists()
    world.up()
    assert world.slurm.states()["73"] == "RUNNING"


def test_a_job_that_slurm_took_while_its_answer_was_lost_is_found_by_name(world: World) -> None:
    world.slurm.set("lost.71", TIMED_OUT)
    annex, verdict = world.up()
    assert verdict is not None
    assert verdict.ready == 1
    assert annex.state().job_ids == ("71",)
    assert world.slurm.submissions() == 1


def test_a_lost_answer_without_a_job_is_uncertain_and_is_never_submitted_twice(world: World) -> None:
    world.slurm.set("refuse.71", TIMED_OUT)
    for _ in range(2):
        with pytest.raises(AnnexError) as raised:
            world.up()
        assert code_of(raised) == "submit-uncertain"
    assert world.slurm.submissions() == 1
    assert any("Socket timed out" in str(event.data) for event in world.store.annexes()[0].events())
    living = world.store.living("sweep1")
    assert living is not None
    world.down(living)
    world.up()
    assert world.slurm.states() == {"72": "RUNNING"}


def test_a_bundle_that_does_not_unpack_submits_nothing(world: World) -> None:
    annex_dir = world.transport.home / ".siteannex" / "annex" / "sweep1-00000001"
    (annex_dir / "pilot.sh").mkdir(parents=True)
    (annex_dir / "pilot.sh" / "in-the-way").touch()
    with pytest.raises(AnnexError) as raised:
        world.up()
    assert code_of(raised) == "ship-failed"
    assert world.slurm.submissions() == 0


def test_a_bundle_that_does_not_unpack_the_second_time_submits_nothing_either(world: World) -> None:
    world.slurm.set("refuse.71", TIMED_OUT)
    with pytest.raises(AnnexError):
        world.up()
    directory = world.directory(world.store.annexes()[0])
    (directory / "submit.1").rmdir()
    (directory / "pilot.sh").unlink()
    (directory / "pilot.sh").mkdir()
    (directory / "pilot.sh" / "in-the-way").touch()
    with pytest.raises(AnnexError) as raised:
        world.up()
    assert code_of(raised) == "ship-failed"
    assert world.slurm.states() == {}


def test_a_pilot_that_fails_is_cancelled_told_and_ended(world: World) -> None:
    def fail_it() -> None:
        [(job_id, _)] = world.slurm.states().items()
        world.slurm.job(job_id, "sweep1-00000001", "RUNNING", node="c1")
        progress = world.transport.home / ".siteannex/annex/sweep1-00000001/progress/71.jsonl"
        bad = report("EP_START", "scratch-unusable", "/scratch is mounted noexec")
        progress.write_text(
            f'{{"at":"{bad.at.isoformat()}","job":"71","stage":"{bad.stage}","code":"{bad.code}","text":"{bad.text}"}}\n',
            encoding="utf-8",
        )

    world.clock.on_sleep = fail_it
    with pytest.raises(AnnexError) as raised:
        world.up()
    assert code_of(raised) == "scratch-unusable"
    assert "noexec" in raised.value.failure.evidence[0].text
    assert world.slurm.states() == {"71": "CANCELLED by 1000"}
    latest = world.store.latest("sweep1")
    assert latest is not None
    assert latest.state().ended
    assert not world.directory(latest).exists()
    assert "has ended and spends no more" in world.view.text


def test_a_job_that_can_never_start_is_cancelled(world: World) -> None:
    world.clock.on_sleep = lambda: world.slurm.job("71", "sweep1-00000001", "PENDING", reason="PartitionTimeLimit")
    with pytest.raises(AnnexError) as raised:
        world.up()
    assert code_of(raised) == "pending-forever"
    assert world.slurm.states() == {"71": "CANCELLED by 1000"}


def test_a_queue_that_cannot_be_asked_for_minutes_is_waited_through(world: World) -> None:
    def flaky() -> None:
        if len(world.clock.slept) == 1:
            world.slurm.set("squeue.down", "Socket timed out")
        if len(world.clock.slept) == 60:
            world.slurm.unset("squeue.down")
            world.wake()

    world.clock.on_sleep = flaky
    _, verdict = world.up()
    assert verdict is not None
    assert verdict.ready == 1


def test_a_collector_that_does_not_answer_is_told_before_anything_is_done(world: World) -> None:
    world.pool.answers = False
    with pytest.raises(AnnexError) as raised:
        world.up()
    assert code_of(raised) == "ap-unreachable"
    assert world.logins == 0
    assert list(world.store.annexes()) == []


def test_a_failed_pack_ends_the_annex_and_frees_its_name(world: World) -> None:
    def broken(_: Site) -> EpSoftware:
        raise fail("ep-source-missing", "", "there is no condor_master")

    from siteannex.annex.up import up

    with pytest.raises(AnnexError):
        up(request(), world.site, world.tools(pack=broken))
    assert world.store.living("sweep1") is None
    _, verdict = world.up()
    assert verdict is not None


def test_a_dry_run_is_the_plan_and_its_options_and_no_effect() -> None:
    would = dry_run(request(), site(), TODAY)
    assert would.plan.partition == "gpu-shared"
    assert "#SBATCH --gres=gpu:a100:2\n" in would.script


def test_a_plan_and_its_ceiling_are_told_in_a_line() -> None:
    assert plan_text(plan()) == "lab, partition gpu-shared: 1 pilot x 2 a100 (8 cores, 32 GB), 1 h, account abc123"
    assert ceiling_text(plan()) == "2 GPU-h"


def test_when_the_last_annex_has_ended_by_itself_up_makes_a_new_one(world: World) -> None:
    first, _ = world.up()
    world.slurm.job("71", first.plan.annex_id, "COMPLETED", node="c1", exit_code="0:0")
    world.pool.ads.clear()
    second, verdict = world.up(request(gpus=4))
    assert second.plan.annex_id != first.plan.annex_id
    assert verdict is not None
    assert verdict.ready == 1
    assert first.state().ended
    assert not world.directory(first).exists()
    assert "has ended" in world.view.text


def test_without_a_session_up_logs_in_to_learn_whether_an_annex_that_left_the_collector_lives(world: World) -> None:
    world.up()
    world.pool.ads.clear()
    world.held = None
    world.up(wait=False)
    assert (world.slurm.submissions(), world.logins) == (1, 2)


def test_a_pilot_that_waits_is_told_once_what_would_start_sooner(world: World) -> None:
    world.slurm.set(
        "trial", f"sbatch: Job 5 to start at {int(world.clock.now().timestamp())} using 8 processors on c1\n"
    )

    def later() -> None:
        if len(world.clock.slept) > 60:
            world.wake()

    world.clock.on_sleep = later
    world.up()
    assert world.view.text.count("would start now: siteannex why sweep1") == 1
    assert "Ctrl-C leaves it queued; siteannex status sweep1 shows it." in world.view.text
    assert world.slurm.submissions() == 1, "asking submits nothing"


def test_a_pilot_that_starts_within_seconds_is_not_asked_about(world: World) -> None:
    scripts: list[str] = []
    world.transport.before = scripts.append
    world.up()
    assert not any("--test-only" in script for script in scripts)
