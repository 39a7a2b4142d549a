from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siteannex.training.dag.daggraph import Retry, differences, read_graph
from tests.unit.training.mldag_twin import campaign, twin
from tests.unit.training.test_dagfile import DAGS

CAMPAIGNS = pytest.mark.parametrize("files", [twin(), campaign()], ids=["twin", "campaign"])


@given(DAGS)
def test_any_text_is_a_graph(text: str) -> None:
    graph = read_graph(text)
    assert differences(graph, read_graph(text)) == ()


@CAMPAIGNS
def test_a_campaigns_dags_are_chains_of_epochs_without_a_problem(files: dict[str, str]) -> None:
    for name in ("sites.dag", "aws.dag", "ospool.dag"):
        graph = read_graph(files[name])
        assert graph.problems == ()
        runs = {node.split("-")[0] for node in graph.nodes}
        assert len(graph.edges) == len(graph.nodes) - len(runs)
        assert set(graph.variables) == set(graph.nodes)
        assert all(graph.descriptions[node.submit] for node in graph.nodes.values())


@CAMPAIGNS
def test_retry_of_all_nodes_is_one_retry_a_node(files: dict[str, str]) -> None:
    graph = read_graph(files["sites.dag"])
    assert dict(graph.retries) == dict.fromkeys(graph.nodes, Retry(5))


@CAMPAIGNS
def test_a_rescue_file_marks_nodes_done_and_sets_what_is_left_of_their_retries(files: dict[str, str]) -> None:
    graph = read_graph(files["sites.dag"])
    for name in ("sites.dag.rescue001", "sites.dag.rescue012"):
        text = files[name]
        rescued = graph.with_rescue(text)
        assert rescued.problems == ()
        assert rescued.done == {line.split()[1] for line in text.splitlines() if line.startswith("DONE ")}
        assert dict(rescued.retries) == dict.fromkeys(graph.nodes, Retry(3))


def test_a_rescue_file_that_names_a_stranger_is_of_another_dag() -> None:
    graph = read_graph("JOB A a.sub\n").with_rescue("DONE B\n")
    assert [problem.message for problem in graph.problems] == ["DONE names B, which no JOB defines"]


DAG = """\
SUBMIT-DESCRIPTION s {
  executable = /bin/true
}
JOB A s
JOB B {
  executable = /bin/true
}
SUBDAG EXTERNAL C c.dag DIR d
SPLICE S s.dag
FINAL F f.sub NOOP
PARENT A CHILD B C
WEAK PARENT B CHILD C
SCRIPT DEFER 1 60 PRE A pre.sh 'x y'
VARS A x="1"
VARS ALL_NODES y="2"
RETRY A 3 UNLESS-EXIT 86
CATEGORY ALL_NODES k
MAXJOBS k 2
PRIORITY B -5
CONFIG a.conf
"""


def test_the_graph_holds_all_a_dag_says() -> None:
    graph = read_graph(DAG)
    assert graph.problems == ()
    assert {name: node.kind for name, node in graph.nodes.items()} == {
        **{"A": "JOB", "B": "JOB", "C": "SUBDAG", "S": "SPLICE", "F": "FINAL"}
    }
    assert graph.edges == {("A", "B"), ("A", "C")}
    assert graph.weak_edges == {("B", "C")}
    assert graph.scripts == {("A", "PRE"): "DEFER 1 60 pre.sh 'x y'"}
    assert graph.variables == {"A": {"x": "1", "y": "2"}, "B": {"y": "2"}, "C": {"y": "2"}}
    assert graph.retries == {"A": Retry(3, 86)}
    assert graph.categories == {"A": "k", "B": "k", "C": "k"}
    assert (graph.max_jobs, graph.priorities, graph.settings) == ({"k": 2}, {"B": -5}, ("CONFIG a.conf",))


def test_graphs_are_the_same_however_they_are_written() -> None:
    one = "SUBMIT-DESCRIPTION s {\n  x = 1\n}\nJOB A s\nJOB B s\nPARENT A CHILD B\nRETRY ALL_NODES 2\nVARS A a='1'\n"
    other = 'JOB B @=e\nx = 1\n@e\nvars A a = "1"\nJOB A {\n x = 1\n}\nretry B 2\nRETRY A 2\nparent A \\\n child B B\n'
    assert differences(read_graph(one), read_graph(other)) == ()


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("PARENT B CHILD A", "edges: ('B', 'A'): absent / present"),
        ("VARS A x=2", "variables: A: {'x': '1'} / {'x': '2'}"),
        ("SCRIPT POST A p", "scripts: ('A', 'POST'): absent / p"),
        ("PRIORITY A 1", "priorities: A: absent / 1"),
        ("DONE A", "done: A: absent / present"),
    ],
)
def test_a_difference_is_named(line: str, told: str) -> None:
    dag = "JOB A a.sub\nJOB B a.sub\nVARS A x=1\n"
    assert differences(read_graph(dag), read_graph(f"{dag}{line}\n")) == (told,)


