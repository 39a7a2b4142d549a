"""From a DAG that MLDAG (or anyone) made to an experiment file that renders an equivalent one. Pure.

MLDAG draws run ids, seeds and the order of sites without a seed, so only its DAG knows them: each run is written out
with its id, its seed, its parameters and the site of each of its jobs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from siteannex.training.dag.dagfile import Place, read_commands
from siteannex.training.dag.daggraph import Graph, Node, read_graph
from siteannex.training.importing.foreign_submit import Finding, Translated, gathered, translate
from siteannex.training.importing.imported import Imported, experiment_name, experiment_text, merge_sites, site_key
from siteannex.training.located import Source
from siteannex.training.located import refused as refused_at

_OURS = {"epoch", "run_uuid", "random_seed", "ResourceName", "continue_from_checkpoint"}
_RUN_NAME = re.compile(r"(.+?)[-_.](?:train[-_]?)?epoch\d+")
_DESCRIPTION = re.compile(r"(.+?)(?:_pretrain|_train)?(?:\.sub)?")
_REQUESTS = ("pre_request_annex", "mldag.provenance", "annex_helper")


_HINT = "siteannex dag import takes DAGs whose runs are chains of epochs, with submit descriptions written in the DAG."


def refused(source: Source, place: Place, message: str) -> Exception:
    """Why a DAG cannot be imported, at its place."""
    return refused_at(source, place, message, _HINT)


@dataclass(frozen=True, slots=True)
class Chain:
    """One training run of a DAG: its nodes in order."""

    name: str
    nodes: tuple[str, ...]


def import_dag(text: str, file: str) -> Imported:
    """The experiment file of a DAG. AnnexError dag-invalid: its place, when it is no set of chains of epochs."""
    source = Source(file, text)
    graph = read_graph(text)
    if graph.problems:
        problem = graph.problems[0]
        raise refused(source, Place(problem.line, problem.column), problem.message)
    runs = chains(source, graph)
    findings: list[Finding] = []
    keys, described = _descriptions(source, graph, runs, findings)
    merged = merge_sites(described)
    written_out = [_run(source, graph, keys, run, findings) for run in runs]
    if len(described) == 1:
        for run in written_out:
            del run["sites"]  # there is only one
    epochs, per_job = _epochs(source, graph, runs, findings)
    name = experiment_name(PurePath(file).stem)
    experiment: dict[str, Any] = {
        "name": name,
        "seed": 0,
        "description": f"imported from {PurePath(file).name}: {len(runs)} runs",
        "runs": written_out,
        "train": {"epochs": epochs, "epochs_per_job": per_job},
        "submit": "\n".join(merged.template) + "\n",
        "sites": merged.sites,
        **({"environment": merged.environment} if merged.environment else {}),
        "retries": _retries(source, graph, runs, findings),
        **_hooks(source, graph, runs, findings),
    }
    _left_out(source, graph, runs, findings)
    _asked_elsewhere(source, graph, keys, findings)
    header = [
        f"Imported from {PurePath(file).name} by siteannex dag import. Node epochN of a run is its N-th job here too."
    ]
    return Imported(experiment_text(experiment, header), gathered(findings))


def chains(source: Source, graph: Graph) -> list[Chain]:
    """The runs of a DAG of chains, in the order of their first nodes."""
    jobs = [node for node in graph.nodes.values() if node.kind == "JOB"]
    if not jobs:
        raise refused(source, Place(1, 1), "there is no JOB here")
    strangers = sorted({name for edge in graph.edges | graph.weak_edges for name in edge} - {job.name for job in jobs})
    if strangers:
        raise refused(source, Place(1, 1), f"PARENT lines name {strangers[0]}, which is no JOB of this file")
    child: dict[str, str] = {}
    parent: dict[str, str] = {}
    for before, after in sorted(graph.edges | graph.weak_edges):
        for table, key, value, what in ((child, before, after, "children"), (parent, after, before, "parents")):
            if key in table:
                told = f"{key} has several {what} ({table[key]}, {value}); only chains of epochs can be imported"
                raise refused(source, Place(graph.nodes[key].line, 1), told)
            table[key] = value
    found: list[Chain] = []
    for node in jobs:
        if node.name not in parent:
            members = [node.name]
            while members[-1] in child and len(members) <= len(jobs):
                members.append(child[members[-1]])
            named = _RUN_NAME.fullmatch(node.name)
            found.append(Chain(site_key(named[1]) if named else f"r{len(found):02d}", tuple(members)))
    left = {node.name for node in jobs} - {name for chain in found for name in chain.nodes}
    if left:
        node = graph.nodes[min(left, key=lambda name: graph.nodes[name].line)]
        raise refused(source, Place(node.line, 1), f"{node.name} is in a circle of PARENT lines")
    lengths = Counter(len(chain.nodes) for chain in found)
    if len(lengths) > 1:
        usual = lengths.most_common(1)[0][0]
        odd = next(chain for chain in found if len(chain.nodes) != usual)
        told = f"{odd.name} has {len(odd.nodes)} jobs, the others {usual}; an experiment's runs have the same number"
        raise refused(source, Place(graph.nodes[odd.nodes[0]].line, 1), told)
    if len({chain.name for chain in found}) < len(found):
        found = [Chain(f"r{index:02d}", chain.nodes) for index, chain in enumerate(found)]
    return found


def _descriptions(
    source: Source, graph: Graph, runs: Sequence[Chain], findings: list[Finding]
) -> tuple[dict[str, str], dict[str, Translated]]:
    """Site key of every submit description that a run's nodes use, and the translated descriptions by site key."""
    keys: dict[str, str] = {}
    described: dict[str, Translated] = {}
    places = _body_places(source)
    for run in runs:
        for name in run.nodes:
            node = graph.nodes[name]
            identity = node.submit or f"inline {node.body}"
            if identity in keys:
                continue
            key = _key(node, described)
            lines = places.get(node.submit if node.body is None else node.name)
            if lines is None:
                told = f"{node.submit} is a file; only submit descriptions written in the DAG can be imported"
                raise refused(source, Place(node.line, 1), told)
            keys[identity], described[key] = key, translate(lines)
            findings += described[key].findings
    return keys, described


