from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siteannex.errors import AnnexError, StageFailure
from siteannex.training.dag.dagfile import save_text
from siteannex.training.dag.daggraph import read_graph
from siteannex.training.gen.gensubdag import Compiled, compile_dag, compile_text, has_gen
from tests.unit.training.mldag_twin import campaign, twin
from tests.unit.training.test_dagfile import DAGS

TRAIN = """\
# two epochs of a run
JOB {run}-train_epoch0 train.sub
JOB {run}-train_epoch1 train.sub
VARS {run}-train_epoch0 epoch=1 a={a} b={b}
VARS {run}-train_epoch1 epoch=2 a={a} b={b}
PARENT {run}-train_epoch0 CHILD {run}-train_epoch1
"""
ONE = "JOB {run}-{x} x.sub\n"


def compiled(dag: str, files: Mapping[str, str] | None = None, *, ceiling: int = 100_000) -> Compiled:
    known = {"train.subdag": TRAIN, "one.subdag": ONE, "inner.dag": "gen subdag", "watch": "SERVICE w s\n"}
    known |= files or {}

    def read(name: str) -> str:
        if name not in known:
            raise FileNotFoundError(2, "No such file or directory")
        return known[name]

    result = compile_text(dag, "flow.dag", read, ceiling=ceiling)
    assert read_graph(result.text).problems == ()
    return result


def refusal(dag: str, files: Mapping[str, str] | None = None, *, ceiling: int = 100_000) -> StageFailure:
    with pytest.raises(AnnexError) as caught:
        compiled(dag, files, ceiling=ceiling)
    assert caught.value.failure.code == "dag-invalid"
    return caught.value.failure


def values(result: Compiled, *names: str) -> list[tuple[str, ...]]:
    """The values of every first node of an instance, in the order of the DAG."""
    nodes = [node for node in read_graph(result.text).nodes if node.endswith("epoch0") or "epoch" not in node]
    return [tuple(result.points[node][name] for name in names) for node in nodes]


# What DAGMan accepts passes through


@given(DAGS)
def test_a_file_without_gen_comes_out_as_it_went_in(text: str) -> None:
    assert compile_text(text, "x.dag", lambda name: "").text == text


@pytest.mark.parametrize("files", [twin(), campaign()], ids=["twin", "campaign"])
def test_a_campaigns_files_pass_through_byte_for_byte(files: dict[str, str]) -> None:
    for text in files.values():
        assert not has_gen(text)
        assert compile_text(text, "x.dag", lambda name: "").text == text


def test_around_a_gen_every_other_byte_is_kept() -> None:
    before = "# é\r\n\n  job  init {\n\t# }\n x=1\\\n}\n"
    after = "\n\n# tail \\\nRETRY init 2 \nParent init \\\n # why\n Child late\nJOB late l.sub"
    text = compiled(f"{before}GEN SUBDAG r one.subdag x from\n1\n2\n{after}").text
    assert text == f"{before}# r: one.subdag, 2 nodes\nJOB 0-1 x.sub\nJOB 1-2 x.sub\n{after}"


# The forms that were shown


def test_tuples_with_backslashes_are_instances() -> None:
    files = {"train.subdag": TRAIN.replace(" b={b}", "")}
    flow = compiled("GEN SUBDAG train_flow train.subdag run, a from \\\n  1, 0.001 \\\n  2, 0.002\n", files)
    assert values(flow, "run", "a") == [("1", "0.001"), ("2", "0.002")]
    assert read_graph(flow.text).variables["2-train_epoch1"] == {"epoch": "2", "a": "0.002"}


def test_two_ranges_of_different_lengths_are_all_their_combinations_and_a_note_says_so() -> None:
    flow = compiled("GEN SUBDAG f train.subdag a, b from \\\n 0.001 to 0.1 by 0.001 \\\n 0.5 to 5 by 0.5\n")
    assert len(flow.points) == 2 * 1000
    assert flow.notes == ("flow.dag:1:1: f: a 100 x b 10: all 1000 combinations (product)",)


RANGES = "    0.01 to 0.1 by 0.01\n    0.5 to 5 by 0.5\n"


def test_two_ranges_of_one_length_must_say_product_or_zip() -> None:
    failure = refusal(f"GEN SUBDAG f train.subdag a, b from\n{RANGES}")
    assert "flow.dag:1:1: a 10 x b 10: all combinations (100) or side by side (10)?" in failure.summary
    assert "write b product from, or b zip from" in failure.summary


