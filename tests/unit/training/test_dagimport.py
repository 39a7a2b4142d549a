from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from ruamel.yaml import YAML

from siteannex.errors import AnnexError
from siteannex.training.dag.daggraph import read_graph
from siteannex.training.importing.dagimport import chains, import_dag
from siteannex.training.importing.imported import Imported
from siteannex.training.located import Source
from tests.unit.training.mldag_twin import campaign, description, twin
from tests.unit.training.test_dagfile import DAGS as DAG_TEXTS

CAMPAIGNS = pytest.mark.parametrize("files", [twin(), campaign()], ids=["twin", "campaign"])
DAGS = pytest.mark.parametrize("name", ["sites.dag", "aws.dag", "ospool.dag"])


def loaded(imported: Imported) -> dict[str, Any]:
    data: dict[str, Any] = YAML(typ="safe").load(imported.text)
    return data


def texts(imported: Imported) -> str:
    return "\n".join(f"{finding.place}: {finding.text}" for finding in imported.findings)


@CAMPAIGNS
@DAGS
def test_each_run_keeps_its_id_its_seed_and_the_site_of_each_epoch(files: dict[str, str], name: str) -> None:
    graph = read_graph(files[name])
    experiment = loaded(import_dag(files[name], name))
    for run in experiment["runs"]:
        nodes = [f"{run['name']}-train_epoch{epoch}" for epoch in range(experiment["train"]["epochs"])]
        assert {graph.variables[node]["run_uuid"] for node in nodes} == {run["id"]}
        assert {graph.variables[node]["random_seed"] for node in nodes} == {str(run["seed"])}
        sites = run.get("sites") or [*experiment["sites"]] * len(nodes)
        assert [graph.nodes[node].submit for node in nodes] == [f"{site}_pretrain.sub" for site in sites]
    assert len(graph.nodes) == len(experiment["runs"]) * experiment["train"]["epochs"]


@CAMPAIGNS
def test_what_differs_between_sites_becomes_keys_of_the_sites(files: dict[str, str]) -> None:
    experiment = loaded(import_dag(files["sites.dag"], "sites.dag"))
    assert experiment["sites"]["expanse"]["annex"] == "expanse_annex"
    assert experiment["sites"]["AMNH-HEL-CE1"]["resource"] == "AMNH-HEL-CE1"
    assert experiment["retries"] == 5
    assert "TARGET" not in experiment["submit"]


@CAMPAIGNS
def test_a_key_in_clear_text_is_told_and_not_carried_on(files: dict[str, str]) -> None:
    imported = import_dag(files["sites.dag"], "sites.dag")
    assert "WANDB_API_KEY stands here in clear text" in texts(imported)
    assert "0" * 40 not in imported.text + texts(imported)
    assert loaded(imported)["environment"] == {"WANDB_API_KEY": {"secret_file": "secrets/WANDB_API_KEY"}}


@CAMPAIGNS
def test_a_bare_requirement_is_told_once_with_how_often_it_stands_there(files: dict[str, str]) -> None:
    told = [f for f in import_dag(files["sites.dag"], "sites.dag").findings if "it never bound jobs" in f.text]
    count = files["sites.dag"].count("\tTARGET.GLIDEIN_ResourceName ==")
    assert [finding.place.partition(" ")[2] for finding in told] == [f"(and {count - 1} more)"]


def test_names_of_macros_are_ours_and_epochs_count_as_there() -> None:
    experiment = loaded(import_dag(twin()["aws.dag"], "aws.dag"))
    lines = experiment["submit"].splitlines()
    assert lines[0] == "next_epoch = $(epoch) + 1"
    assert "arguments = pretrain.sh $INT(next_epoch) $(run_id) $(seed)" in lines
    assert "if defined resume" in lines
    assert "transfer_input_files = $(transfer_input_files), output/training_logs/$(run_id)" in lines
    assert not [line for line in lines if line.startswith("queue")]


SITE = description("a", "")
CHAIN = "JOB x-epoch0 a_pretrain.sub\nJOB x-epoch1 a_pretrain.sub\nPARENT x-epoch0 CHILD x-epoch1\n"


