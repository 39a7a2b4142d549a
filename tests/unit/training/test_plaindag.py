"""DAG files before HTCondor sees them: doubles and circles are found and named."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from siteannex.errors import AnnexError, StageFailure
from siteannex.training.dag.daggraph import read_graph
from siteannex.training.dag.plaindag import cycle, plain_dag


def refusal(folder: Path, text: str) -> StageFailure:
    (folder / "flow.dag").write_text(text)
    with pytest.raises(AnnexError) as raised:
        plain_dag(folder / "flow.dag")
    return raised.value.failure


def test_a_node_defined_twice(tmp_path: Path) -> None:
    failure = refusal(tmp_path, "JOB a a.sub\nJOB b b.sub\nJOB a c.sub\n")
    assert failure.code == "dag-duplicate-node"
    assert "flow.dag:3:5: a is defined twice, first in line 1" in failure.summary


def test_a_circle_is_named_with_its_edges(tmp_path: Path) -> None:
    failure = refusal(tmp_path, "JOB a s\nJOB b s\nJOB c s\nPARENT a CHILD b\nPARENT b CHILD c\nPARENT c CHILD a\n")
    assert failure.code == "dag-cycle"
    assert {"a", "b", "c"} <= set(failure.summary.replace(" -> ", " ").split())
    assert [item.text.split(":")[0] for item in failure.evidence] == ["line 4", "line 5", "line 6"]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(AnnexError, match=r"dag-invalid: .*none\.dag"):
        plain_dag(tmp_path / "none.dag")


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=20))
def test_edges_that_only_lead_upwards_are_no_circle(pairs: list[tuple[int, int]]) -> None:
    upwards = [(low, high) for low, high in map(sorted, pairs) if low != high]
    nodes = "".join(f"JOB n{n} s\n" for n in range(10))
    text = nodes + "".join(f"PARENT n{low} CHILD n{high}\n" for low, high in upwards)
    assert cycle(read_graph(text)) == []
    if upwards:
        low, high = upwards[0]
        assert cycle(read_graph(f"{text}PARENT n{high} CHILD n{low}\n"))