def test_product_changes_the_last_variable_first() -> None:
    flow = compiled(f"GEN SUBDAG f train.subdag a, b product from\n{RANGES}")
    made = values(flow, "run", "a", "b")
    assert len(made) == 100
    assert made[:2] == [("0", "0.01", "0.5"), ("1", "0.01", "1")]
    assert made[-1] == ("99", "0.1", "5")


def test_zip_goes_side_by_side() -> None:
    flow = compiled(f"GEN SUBDAG f train.subdag a, b zip from\n{RANGES}END\n")
    assert values(flow, "a", "b")[::9] == [("0.01", "0.5"), ("0.1", "5")]
    assert "\nEND" not in flow.text


def test_zip_needs_equal_lengths() -> None:
    failure = refusal("GEN SUBDAG f train.subdag a, b zip from\n1 to 3 by 1\n1 to 2 by 1\n")
    assert "zip needs as many values of each variable: a 3 x b 2" in failure.summary


def test_values_come_from_a_file() -> None:
    table = "a, b\n# the good ones\n0.1, 5\n\n(0.2, 6)\n0.3 7\n"
    flow = compiled("GEN SUBDAG f train.subdag a, b from points.csv\n", {"points.csv": table})
    assert values(flow, "a", "b") == [("0.1", "5"), ("0.2", "6"), ("0.3", "7")]


def test_named_rows_list_values_or_give_a_range_in_any_order() -> None:
    rows = 'b: 1 to 2 by 1\na: adam, "s, gd", sgd\n'
    flow = compiled(f"GEN SUBDAG f train.subdag a, b from\n{rows}")
    assert values(flow, "a", "b")[:3] == [("adam", "1"), ("adam", "2"), ("s, gd", "1")]


def test_a_value_called_like_a_command_is_written_with_a_comma_or_in_parentheses() -> None:
    flow = compiled("GEN SUBDAG f train.subdag a, b from\ndone, 5\n(retry 6)\n")
    assert values(flow, "a", "b") == [("done", "5"), ("retry", "6")]


def test_one_variable_may_list_its_values_on_the_line_itself() -> None:
    assert list(compiled("GEN SUBDAG f one.subdag x from 1, 2, 3\n").points) == ["0-1", "1-2", "2-3"]
    assert list(compiled("GEN SUBDAG f one.subdag x from 1 to 3 by 1\n").points) == ["0-1", "1-2", "2-3"]
    assert list(compiled("GEN SUBDAG f one.subdag x from 7\n").points) == ["0-7"]


def test_a_range_off_its_grid_is_noted() -> None:
    flow = compiled("GEN SUBDAG f one.subdag x from 0 to 1 by 0.4\n")
    assert "1 is not on the grid; the last value is 0.8" in flow.notes[0]


def test_the_block_ends_at_a_command_even_after_a_backslash_and_that_is_noted() -> None:
    flow = compiled("JOB init i\nGEN SUBDAG f one.subdag x from \\\n 1 \\\n 2 \\\nPARENT init CHILD f\nJOB late {\n}\n")
    assert read_graph(flow.text).edges == {("init", "0-1"), ("init", "1-2")}
    assert flow.notes == ("flow.dag:5:1: the backslash before this line was taken as the end of GEN",)
    flow = compiled("GEN SUBDAG f one.subdag x from\n 1 \\\n 2 \\\nJOB late {\n a = 1\n}\n")
    assert read_graph(flow.text).nodes["late"].body == "a = 1"
    assert flow.notes[0].startswith("flow.dag:4:1:")


# Templates


def test_run_is_the_number_of_the_instance_unless_it_is_a_variable() -> None:
    assert list(compiled("GEN SUBDAG f one.subdag x from a, b\n").points) == ["0-a", "1-b"]
    assert list(compiled("GEN SUBDAG f one.subdag run, x from\n7, a\n9, b\n").points) == ["7-a", "9-b"]


def test_braces_are_filled_now_and_dollars_are_left_for_the_submit() -> None:
    line = 'VARS n{run} v="{x} $(x) {{x}} ${x} {1, 2} {\\"k\\": 1}"\n'
    flow = compiled("GEN SUBDAG f t from 0.5\n".replace("f t", "f t x"), {"t": "JOB n{run} s\n" + line})
    assert read_graph(flow.text).variables["n0"] == {"v": '0.5 $(x) {x} ${x} {1, 2} {"k": 1}'}