@pytest.mark.parametrize(
    ("text", "line", "column", "says"),
    [
        ("JOB A a.sub\nPARENT A CHILD \\\n  C\n", 3, 3, "names C, which no JOB defines"),
        ("JOB A a.sub\nRETRY a 1\n", 2, 7, "names a, which no JOB defines"),
        ("JOB A a.sub\nJOB A b.sub\n", 2, 5, "defined twice, first in line 1"),
        ("JOB parent a.sub\n", 1, 5, "cannot be called parent"),
        ("JOB A+B a.sub\n", 1, 5, "cannot be called A+B"),
        ("JOB A\n", 1, 6, "needs a name and a file"),
        ("JOB A a.sub # why\n", 1, 13, "'#' is not understood here"),
        ("SUBDAG A a.dag\n", 1, 8, "EXTERNAL"),
        ("JOB A a.sub\nRETRY A often\n", 2, 9, "needs a whole number here, not 'often'"),
        ("JOB A a.sub\nPARENT A\n", 2, 9, "one part is missing"),
        ("JOB A a.sub\nWEAK A CHILD A\n", 2, 6, "needs the word PARENT"),
        ("JOB A a.sub\nSCRIPT A x\n", 2, 8, "PRE, POST or HOLD"),
        ("JOB A a.sub\nSCRIPT PRE A\n", 2, 13, "a node and a script"),
        ("JOB A a.sub\nVARS A x\n", 2, 8, "key="),
        ("JOB A a.sub\nVARS A\n", 2, 7, "sets nothing"),
        ("JOB A a.sub\nVARS A queue=1\n", 2, 8, "cannot be called queue"),
        ("GEN SUBDAG x\n", 1, 1, "'GEN' is not a DAGMan command"),
        ("JOB A a.sub\nCATEGORY A\n", 2, 11, "one node and one category"),
        ("SUBMIT-DESCRIPTION s file\n", 1, 22, "needs a name and { ... }"),
        ("JOB A a.sub\nDONE\n", 2, 5, "no node is named"),
        ("JOB A a.sub\nDONE ALL_NODES\n", 2, 6, "not ALL_NODES"),
        ("JOB A a.sub\nDONE A B\n", 2, 8, "'B' is not understood here"),
        ("JOB A a.sub DIR\n", 1, 13, "'DIR' is not understood here"),
        ("JOB A a.sub\nRETRY A 1 UNLESS 2\n", 2, 11, "'UNLESS' is not understood here"),
        ("JOB A a.sub\nRETRY A -1\n", 2, 9, "needs a whole number"),
        ("JOB A a.sub\nPRIORITY A 99999999999\n", 2, 12, "needs a whole number"),
        ("MAXJOBS q -1\n", 1, 11, "needs a whole number"),
        ("JOB A a.sub\nSCRIPT PRE 'A x\n", 2, 16, "a quote is not closed"),
    ],
)
def test_what_htcondor_refuses_is_a_problem_at_its_place(text: str, line: int, column: int, says: str) -> None:
    problem = read_graph(text).problems[0]
    assert (problem.line, problem.column) == (line, column)
    assert says in problem.message


def test_quotes_are_not_looked_at_where_htcondor_takes_the_rest_of_a_line() -> None:
    graph = read_graph("JOB A a.sub\nSCRIPT PRE A x.sh 'a b\nENV SET a='x\nSET_JOB_ATTR b = \"\n")
    assert graph.problems == ()
    assert graph.scripts == {("A", "PRE"): "x.sh 'a b"}


def test_numbers_end_where_their_digits_end() -> None:
    assert read_graph("JOB A a.sub\nRETRY A 3x\n").retries == {"A": Retry(3)}


@given(st.integers(1, 40), st.integers(1, 5))
def test_a_chain_has_one_edge_less_than_nodes(length: int, runs: int) -> None:
    names = [[f"r{run}e{epoch}" for epoch in range(length)] for run in range(runs)]
    lines = [f"JOB {name} x" for chain in names for name in chain]
    lines += [f"PARENT {a} CHILD {b}" for chain in names for a, b in itertools.pairwise(chain)]
    graph = read_graph("\n".join(lines))
    assert len(graph.edges) == len(graph.nodes) - runs
