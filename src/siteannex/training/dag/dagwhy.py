"""Why a DAG node has no job in the queue: what of its DAG stands before it. Pure but for `find_node`, which reads."""

from __future__ import annotations

import contextlib
import itertools
import shlex
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from siteannex.pool.ads import HELD, count_of, text_of
from siteannex.training.dag.dagfile import load_text
from siteannex.training.dag.daggraph import Graph, read_graph
from siteannex.training.dag.dagprogress import NodeProgress, NodeState, Progress, read_progress

Ad = Mapping[str, object]

_MOST_NAMED = 8


@dataclass(frozen=True, slots=True)
class Dag:
    """One DAG file of a DAGMan in the queue, with what DAGMan's log and ad say of it."""

    file: Path
    dagman: Ad
    graph: Graph
    progress: Progress
    before: Mapping[str, Sequence[str]]
    """By node its parents."""
    prefix: str = ""
    """DAGMan puts the number of the file before the names of nodes when it runs several files."""
    halted: bool = False

    @property
    def job_id(self) -> str:
        """DAGMan's own job."""
        return f"{count_of(self.dagman, 'ClusterId')}.{count_of(self.dagman, 'ProcId')}"

    def of(self, name: str) -> NodeProgress:
        """How far a node is; one that was done before this run is DONE."""
        done = NodeProgress(NodeState.DONE, words="done before this run")
        return done if name in self.graph.done else self.progress.of(f"{self.prefix}{name}")

    def parents(self, name: str) -> Sequence[str]:
        """The nodes that must be finished before it, in the order of the file."""
        return self.before.get(name, ())

    def finished(self, parent: str, child: str) -> bool:
        """Whether a child need not wait for a parent any more: after WEAK PARENT a failure will do."""
        state = self.of(parent).state
        weak = (parent, child) in self.graph.weak_edges and (parent, child) not in self.graph.edges
        return state is NodeState.DONE or (weak and state is NodeState.FAILED)


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """`verdict` is one word for scripts: done, failed, futile, parents, throttled, pre, post, queued, ready, halted."""

    verdict: str
    head: str
    so: tuple[str, ...] = ()
    do: tuple[str, ...] = ()


def dag_files(dagman: Ad) -> list[Path]:
    """The DAG files of a condor_dagman job, by its arguments (`... -Dag one.dag ...`)."""
    try:
        words = shlex.split(text_of(dagman, "Arguments", "Args"))
    except ValueError:
        return []
    home = Path(text_of(dagman, "Iwd") or "/")
    return [home / file for word, file in itertools.pairwise(words) if word.lower() == "-dag"]


def find_node(name: str, dagmans: Iterable[Ad]) -> Dag | None:
    """The first DAG in the queue that has a node of that name; files that cannot be read are passed over."""
    for dagman in dagmans:
        files = dag_files(dagman)
        for number, file in enumerate(files):
            try:
                graph = read_graph(load_text(file))
            except OSError:
                continue
            if name in graph.nodes:
                return _opened(dagman, files, number, graph)
    return None


def _opened(dagman: Ad, files: Sequence[Path], number: int, graph: Graph) -> Dag:
    first, file = files[0], files[number]
    try:
        with first.with_name(f"{first.name}.dagman.out").open(encoding="utf-8", errors="replace") as log:
            progress = read_progress(log)
    except OSError:
        progress = Progress()
    if progress.rescue:
        with contextlib.suppress(OSError):
            graph = graph.with_rescue(load_text(first.parent / progress.rescue))
    halted = first.with_name(f"{first.name}.halt").exists()
    prefix = f"{number}." if len(files) > 1 else ""
    return Dag(file, dagman, graph, progress, before_each(graph), prefix, halted)


def before_each(graph: Graph) -> dict[str, list[str]]:
    """By node its parents, in the order of the file."""
    order = {name: at for at, name in enumerate(graph.nodes)}
    before: dict[str, list[str]] = {}
    for parent, child in sorted(graph.edges | graph.weak_edges, key=lambda edge: order.get(edge[0], -1)):
        before.setdefault(child, []).append(parent)
    return before


