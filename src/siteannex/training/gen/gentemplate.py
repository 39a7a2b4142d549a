"""One instance of a GEN template: region variables filled in, every command written as plain DAGMan."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from siteannex.training.dag.dagfile import Command, Place
from siteannex.training.dag.daggraph import ALL_NODES, NODE_KEYWORDS, RESERVED
from siteannex.training.dag.dagvars import read_pairs, vars_line
from siteannex.training.gen.genheader import Header
from siteannex.training.located import Source, refused

_PLACEHOLDER = re.compile(r"(?<!\$)(?:\{\{(?P<literal>[A-Za-z_]\w*)\}\}|\{(?P<name>[A-Za-z_]\w*)\})", re.ASCII)
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
PER_NODE = frozenset(["RETRY", "PRIORITY", "CATEGORY", "VARS", "ABORT_DAG_ON", "PRE_SKIP", "DONE", "TOLERANCE"])
"""Commands about one node, which may be about a region: then they are about each of its nodes."""
_IN_EDGES = ("JOB", "SUBDAG", "SPLICE")


@dataclass(frozen=True, slots=True)
class Scope:
    """The variables an instance sees, and the template files that led to it, outermost first."""

    values: Mapping[str, str]
    files: tuple[str, ...]

    def inside(self, region: str, index: int, values: Mapping[str, str]) -> Scope:
        """The scope of one instance. `run` is the number of the outermost instance unless a GEN declares it."""
        own = {"region": region, "index": str(index)}
        return Scope({"run": str(index), **self.values, **own, **values}, self.files)

    def through(self, file: str) -> Scope:
        """The scope that a template's own GEN starts from."""
        return Scope(self.values, (*self.files, file))


@dataclass(frozen=True, slots=True)
class Template:
    """A template file's commands; GENs of its own among them."""

    source: Source
    pieces: tuple[Command | Header, ...]


@dataclass(slots=True)
class Region:
    """What GEN made: its nodes, where edges to and from it go, and what its templates said of each node."""

    name: str
    nodes: list[str] = field(default_factory=list)
    roots: list[str] = field(default_factory=list)
    leaves: list[str] = field(default_factory=list)
    said: set[tuple[str, str]] = field(default_factory=set)
    lines: list[str] = field(default_factory=list)

    def take(self, other: Region) -> None:
        """Add an instance."""
        self.nodes += other.nodes
        self.roots += other.roots
        self.leaves += other.leaves
        self.said |= other.said
        self.lines += other.lines

    def per_node(self, source: Source, command: Command) -> list[str]:
        """A command about this region as one line a node; what a template says of a node itself stands."""
        keyword, rest = command.words[0].text, command.rest(2)
        if command.keyword != "VARS":
            nodes = [node for node in self.nodes if (command.keyword, node) not in self.said]
            return [f"{keyword} {node} {rest}".rstrip() + "\n" for node in nodes]
        pairs = _good_pairs(source, command)
        lines = []
        for node in self.nodes:
            left = {key: value for key, value in pairs.items() if (f"VARS {key.lower()}", node) not in self.said}
            if left:
                lines.append(vars_line(node, left, _placement(command)))
        return lines


