"""GEN SUBDAG: regions of a DAG made from a template, once for every row of values, compiled to plain DAGMan.

What HTCondor understands already passes through byte for byte; a file without GEN comes out as it went in. The grammar
and the answer to every question it raises is docs/gen-subdag.md. Pure: files are read by the function given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from siteannex.training.dag.dagfile import Command, Place, load_text, read_commands, unquote
from siteannex.training.dag.daggraph import NODE_KEYWORDS
from siteannex.training.gen.genheader import Header, Reader, file_rows, take_header
from siteannex.training.gen.genrows import read_points
from siteannex.training.gen.gentemplate import PER_NODE, Region, Scope, Template, Writer, named_words
from siteannex.training.located import Source, refused

CEILING = 100_000
"""Most nodes (and most instances of one GEN) that are made unless more is allowed."""
_DEPTH = 8


@dataclass(frozen=True, slots=True)
class Compiled:
    """A plain DAG, what the user should know, and each generated node's region and values (the expansion manifest)."""

    text: str
    notes: tuple[str, ...]
    points: Mapping[str, Mapping[str, str]]


@dataclass(slots=True)
class _World:
    """What all GENs of a compilation share."""

    read: Reader
    ceiling: int
    outer: frozenset[str]
    defined: dict[str, str] = field(default_factory=dict)
    once: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    points: dict[str, dict[str, str]] = field(default_factory=dict)


def compile_dag(path: Path, *, ceiling: int = CEILING) -> Compiled:
    """Compile a DAG file; templates and values are looked for beside it. AnnexError dag-invalid says where."""
    return compile_text(load_text(path), str(path), lambda name: load_text(path.parent / name), ceiling=ceiling)


def compile_text(text: str, name: str, read: Reader, *, ceiling: int = CEILING) -> Compiled:
    """Compile a DAG's text. `read` gives the text of the files it names; AnnexError dag-invalid says where and what."""
    source = Source(name, text)
    pieces = _pieces(source, list(read_commands(text)))
    _no_gen_elsewhere(source, pieces, read)
    if not any(isinstance(piece, Header) for piece in pieces):
        return Compiled(text, (), {})
    plain = [piece for piece in pieces if isinstance(piece, Command)]
    names = {node: command for command in plain if (node := _defines(command))}
    world = _World(read, ceiling, frozenset(names))
    world.defined = {node: source.spot(command.place()) for node, command in names.items()}
    regions: dict[str, Region] = {}
    for piece in pieces:
        if isinstance(piece, Header):
            world.notes += piece.notes
            _claim(piece, regions, world.defined)
            regions[piece.name] = _region(world, piece, Scope({}, (piece.template,)), regions)
    open_ended = any(command.keyword == "INCLUDE" for command in plain)
    known = None if open_ended else frozenset(world.defined)
    written = []
    for piece in pieces:
        if isinstance(piece, Header):
            region = regions[piece.name]
            written += [f"# {piece.name}: {piece.template}, {len(region.nodes)} nodes\n", *region.lines]
        else:
            written.append(_outer(source, piece, regions, known))
    return Compiled("".join(_ended(written)), tuple(world.notes), world.points)


def _no_gen_elsewhere(source: Source, pieces: list[Command | Header], read: Reader) -> None:
    """DAGMan reads included and spliced files itself, and knows no GEN."""
    for piece in pieces:
        at = {"INCLUDE": 1, "SPLICE": 2}.get(piece.keyword, 0) if isinstance(piece, Command) else 0
        if not isinstance(piece, Command) or not 0 < at < len(piece.words):
            continue
        file = unquote(piece.words[at].text)
        try:
            found = has_gen(read(file))
        except (OSError, ValueError):
            continue  # not there yet, or no name of a file: DAGMan judges that
        if found:
            raise refused(source, piece.place(at), f"{file} has a GEN of its own, and DAGMan reads it: render it first")


def has_gen(text: str) -> bool:
    """Whether a DAG file needs compiling."""
    return any(command.keyword == "GEN" for command in read_commands(text))


def _ended(lines: list[str]) -> list[str]:
    """Every piece but the last ends its line, so that what follows begins a new one."""
    kept = [line for line in lines if line]
    return [line if line.endswith("\n") or at == len(kept) - 1 else line + "\n" for at, line in enumerate(kept)]


def _pieces(source: Source, commands: list[Command]) -> list[Command | Header]:
    pieces: list[Command | Header] = []
    while commands:
        if commands[0].keyword == "GEN":
            header, commands = take_header(source, commands)
            pieces.append(header)
        else:
            pieces.append(commands[0])
            commands = commands[1:]
    return pieces


def _claim(header: Header, regions: Mapping[str, Region], defined: Mapping[str, str]) -> None:
    if header.name in regions:
        raise header.where.refuse(0, f"there is a region {header.name} already")
    if header.name in defined:
        raise header.where.refuse(0, f"{header.name} is a node already, in {defined[header.name]}")


