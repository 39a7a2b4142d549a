"""Submitting a DAG: written down before it is done, never twice, refused with DAGMan's own words."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from siteannex.errors import AnnexError
from siteannex.locks import exclusive
from siteannex.training.experiment.submission import Answer, Records, Submission, run_program
from tests.unit.doubles import FakeClock

TAKEN = Answer(0, "Submitting job(s).\n1 job(s) submitted to cluster 17.\n")


@dataclass
class Dagman:
    """Answers as condor_submit_dag does; remembers what it was asked."""

    answer: Answer = TAKEN
    asked: list[tuple[list[str], Path]] = field(default_factory=list)

    def __call__(self, argv: Sequence[str], folder: Path) -> Answer:
        self.asked.append((list(argv), folder))
        return self.answer


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return Records(tmp_path / "state", FakeClock())


def wanted(tmp_path: Path) -> Submission:
    return Submission("protein", str(tmp_path / "protein.dag"), str(tmp_path), "ab" * 32, 9, {"lab": {"site": "lab"}})


def events(records: Records, tmp_path: Path) -> list[str]:
    log = records.folder("protein", tmp_path / "protein.dag") / "events.jsonl"
    return [json.loads(line)["what"] for line in log.read_text().splitlines()]


def test_a_submission_is_recorded_before_and_after(records: Records, tmp_path: Path) -> None:
    dagman = Dagman()
    done = records.submit(wanted(tmp_path), dagman, lambda _: False)
    assert done.cluster == 17
    assert records.last("protein", tmp_path / "protein.dag") == done
    assert records.all() == [done]
    assert events(records, tmp_path) == ["submit-begin", "submitted"]
    [(argv, folder)] = dagman.asked
    assert (argv[0], argv[-1], folder) == ("condor_submit_dag", str(tmp_path / "protein.dag"), tmp_path)
    assert "-force" not in argv  # it would put rescue DAGs away and train everything again


def test_a_dag_that_runs_is_not_submitted_again(records: Records, tmp_path: Path) -> None:
    records.submit(wanted(tmp_path), Dagman(), lambda _: False)
    again = Dagman()
    with pytest.raises(AnnexError, match=r"dag-running: .*runs as job 17\.0"):
        records.submit(wanted(tmp_path), again, lambda cluster: cluster == 17)
    assert again.asked == []


def test_a_dag_that_ended_may_be_submitted_again(records: Records, tmp_path: Path) -> None:
    records.submit(wanted(tmp_path), Dagman(), lambda _: False)
    again = Dagman(Answer(0, "1 job(s) submitted to cluster 18."))
    assert records.submit(wanted(tmp_path), again, lambda _: False).cluster == 18


def test_two_commands_at_once_do_not_submit_twice(records: Records, tmp_path: Path) -> None:
    folder = records.folder("protein", tmp_path / "protein.dag")
    folder.mkdir(parents=True)
    with exclusive(folder / "lock"), pytest.raises(AnnexError, match="dag-running"):
        records.submit(wanted(tmp_path), Dagman(), lambda _: False)


@pytest.mark.parametrize("answer", [Answer(1, "ERROR: no such file"), Answer(0, "nothing was said of a cluster")])
def test_a_refusal_carries_dagmans_words(records: Records, tmp_path: Path, answer: Answer) -> None:
    with pytest.raises(AnnexError) as raised:
        records.submit(wanted(tmp_path), Dagman(answer), lambda _: False)
    assert raised.value.failure.code == "dag-refused"
    assert raised.value.failure.evidence[0].text == answer.text
    assert events(records, tmp_path) == ["submit-begin", "submit-refused"]


def test_a_machine_without_htcondor_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    answer = run_program(["condor_submit_dag", "x.dag"], tmp_path)
    assert answer.status == 127
    assert "is this an HTCondor access point?" in answer.text


def test_a_state_directory_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    with pytest.raises(AnnexError, match="state-unwritable"):
        Records(tmp_path / "state", FakeClock()).submit(wanted(tmp_path), Dagman(), lambda _: False)


def test_a_dagman_that_died_in_its_final_node_is_started_from_its_rescue_file(records: Records, tmp_path: Path) -> None:
    dag, lock = tmp_path / "protein.dag", tmp_path / "protein.dag.lock"
    dag.write_text("JOB a a\nFINAL final hook-final\n")
    records.submit(wanted(tmp_path), Dagman(), lambda _: False)
    lock.touch()
    records.submit(wanted(tmp_path), Dagman(), lambda _: False)
    assert lock.exists()  # no rescue file: DAGMan's own recovery knows better
    (tmp_path / "protein.dag.rescue001").touch()
    records.submit(wanted(tmp_path), Dagman(), lambda _: False)
    assert not lock.exists()
    assert "stale-lock-removed" in events(records, tmp_path)
    dag.write_text("JOB a a\n")
    lock.touch()
    (tmp_path / "protein.dag.rescue002").touch()
    records.submit(wanted(tmp_path), Dagman(), lambda _: False)
    assert lock.exists()
