"""What GEN SUBDAG compiles to, and what our reader says of a DAG, in the eyes of the real DAGMan."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from siteannex.training.dag.dagfile import read_commands
from siteannex.training.dag.daggraph import Graph, read_graph
from siteannex.training.gen.gensubdag import compile_text
from siteannex.training.importing.dagimport import import_dag
from siteannex.training.rendering.render import Names, dag_lines
from tests.lab.ground import Ground
from tests.lab.person import Person
from tests.unit.training.mldag_twin import campaign, twin
from tests.unit.training.test_same_experiment import loaded, rendered, their_name

FLOW = """\
JOB init n.sub NOOP
GEN SUBDAG sweep train.subdag a, b product from
    0.1 to 0.3 by 0.1
    1 to 3 by 1
JOB report n.sub NOOP
PARENT init CHILD sweep
PARENT sweep CHILD report
RETRY sweep 2 UNLESS-EXIT 86
VARS sweep note='it is "quoted"\\\\'
CATEGORY sweep gpu
MAXJOBS gpu 4
"""
TRAIN = """\
JOB {run}-e0 n.sub NOOP
JOB {run}-e1 {
  executable = /bin/true
  arguments = {a} {b}
} NOOP
VARS {run}-e0 epoch=0 a={a} b='{b}'
PARENT {run}-e0 CHILD {run}-e1
PRIORITY ALL_NODES {index}
"""


@pytest.fixture
def folder(alice: Person) -> Iterator[str]:
    """A directory of alice's on the AP with a submit file in it."""
    path = alice.shell("echo ~/gen-subdag")  # not in /tmp: DAGMan takes a log there for a mistake
    alice.shell(f"mkdir -p {path} && cd {path} && printf 'executable = /bin/true\\nqueue\\n' >n.sub")
    yield path
    alice.shell(f"rm -rf {path}")


def put(alice: Person, path: str, text: str) -> None:
    alice.lab.exec("ap", ["sh", "-c", f"cat >{path}"], user=alice.user, input=text, check=True)


def checked(alice: Person, folder: str, dags: Sequence[str]) -> list[list[str]]:
    """What HTCondor's own checker finds wrong with each DAG."""
    for at, text in enumerate(dags):
        put(alice, f"{folder}/check{at:03d}.dag", text)
    said = json.loads(alice.shell(f"cd {folder} && condor_dag_checker -json check*.dag || true"))
    found = {report["DagFile"]: [error["Reason"] for error in report.get("Errors", [])] for report in said}
    return [found[f"check{at:03d}.dag"] for at in range(len(dags))]


def test_dagman_runs_what_gen_compiles_to(alice: Person, ground: Ground, folder: str) -> None:
    flow = compile_text(FLOW, "flow.dag", {"train.subdag": TRAIN}.__getitem__).text
    assert checked(alice, folder, [flow]) == [[]]
    put(alice, f"{folder}/flow.dag", flow)
    alice.shell(f"cd {folder} && condor_submit_dag -no_submit flow.dag && rm flow.dag.condor.sub")
    alice.shell(f"cd {folder} && condor_submit_dag flow.dag")
    log = f"{folder}/flow.dag.dagman.out"
    ended = ground.wait_for(
        lambda: alice.shell(f"grep -c 'EXITING WITH STATUS' {log} || true"), lambda n: n not in ("", "0"), within_s=90
    )
    assert ended == "1", alice.shell(f"tail -30 {log} || true")
    metrics = json.loads(alice.shell(f"cat {folder}/flow.dag.metrics"))
    assert metrics["exitcode"] == 0
    assert (metrics["nodes_succeeded"], metrics["nodes_failed"]) == (20, 0), metrics


@pytest.mark.parametrize("files", [twin(), campaign()], ids=["twin", "campaign"])
def test_the_files_of_a_campaign_are_as_good_to_dagman_as_to_our_reader(
    alice: Person, folder: str, files: dict[str, str]
) -> None:
    dags = [files[name] for name in ("sites.dag", "aws.dag", "ospool.dag")]
    assert checked(alice, folder, dags) == [[], [], []]
    assert [read_graph(dag).problems for dag in dags] == [(), (), ()]


@pytest.mark.parametrize("files", [twin(), campaign()], ids=["twin", "campaign"])
def test_an_imported_campaign_rendered_again_is_good_to_dagman(
    alice: Person, folder: str, tmp_path: Path, files: dict[str, str]
) -> None:
    put(alice, f"{folder}/x.config", "")
    dags = []
    for name in ("sites.dag", "aws.dag", "ospool.dag"):
        read = loaded(tmp_path, import_dag(files[name], name).text)
        lines = dag_lines(read.experiment, read.targets, Names("x.config", "x.status", "x.jobstate"))
        dags.append("\n".join(lines) + "\n")
    assert checked(alice, folder, dags) == [[], [], []]


def job_ads(alice: Person, folder: str, texts: Sequence[str]) -> list[dict[str, str]]:
    """The job ad that condor_submit makes of each submit description."""
    for at, text in enumerate(texts):
        put(alice, f"{folder}/job{at:03d}.sub", text)
    alice.shell(f"cd {folder} && for f in job*.sub; do condor_submit -dry-run $f.ad $f; done")
    return [
        dict(line.split("=", 1) for line in alice.shell(f"cat {folder}/job{at:03d}.sub.ad").splitlines() if "=" in line)
        for at in range(len(texts))
    ]


