"""`why JOB` and what `up` says before spending: from a queue on paper to the lines on the screen."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from siteannex.annex.events import What
from siteannex.annex.explaining.foresight import foresee
from siteannex.annex.explaining.why_job import Desk, JobStory, as_data, is_job_id, why_job, why_node
from siteannex.annex.explaining.why_view import job_lines
from siteannex.annex.explaining.why_words import up_command
from siteannex.annex.store import Store
from siteannex.errors import AnnexError, Stage
from tests.unit.doubles import FakeClock
from tests.unit.paper_queue import GPU_JOB, JOB, SLOT, PaperQueue, ad
from tests.unit.samples import NOW, POOL_FACTS, plan, request, site

Ask = Callable[..., JobStory]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path, FakeClock())


@pytest.fixture
def ask(store: Store) -> Ask:
    def about(job: str, *slots: str, what: str = "4711.0") -> JobStory:
        queue = PaperQueue([job], slots)
        return why_job(what, Desk(queue, store, FakeClock(), lambda: [site()]))

    return about


def test_too_much_memory_from_head_to_do(ask: Ask) -> None:
    lines = job_lines(ask(ad(JOB, RequestMemory="131072", JobBatchName='"run3 epoch 7"'), ad(SLOT)))
    assert lines == [
        "job 4711.0 (run3 epoch 7), idle 2 h 10 m: nothing that exists or is coming can run it",
        "  it asks                     sweep1 (up)",
        '  TargetAnnexName = "sweep1"  yes',
        "  memory 131072 MB            no: 32768 MB",
        "  (10 more conditions, all met)",
        "  so   the job asks memory 131072 MB; sweep1 has 32768 MB.",
        "  do   condor_qedit 4711.0 RequestMemory 32768   asks 32 GB instead",
        "       no partition of the sites known here would fit (siteannex sites list): ask for less, or add a site",
    ]


def test_a_larger_annex_is_offered_where_a_partition_fits(ask: Ask) -> None:
    story = ask(ad(JOB, RequestMemory="50000"), ad(SLOT))
    offer = "siteannex up lab --name sweep1 --cpus 1 --mem 49GB --partition debug --lifetime 30m"
    assert story.conclusion.do[-1] == f"siteannex down sweep1, then {offer}"


def test_gpus_too_small_and_the_wish_that_could_be_lowered(ask: Ask) -> None:
    story = ask(ad(JOB, GPU_JOB), ad(SLOT))
    assert story.conclusion.verdict == "never"
    assert "the job asks GPU memory >= 60000 MB; sweep1 has 40536 MB (A100-SXM4-40GB)." in story.conclusion.so
    assert story.conclusion.do[0].startswith("condor_qedit 4711.0 GPUsMinMemory 40536")


def test_no_annex_of_that_name(ask: Ask) -> None:
    story = ask(ad(JOB, TargetAnnexName='"expanse1"'), ad(SLOT))
    end = story.conclusion
    assert end.verdict == "no-annex"
    assert 'TargetAnnexName = "expanse1", but no annex of that name is up or on its way' in end.head
    assert "Your annexes: sweep1 (up)." in end.so[0]
    assert end.do == (
        "siteannex up lab --name expanse1 --cpus 1 --mem 1GB --partition debug --lifetime 30m   would fit",
        "condor_qedit 4711.0 TargetAnnexName '\"sweep1\"'   sends it to sweep1, which fits",
    )


def test_a_job_that_names_no_annex(ask: Ask) -> None:
    end = ask(ad(JOB, TargetAnnexName="", Requirements="true"), ad(SLOT)).conclusion
    assert end.verdict == "no-target"
    assert end.do[-1] == "condor_qedit 4711.0 TargetAnnexName '\"sweep1\"'   sends it to sweep1, which fits"


def test_a_held_job_with_code_subcode_and_meaning(ask: Ask) -> None:
    held = {"JobStatus": "5", "HoldReasonCode": "34", "HoldReasonSubCode": "102"}
    lines = job_lines(ask(ad(JOB, held, HoldReason='"memory usage exceeded request_memory"')))
    assert lines == [
        "job 4711.0 is held for 2 h 10 m: it does not run until it is released",
        "  seen HoldReason: memory usage exceeded request_memory",
        "  so   it used more memory than it had asked for (code 34, subcode 102).",
        "  do   Raise it (condor_qedit 4711.0 RequestMemory MB; RequestDisk is in KiB), then condor_release 4711.0.",
    ]


def test_somebody_elses_job(ask: Ask) -> None:
    end = ask(ad(JOB, Owner='"bob"'), ad(SLOT)).conclusion
    assert end.verdict == "not-yours"
    assert "is bob's, not yours (alice)" in end.head


@pytest.mark.parametrize(
    ("status", "verdict"),
    [("2", "running"), ("3", "removed"), ("4", "completed"), ("6", "transferring"), ("7", "suspended")],
)
def test_jobs_that_do_not_wait_say_what_they_do(ask: Ask, status: str, verdict: str) -> None:
    assert ask(ad(JOB, JobStatus=status)).conclusion.verdict == verdict


def test_a_job_that_has_left_the_queue_is_told_from_history(store: Store) -> None:
    gone = {"ClusterId": 12, "ProcId": 0, "JobStatus": 4, "ExitCode": 1, "LastRemoteHost": "slot1_1@c1"}
    story = why_job("12", Desk(PaperQueue(past=gone), store, FakeClock(), lambda: []))
    assert story.conclusion.head == "job 12.0 has completed: exit code 1, last on slot1_1@c1"


def test_a_job_nobody_knows(store: Store) -> None:
    with pytest.raises(AnnexError) as raised:
        why_job("12", Desk(PaperQueue(), store, FakeClock(), lambda: []))
    assert raised.value.failure.code == "job-unknown"


def test_of_a_cluster_the_first_that_waits_is_told(store: Store) -> None:
    jobs = [ad(JOB, JobStatus="2"), ad(JOB, ProcId="1"), ad(JOB, ProcId="2")]
    story = why_job("4711", Desk(PaperQueue(jobs, [ad(SLOT)]), store, FakeClock(), lambda: []))
    assert story.job_id == "4711.1"
    assert "(one of several: 2 idle, 1 running; this is about 4711.1)" in job_lines(story)[1]


def test_a_dag_node_by_its_name(store: Store) -> None:
    desk = Desk(PaperQueue([ad(JOB, DAGNodeName='"prep"')], [ad(SLOT)]), store, FakeClock(), lambda: [])
    story = why_node("prep", desk)
    assert story is not None
    assert story.conclusion.head.startswith("job 4711.0 (prep)")
    assert why_node("other", desk) is None


def test_a_fitting_job_waits_for_negotiation_or_room(ask: Ask) -> None:
    fresh = {"EnteredCurrentStatus": str(int(NOW.timestamp()) - 5)}
    assert "next negotiation cycle" in ask(ad(JOB, fresh), ad(SLOT)).conclusion.head
    assert ask(ad(JOB), ad(SLOT)).conclusion.verdict == "fits"
    assert ask(ad(JOB), ad(SLOT, Memory="0")).conclusion.verdict == "busy"
    assert ask(ad(JOB, NumShadowStarts="2"), ad(SLOT)).conclusion.verdict == "restarts"
    closing = ask(ad(JOB), ad(SLOT, Start=SLOT["Start"].replace("99999999999", "1000")))
    assert closing.conclusion.verdict == "closing"
    assert closing.conclusion.do == ("when it has ended: siteannex up lab --name sweep1",)


def test_a_job_that_the_negotiator_rejected_quotes_it_and_one_it_never_saw_says_so(ask: Ask) -> None:
    unseen = ask(ad(JOB), ad(SLOT)).conclusion
    assert "no negotiator has looked at the job yet: it may not serve this AP's users." in unseen.so
    at = str(int(NOW.timestamp()) - 60)
    rejected = ask(ad(JOB, LastRejMatchReason='"no match found"', LastRejMatchTime=at), ad(SLOT)).conclusion
    assert [each.text for each in rejected.seen] == ["no match found"]
    assert len(rejected.so) == 1


def test_a_dagman_job_runs_on_the_ap_and_no_annex_is_blamed(ask: Ask) -> None:
    assert ask(ad(JOB, JobUniverse="7"), ad(SLOT)).conclusion.verdict == "local"


def test_a_pool_that_nobody_negotiates_for_is_told(store: Store) -> None:
    queue = PaperQueue([ad(JOB)], [ad(SLOT)])
    queue.negotiator = False
    story = why_job("4711", Desk(queue, store, FakeClock(), lambda: []))
    assert any("no negotiator serves this pool" in text for text in story.conclusion.so)


def test_an_annex_on_its_way_answers_before_it_is_there(store: Store) -> None:
    store.create(plan()).record(Stage.SUBMIT, What.DONE, job_ids=["71"])
    desk = Desk(PaperQueue([ad(JOB)]), store, FakeClock(), lambda: [site()])
    story = why_job("4711", desk)
    assert story.conclusion.verdict == "coming"
    assert "it waits for sweep1, which is pending" in story.conclusion.head
    big = Desk(PaperQueue([ad(JOB, RequestMemory="60000")]), store, FakeClock(), lambda: [site()])
    assert why_job("4711", big).conclusion.so == ("the job asks memory 60000 MB; sweep1 will have 32768 MB.",)


def test_json_has_every_condition_with_its_expressions(ask: Ask) -> None:
    data = json.loads(json.dumps(as_data(ask(ad(JOB, GPU_JOB), ad(SLOT)))))
    assert data["verdict"] == "never"
    assert data["annexes"] == [{"annex": "sweep1", "state": "up", "says": "no"}]
    [row] = [each for each in data["conditions"] if each["kind"] == "gpu-globalmemorymb"]
    assert row["expressions"] == ["GlobalMemoryMb >= GPUsMinMemory"]
    assert (row["says"], row["written_by"]) == (["no"], "you")


def test_what_counts_as_a_job_id() -> None:
    assert is_job_id("4711")
    assert is_job_id("4711.0")
    assert not any(map(is_job_id, ("lab", "4711.", "4711.0.1", "")))


def test_up_commands_leave_defaults_out() -> None:
    assert up_command(request(name="lab", gpus=0)) == "siteannex up lab"
    asked = replace(request(), memory_mib=1500, nodes=2, lifetime_s=5400)
    assert up_command(asked) == "siteannex up lab --name sweep1 --gpus 2 --nodes 2 --mem 1500MB --lifetime 1h30m"


def test_up_warns_when_no_waiting_job_could_ever_run() -> None:
    jobs = [ad(JOB, RequestMemory="60000"), ad(JOB, GPU_JOB, ProcId="1")]
    assert foresee(PaperQueue(jobs), plan(), site(), POOL_FACTS) == (
        "warning: none of your 2 jobs that wait for sweep1 can ever run on these slots",
        "the job asks memory 60000 MB; sweep1 will have 32768 MB (1 job)",
        "the job asks GPU memory >= 60000 MB; sweep1 will have 40536 MB (NVIDIA A100-SXM4-40GB) (1 job)",
        "siteannex why 4711.0 says more",
    )


def test_up_says_nothing_when_the_jobs_fit_or_nobody_waits() -> None:
    assert foresee(PaperQueue([ad(JOB)]), plan(), site(), POOL_FACTS) == ()
    assert foresee(PaperQueue(), plan(), site(), POOL_FACTS) == ()
    some = foresee(PaperQueue([ad(JOB), ad(JOB, RequestMemory="60000")]), plan(), site(), POOL_FACTS)
    assert some[0] == "warning: 1 of your 2 jobs that wait for sweep1 can never run on these slots"
