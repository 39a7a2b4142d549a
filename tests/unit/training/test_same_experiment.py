"""What MLDAG made, imported and rendered again by us, is the same experiment: node by node, epoch by epoch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from siteannex.training.dag.dagfile import read_commands
from siteannex.training.dag.daggraph import Graph, differences, read_graph, relabelled
from siteannex.training.experiment.reading import Loaded, read_experiment
from siteannex.training.importing.dagimport import import_dag
from siteannex.training.importing.mldag import import_mldag
from siteannex.training.rendering.render import Names, dag_lines
from tests.unit.training.mldag_twin import campaign, twin
from tests.unit.training.test_mldag import RESOURCES, TEMPLATE, VARS

CAMPAIGNS = pytest.mark.parametrize("files", [twin(), campaign()], ids=["twin", "campaign"])
DAGS = pytest.mark.parametrize("name", ["sites.dag", "aws.dag", "ospool.dag"])
OUR_NODE = re.compile(r"(.+)-e(\d+)")
THEIR_MACROS = (("$INT(next_epoch)", "$(epoch)"), ("$(run_id)", "$(run_uuid)"), ("$(seed)", "$(random_seed)"))


def loaded(folder: Path, text: str) -> Loaded:
    path = folder / "experiment.yaml"
    path.write_text(text, encoding="utf-8")
    return read_experiment(path, lambda _: None, [])


def rendered(one: Loaded) -> Graph:
    lines = dag_lines(one.experiment, one.targets, Names("x.config", "x.status", "x.jobstate"))
    graph = read_graph("\n".join(lines) + "\n")
    assert graph.problems == ()
    return graph


def their_name(ours: str) -> str:
    match = OUR_NODE.fullmatch(ours)
    assert match is not None
    return f"{match[1]}-train_epoch{int(match[2])}"


def their_variables(ours: Mapping[str, str]) -> dict[str, str]:
    told = {"epoch": str(int(ours["epoch"]) + 1), "run_uuid": ours["run_id"], "random_seed": ours["seed"]}
    return told | ({"continue_from_checkpoint": "true"} if "resume" in ours else {})


@CAMPAIGNS
@DAGS
def test_nodes_edges_variables_and_retries_are_those_of_the_original(
    tmp_path: Path, files: dict[str, str], name: str
) -> None:
    original = read_graph(files[name])
    again = relabelled(rendered(loaded(tmp_path, import_dag(files[name], name).text)), their_name, their_variables)
    theirs = relabelled(original, str, lambda given: {k: v for k, v in given.items() if k != "ResourceName"})
    assert set(again.nodes) == set(theirs.nodes)
    assert differences(theirs, again, ("edges", "weak_edges", "variables", "retries", "done")) == ()


@CAMPAIGNS
@DAGS
def test_each_node_asks_what_it_asked_at_the_site_it_was_meant_for(
    tmp_path: Path, files: dict[str, str], name: str
) -> None:
    original = read_graph(files[name])
    again = relabelled(rendered(loaded(tmp_path, import_dag(files[name], name).text)), their_name, their_variables)
    for node in original.nodes.values():
        ours = again.descriptions[again.nodes[node.name].submit].splitlines()
        assert set(asked(original.descriptions[node.submit])) <= set(asked("\n".join(ours)))
        bare = re.findall(r"^TARGET\.GLIDEIN_ResourceName == .*$", original.descriptions[node.submit], re.MULTILINE)
        assert all(f"requirements = ({line})" in ours for line in bare)  # what it meant, binding at last


@CAMPAIGNS
@DAGS
def test_a_script_that_asked_for_an_annex_is_one_our_job_names_or_the_import_tells_it(
    tmp_path: Path, files: dict[str, str], name: str
) -> None:
    original = read_graph(files[name])
    imported = import_dag(files[name], name)
    again = relabelled(rendered(loaded(tmp_path, imported.text)), their_name, their_variables)
    named = {node.name for node in again.nodes.values() if "TargetAnnexName" in again.descriptions[node.submit]}
    elsewhere = [node for (node, _), script in original.scripts.items() if node not in named]
    told = [finding for finding in imported.findings if "its script asks for an annex at" in finding.text]
    counts = [int(m[1]) + 1 if (m := re.search(r"and (\d+) more", finding.place)) else 1 for finding in told]
    assert sum(counts) == len(elsewhere)
    for (node, when), script in again.scripts.items():
        annex = script.split()[-1]
        assert when == "PRE"
        assert f'TargetAnnexName = "{annex}"' in again.descriptions[again.nodes[node].submit]


def asked(body: str) -> list[str]:
    """The commands of a submit description in MLDAG's words, without what names the site or the environment."""
    lines = []
    for line in body.splitlines():
        for ours, theirs in THEIR_MACROS:
            line = line.replace(ours, theirs)
        if re.match(r"(if|endif|else|queue|environment|next_epoch)\b|TARGET\.|MY\.TargetAnnexName|requirements", line):
            continue
        name, _, value = (part.strip() for part in line.partition("="))
        sizes = {"request_memory": 1, "gpus_minimum_memory": 1, "request_disk": 1 / 1024}
        match = re.fullmatch(r"(\d+)(GB|MB|KB)?", value)
        if name in sizes and match:
            unit = {"GB": 1024, "MB": 1, "KB": 1 / 1024}.get(match[2] or "", sizes[name])
            value = f"{int(match[1]) * unit:g} MB"
        lines.append(f"{name} = {value}")
    return lines


@pytest.mark.parametrize("template", [TEMPLATE, TEMPLATE.replace("{resource.gpu_memory}", "8192")])
def test_an_imported_experiment_holds_together_and_renders(tmp_path: Path, template: str) -> None:
    (tmp_path / "Experiment.yaml").write_text(
        f"name: x\nsubmit_template: |\n{template}\nvars:\n{VARS}", encoding="utf-8"
    )
    (tmp_path / "resources.yaml").write_text(RESOURCES, encoding="utf-8")
    text = import_mldag(tmp_path / "Experiment.yaml", tmp_path / "resources.yaml").text
    graph = rendered(loaded(tmp_path, text))
    assert (len(graph.nodes), len(graph.edges)) == (3 * 30, 3 * 29)
    assert all(set(values) >= {"lr", "run", "seed"} for values in graph.variables.values())


@CAMPAIGNS
def test_a_rescue_file_of_the_original_names_only_nodes_of_it(files: dict[str, str]) -> None:
    original = read_graph(files["sites.dag"])
    for name in ("sites.dag.rescue001", "sites.dag.rescue012"):
        rescued = original.with_rescue(files[name])
        assert rescued.done <= set(original.nodes)
        assert len([c for c in read_commands(files[name]) if c.keyword == "DONE"]) == len(rescued.done)