class Writer:
    """Writes one instance of a template. `outer` are nodes of the DAG that the template may name without defining."""

    def __init__(
        self, template: Template, scope: Scope, nested: Mapping[str, Region], outer: frozenset[str], once: set[str]
    ) -> None:
        self.source, self.scope, self.nested, self.outer, self.once = template.source, scope, nested, outer, once
        self.pieces = template.pieces
        self.defined: dict[str, Place] = {}
        self.kinds: dict[str, str] = {}
        self.with_parent: set[str] = set()
        self.with_child: set[str] = set()
        self.region = Region(scope.values["region"])

    def write(self, submit: str) -> Region:
        """The instance's region. `submit` describes nodes that are named and never defined; empty: an error."""
        commands = [piece for piece in self.pieces if isinstance(piece, Command) and piece.logical]
        for command in commands:
            if command.problem:
                raise refused(self.source, command.place(len(command.words)), command.problem)
            self._define(command)
        for command in commands:
            self._imply(command, submit)
        for piece in self.pieces:
            if isinstance(piece, Header):
                self._take_nested(self.nested[piece.name])
            elif piece.logical:
                self._write(piece)
        own = [name for name, kind in self.kinds.items() if kind in ("JOB", "SUBDAG")]
        ends = [name for name, kind in self.kinds.items() if kind in _IN_EDGES]
        inner = [name for region in self.nested.values() for name in region.nodes]
        self.region.nodes = [*own, *inner]
        self.region.roots = [name for name in (*ends, *inner) if name not in self.with_parent]
        self.region.leaves = [name for name in (*ends, *inner) if name not in self.with_child]
        return self.region

    def _fill(self, text: str, command: Command, offset: int, *, name: bool = False) -> str:
        """A text with its region variables filled in; in names, what HTCondor may refuse becomes p (a dot) or _."""

        def value(match: re.Match[str]) -> str:
            if match.group("literal"):
                return "{" + match.group("literal") + "}"
            variable = match.group("name")
            found = self.scope.values.get(variable)
            if found is None:
                at = command.logical.find(match.group(), offset)
                raise refused(self.source, command.place_of(at), self._unknown(variable))
            return _UNSAFE.sub(lambda odd: "p" if odd.group() == "." else "_", found) if name else found

        return _PLACEHOLDER.sub(value, text) if "{" in text else text

    def _unknown(self, variable: str) -> str:
        near = difflib.get_close_matches(variable, self.scope.values, n=1)
        meant = f"did you mean {{{near[0]}}}?" if near else f"there are {', '.join(sorted(self.scope.values))}."
        return f"no region variable is called {variable}; {meant} Braces that are meant are written {{{{{variable}}}}}"

    def _name(self, command: Command, at: int) -> str:
        word = command.words[at]
        name = self._fill(word.text, command, word.offset, name=True)
        if "{" in name or "}" in name:
            raise refused(
                self.source, command.place(at), f"{name} keeps its braces, and DAGMan would take that for a name"
            )
        return name

    def _rest(self, command: Command, at: int) -> str:
        return self._fill(command.rest(at), command, command.words[at].offset) if at < len(command.words) else ""

    def _define(self, command: Command) -> None:
        if command.keyword not in NODE_KEYWORDS:
            return
        if command.keyword in ("FINAL", "PROVISIONER"):
            raise refused(self.source, command.place(), f"a DAG has one {command.keyword}; it cannot be in a template")
        at = 2 if command.keyword == "SUBDAG" else 1
        if len(command.words) < at + 2:
            raise refused(self.source, command.place(len(command.words)), f"{command.keyword} needs a name and a file")
        name = self._name(command, at)
        if name in self.defined:
            raise refused(
                self.source, command.place(at), f"{name} is defined twice, first in line {self.defined[name].line}"
            )
        self.defined[name], self.kinds[name] = command.place(at), command.keyword

    def _imply(self, command: Command, submit: str) -> None:
        for at in named_words(command):
            if at >= len(command.words):
                raise refused(self.source, command.place(at), f"{command.keyword}: no node is named")
            name = self._name(command, at)
            known = name in self.defined or name in self.nested or name in self.outer
            if known or name.upper() == ALL_NODES:
                continue
            if not submit:
                raise refused(
                    self.source,
                    command.place(at),
                    f"no JOB defines {command.words[at].text}; write JOB {command.words[at].text} FILE in the "
                    "template, or give GEN a submit description for such nodes: ... submit FILE from ...",
                )
            if name.upper() in RESERVED or "+" in name:
                raise refused(self.source, command.place(at), f"a node cannot be called {name}")
            self.defined[name], self.kinds[name] = command.place(at), "JOB"
            self.region.lines.append(f"JOB {name} {submit}\n")

    def _take_nested(self, region: Region) -> None:
        self.region.lines += region.lines
        self.region.said |= region.said
        self.with_parent |= set(region.nodes) - set(region.roots)
        self.with_child |= set(region.nodes) - set(region.leaves)

    def _write(self, command: Command) -> None:
        if command.keyword in NODE_KEYWORDS or command.keyword == "SUBMIT_DESCRIPTION":
            self._write_node(command)
        elif command.keyword in ("PARENT", "WEAK"):
            self._write_edges(command)
        elif command.keyword == "SCRIPT":
            self._write_script(command)
        elif command.keyword in PER_NODE or command.keyword == "SAVE_POINT_FILE":
            self._write_per_node(command)
        else:
            self._once(self._rest(command, 0) + "\n")

    def _once(self, text: str) -> None:
        """What is said of the whole DAG is said once, not by every instance."""
        if text not in self.once:
            self.once.add(text)
            self.region.lines.append(text)

    def _write_node(self, command: Command) -> None:
        at = 2 if command.keyword == "SUBDAG" else 1
        head = " ".join(word.text for word in command.words[:at])
        if command.body is None:
            self.region.lines.append(f"{head} {self._name(command, at)} {self._rest(command, at + 1)}\n")
            return
        opener = command.words[at + 1].text
        ending = "}" if opener.startswith("{") else "@" + opener[2:]
        body = self._fill_body(command)
        text = (
            f"{head} {self._name(command, at)} {opener}\n{body}{ending} {self._rest(command, at + 2)}".rstrip() + "\n"
        )
        if command.keyword == "SUBMIT_DESCRIPTION":
            self._once(text)
        else:
            self.region.lines.append(text)

    def _fill_body(self, command: Command) -> str:
        """An inline submit description; its errors are placed in the line of the file they are in."""
        lines = []
        raw = command.raw.split("\n")
        row = 0
        for text in (command.body or "").split("\n") if command.body else ():
            row = next(at for at in range(row + 1, len(raw)) if raw[at].strip() == text)
            indent = len(raw[row]) - len(raw[row].lstrip())
            lines.append(f"  {self._fill(text, _at_line(command, text, row, indent), 0)}\n")
        return "".join(lines)

    def _write_edges(self, command: Command) -> None:
        parents: list[str] = []
        children: list[str] = []
        split = next((at for at, word in enumerate(command.words) if word.text.upper() == "CHILD"), None)
        spots = list(named_words(command))
        for at in spots:
            name, child = self._name(command, at), split is not None and at > split
            region = self.nested.get(name)
            ends = [name] if region is None else region.roots if child else region.leaves
            (children if child else parents).extend(ends)
        if not parents or not children:
            raise refused(
                self.source,
                command.place(len(command.words)),
                "PARENT p1 [p2 ...] CHILD c1 [c2 ...]: one part is missing",
            )
        inside = [name for name in parents if name not in self.outer]
        if inside:
            self.with_parent.update(children)
        self.with_child.update(parents if any(name not in self.outer for name in children) else ())
        head = " ".join(word.text for word in command.words[: spots[0]])
        self.region.lines.append(f"{head} {' '.join(parents)} CHILD {' '.join(children)}\n")

    def _write_script(self, command: Command) -> None:
        spots = list(named_words(command))
        if not spots or spots[0] + 1 >= len(command.words):
            raise refused(
                self.source, command.place(len(command.words)), "SCRIPT needs PRE, POST or HOLD, a node and a script"
            )
        at = spots[0]
        head = " ".join(word.text for word in command.words[:at])
        for node in self._targets(command, at):
            self.region.lines.append(f"{head} {node} {self._rest(command, at + 1)}\n")

    def _write_per_node(self, command: Command) -> None:
        keyword, rest = command.words[0].text, self._rest(command, 2)
        values: dict[str, str] = {}
        if command.keyword == "VARS":
            begin = command.words[2].offset if len(command.words) > 2 else 0
            for key, value in _good_pairs(self.source, command).items():
                values[self._fill(key, command, begin, name=True)] = self._fill(value, command, begin)
        for node in self._targets(command, 1):
            if values:
                self.region.said |= {(f"VARS {key.lower()}", node) for key in values}
                self.region.lines.append(vars_line(node, values, _placement(command)))
            else:
                self.region.said.add((command.keyword, node))
                self.region.lines.append(f"{keyword} {node} {rest}".rstrip() + "\n")

    def _targets(self, command: Command, at: int) -> Sequence[str]:
        """The nodes a word stands for: in a template ALL_NODES are the nodes of the instance."""
        name = self._name(command, at)
        if name.upper() == ALL_NODES:
            inner = [node for region in self.nested.values() for node in region.nodes]
            return [*(node for node, kind in self.kinds.items() if kind in ("JOB", "SUBDAG")), *inner]
        return self.nested[name].nodes if name in self.nested else [name]