def description(graph: Graph, node: str) -> str:
    """A node's submit description with its VARS before it, as DAGMan prepends them."""
    macros = {"JOB": node, "RETRY": "0", **graph.variables[node]}
    body = graph.descriptions[graph.nodes[node].submit].removesuffix("\nqueue")
    return "".join(f"{name} = {value}\n" for name, value in macros.items()) + f"{body}\nqueue\n"


@pytest.mark.parametrize("files", [twin(), campaign()], ids=["twin", "campaign"])
def test_an_imported_job_is_to_condor_submit_what_it_was(
    alice: Person, folder: str, tmp_path: Path, files: dict[str, str]
) -> None:
    pairs: dict[tuple[str, bool], tuple[str, str]] = {}
    for name in ("sites.dag", "aws.dag", "ospool.dag"):
        original, again = read_graph(files[name]), rendered(loaded(tmp_path, import_dag(files[name], name).text))
        for ours in again.nodes:
            theirs = their_name(ours)
            kind = (original.nodes[theirs].submit, "continue_from_checkpoint" in original.variables[theirs])
            pairs.setdefault(kind, (description(original, theirs), description(again, ours)))
    ads = job_ads(alice, folder, [text for pair in pairs.values() for text in pair])
    for before, after in zip(ads[::2], ads[1::2], strict=True):
        brings = after["TransferInput"].replace("secrets/WANDB_API_KEY,", "").replace(",secrets/WANDB_API_KEY", "")
        assert brings == before["TransferInput"]
        others = {"TransferInput", "JobSubmitFile", "Environment", "Requirements", "QDate", "EnteredCurrentStatus"}
        assert {name: after.get(name) for name in before if name not in others} == {
            name: value for name, value in before.items() if name not in others
        }
        added = after.keys() - before.keys() - others
        # Training jobs stay in the queue when a site ends their pilot; their log tells transfers and where they ran.
        new = {name for name in added if not name.startswith("Siteannex")}
        assert new - {"UserLog"} == {"OnExitRemove", "UserLogExecuteEventAttrs"}


GOOD = [
    "PARENT A \\\n# note\n\n CHILD B",
    "# note \\\nJOB C c.sub",
    "JOB C {\nx=1\n# }\n} DIR foo NOOP",
    "JOB C @=end\nx = }\n  @end DIR d",
    "JOB C {\nargs = a \\\n}\nJOB D d.sub",
    "Submit_Description s {\n}\njob C s",
    "JOB C.d c.sub\nJOB a c.sub\nPARENT A CHILD a",
    'VARS A a=1 b=\'2\' c = "3" d="x y"z +e=""\nVARS B append f="\\t"',
    "WEAK PARENT A CHILD B\nTOLERANCE A 1",
    "SCRIPT DEFER 1 2 DEBUG f ALL POST A y\nSCRIPT HOLD ALL_NODES z",
    "RETRY ALL_NODES 3 UNLESS-EXIT 2\nPRE-SKIP A 3\nPRE_SKIP B 3\nABORT-DAG-ON A 3 RETURN 1",
    "DONE A\nCATEGORY A x\nMAXJOBS x 0\nPRIORITY B -5",
    "PARENT A CHILD B\\",
    "PARENT A CHILD B CHILD B",
    "SCRIPT PRE A x.sh 'a\nENV SET a='x",
    "RETRY A 3x",
]
BAD = [
    "GEN SUBDAG x x.dag a from 1",
    "JOB C c.sub # why",
    "JOB parent c.sub",
    "JOB C+D c.sub",
    "JOB C",
    "PARENT A CHILD C",
    "PARENT a CHILD B",
    "PARENT A",
    "WEAK A CHILD B",
    "RETRY A often",
    "RETRY C 1",
    "SCRIPT A x",
    "SCRIPT PRE A",
    "CATEGORY A",
    "PRIORITY A x",
    "VARS A",
    "VARS A x",
    "VARS A queuex=1",
    'VARS A x="1',
    "VARS A a==b",
    "SUBDAG C c.dag",
    "SUBMIT-DESCRIPTION s file",
    "JOB C { executable=/bin/true }",
    "DONE",
    "DONE ALL_NODES",
    "DONE A B",
    "RETRY A 1 UNLESS 2",
    "MAXJOBS x -1",
    "JOB C c.sub DIR",
    "SCRIPT PRE 'A x",
]


def test_dagman_and_our_reader_agree_on_what_is_right_and_wrong(alice: Person, folder: str) -> None:
    dags = [f"JOB A a.sub\nJOB B b.sub\n{lines}\n" for lines in (*GOOD, *BAD)]
    for at, (dag, theirs) in enumerate(zip(dags, checked(alice, folder, dags), strict=True)):
        lost = [command for command in read_commands(dag) if "drops this line" in command.problem]
        ours = len(read_graph(dag).problems) - len(lost)  # DAGMan says nothing of a lost line; we do
        assert bool(theirs) == bool(ours) == (at >= len(GOOD)), dag