def _key(node: Node, taken: Mapping[str, object]) -> str:
    named = _DESCRIPTION.fullmatch(node.submit)
    key = site_key(named[1]) if node.submit and named else f"site{len(taken)}"
    return key if key not in taken else f"{key[:58]}_{len(taken)}"


def _body_places(source: Source) -> dict[str, list[tuple[str, str]]]:
    """Every inline description's lines with their places, by description (or node) name."""
    found: dict[str, list[tuple[str, str]]] = {}
    for command in read_commands(source.text):
        if command.body is not None and len(command.words) > 1:
            raw = command.raw.split("\n")[1:]
            lines = [(f"{source.name}:{command.line + at}", line) for at, line in enumerate(raw, 1)]
            end = "}" if command.words[2].text.startswith("{") else "@" + command.words[2].text[2:]
            stop = next((at for at, (_, line) in enumerate(lines) if line.strip().split(" ")[0] == end), len(lines))
            found.setdefault(command.words[1].text, lines[:stop])
    return found


def _epochs(source: Source, graph: Graph, runs: Sequence[Chain], findings: list[Finding]) -> tuple[int, int]:
    """Epochs of a run and epochs of a job, from the `epoch` VARs; one epoch a job where there are none."""
    counts = [[graph.variables.get(name, {}).get("epoch", "") for name in run.nodes] for run in runs]
    jobs = len(runs[0].nodes)
    first = counts[0][0]
    if (
        first.isdecimal()
        and int(first) > 0
        and counts == [[str(int(first) * at) for at in range(1, jobs + 1)]] * len(runs)
    ):
        return jobs * int(first), int(first)
    if any(count for run in counts for count in run):
        told = "the VAR epoch does not count a run's epochs; taken as one epoch a job"
        findings.append(Finding(source.name, told))
    return jobs, 1


def _run(source: Source, graph: Graph, keys: Mapping[str, str], run: Chain, findings: list[Finding]) -> dict[str, Any]:
    variables = [graph.variables.get(name, {}) for name in run.nodes]
    sites = []
    for name, values in zip(run.nodes, variables, strict=True):
        node = graph.nodes[name]
        site = keys[node.submit or f"inline {node.body}"]
        sites.append(site)
        told = values.get("ResourceName", "")
        if told and site_key(told) != site:
            text = f"{name}: ResourceName says {told}, its submit description is {node.submit}; taken as {site}"
            findings.append(Finding(f"{source.name}:{node.line}", text))
    made: dict[str, Any] = {"name": run.name}
    for var, key in (("run_uuid", "id"), ("random_seed", "seed")):
        value = _constant(source, graph, run, var, findings)
        if value:
            made[key] = int(value) if key == "seed" and value.isdecimal() else value
    names = [name for values in variables for name in values if name not in _OURS]
    parameters = {name: _constant(source, graph, run, name, findings) for name in dict.fromkeys(names)}
    if parameters:
        made["parameters"] = {name: _scalar(value) for name, value in parameters.items()}
    made["sites"] = sites
    return made