def named_words(command: Command) -> range | tuple[int, ...]:
    """Which words of a command name nodes it does not define; empty for commands about the whole DAG."""
    words = [word.text.upper() for word in command.words]
    if command.keyword in ("PARENT", "WEAK"):
        begin = 2 if command.keyword == "WEAK" else 1
        return tuple(at for at in range(begin, len(words)) if words[at] != "CHILD")
    if command.keyword == "SCRIPT":
        at = next((at for at, word in enumerate(words) if word in ("PRE", "POST", "HOLD")), len(words))
        return range(at + 1, at + 2)
    return range(1, 2) if command.keyword in PER_NODE or command.keyword == "SAVE_POINT_FILE" else range(0)


def _placement(command: Command) -> str:
    return read_pairs(command).placement or "PREPEND"


def _good_pairs(source: Source, command: Command) -> Mapping[str, str]:
    pairs = read_pairs(command)
    if pairs.problems or not pairs.values:
        offset = pairs.problems[0].offset if pairs.problems else len(command.logical)
        told = pairs.problems[0].message if pairs.problems else "VARS sets nothing"
        raise refused(source, command.place_of(offset), told)
    return pairs.values


def _at_line(command: Command, text: str, row: int, indent: int) -> Command:
    """A stand-in for one line of a command's inline description, so that its errors have their place."""
    return Command(text, command.line + row, logical=text, segments=((0, command.line + row, indent + 1),))