def test_braces_in_inline_descriptions_and_scripts_are_filled() -> None:
    template = (
        "SUBMIT-DESCRIPTION s{x} {\n  arguments = {x}\n}\nJOB n{x} s{x}\n"
        "JOB m{x} @=e\n  arguments = {x}\n@e DIR d{x}\nSCRIPT POST n{x} check.sh {x}\n"
    )
    graph = read_graph(compiled("GEN SUBDAG f t x from 1, 2\n", {"t": template}).text)
    assert graph.descriptions == {"s1": "arguments = 1", "s2": "arguments = 2"}
    assert (graph.nodes["m2"].body, graph.nodes["m2"].directory) == ("arguments = 2", "d2")
    assert graph.scripts == {("n1", "POST"): "check.sh 1", ("n2", "POST"): "check.sh 2"}


def test_names_are_safe_for_every_dagman_and_values_stay_exact() -> None:
    flow = compiled('GEN SUBDAG f t x from\n0.001\n-1e-3\n"a b"\n', {"t": "JOB n-{x} s\nVARS n-{x} x={x}\n"})
    assert {node: each["x"] for node, each in read_graph(flow.text).variables.items()} == {
        **{"n-0p001": "0.001", "n--1e-3": "-1e-3", "n-a_b": "a b"}
    }


def test_vars_come_out_quoted_with_an_explicit_place() -> None:
    flow = compiled("GEN SUBDAG f t x from 1\n", {"t": "JOB n s\nVARS n a={x} b='q'\nVARS n APPEND c={x}\n"})
    assert 'VARS n PREPEND a="1" b="q"\nVARS n APPEND c="1"\n' in flow.text


def test_all_nodes_of_a_template_are_the_nodes_of_the_instance() -> None:
    flow = compiled("JOB init i\nGEN SUBDAG f t x from 1, 2\n", {"t": "JOB n{x} s\nRETRY ALL_NODES {x}\n"})
    assert {node: retry.count for node, retry in read_graph(flow.text).retries.items()} == {"n1": 1, "n2": 2}


def test_what_is_said_of_the_whole_dag_is_said_once() -> None:
    template = "CONFIG dag.conf\nMAXJOBS gpu 4\nSUBMIT-DESCRIPTION s {\n a = 1\n}\nJOB n{x} s\nCATEGORY n{x} gpu\n"
    flow = compiled("GEN SUBDAG f t x from 1 to 9 by 1\n", {"t": template})
    assert [flow.text.count(word) for word in ("CONFIG", "MAXJOBS", "SUBMIT-DESCRIPTION", "CATEGORY")] == [1, 1, 1, 9]


def test_nodes_that_no_job_defines_need_a_submit_description() -> None:
    template = {"t": "VARS {run}-e0 epoch=0\nPARENT {run}-e0 CHILD {run}-e1\n"}
    assert "t:1:6: no JOB defines {run}-e0" in refusal("GEN SUBDAG f t x from 1\n", template).summary
    flow = compiled("GEN SUBDAG f t x submit train.sub from 1\n", template)
    assert {name: node.submit for name, node in read_graph(flow.text).nodes.items()} == {
        **{"0-e0": "train.sub", "0-e1": "train.sub"}
    }


def test_a_template_may_hang_its_nodes_on_nodes_of_the_dag() -> None:
    template = {"t": "JOB a{x} s\nJOB b{x} s\nPARENT init CHILD a{x}\nPARENT a{x} CHILD b{x}\nPARENT b{x} CHILD last\n"}
    flow = compiled("JOB init i\nGEN SUBDAG f t x from 1\nJOB last l\nJOB z z\nPARENT z CHILD f\n", template)
    assert read_graph(flow.text).edges == {("init", "a1"), ("a1", "b1"), ("b1", "last"), ("z", "a1")}


def test_an_evaluation_whose_parent_differs_from_run_to_run_takes_it_from_its_row() -> None:
    template = "JOB r{run}-e0 t\nJOB r{run}-e1 t\nPARENT r{run}-e0 CHILD r{run}-e1\n"
    template += "JOB r{run}-eval v\nPARENT r{run}-e{best} CHILD r{run}-eval\n"
    graph = read_graph(compiled("GEN SUBDAG f t best from 0, 1\n", {"t": template}).text)
    assert {edge for edge in graph.edges if "eval" in edge[1]} == {("r0-e0", "r0-eval"), ("r1-e1", "r1-eval")}