def _constant(source: Source, graph: Graph, run: Chain, name: str, findings: list[Finding]) -> str:
    """A variable that all nodes of a run share."""
    values = [graph.variables.get(node, {}).get(name, "") for node in run.nodes]
    if len(set(values)) > 1:
        text = f"{run.name}: {name} differs from node to node ({values[0]}, ...); the first one is taken for the run"
        findings.append(Finding(f"{source.name}:{graph.nodes[run.nodes[0]].line}", text))
    return values[0]


def _scalar(text: str) -> Any:
    """A parameter's text as YAML writes it back: numbers as numbers where nothing of their spelling is lost."""
    if re.fullmatch(r"-?(0|[1-9]\d{0,17})", text):
        return int(text)
    return float(text) if re.fullmatch(r"-?\d+\.\d+", text) and repr(float(text)) == text else text


def _retries(source: Source, graph: Graph, runs: Sequence[Chain], findings: list[Finding]) -> int:
    counts = [graph.retries[name].count if name in graph.retries else 0 for run in runs for name in run.nodes]
    if len(set(counts)) > 1:
        findings.append(Finding(source.name, f"RETRY differs from node to node; {max(counts)} is taken for all"))
    return min(100, max(counts))


def _hooks(source: Source, graph: Graph, runs: Sequence[Chain], findings: list[Finding]) -> dict[str, Any]:
    """PRE and POST scripts that every node has; what only asked for annexes is not needed here."""
    hooks: dict[str, str] = {}
    for when in ("PRE", "POST", "HOLD"):
        scripts = [graph.scripts.get((name, when), "") for run in runs for name in run.nodes]
        asked = [script for script in scripts if any(word in script for word in _REQUESTS)]
        others = [script for script in scripts if script and script not in asked]
        if asked:
            told = (
                f"{len(asked)} {when} scripts ({asked[0].split()[0]}) left out: siteannex up --pending knows what waits"
            )
            findings.append(Finding(source.name, told))
        if not others:
            continue
        if len(set(others)) == 1 and len(others) == len(scripts) and when != "HOLD" and "$" not in others[0]:
            hooks[when.lower()] = others[0]
        else:
            told = f"{len(others)} {when} scripts left out ({others[0]}): a hook is the same for every node"
            findings.append(Finding(source.name, told))
    return {"hooks": hooks} if hooks else {}


def _asked_elsewhere(source: Source, graph: Graph, keys: Mapping[str, str], findings: list[Finding]) -> None:
    """Scripts that ask for an annex at a site where their node's job does not go, as hand-edited DAGs have them."""
    for (name, _), script in sorted(graph.scripts.items(), key=lambda item: graph.nodes[item[0][0]].line):
        node = graph.nodes[name]
        words = script.split()
        site = keys.get(node.submit or f"inline {node.body}")
        if "pre_request_annex" in words[0] and len(words) > 1 and site is not None and site_key(words[1]) != site:
            told = f"its script asks for an annex at {words[1]}, and its job goes to {site}"
            findings.append(Finding(f"{source.name}:{node.line}", told))


def _left_out(source: Source, graph: Graph, runs: Sequence[Chain], findings: list[Finding]) -> None:
    members = {name for run in runs for name in run.nodes}
    for node in graph.nodes.values():
        if node.name not in members:
            findings.append(Finding(f"{source.name}:{node.line}", f"left out: {node.kind} {node.name}"))
    for what, table in (("PRIORITY", graph.priorities), ("CATEGORY", graph.categories)):
        if table:
            findings.append(Finding(source.name, f"left out: {what} of {len(table)} nodes"))
    for line in graph.settings:
        if not line.upper().startswith("NODE_STATUS_FILE"):
            findings.append(Finding(source.name, f"left out: {line}"))
    if graph.done:
        findings.append(
            Finding(source.name, f"{len(graph.done)} nodes were DONE; an experiment starts from the beginning")
        )
