"""What a DAG file means: its nodes, variables, edges and scripts as one value, and how two graphs differ.

`read_graph` takes any text and never raises; what HTCondor would refuse is in `problems`. A rescue file is read on
top of its DAG (`read_graph(dag).with_rescue(rescue_text)`) or by itself. ALL_NODES is spelled out, so that
`RETRY ALL_NODES 3` and one RETRY line a node are the same graph. FINAL, PROVISIONER and SERVICE nodes are not part of
ALL_NODES. Spliced, included and sub-DAG files are named, not opened.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from siteannex.training.dag.dagfile import Command, read_commands, unquote
from siteannex.training.dag.dagvars import read_pairs

NODE_KEYWORDS = ("JOB", "FINAL", "PROVISIONER", "SERVICE", "SUBDAG", "SPLICE")
SETTINGS = frozenset(
    [
        *("CONFIG", "DOT", "NODE_STATUS_FILE", "JOBSTATE_LOG", "SAVE_POINT_FILE", "SET_JOB_ATTR", "ENV", "REJECT"),
        *("CONNECT", "PIN_IN", "PIN_OUT", "INCLUDE", "ABORT_DAG_ON", "PRE_SKIP", "TOLERANCE"),
    ]
)
"""Commands whose meaning the graph does not go into; they are kept verbatim."""
KEYWORDS = frozenset(
    [
        *(*NODE_KEYWORDS, *SETTINGS, "SUBMIT_DESCRIPTION", "CATEGORY", "PARENT", "WEAK", "SCRIPT", "RETRY", "VARS"),
        *("PRIORITY", "DONE", "MAXJOBS"),
    ]
)
"""Every command of HTCondor 25.14.1."""
_LEADING_INTEGER = re.compile(r"[+-]?[0-9]+")
ALL_NODES = "ALL_NODES"
RESERVED = frozenset(["PARENT", "CHILD", ALL_NODES])


@dataclass(frozen=True, slots=True)
class Node:
    """A node: `kind` is its keyword, `submit` the file or description it names ("" when `body` is inline)."""

    name: str
    kind: str
    submit: str
    body: str | None = None
    directory: str = ""
    noop: bool = False
    done: bool = False
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Retry:
    """How often a node is tried again, and the exit code after which it is not."""

    count: int
    unless_exit: int | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """Something HTCondor would refuse or lose, and where."""

    line: int
    column: int
    message: str


@dataclass(frozen=True, slots=True)
class Graph:
    """A DAG. Scripts are keyed by node and PRE, POST or HOLD; `variables` are what VARS sets, keys as written."""

    nodes: Mapping[str, Node]
    edges: frozenset[tuple[str, str]]
    weak_edges: frozenset[tuple[str, str]]
    variables: Mapping[str, Mapping[str, str]]
    scripts: Mapping[tuple[str, str], str]
    retries: Mapping[str, Retry]
    categories: Mapping[str, str]
    priorities: Mapping[str, int]
    max_jobs: Mapping[str, int]
    descriptions: Mapping[str, str]
    done: frozenset[str]
    settings: tuple[str, ...]
    unknown: tuple[Command, ...]
    problems: tuple[Problem, ...]

    def with_rescue(self, text: str) -> Graph:
        """This graph with a rescue file's DONE and RETRY lines applied, as DAGMan does when it goes on."""
        rescue = read_graph(text, known=frozenset(self.nodes))
        return replace(
            self,
            done=self.done | rescue.done,
            retries={**self.retries, **rescue.retries},
            problems=(*self.problems, *rescue.problems),
        )


