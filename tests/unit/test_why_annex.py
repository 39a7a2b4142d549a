"""`why ANNEX`: the story from events and witnesses, and the next step; with a real shell and a stub Slurm."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from siteannex.annex.events import Event, What
from siteannex.annex.explaining.why_annex import AnnexStory, alternatives, as_data, story, why_annex
from siteannex.annex.explaining.why_view import annex_lines
from siteannex.annex.slurm_site import SlurmSite
from siteannex.annex.store import Annex
from siteannex.errors import AnnexError, Evidence, Stage
from siteannex.failures import failure
from siteannex.model import JobCounts
from tests.unit.samples import NOW, TODAY, ago, plan, report, site
from tests.unit.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def why(world: World, annex: Annex, *, ask_site: bool = True) -> AnnexStory:
    access = SlurmSite(world.site, world.transport) if ask_site else None
    return why_annex(annex, world.pool, world.clock, access, asked_why_not="" if ask_site else "no session is held")


def test_an_annex_that_is_up_tells_its_stages_in_order(world: World) -> None:
    world.pool.counts["sweep1"] = JobCounts(waiting=1, running=2)
    annex, _ = world.up()
    told = why(world, annex)
    assert "READY" in told.head
    labels = [line.label for line in told.told]
    assert labels[:5] == ["plan", "pack", "connect", "ship", "submit"]
    assert labels[-1] == "ready"
    assert "Slurm: job 71 RUNNING on c1" in "\n".join(told.now)
    assert "your jobs for it: 2 running, 1 waiting" in told.now
    assert 'MY.TargetAnnexName = "sweep1"' in told.do[0]


def test_a_waiting_pilot_says_what_it_waits_for(world: World) -> None:
    annex, _ = world.up(wait=False)
    world.slurm.job("71", annex.plan.annex_id, "PENDING", reason="QOSMaxGRESPerUser")
    told = why(world, annex)
    assert "in the queue for" in told.head
    assert "QOSMaxGRESPerUser" in told.head
    assert "more GPUs than the QOS allows one user" in told.so[0]
    [waiting] = told.waiting
    assert not waiting.hopeless


def test_a_pilot_that_can_never_start_says_so(world: World) -> None:
    annex, _ = world.up(wait=False)
    world.slurm.job("71", annex.plan.annex_id, "PENDING", reason="PartitionTimeLimit")
    told = why(world, annex)
    assert "pending-forever" in told.head
    assert "it can never start: the walltime is longer than the partition allows" in told.so[0]
    assert told.do[0].startswith("siteannex down sweep1, then")


def test_without_a_session_the_site_is_not_asked_and_that_is_said(world: World) -> None:
    annex, _ = world.up(wait=False)
    told = why(world, annex, ask_site=False)
    assert told.now[0] == "Slurm: not asked (no session is held)"


def test_a_silent_collector_is_said(world: World) -> None:
    annex, _ = world.up(wait=False)
    world.pool.answers = False
    assert "collector: it does not answer" in why(world, annex).now


def test_a_failure_keeps_its_evidence_and_its_next_step(world: World) -> None:
    annex, _ = world.up(wait=False)
    seen = Evidence("sbatch at lab", "first\n\nInvalid account")
    annex.record_failure(failure("account-invalid", "lab", "sbatch refused", evidence=[seen]), ended=True)
    told = why(world, annex)
    assert "FAILED at submit: account-invalid: sbatch refused" in told.head
    assert [line.evidence for line in told.told if line.evidence] == [(seen,)]
    lines = annex_lines(told)
    assert any(line.endswith("seen   sbatch at lab: Invalid account") for line in lines)
    assert lines[-1].startswith("  do ")


def test_a_failure_that_no_event_tells_yet_is_told_with_what_was_seen(world: World) -> None:
    annex, _ = world.up(wait=False)
    world.slurm.job("71", annex.plan.annex_id, "NODE_FAIL", node="c1", exit_code="1:0")
    told = why(world, annex)
    assert "batch-job-node-failed" in told.head
    assert "batch-job-node-failed" in told.told[-1].text
    assert told.told[-1].evidence
    assert told.so
    assert told.do


def test_reports_stand_between_the_events_and_repetitions_are_left_out() -> None:
    events = [
        Event(ago(60), Stage.SUBMIT, What.BEGIN),
        Event(ago(50), Stage.SUBMIT, What.DONE, {"job_ids": ["71"]}),
        Event(ago(5), Stage.AP_CONNECT, What.SEEN, {"text": "token accepted (c1)"}),
        Event(ago(1), Stage.READY, What.SEEN, {"text": "c1: 2 x A100"}),
    ]
    told = story(plan(), events, (report("AP_CONNECT", text="token accepted", seconds_ago=6),))
    assert [(line.label, line.text) for line in told] == [
        ("submit", "job 71"),
        ("pilot", "71 AP_CONNECT ok: token accepted (c1)"),
        ("ready", "c1: 2 x A100"),
    ]


def test_an_interrupted_step_is_the_last_line() -> None:
    [told] = story(plan(), [Event(NOW, Stage.SHIP, What.BEGIN)])
    assert "not done yet" in told.text


def test_alternatives_are_the_other_partitions_that_fit() -> None:
    assert [other.partition for other in alternatives(plan(), site(), TODAY)] == ["gpu"]


def test_json_has_the_story_and_the_waiting(world: World) -> None:
    annex, _ = world.up(wait=False)
    world.slurm.job("71", annex.plan.annex_id, "PENDING", reason="Priority")
    data = json.loads(json.dumps(as_data(why(world, annex))))
    assert data["waiting"][0]["reason"] == "Priority"
    assert [line["label"] for line in data["story"]][:2] == ["plan", "pack"]
    assert data["now"]


def test_a_link_that_breaks_leaves_the_story_of_the_events(world: World) -> None:
    annex, _ = world.up(wait=False)

    def cut(_: str) -> None:
        raise AnnexError(failure("link-broken", "lab", "the connection broke"))

    world.transport.before = cut
    told = why(world, annex)
    assert "Slurm: not asked (the connection broke)" in told.now


def test_what_would_start_sooner_is_asked_without_submitting_anything(world: World) -> None:
    annex, _ = world.up(wait=False)
    world.slurm.job("71", annex.plan.annex_id, "PENDING", reason="Priority")
    now = int(world.clock.now().timestamp())
    world.slurm.set("trial", f"sbatch: Job 99 to start at {now} using 16 processors on nodes c2 in partition gpu\n")
    told = why(world, annex)
    assert told.do == (
        "siteannex down sweep1, then siteannex up lab --name sweep1 --gpus 2 --partition gpu   would start now",
    )
    assert world.slurm.submissions() == 1
    assert set(world.slurm.states()) == {"71"}