def test_regions_nest_and_the_inner_one_sees_the_outer_variables() -> None:
    files = {
        "outer": "JOB s{run} s\nGEN SUBDAG in inner e from 0 to 1 by 1\nPARENT s{run} CHILD in\nRETRY in {lr}\n",
        "inner": "JOB n{run}-{e} s\nVARS n{run}-{e} lr={lr} i={index} r={region}\n",
    }
    graph = read_graph(compiled("GEN SUBDAG out outer lr from 5, 6\nPRIORITY out 1\n", files).text)
    assert list(graph.nodes) == ["s0", "n0-0", "n0-1", "s1", "n1-0", "n1-1"]
    assert graph.edges == {("s0", "n0-0"), ("s0", "n0-1"), ("s1", "n1-0"), ("s1", "n1-1")}
    assert graph.variables["n1-1"] == {"lr": "6", "i": "1", "r": "in"}
    assert graph.retries["n1-0"].count == 6
    assert set(graph.priorities) == set(graph.nodes)


# The region as a whole


def test_edges_of_a_region_go_to_every_root_and_from_every_leaf() -> None:
    gen = "GEN SUBDAG f train.subdag a, b from\n1, 2\n3, 4\n"
    dag = f"PARENT init CHILD f\nJOB init i\n{gen}JOB end e\nPARENT f CHILD end\n"
    graph = read_graph(compiled(dag).text)
    assert {edge for edge in graph.edges if "init" in edge} == {("init", "0-train_epoch0"), ("init", "1-train_epoch0")}
    assert {edge for edge in graph.edges if "end" in edge} == {("0-train_epoch1", "end"), ("1-train_epoch1", "end")}


def test_a_region_after_a_region_is_one_line() -> None:
    dag = "GEN SUBDAG f a x from 1 to 9 by 1\nGEN SUBDAG g b x from 1 to 9 by 1\nPARENT f CHILD g\n"
    flow = compiled(dag, {"a": "JOB a{x} s\n", "b": "JOB b{x} s\n"})
    assert len(read_graph(flow.text).edges) == 81
    assert flow.text.count("PARENT") == 1


def test_what_is_said_of_a_region_is_said_of_each_node_unless_the_template_said_it() -> None:
    template = {"t": "JOB a s\nJOB b s\nRETRY a 9\nVARS a k=own\n"}
    lines = "RETRY f 3 UNLESS-EXIT 86\nPRIORITY f 5\nCATEGORY f gpu\nVARS f k=x l='y z'\nabort-dag-on f 4\n"
    graph = read_graph(compiled(f"GEN SUBDAG f t x from 1\n{lines}", template).text)
    assert {node: (retry.count, retry.unless_exit) for node, retry in graph.retries.items()} == {
        **{"a": (9, None), "b": (3, 86)}
    }
    assert graph.priorities == {"a": 5, "b": 5}
    assert graph.categories == {"a": "gpu", "b": "gpu"}
    assert graph.variables == {"a": {"k": "own", "l": "y z"}, "b": {"k": "x", "l": "y z"}}
    assert graph.settings == ("abort-dag-on a 4", "abort-dag-on b 4")


# Errors, each at its place