@dataclass(slots=True)
class _Reading:
    """What has been read so far."""

    nodes: dict[str, Node] = field(default_factory=dict)
    edges: set[tuple[str, str]] = field(default_factory=set)
    weak_edges: set[tuple[str, str]] = field(default_factory=set)
    variables: dict[str, dict[str, str]] = field(default_factory=dict)
    scripts: dict[tuple[str, str], str] = field(default_factory=dict)
    retries: dict[str, Retry] = field(default_factory=dict)
    categories: dict[str, str] = field(default_factory=dict)
    priorities: dict[str, int] = field(default_factory=dict)
    max_jobs: dict[str, int] = field(default_factory=dict)
    descriptions: dict[str, str] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    settings: list[str] = field(default_factory=list)
    unknown: list[Command] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    mentions: list[tuple[str, Command, int]] = field(default_factory=list)
    everywhere: tuple[str, ...] = ()

    def problem(self, command: Command, word: int, message: str) -> None:
        """Note what is wrong at a word of a command."""
        place = command.place(word)
        self.problems.append(Problem(place.line, place.column, message))

    def named(self, command: Command, word: int) -> tuple[str, ...]:
        """The nodes a word stands for; a word that is not there is a problem."""
        if word >= len(command.words):
            self.problem(command, word, f"{command.keyword}: no node is named")
            return ()
        name = command.words[word].text
        if name.upper() == ALL_NODES:
            return self.everywhere
        self.mentions.append((name, command, word))
        return (name,)


def read_graph(text: str, known: frozenset[str] = frozenset()) -> Graph:
    """Read a DAG or rescue file. `known` are nodes defined elsewhere, which it may name."""
    commands = [command for command in read_commands(text) if command.logical]
    reading = _Reading()
    for command in commands:
        if command.problem:
            reading.problem(command, len(command.words), command.problem)
        elif command.keyword in NODE_KEYWORDS:
            _node(reading, command)
    reading.everywhere = tuple(node.name for node in reading.nodes.values() if node.kind in ("JOB", "SUBDAG"))
    for command in commands:
        if command.problem or command.keyword in NODE_KEYWORDS:
            continue
        if command.keyword in SETTINGS:
            reading.settings.append(command.logical)
        elif command.keyword in _READERS:
            _READERS[command.keyword](reading, command)
        else:
            reading.unknown.append(command)
            reading.problem(command, 0, f"{command.words[0].text!r} is not a DAGMan command")
    _undefined(reading, known, elsewhere=any(c.keyword == "INCLUDE" for c in commands))
    return Graph(
        nodes=reading.nodes,
        edges=frozenset(reading.edges),
        weak_edges=frozenset(reading.weak_edges),
        variables=reading.variables,
        scripts=reading.scripts,
        retries=reading.retries,
        categories=reading.categories,
        priorities=reading.priorities,
        max_jobs=reading.max_jobs,
        descriptions=reading.descriptions,
        done=frozenset(reading.done) | {node.name for node in reading.nodes.values() if node.done},
        settings=tuple(reading.settings),
        unknown=tuple(reading.unknown),
        problems=tuple(sorted(reading.problems, key=lambda item: (item.line, item.column))),
    )


def _undefined(reading: _Reading, known: frozenset[str], *, elsewhere: bool) -> None:
    if elsewhere or (not reading.nodes and not known):
        return  # included files may define nodes; a rescue file read by itself defines none
    for name, command, word in reading.mentions:
        if name not in reading.nodes and name not in known:
            reading.problem(command, word, f"{command.keyword} names {name}, which no JOB defines")


def _node(reading: _Reading, command: Command) -> None:
    words = [word.text for word in command.words]
    at = 1
    if command.keyword == "SUBDAG":
        if len(words) < 2 or words[1].upper() != "EXTERNAL":
            reading.problem(command, 1, "SUBDAG needs the word EXTERNAL here")
            return
        at = 2
    if len(words) < at + 2:
        reading.problem(command, len(words), f"{command.keyword} needs a name and a file")
        return
    name, submit = words[at], unquote(words[at + 1])
    if name.upper() in RESERVED or "+" in name:
        reading.problem(command, at, f"a node cannot be called {name}")
        return
    if name in reading.nodes:
        reading.problem(command, at, f"{name} is defined twice, first in line {reading.nodes[name].line}")
        return
    node = Node(name, command.keyword, "" if command.body is not None else submit, command.body, line=command.line)
    rest = iter(range(at + 2, len(words)))
    for word in rest:
        option = words[word].upper()
        if option == "DIR" and word + 1 < len(words):
            node = replace(node, directory=unquote(words[next(rest)]))
        elif option == "NOOP":
            node = replace(node, noop=True)
        elif option == "DONE":
            node = replace(node, done=True)
        else:
            reading.problem(command, word, f"{words[word]!r} is not understood here")
    reading.nodes[name] = node


