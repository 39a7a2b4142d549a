"""A .dag file, with GEN SUBDAG or without, made plain and looked over before HTCondor sees it."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from siteannex.errors import Evidence
from siteannex.failures import fail
from siteannex.training.dag.daggraph import Graph, read_graph
from siteannex.training.gen.gensubdag import CEILING, Compiled, compile_dag


def plain_dag(path: Path, *, ceiling: int = CEILING) -> tuple[Compiled, Graph]:
    """Compile a DAG file. AnnexError dag-invalid, dag-duplicate-node or dag-cycle; other doubts are in the graph."""
    try:
        compiled = compile_dag(path, ceiling=ceiling)
    except OSError as error:
        raise fail("dag-invalid", path.stem, f"{path}: {error.strerror}") from error
    graph = read_graph(compiled.text)
    for problem in graph.problems:
        if "defined twice" in problem.message:
            place = f"{path}:{problem.line}:{problem.column}"
            raise fail("dag-duplicate-node", path.stem, f"{place}: {problem.message}")
    if circle := cycle(graph):
        shown = " -> ".join(circle)
        seen = [Evidence(str(path), line) for line in _edges(compiled.text, set(circle))[:3]]
        raise fail("dag-cycle", path.stem, f"{path}: {shown}", evidence=seen)
    return compiled, graph


def cycle(graph: Graph) -> list[str]:
    """Nodes that wait for each other, the first again at the end; empty when every node can start."""
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for parent, child in graph.edges | graph.weak_edges:
        sorter.add(child, parent)
    try:
        sorter.prepare()
    except CycleError as problem:
        return list(problem.args[1])
    return []


def _edges(text: str, names: set[str]) -> list[str]:
    """`line N: PARENT ... CHILD ...` of the edges between these nodes."""
    return [
        f"line {number}: {line.strip()}"
        for number, line in enumerate(text.splitlines(), 1)
        if line.lstrip().upper().startswith("PARENT") and len(names & set(line.split())) > 1
    ]