def test_epochs_per_job_come_from_the_epoch_vars() -> None:
    dag = f"{SITE}{CHAIN}VARS x-epoch0 epoch=5\nVARS x-epoch1 epoch=10\n"
    assert loaded(import_dag(dag, "x.dag"))["train"] == {"epochs": 10, "epochs_per_job": 5}


def test_other_variables_are_parameters_of_the_run() -> None:
    dag = f"{SITE}{CHAIN}VARS ALL_NODES lr=0.010 width=64 opt=adam\nVARS x-epoch1 k=2\n"
    imported = import_dag(dag, "x.dag")
    assert loaded(imported)["runs"][0]["parameters"] == {"lr": "0.010", "width": 64, "opt": "adam", "k": ""}
    assert "k differs from node to node" in texts(imported)


def test_a_node_whose_description_and_resource_name_disagree_is_told() -> None:
    dag = f"{SITE}{CHAIN}VARS x-epoch0 ResourceName=a\nVARS x-epoch1 ResourceName=b\n"
    told = texts(import_dag(dag, "x.dag"))
    assert "x-epoch1: ResourceName says b, its submit description is a_pretrain.sub; taken as a" in told


def test_whatever_is_not_carried_over_is_told() -> None:
    dag = (
        f"{SITE}{CHAIN}SERVICE watch w.sub\nPRIORITY x-epoch0 3\nSCRIPT PRE x-epoch0 other.sh\nRETRY x-epoch0 2\n"
        "DOT x.dot\nDONE x-epoch0\nSCRIPT POST x-epoch0 pre_request_annex.sh a\n"
    )
    told = texts(import_dag(dag, "x.dag"))
    for part in (
        "left out: SERVICE watch",
        "PRIORITY of 1 nodes",
        "1 PRE scripts left out (other.sh)",
        "RETRY differs",
        "left out: DOT x.dot",
        "1 nodes were DONE",
        "1 POST scripts (pre_request_annex.sh) left out: siteannex up --pending",
    ):
        assert part in told


def test_a_script_that_every_node_has_is_a_hook() -> None:
    assert loaded(import_dag(f"{SITE}{CHAIN}SCRIPT POST ALL_NODES check.sh\n", "x.dag"))["hooks"] == {
        "post": "check.sh"
    }


@pytest.mark.parametrize(
    ("dag", "place", "says"),
    [
        (f"{CHAIN}JOB y a_pretrain.sub\nPARENT x-epoch0 CHILD y\n", "x.dag:1:1", "x-epoch0 has several children"),
        ("JOB x a.sub\n", "x.dag:1:1", "a.sub is a file"),
        ("JOB x a.sub\nJOB y a.sub\nPARENT x CHILD y\nPARENT y CHILD x\n", "x.dag:1:1", "in a circle of PARENT lines"),
        ("JOB x a.sub\nJOB y a.sub\nJOB z a.sub\nPARENT x CHILD y\n", "x.dag:3:1", "the same number"),
        ("# none\n", "x.dag:1:1", "there is no JOB here"),
        ("PARENT a CHILD b\n", "x.dag:1:1", "there is no JOB here"),
        ("INCLUDE x\nJOB a s\nPARENT a CHILD b\n", "x.dag:1:1", "PARENT lines name b, which is no JOB of this file"),
        ("JOB x a.sub\nRETRY y 1\n", "x.dag:2:7", "names y, which no JOB defines"),
    ],
)
def test_a_dag_that_is_no_set_of_chains_is_refused_at_its_place(dag: str, place: str, says: str) -> None:
    with pytest.raises(AnnexError) as caught:
        import_dag(dag, "x.dag")
    assert caught.value.failure.code == "dag-invalid"
    assert caught.value.failure.summary.startswith(f"{place}: ")
    assert says in caught.value.failure.summary


@given(DAG_TEXTS)
def test_any_text_is_imported_or_refused(text: str) -> None:
    try:
        import_dag(text, "x.dag")
    except AnnexError as problem:
        assert problem.failure.code == "dag-invalid"  # noqa: PT017


def test_runs_are_named_in_order_when_their_nodes_do_not_say() -> None:
    dag = "JOB one a.sub\nJOB two a.sub\n"
    assert [chain.name for chain in chains(Source("x", dag), read_graph(dag))] == ["r00", "r01"]