def _submit_description(reading: _Reading, command: Command) -> None:
    if command.body is None or len(command.words) < 2:
        reading.problem(command, 2, "SUBMIT-DESCRIPTION needs a name and { ... }")
        return
    reading.descriptions.setdefault(command.words[1].text, command.body)


def _parent(reading: _Reading, command: Command) -> None:
    words = [word.text for word in command.words]
    begin, edges = (2, reading.weak_edges) if command.keyword == "WEAK" else (1, reading.edges)
    if begin == 2 and words[1:2] and words[1].upper() != "PARENT":
        reading.problem(command, 1, "WEAK needs the word PARENT here")
        return
    split = next((at for at in range(begin, len(words)) if words[at].upper() == "CHILD"), None)
    if split is None or split == begin or split == len(words) - 1:
        reading.problem(command, len(words), "PARENT p1 [p2 ...] CHILD c1 [c2 ...]: one part is missing")
        return
    spots = [at for at in range(begin, len(words)) if words[at].upper() != "CHILD"]
    reading.mentions += [(words[at], command, at) for at in spots]
    edges.update((words[p], words[c]) for p in spots if p < split for c in spots if c > split)


def _script(reading: _Reading, command: Command) -> None:
    words = [word.text for word in command.words]
    at = 1
    while words[at : at + 1] and words[at].upper() in ("DEFER", "DEBUG"):
        at += 3
    if not words[at : at + 1] or words[at].upper() not in ("PRE", "POST", "HOLD"):
        reading.problem(command, at, "SCRIPT needs PRE, POST or HOLD here")
        return
    if len(words) < at + 3:
        reading.problem(command, len(words), "SCRIPT needs a node and a script")
        return
    prefix = " ".join(words[1:at])
    for node in reading.named(command, at + 1):
        reading.scripts[node, words[at].upper()] = f"{prefix} {command.rest(at + 2)}".strip()


def _vars(reading: _Reading, command: Command) -> None:
    nodes = reading.named(command, 1)
    pairs = read_pairs(command)
    for problem in pairs.problems:
        place = command.place_of(problem.offset)
        reading.problems.append(Problem(place.line, place.column, problem.message))
    if not pairs.values and not pairs.problems:
        reading.problem(command, 2, "VARS sets nothing")
    for node in nodes:
        reading.variables.setdefault(node, {}).update(pairs.values)


def _retry(reading: _Reading, command: Command) -> None:
    words = [word.text for word in command.words]
    count = _whole(reading, command, 2, least=0)
    unless = None
    if len(words) > 3:
        if words[3].upper() != "UNLESS-EXIT":
            reading.problem(command, 3, f"{words[3]!r} is not understood here")
            return
        unless = _whole(reading, command, 4)
    _no_more(reading, command, 5)
    if count is not None:
        for node in reading.named(command, 1):
            reading.retries[node] = Retry(count, unless)


def _whole(reading: _Reading, command: Command, word: int, least: int = -(2**31)) -> int | None:
    """A whole number as HTCondor takes it: what follows the digits is not looked at."""
    text = command.words[word].text if word < len(command.words) else ""
    match = _LEADING_INTEGER.match(text)
    value = int(match[0]) if match and len(match[0]) < 12 else 2**31
    if not least <= value < 2**31:
        reading.problem(command, word, f"{command.keyword} needs a whole number here, not {text!r}")
        return None
    return value