@pytest.mark.parametrize(
    ("dag", "place", "says"),
    [
        ("GEN SUBDAG f one.subdag x from\n 1 to 5 by 0\n", "flow.dag:2:12", "step of 1 to 5 is 0"),
        ("GEN SUBDAG f one.subdag x from\n x: 5 to 1 by 1\n", "flow.dag:2:15", "did you mean by -1?"),
        ("GEN SUBDAG f one.subdag x from\n# none\n", "flow.dag:1:1", "GEN has no values"),
        ("GEN SUBDAG f one.subdag x\n1\n", "flow.dag:1:26", "the word from is missing"),
        ("GEN SUBDAG f one.subdag from 1\n", "flow.dag:1:25", "a name, a file and a variable"),
        ("subdag a, b from p.txt\nGEN SUBDAG\n", "flow.dag:2:11", "the word from is missing"),
        ("GEN SPLICE f one.subdag x from 1\n", "flow.dag:1:5", "GEN makes sub-DAGs only"),
        ("GEN SUBDAG f one.subdag x prodct from 1\n", "flow.dag:1:25", "did you mean product?"),
        ("GEN SUBDAG f one.subdag x, x from 1, 2\n", "flow.dag:1:28", "x is named twice"),
        ("GEN SUBDAG f one.subdag index from 1\n", "flow.dag:1:25", "is what GEN itself sets"),
        ("GEN SUBDAG a+b one.subdag x from 1\n", "flow.dag:1:12", "a region cannot be called a+b"),
        ("GEN SUBDAG f none.subdag x from 1\n", "flow.dag:1:14", "cannot read none.subdag: No such file"),
        ("GEN SUBDAG f one.subdag x from none.csv\n", "flow.dag:1:32", "cannot read none.csv"),
        ("GEN SUBDAG f train.subdag a, b from\n1, 2\n1, 2, 3\n", "flow.dag:3:7", "3 values for 2 variables (a, b)"),
        ("GEN SUBDAG f train.subdag a, b from\n1, 2\n1,\n", "flow.dag:3:3", 'an empty one is written ""'),
        ("GEN SUBDAG f train.subdag a, b from\n1, 2\n1 to 2 by 1\n", "flow.dag:3:1", "this row is a range"),
        ("GEN SUBDAG f train.subdag a, b from\n1 to 2 by 1\n1, 2\n", "flow.dag:3:1", "this row is a tuple"),
        ("GEN SUBDAG f train.subdag a, b from\n1 to 2 by 1\n", "flow.dag:2:1", "1 ranges for 2 variables"),
        ("GEN SUBDAG f train.subdag a, b from\n1, 1 to 2 by 1\n", "flow.dag:2:4", "a tuple holds values, not ranges"),
        ('GEN SUBDAG f train.subdag a, b from\n1, "2\n', "flow.dag:2:4", "a quote is not closed"),
        ("GEN SUBDAG f train.subdag a, b product from\n1, 2\n", "flow.dag:1:1", "product combines ranges"),
        ("GEN SUBDAG f train.subdag a, b from\na: 1, 2\nc: 3\n", "flow.dag:3:1", "c is not a variable"),
        ("GEN SUBDAG f train.subdag a, b from\na: 1, 2\na: 3\n", "flow.dag:3:1", "a has a row already"),
        ("GEN SUBDAG f train.subdag a, b from\na: 1, 2\n", "flow.dag:2:1", "b has no row"),
        ("GEN SUBDAG f train.subdag a, b from\na: 1, 2\n3\n", "flow.dag:3:1", "this one is not: NAME: values"),
        ("GEN SUBDAG f train.subdag a, c from 1, 2\n", "train.subdag:4:41", "no region variable is called b"),
        ("GEN SUBDAG f one.subdag x from 1\nGEN SUBDAG f one.subdag x from 2\n", "flow.dag:2:1", "a region f already"),
        ("JOB f s\nGEN SUBDAG f one.subdag x from 1\n", "flow.dag:2:1", "f is a node already, in flow.dag:1:1"),
        ("GEN SUBDAG f one.subdag x from 1\nPARENT init CHILD f\n", "flow.dag:2:8", "no node or region is called init"),
        (
            "GEN SUBDAG f one.subdag x from 1\nSCRIPT PRE f x.sh\n",
            "flow.dag:2:12",
            "once for the region or once a node?",
        ),
        ("GEN SUBDAG f one.subdag x from 1\nSAVE_POINT_FILE f\n", "flow.dag:2:17", "a region has no save point"),
        ("GEN SUBDAG f one.subdag x from 1\nVARS f k\n", "flow.dag:2:8", "key="),
        ("GEN SUBDAG f one.subdag x from p.txt\n1\n", "flow.dag:2:1", "rows below it are too much"),
        ("GEN SUBDAG f one.subdag x from adam\n", "flow.dag:1:32", "a value by itself is written (adam)"),
        ("INCLUDE inner.dag\n", "flow.dag:1:9", "inner.dag has a GEN of its own, and DAGMan reads it"),
        ("SPLICE s inner.dag\n", "flow.dag:1:10", "inner.dag has a GEN of its own"),
        ("JOB i s\nGEN SUBDAG f watch x from 1\nPARENT i CHILD f\n", "flow.dag:3:16", "no node that could wait"),
        ("GEN SUBDAG f one.subdag x from 1 to 2 by 1e-12\n", "flow.dag:1:1", "1000000000001 instances"),
        ("GEN SUBDAG f one.subdag x from 0 to 9999999 by 1\n", "flow.dag:1:1", "or --max-nodes 10000000"),
    ],
)
def test_an_error_names_file_line_and_column(dag: str, place: str, says: str) -> None:
    failure = refusal(dag)
    assert failure.summary.startswith(f"{place}: ")
    assert says in failure.summary
    assert "^" in failure.evidence[0].text