def _defines(command: Command) -> str:
    at = 2 if command.keyword == "SUBDAG" else 1
    return command.words[at].text if command.keyword in NODE_KEYWORDS and len(command.words) > at else ""


def _region(world: _World, header: Header, scope: Scope, outer: Mapping[str, Region]) -> Region:
    rows = header.rows
    if header.values_file:
        rows = file_rows(_file(world, header, header.values_file, header.values_place))
    points = read_points(header.variables, header.mode, rows, header.where)
    world.notes += [f"{header.where.source.spot(header.where.place)}: {header.name}: {note}" for note in points.notes]
    if points.count > world.ceiling:
        raise header.where.refuse(
            0, f"{points.count} instances of {header.template}; at most {world.ceiling}, or --max-nodes {points.count}"
        )
    source = _file(world, header, header.template, header.template_place)
    template = Template(source, tuple(_pieces(source, list(read_commands(source.text)))))
    region = Region(header.name)
    for index, values in enumerate(points):
        inner = scope.inside(header.name, index, values)
        writer = Writer(template, inner, _nested(world, template, inner), world.outer, world.once)
        made = writer.write(header.submit)
        for node, place in writer.defined.items():
            _define(world, header, source, node, place, index)
            world.points[node] = dict(inner.values)
        region.take(made)
        if len(world.points) > world.ceiling:
            raise header.where.refuse(
                0, f"more than {world.ceiling} nodes; fewer values, or --max-nodes with a larger number"
            )
    return region


def _nested(world: _World, template: Template, scope: Scope) -> dict[str, Region]:
    """The regions that the template's own GENs make in one instance."""
    regions: dict[str, Region] = {}
    for piece in template.pieces:
        if not isinstance(piece, Header):
            continue
        if piece.template in scope.files or len(scope.files) >= _DEPTH:
            chain = " -> ".join((*scope.files, piece.template))
            raise piece.where.refuse(0, f"GEN goes round in circles: {chain}")
        _claim(piece, regions, {})
        regions[piece.name] = _region(world, piece, scope.through(piece.template), regions)
    return regions


def _define(world: _World, header: Header, source: Source, node: str, place: Place, index: int) -> None:
    first = world.defined.get(node)
    world.defined[node] = f"instance {index} of {header.name}"
    if first is not None:
        variables = ", ".join(f"{{{name}}}" for name in header.variables)
        raise refused(
            source,
            place,
            f"node {node} exists already ({first}), and instance {index} of {header.name} makes it again; "
            f"put {{run}} or what differs ({variables}) in its name",
        )


def _file(world: _World, header: Header, name: str, place: Place) -> Source:
    try:
        return Source(name, world.read(name))
    except (OSError, ValueError) as problem:  # ValueError: no name a file can have
        told = f"cannot read {name}: {getattr(problem, 'strerror', None) or problem}"
        if name == header.values_file:
            told += f"; a value by itself is written ({name})"
        raise refused(header.where.source, place, told) from problem


def _outer(source: Source, command: Command, regions: Mapping[str, Region], known: frozenset[str] | None) -> str:
    """A command of the outer file: itself, byte for byte, unless it names a region."""
    names = [word.text for word in command.words]
    if not any(name in regions for name in names[1:]) or command.problem:
        return command.raw
    if command.keyword in ("PARENT", "WEAK"):
        return edge_line(source, command, regions, known)
    if len(names) > 1 and names[1] in regions:
        if command.keyword in PER_NODE:
            return "".join(regions[names[1]].per_node(source, command))
        if command.keyword == "SAVE_POINT_FILE":
            raise refused(source, command.place(1), "a region has no save point; name one of its nodes")
    spots = [at for at in named_words(command) if at < len(names)]
    if command.keyword == "SCRIPT" and spots and names[spots[0]] in regions:
        raise refused(
            source,
            command.place(spots[0]),
            f"once for the region or once a node? write SCRIPT for its nodes, in the template of {names[spots[0]]}",
        )
    return command.raw


def edge_line(source: Source, command: Command, regions: Mapping[str, Region], known: frozenset[str] | None) -> str:
    """A PARENT line with regions spelled out: every leaf of a parent region, every root of a child region."""
    words, child = [], False
    for at, word in enumerate(command.words):
        if at and word.text.upper() == "CHILD":
            child = True
        if word.text in regions:
            region = regions[word.text]
            ends = region.roots if child else region.leaves
            if not ends:
                raise refused(source, command.place(at), f"{word.text} has no node that could wait or be waited for")
            words += ends
            continue
        is_name = at > (1 if command.keyword == "WEAK" else 0) and word.text.upper() != "CHILD"
        if is_name and known is not None and word.text not in known:
            raise refused(source, command.place(at), f"no node or region is called {word.text}; JOB {word.text} ... ?")
        words.append(word.text)
    return " ".join(words) + "\n"