def _no_more(reading: _Reading, command: Command, words: int) -> None:
    if len(command.words) > words:
        reading.problem(command, words, f"{command.words[words].text!r} is not understood here")


def _priority(reading: _Reading, command: Command) -> None:
    value = _whole(reading, command, 2)
    _no_more(reading, command, 3)
    if value is not None:
        reading.priorities.update(dict.fromkeys(reading.named(command, 1), value))


def _max_jobs(reading: _Reading, command: Command) -> None:
    value = _whole(reading, command, 2, least=0)
    _no_more(reading, command, 3)
    if value is not None:
        reading.max_jobs[command.words[1].text] = value


def _category(reading: _Reading, command: Command) -> None:
    if len(command.words) != 3:
        reading.problem(command, len(command.words), "CATEGORY needs one node and one category")
        return
    for node in reading.named(command, 1):
        reading.categories[node] = command.words[2].text


def _done(reading: _Reading, command: Command) -> None:
    _no_more(reading, command, 2)
    if len(command.words) > 1 and command.words[1].text.upper() == ALL_NODES:
        reading.problem(command, 1, "DONE takes one node, not ALL_NODES")
        return
    reading.done.update(reading.named(command, 1))


_READERS: Mapping[str, Callable[[_Reading, Command], None]] = {
    "SUBMIT_DESCRIPTION": _submit_description,
    "PARENT": _parent,
    "WEAK": _parent,
    "SCRIPT": _script,
    "VARS": _vars,
    "RETRY": _retry,
    "PRIORITY": _priority,
    "MAXJOBS": _max_jobs,
    "CATEGORY": _category,
    "DONE": _done,
}

COMPARED = ("nodes", "edges", "weak_edges", "variables", "scripts", "retries", "categories", "priorities", "done")


def differences(first: Graph, second: Graph, parts: Iterable[str] = COMPARED) -> tuple[str, ...]:
    """How two graphs differ, one line each; empty when they are equivalent in the given parts.

    Nodes are compared with the text of the submit description they end up with, whatever it is called.
    """
    told: list[str] = []
    for part in parts:
        one, other = _comparable(first, part), _comparable(second, part)
        for key in sorted(set(one) | set(other), key=str):
            if one.get(key) != other.get(key):
                told.append(f"{part}: {_shown(key)}: {_shown(one.get(key))} / {_shown(other.get(key))}")
    return tuple(told)


def _comparable(graph: Graph, part: str) -> Mapping[Any, Any]:
    value = getattr(graph, part)
    if part == "nodes":
        return {name: _resolved(graph, node) for name, node in graph.nodes.items()}
    return dict.fromkeys(value, "present") if isinstance(value, frozenset) else value


def _resolved(graph: Graph, node: Node) -> Node:
    body = graph.descriptions.get(node.submit, node.body)
    return replace(node, submit="" if body is not None else node.submit, body=body, done=False)


def _shown(value: object) -> str:
    return "absent" if value is None else str(value)


def relabelled(
    graph: Graph, name: Callable[[str], str], variables: Callable[[Mapping[str, str]], Mapping[str, str]] = dict
) -> Graph:
    """The same graph in other words: every node renamed, the variables of every node rewritten."""
    return replace(
        graph,
        nodes={name(key): replace(node, name=name(key)) for key, node in graph.nodes.items()},
        edges=frozenset((name(parent), name(child)) for parent, child in graph.edges),
        weak_edges=frozenset((name(parent), name(child)) for parent, child in graph.weak_edges),
        variables={name(key): variables(values) for key, values in graph.variables.items()},
        scripts={(name(key), when): script for (key, when), script in graph.scripts.items()},
        retries={name(key): retry for key, retry in graph.retries.items()},
        categories={name(key): category for key, category in graph.categories.items()},
        priorities={name(key): priority for key, priority in graph.priorities.items()},
        done=frozenset(map(name, graph.done)),
    )