def explain_node(name: str, dag: Dag) -> NodeAnswer:
    """Say what stands before a node, naming parents and their jobs."""
    title = f"node {name} of {dag.file.name} (DAGMan job {dag.job_id})"
    node = dag.of(name)
    if node.state is NodeState.DONE:
        return NodeAnswer("done", f"{title} is done", so=_last_job(node))
    if node.state is NodeState.FAILED:
        tries = f" (after {node.retries})" if node.retries else ""
        again = "mend the cause; when the DAG has ended condor_submit_dag goes on from its rescue file"
        return NodeAnswer("failed", f"{title} failed{tries}", so=(f"{node.words}.", *_last_job(node)), do=(again,))
    if count_of(dag.dagman, "JobStatus") == HELD:
        reason = text_of(dag.dagman, "HoldReason")
        return NodeAnswer(
            "halted",
            f"{title}: its DAGMan is held and submits nothing",
            (f"{reason}.",),
            (f"condor_release {dag.job_id}",),
        )
    if node.state is NodeState.QUEUED:
        text = f"its job {node.job_id} was submitted, and has left the queue or just enters it" if node.job_id else ""
        return NodeAnswer("queued", f"{title} is submitted", so=(f"{text}; DAGMan reads its events within seconds.",))
    if node.state in (NodeState.PRE, NodeState.POST):
        return _in_script(name, title, node, dag)
    return _not_submitted(name, title, dag)


def _last_job(node: NodeProgress) -> tuple[str, ...]:
    return (f"its last job was {node.job_id} (siteannex why {node.job_id}).",) if node.job_id else ()


def _in_script(name: str, title: str, node: NodeProgress, dag: Dag) -> NodeAnswer:
    which = node.state.value.upper()
    script = dag.graph.scripts.get((name, which), "")
    then = (
        "its job is submitted when the script has ended well"
        if which == "PRE"
        else "the node is done when it has ended"
    )
    return NodeAnswer(
        node.state.value,
        f"{title}: its {which} script runs since {_when(node)}",
        so=(f"{script}: {then}.",),
        do=("the script runs on this access point, as a child of DAGMan: ps -fu $USER shows it",),
    )


def _not_submitted(name: str, title: str, dag: Dag) -> NodeAnswer:
    failed = _failed_before(name, dag)
    if failed:
        return NodeAnswer(
            "futile",
            f"{title} will not run: {_named(failed)} before it failed",
            so=tuple(f"{each}: {dag.of(each).words or 'failed'}." for each in failed[:_MOST_NAMED]),
            do=(f"siteannex why {failed[0]}; when the DAG has ended condor_submit_dag goes on from its rescue file",),
        )
    if dag.halted:
        halt = f"{dag.file}.halt"
        return NodeAnswer(
            "halted", f"{title}: the DAG is halted", (f"{halt} exists: DAGMan submits nothing.",), (f"rm {halt}",)
        )
    missing = [each for each in dag.parents(name) if not dag.finished(each, name)]
    if missing:
        return _waits_for(name, title, missing, dag)
    return _ready(name, title, dag)


def _waits_for(name: str, title: str, missing: Sequence[str], dag: Dag) -> NodeAnswer:
    total = len(dag.parents(name))
    first = [each for each in _ancestors(name, dag) if _at_front(each, dag)]
    so = [f"{each}: {_words(dag.of(each))}." for each in missing[:_MOST_NAMED]]
    if len(missing) > _MOST_NAMED:
        so.append(f"and {len(missing) - _MOST_NAMED} more.")
    if first and not set(first) <= set(missing):
        so.append(f"what can go on now, before them: {_named(first, dag)}.")
    some = f"{len(missing)} of its {total} parents" if len(missing) < total else "its parents"
    of = some if total > 1 else "its parent"
    return NodeAnswer(
        "parents",
        f"{title} is not submitted yet: it waits for {of}, {_named(missing)}",
        so=tuple(so),
        do=tuple(f"siteannex why {each}" for each in (first or missing)[:3]),
    )


