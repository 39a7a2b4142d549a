"""What took a job from its EP: told apart by our own events, HTCondor's words beside them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from siteannex.annex.events import What
from siteannex.annex.explaining.evicted import evicted, stranded
from siteannex.annex.store import Annex, Store
from siteannex.errors import Stage
from tests.unit.doubles import FakeClock
from tests.unit.samples import NOW, plan

JOB = {
    "LastRemoteHost": "slot1_1@ep71@c1.lab",
    "LastVacateTime": int(NOW.timestamp()) + 600,
    "VacateReason": "Startd was shutdown",
}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path, FakeClock())


@pytest.fixture
def annex(store: Store) -> Annex:
    """Ready since ten minutes when the job was evicted; its walltime is an hour."""
    annex = store.create(plan())
    annex.record(Stage.SUBMIT, What.DONE, job_ids=["71"])
    annex.record(Stage.READY, What.SEEN, ready=["71"])
    return annex


def told(store: Store, **changes: object) -> str:
    answer = evicted({**JOB, **changes}, store.annexes(), NOW + timedelta(minutes=20))
    assert answer is not None
    sentence, seen = answer
    assert "Startd was shutdown, on slot1_1@ep71@c1.lab" in seen.text or "signal 15" in seen.text
    return sentence


CAUSES: dict[str, Callable[[Annex], None]] = {
    "you took sweep1 down": lambda annex: annex.record(Stage.DRAIN, What.BEGIN, now=True),
    "the pilot of sweep1 ended: preempted: Slurm gave its node to other jobs": lambda annex: annex.record(
        Stage.DRAIN, What.SEEN, ends={"71": "preempted: Slurm gave its node to other jobs"}
    ),
    "the pilot of sweep1 ended: walltime": lambda annex: annex.record(Stage.DRAIN, What.SEEN, ends={"71": "walltime"}),
    "sweep1 ended: idle 600 s": lambda annex: annex.record(Stage.RELEASED, What.DONE, text="idle 600 s"),
    "not by siteannex, so the site stopped the pilot of sweep1": lambda annex: None,
}


@pytest.mark.parametrize(("says", "happens"), CAUSES.items(), ids=CAUSES.keys())
def test_the_cause_of_an_eviction_is_what_our_events_know(
    store: Store, annex: Annex, says: str, happens: Callable[[Annex], None]
) -> None:
    happens(annex)
    assert says in told(store)


def test_at_the_end_of_its_walltime_that_is_the_cause_even_unasked(store: Store, annex: Annex) -> None:
    assert "the walltime of sweep1 was over" in told(store, LastVacateTime=int(NOW.timestamp()) + 3500)


def test_a_down_that_came_later_did_not_do_it(store: Store, annex: Annex) -> None:
    assert isinstance(annex.clock, FakeClock)
    annex.clock.moment += timedelta(minutes=15)
    annex.record(Stage.DRAIN, What.BEGIN, now=True)
    assert "not by siteannex" in told(store)


def test_a_job_that_died_of_slurms_own_signal_is_told_so(store: Store, annex: Annex) -> None:
    annex.record(Stage.DRAIN, What.SEEN, ends={"71": "preempted: Slurm gave its node to other jobs"})
    sentence = told(store, LastVacateTime=0, VacateReason="", ExitSignal=15, CompletionDate=int(NOW.timestamp()) + 600)
    assert "preempted" in sentence


def test_a_pilot_of_no_annex_known_here_is_named(store: Store) -> None:
    assert "batch job 71 is of no annex known here" in told(store)


@pytest.mark.parametrize(
    "job",
    [
        {},
        {"LastRemoteHost": "slot1@ep71@c1"},
        {"LastVacateTime": 1, "LastRemoteHost": "slot1@c1"},
        {"ExitSignal": 9, "CompletionDate": 1, "LastRemoteHost": "slot1@ep71@c1"},
    ],
)
def test_a_job_that_was_not_stopped_on_an_ep_has_no_such_story(store: Store, job: dict[str, object]) -> None:
    assert evicted(job, store.annexes(), NOW) is None


def test_a_job_that_htcondor_has_lost_is_told_with_the_cause_and_its_lease(store: Store, annex: Annex) -> None:
    annex.record(Stage.DRAIN, What.SEEN, ends={"71": "preempted: Slurm gave its node to other jobs"})
    lost = int(NOW.timestamp()) + 600
    job = {
        "RemoteHost": "slot1_1@ep71@c1.lab",
        "JobDisconnectedDate": lost,
        "LastJobLeaseRenewal": lost - 5,
        "JobLeaseDuration": 2400,
    }
    answer = stranded(job, store.annexes(), NOW + timedelta(minutes=20))
    assert answer is not None
    assert answer[0].startswith("the pilot of sweep1 ended: preempted")
    assert "(in 29 m 55 s)" in answer[0]
    assert "disconnected from slot1_1@ep71@c1.lab" in answer[1].text


@pytest.mark.parametrize("job", [{}, {"RemoteHost": "slot1@ep71@c1"}, {"JobDisconnectedDate": 5, "RemoteHost": "c1"}])
def test_a_job_that_really_runs_is_not_lost(store: Store, job: dict[str, object]) -> None:
    assert stranded(job, store.annexes(), NOW) is None