@pytest.mark.parametrize(
    ("template", "place", "says"),
    [
        ("JOB n s\n", "t:1:5", "node n exists already (instance 0 of f), and instance 1 of f makes it again"),
        ("JOB n{x} s\nJOB n{x} s\n", "t:2:5", "n1 is defined twice, first in line 1"),
        ("JOB init s\n", "t:1:5", "node init exists already (flow.dag:1:1)"),
        ("FINAL n{x} s\n", "t:1:1", "a DAG has one FINAL"),
        ("JOB n{x} {\n a = 1\n  b = {y}\n}\n", "t:3:7", "no region variable is called y"),
        ("JOB n{run+1} s\n", "t:1:5", "n{run+1} keeps its braces"),
        ("JOB n{{x}} s\n", "t:1:5", "n{x} keeps its braces"),
        ("JOB n{runn} s\n", "t:1:6", "did you mean {run}?"),
        ("JOB n{x} s\nPARENT n{x}\n", "t:2:12", "one part is missing"),
        ("JOB n{x} s\nSCRIPT PRE n{x}\n", "t:2:16", "a node and a script"),
        ("JOB n{x} s\nVARS n{x} a\n", "t:2:11", "key="),
        ("JOB n{x} s\nRETRY\n", "t:2:6", "no node is named"),
        ("JOB n{x}\n", "t:1:9", "needs a name and a file"),
        ("JOB n{x} {\n", "t:1:11", "a line } ends it"),
        ("GEN SUBDAG g t y from 1\n", "t:1:1", "goes round in circles: t -> t"),
    ],
)
def test_an_error_in_a_template_names_the_template(template: str, place: str, says: str) -> None:
    failure = refusal("JOB init i\nGEN SUBDAG f t x from 1, 2\n", {"t": template})
    assert failure.summary.startswith(f"{place}: ")
    assert says in failure.summary


def test_too_many_nodes_are_refused_with_the_way_to_allow_them() -> None:
    dag = "GEN SUBDAG f train.subdag a, b from\n1 to 30 by 1\n1 to 20 by 1\n"
    assert "more than 1000 nodes" in refusal(dag, ceiling=1000).summary
    assert len(compiled(dag, ceiling=1200).points) == 1200


def test_files_are_looked_for_beside_the_dag(tmp_path: Path) -> None:
    (tmp_path / "one.subdag").write_text(ONE, encoding="utf-8")
    (tmp_path / "flow.dag").write_text("GEN SUBDAG f one.subdag x from 1, 2\n", encoding="utf-8")
    result = compile_dag(tmp_path / "flow.dag")
    assert result.points["1-2"] == {"run": "1", "index": "1", "region": "f", "x": "2"}


@given(st.text(max_size=60))
def test_any_text_after_gen_compiles_or_is_refused_at_a_place(text: str) -> None:
    try:
        compile_text(f"GEN SUBDAG f one.subdag {text}\n", "flow.dag", lambda name: ONE)
    except AnnexError as problem:
        assert problem.failure.summary.split(":")[1].isdigit()  # noqa: PT017


PARTS = [
    "1",
    "0.1 to 0.3 by 0.1",
    "a:",
    "x:",
    "product",
    "zip",
    "from",
    ",",
    "(",
    '"',
    "\\\n",
    "\n",
    "x, y",
    "submit s",
    "t",
]
LINES = [
    "JOB n{x} s",
    "JOB {run}{{x}}",
    "VARS n{x} a={x}",
    "PARENT n{x} CHILD",
    "GEN SUBDAG g one.subdag y from 1",
    "{",
    "}",
]


@given(
    st.lists(st.one_of(st.sampled_from(PARTS), st.text(max_size=5)), max_size=12).map(" ".join),
    st.lists(st.one_of(st.sampled_from(LINES), DAGS), max_size=8).map("\n".join),
)
def test_any_rows_and_any_template_compile_or_are_refused_at_a_place(rows: str, template: str) -> None:
    files = {"t": template}
    try:
        compile_text(f"GEN SUBDAG f t x, y {rows}\nPARENT f CHILD f\n", "flow.dag", lambda name: files.get(name, ONE))
    except AnnexError as problem:
        assert problem.failure.code == "dag-invalid"  # noqa: PT017


def test_bytes_pass_through_the_file_system_unchanged(tmp_path: Path) -> None:
    data = b"JOB a a.sub\r\n# \xe9\xff\n\tPARENT a \\\n"
    (tmp_path / "x.dag").write_bytes(data)
    save_text(tmp_path / "y.dag", compile_dag(tmp_path / "x.dag").text)
    assert (tmp_path / "y.dag").read_bytes() == data
