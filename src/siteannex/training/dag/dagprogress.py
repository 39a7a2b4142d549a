"""How far a DAG has come, node by node, as DAGMan's own log (`*.dagman.out`) tells it. Pure; foreign lines are skipped.

The words are those of HTCondor 25.14's condor_dagman; those used here have not changed since 8.8. A log holds every
run of its DAG: what came before the last "STARTING UP" is forgotten, as a DAGMan that starts again repeats it all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

_STAMP = re.compile(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d ")


class NodeState(StrEnum):
    """Where a node is. WAITING: DAGMan has not submitted it, or is to submit it again."""

    WAITING = "waiting"
    PRE = "pre"
    QUEUED = "queued"
    POST = "post"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class NodeProgress:
    """One node. `job_id` is its last job, `at` DAGMan's time of its last step, `words` what went wrong last."""

    state: NodeState = NodeState.WAITING
    job_id: str = ""
    at: str = ""
    words: str = ""
    retries: str = ""


@dataclass(frozen=True, slots=True)
class Progress:
    """All nodes the log names, and what DAGMan says holds nodes back."""

    nodes: Mapping[str, NodeProgress] = field(default_factory=dict)
    deferring: Mapping[str, str] = field(default_factory=dict)
    """By throttle (`-MaxIdle`, `-MaxJobs`, `category`) its limit ("" for a category's), if it holds nodes back now."""
    rescue: str = ""
    """The rescue file that this run began with."""

    def of(self, name: str) -> NodeProgress:
        """A node that the log does not name waits."""
        return self.nodes.get(name, NodeProgress())


@dataclass(slots=True)
class _Reading:
    nodes: dict[str, NodeProgress] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    deferring: dict[str, str] = field(default_factory=dict)
    rescue: str = ""

    def step(self, name: str, at: str, **changes: object) -> None:
        self.nodes[name] = replace(self.nodes.get(name, NodeProgress()), at=at, **changes)  # type: ignore[arg-type]


def read_progress(lines: Iterable[str]) -> Progress:
    """Read a whole log."""
    reading = _Reading()
    for line in lines:
        if "STARTING UP" in line:
            reading = _Reading()
            continue
        if _STAMP.match(line) is None:
            continue
        at, said = line[:17], line[18:].strip()
        for pattern, act in _STEPS:
            if (match := pattern.match(said)) is not None:
                act(reading, at, match)
                break
    return Progress(reading.nodes, reading.deferring, reading.rescue)


def _submitted(reading: _Reading, at: str, match: re.Match[str]) -> None:
    job_id = f"{int(match['cluster'])}.{int(match['proc'])}"
    reading.step(match["node"], at, state=NodeState.QUEUED, job_id=job_id if match["cluster"] != "0" else "", words="")


def _proc_failed(reading: _Reading, at: str, match: re.Match[str]) -> None:
    reading.step(match["node"], at, words=f"its job {match['what']}")


def _left(reading: _Reading, at: str, match: re.Match[str]) -> None:
    words = reading.nodes.get(match["node"], NodeProgress()).words
    reading.step(match["node"], at, state=NodeState.FAILED if words else NodeState.DONE)


def _script(reading: _Reading, at: str, match: re.Match[str]) -> None:
    reading.step(match["node"], at, state=NodeState(match["which"].lower()))


def _script_ended(reading: _Reading, at: str, match: re.Match[str]) -> None:
    pre = match["which"] == "PRE"
    if match["how"].startswith("completed"):
        reading.step(match["node"], at, state=NodeState.WAITING if pre else NodeState.DONE, words="")
    else:
        # A POST script that only passes on how the job ended is not the reason.
        of_job = "" if pre else reading.nodes.get(match["node"], NodeProgress()).words
        words = of_job or f"its {match['which']} script {match['how'].rstrip('.')}"
        reading.step(match["node"], at, state=NodeState.FAILED, words=words)


def _retried(reading: _Reading, at: str, match: re.Match[str]) -> None:
    reading.step(match["node"], at, state=NodeState.WAITING, retries=match["which"])


def _deferred(reading: _Reading, _: str, match: re.Match[str]) -> None:
    """Totals since the start: only one that has grown since the last look holds nodes back now."""
    what, total = match["what"] or "category", int(match["total"])
    grown = total > reading.counts.get(what, 0)
    reading.counts[what] = total
    if grown:
        reading.deferring[what] = match["limit"] or ""
    else:
        reading.deferring.pop(what, None)


def _rescued(reading: _Reading, _: str, match: re.Match[str]) -> None:
    reading.rescue = match["file"]


_NODE = r"(?P<node>\S+)"
_STEPS: tuple[tuple[re.Pattern[str], Callable[[_Reading, str, re.Match[str]], None]], ...] = (
    (
        re.compile(rf"Event: ULOG_SUBMIT for HTCondor Node {_NODE} \((?P<cluster>\d{{1,18}})\.(?P<proc>\d{{1,18}})\."),
        _submitted,
    ),
    (re.compile(rf"Node {_NODE} job proc \(\S*\) (?P<what>(?:failed|was|died|aborted).*?)\.?$"), _proc_failed),
    (re.compile(rf"Node {_NODE} job\(s\) have exited the queue"), _left),
    (re.compile(rf"Running (?P<which>PRE|POST) script of Node {_NODE}\.\.\.$"), _script),
    (
        re.compile(rf"(?P<which>PRE|POST) [Ss]cript of [Nn]ode {_NODE} (?P<how>completed|failed.*|died.*)"),
        _script_ended,
    ),
    (re.compile(rf"Retrying node {_NODE} \((?P<which>retry #\d+ of \d+)\)"), _retried),
    (
        re.compile(
            r"Note: (?P<total>\d{1,18}) total node deferrals because of "
            r"(?:(?P<what>-Max\w+) limit \((?P<limit>\d+)\)|node category throttles)"
        ),
        _deferred,
    ),
    (re.compile(r"Found rescue DAG number \d+; running (?P<file>\S+) in combination"), _rescued),
)
