"""Why a DAG node has no job in the queue, from its DAG file and DAGMan's log as HTCondor 25.14 wrote it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siteannex.training.dag.dagprogress import NodeState, read_progress
from siteannex.training.dag.dagwhy import Dag, NodeAnswer, dag_files, explain_node, find_node

Ask = Callable[..., NodeAnswer]

DAG = """
JOB A job.sub
JOB B job.sub
JOB C job.sub
JOB D job.sub
JOB P job.sub
SCRIPT PRE P fetch.sh $JOB
JOB M1 job.sub
JOB M2 job.sub
JOB OLD job.sub DONE
FINAL END job.sub
PARENT A B CHILD C
PARENT C CHILD D
WEAK PARENT B CHILD M2
CATEGORY M1 gpu
CATEGORY M2 gpu
MAXJOBS gpu 1
"""
ARGUMENTS = (
    "-f -l . -Lockfile d.dag.lock -Dag d.dag -CsdVersion $CondorVersion:' '25.14.1' '$ -dagman /usr/bin/condor_dagman"
)


def log(*said: str) -> str:
    return "".join(f"11/29/26 17:22:{at:02d} {line}\n" for at, line in enumerate(said))


def submitted(node: str, job: int) -> str:
    return f"Event: ULOG_SUBMIT for HTCondor Node {node} ({job}.0.0) {{11/29/26 17:22:20}}"


def ended(node: str, how: str = "completed successfully") -> str:
    return f"Node {node} job proc (9.0.0) {how}.\n11/29/26 17:22:30 Node {node} job(s) have exited the queue"


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    """`ask(node, said...)`: what `why node` answers when DAGMan's log says that."""

    def asked(node: str, *said: str, **changes: object) -> NodeAnswer:
        (tmp_path / "d.dag").write_text(DAG, encoding="utf-8")
        (tmp_path / "d.dag.dagman.out").write_text(log(*said), encoding="utf-8")
        dag = find_node(node, [dagman(tmp_path, **changes)])
        assert dag is not None
        return explain_node(node, dag)

    return asked


def dagman(place: Path, **changes: object) -> dict[str, object]:
    return {"ClusterId": 14, "ProcId": 0, "JobStatus": 2, "Iwd": str(place), "Arguments": ARGUMENTS, **changes}


def test_parents_are_named_with_their_jobs(ask: Ask) -> None:
    told = ask("C", submitted("A", 15), submitted("B", 16), ended("B"))
    assert told.verdict == "parents"
    assert "node C of d.dag (DAGMan job 14.0) is not submitted yet: it waits for 1 of its 2 parents, A" in told.head
    assert told.so == ("A: its job 15.0 is in the queue since 29 Nov 17:22:00.",)
    assert told.do == ("siteannex why A",)


def test_behind_a_parent_that_waits_itself_stands_what_can_go_on(ask: Ask) -> None:
    told = ask("D", submitted("A", 15), ended("A"), submitted("B", 16))
    assert "it waits for its parent, C" in told.head
    assert told.so == ("C: not submitted yet either.", "what can go on now, before them: B (job 16.0).")


def test_a_node_behind_a_failure_never_runs_and_says_whose(ask: Ask) -> None:
    told = ask("D", submitted("A", 15), ended("A", "failed with status 1"))
    assert (told.verdict, told.so) == ("futile", ("A: its job failed with status 1.",))
    weak = ask("M2", submitted("B", 16), ended("B", "failed with signal 9"))
    assert weak.verdict == "ready", "after WEAK PARENT a failure will do"


def test_scripts_that_run_and_that_failed(ask: Ask) -> None:
    told = ask("P", "Running PRE script of Node P...")
    assert told.verdict == "pre"
    assert "its PRE script runs since 29 Nov 17:22:00" in told.head
    assert told.so == ("fetch.sh $JOB: its job is submitted when the script has ended well.",)
    assert ask("P", "Running PRE script of Node P...", "PRE Script of Node P failed with status 3").verdict == "failed"
    ran = ask("P", "Running PRE script of Node P...", "PRE Script of Node P completed successfully.")
    assert ran.verdict == "ready"
    after = ask("B", submitted("B", 16), ended("B", "failed with status 1"), "Running POST script of Node B...")
    assert after.verdict == "post"
    kept = ask(
        "B", submitted("B", 16), ended("B", "failed with status 1"), "POST Script of node B completed successfully."
    )
    assert kept.verdict == "done", "POST decides"