def _at_front(name: str, dag: Dag) -> bool:
    """Not done, and nothing before it is left to do."""
    return dag.of(name).state not in (NodeState.DONE, NodeState.FAILED) and all(
        dag.finished(parent, name) for parent in dag.parents(name)
    )


def _words(node: NodeProgress) -> str:
    return {
        NodeState.WAITING: "not submitted yet either" + (f" ({node.retries})" if node.retries else ""),
        NodeState.PRE: f"its PRE script runs since {_when(node)}",
        NodeState.POST: f"its POST script runs since {_when(node)}",
        NodeState.QUEUED: f"its job {node.job_id} is in the queue since {_when(node)}",
        NodeState.FAILED: node.words,
        NodeState.DONE: "done",
    }[node.state]


def _when(node: NodeProgress) -> str:
    """DAGMan's own time of a node's last step, which is this machine's."""
    try:
        return f"{datetime.strptime(node.at, '%m/%d/%y %H:%M:%S'):%d %b %H:%M:%S}"
    except ValueError:
        return node.at or "an unknown time"


def _named(names: Sequence[str], dag: Dag | None = None) -> str:
    shown = [
        f"{each} (job {dag.of(each).job_id})" if dag is not None and dag.of(each).job_id else each
        for each in names[:_MOST_NAMED]
    ]
    return ", ".join(shown) + (f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else "")


def _ready(name: str, title: str, dag: Dag) -> NodeAnswer:
    category = dag.graph.categories.get(name, "")
    limit = dag.graph.max_jobs.get(category)
    others = [each for each, of in dag.graph.categories.items() if of == category and each != name]
    inside = [each for each in others if dag.of(each).state in (NodeState.PRE, NodeState.QUEUED, NodeState.POST)]
    if limit and len(inside) >= limit:
        return NodeAnswer(
            "throttled",
            f"{title} is ready and held back: MAXJOBS {category} {limit} in {dag.file.name}",
            so=(f"at work in category {category}: {_named(inside, dag)}; it is submitted when one of them ends.",),
            do=(f"siteannex why {inside[0]}",),
        )
    for throttle, number in dag.progress.deferring.items():
        if throttle != "category":
            what = {"-MaxIdle": "idle jobs", "-MaxJobs": "submitted nodes"}.get(throttle, throttle)
            return NodeAnswer(
                "throttled",
                f"{title} is ready and held back: DAGMan keeps at most {number} {what} at once",
                so=(f"condor_submit_dag {throttle.lower()} or DAGMan's configuration sets that limit.",),
                do=("it is submitted when others have started or ended",),
            )
    waits = dag.graph.nodes[name].kind
    if waits == "FINAL":
        return NodeAnswer("parents", f"{title} runs at the end, when every other node is finished")
    return NodeAnswer(
        "ready",
        f"{title} is ready: nothing stands before it",
        so=("DAGMan submits it in one of its next cycles, a few seconds apart.",),
        do=(f"tail {dag.file}.dagman.out   shows what DAGMan does",),
    )


def _ancestors(name: str, dag: Dag) -> list[str]:
    """Everything before a node, the nearest first."""
    found: dict[str, None] = {}
    ahead = deque(dag.parents(name))
    while ahead:
        each = ahead.popleft()
        if each not in found:
            found[each] = None
            ahead.extend(dag.parents(each))
    return list(found)


def _failed_before(name: str, dag: Dag) -> list[str]:
    """Failures that make a node futile: those it reaches over parents that had to succeed."""
    found: dict[str, None] = {}
    seen, ahead = {name}, deque([name])
    while ahead:
        child = ahead.popleft()
        for each in dag.parents(child):
            if (each, child) in dag.graph.edges and each not in seen:
                seen.add(each)
                ahead.append(each)
                if dag.of(each).state is NodeState.FAILED:
                    found[each] = None
    return list(found)