def test_throttles_are_named(ask: Ask) -> None:
    told = ask("M2", submitted("M1", 20), submitted("B", 16), ended("B"))
    assert "is ready and held back: MAXJOBS gpu 1 in d.dag" in told.head
    assert "M1 (job 20.0)" in told.so[0]
    idle = "Note: {} total node deferrals because of -MaxIdle limit (3)"
    told = ask("A", idle.format(1), idle.format(2))
    assert "DAGMan keeps at most 3 idle jobs at once" in told.head
    assert ask("A", idle.format(2), idle.format(2)).verdict == "ready", "it no longer grows"


def test_done_failed_retried_queued_final_and_halted(ask: Ask, tmp_path: Path) -> None:
    assert ask("OLD").verdict == "done"
    assert ask("A", submitted("A", 15), ended("A")).so == ("its last job was 15.0 (siteannex why 15.0).",)
    again = (submitted("A", 15), ended("A", "failed with status 1"), "Retrying node A (retry #1 of 2)...")
    assert ask("A", *again).verdict == "ready"
    assert "(retry #1 of 2)" in ask("C", *again).so[0]
    assert "after retry #1 of 2" in ask("A", *again, submitted("A", 16), ended("A", "was aborted")).head
    assert ask("A", submitted("A", 15)).verdict == "queued"
    assert "every other node is finished" in ask("END").head
    held = ask("A", JobStatus=5, HoldReason="disk full")
    assert (held.verdict, held.so, held.do) == ("halted", ("disk full.",), ("condor_release 14.0",))
    (tmp_path / "d.dag.halt").touch()
    assert ask("A").do == (f"rm {tmp_path}/d.dag.halt",)


def test_a_second_run_forgets_the_first_and_knows_its_rescue_file(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "d.dag.rescue001").write_text("DONE A\nDONE B\n", encoding="utf-8")
    first = (submitted("A", 15), ended("A"), submitted("B", 16), ended("B"), submitted("C", 17), ended("C", "failed"))
    restart = "** condor_dagman (CONDOR_DAGMAN) STARTING UP"
    found = "Found rescue DAG number 1; running d.dag.rescue001 in combination with normal DAG file"
    assert ask("C", *first).verdict == "failed"
    assert ask("C", *first, restart, found).verdict == "ready"


def test_several_files_and_quoted_arguments(tmp_path: Path) -> None:
    (tmp_path / "one.dag").write_text("JOB A x.sub\n", encoding="utf-8")
    (tmp_path / "two.dag").write_text("JOB A x.sub\nJOB Z x.sub\n", encoding="utf-8")
    (tmp_path / "one.dag.dagman.out").write_text(log(submitted("1.Z", 7)), encoding="utf-8")
    ad = dagman(tmp_path, Arguments="-Dag one.dag -Dag two.dag")
    assert dag_files(ad) == [tmp_path / "one.dag", tmp_path / "two.dag"]
    dag = find_node("Z", [ad])
    assert isinstance(dag, Dag)
    assert dag.of("Z").job_id == "7.0"
    assert find_node("nosuch", [ad]) is None
    assert dag_files(dagman(tmp_path, Arguments="-Dag 'open")) == []
    assert find_node("A", [dagman(tmp_path / "gone")]) is None


def test_names_of_a_thousand_nodes_stay_on_the_screen(tmp_path: Path) -> None:
    nodes = [f"n{at}" for at in range(1000)]
    lines = [*(f"JOB {node} x.sub" for node in [*nodes, "END"]), f"PARENT {' '.join(nodes)} CHILD END"]
    (tmp_path / "d.dag").write_text("\n".join(lines), encoding="utf-8")
    dag = find_node("END", [dagman(tmp_path)])
    assert dag is not None
    told = explain_node("END", dag)
    assert "n7 and 992 more" in told.head
    assert len(told.so) == 9


PIECES = st.sampled_from(
    [
        "Node ",
        "A",
        " job proc (",
        "1.0.0",
        ") ",
        "failed",
        "Event: ULOG_SUBMIT for HTCondor Node ",
        "Running PRE script",
        "\n",
        "11/29/26 17:22:20 ",
        "STARTING UP",
        "Note: ",
        "9" * 30,
        " total node deferrals because of ",
        "-MaxIdle limit (",
        "\x00",
    ]
)


@given(st.lists(PIECES, max_size=40).map("".join))
def test_a_damaged_log_is_never_an_exception(text: str) -> None:
    progress = read_progress(text.splitlines())
    assert all(isinstance(node.state, NodeState) for node in progress.nodes.values())
