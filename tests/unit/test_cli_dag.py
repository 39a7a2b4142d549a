"""`siteannex dag` as a person types it, on a machine without HTCondor."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from siteannex.cli.main import app
from siteannex.errors import AnnexError
from tests.unit.training.experiments import GOOD
from tests.unit.training.mldag_twin import twin

RUNNER = CliRunner()
HERE = (("  expanse: {", "  expanse: {annex: expanse, "), ("  epochs: 4", "  epochs: 4\n  walltime: 2h"))


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An experiment file whose inputs are there."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PATH", str(tmp_path / "no-htcondor-here"))
    monkeypatch.setenv("CONDOR_CONFIG", "/dev/null")
    text = GOOD
    for old, new in HERE:
        text = text.replace(old, new)
    (tmp_path / "train.py").touch()
    path = tmp_path / "experiment.yaml"
    path.write_text(text)
    return path


def typed(*words: str) -> str:
    done = RUNNER.invoke(app, ["dag", *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_plan_shows_the_matrix_and_what_is_needed(file: Path) -> None:
    shown = typed("plan", str(file))
    assert "protein: 20 points (10 lr x 2 width) x 2 runs each = 40 training runs" in shown
    assert "320 DAG nodes" in shown
    rows = {line.split()[0]: line.split() for line in shown.splitlines() if line.startswith(("expanse ", "pool "))}
    assert rows["expanse"][1:] == ["expanse", "40", "40", "80", "1", "4", "-", "-"]
    assert rows["pool"][1] == "-"
    assert "annex    delta-big: " in shown


def test_plan_as_json_has_what_the_screen_has(file: Path) -> None:
    (file.parent / "train.py").unlink()
    data = json.loads(typed("plan", str(file), "--json"))
    assert (data["runs"], data["nodes"], data["missing"]) == (40, 320, ["train: train.py"])
    assert sum(site["epochs"] for site in data["sites"]) == 160
    wanted = {"expanse": "siteannex up expanse --gpus 4", "delta-big": "siteannex up delta --name delta-big --gpus 40"}
    assert {name: need["command"] for name, need in data["annexes"].items()} == {
        name: f"{command} --lifetime 4h" for name, command in wanted.items()
    }


def test_a_ceiling_needs_every_walltime(file: Path) -> None:
    assert "ceiling  not known: write walltime:" in typed("plan", str(file))
    text = (
        file.read_text()
        .replace("evaluate: {", "evaluate: {walltime: 1h, ")
        .replace("request_gpus = 1", "request_gpus = 2")
    )
    file.write_text(text)
    data = json.loads(typed("plan", str(file), "--json"))
    assert data["gpu_hours_ceiling"] == 4 * 40 * 2 * 2  # an evaluation asks for no GPU


def test_render_writes_the_dag_and_says_where(file: Path) -> None:
    shown = typed("render", str(file))
    assert f"{file.parent}/protein.dag: 320 nodes" in shown
    assert (file.parent / "protein.manifest.jsonl").is_file()
    assert (file.parent / "protein/siteannex-epoch").read_bytes().startswith(b"#!/usr/bin/env python3\n")
    other = json.loads(typed("render", str(file), "-o", str(file.parent / "x.dag"), "--json"))
    assert (other["dag"], other["nodes"]) == (str(file.parent / "x.dag"), 320)


def test_render_takes_a_dag_with_gen(tmp_path: Path) -> None:
    (tmp_path / "t.subdag").write_text('JOB {run}-a a.sub\nVARS {run}-a lr="{lr}"\n')
    (tmp_path / "flow.dag").write_text("GEN SUBDAG g t.subdag run, lr from\n    1, 0.1\n    2, 0.2\n")
    shown = typed("render", str(tmp_path / "flow.dag"), "-o", str(tmp_path / "plain.dag"))
    assert "plain.dag: 2 nodes" in shown
    assert 'VARS 2-a PREPEND lr="0.2"' in (tmp_path / "plain.dag").read_text()
    last = json.loads((tmp_path / "plain.manifest.jsonl").read_text().splitlines()[-1])
    assert last["nodes"] == 2


def test_submit_without_its_inputs_submits_nothing(file: Path) -> None:
    (file.parent / "train.py").unlink()
    with pytest.raises(AnnexError, match="inputs-missing"):
        RUNNER.invoke(app, ["dag", "submit", str(file)], catch_exceptions=False)
    assert not (file.parent / "protein.dag").exists()


def test_submit_on_a_machine_without_htcondor_is_refused_with_the_reason(file: Path) -> None:
    with pytest.raises(AnnexError) as raised:
        RUNNER.invoke(app, ["dag", "submit", str(file)], catch_exceptions=False)
    assert raised.value.failure.code == "dag-refused"
    assert "not on your PATH" in raised.value.failure.evidence[0].text


@pytest.mark.parametrize("verb", ["plan", "render", "submit"])
def test_help_shows_two_examples(verb: str) -> None:
    shown = typed(verb, "--help")
    assert shown.count(f"siteannex dag {verb} ") >= 2


def test_render_makes_more_nodes_when_told_to(tmp_path: Path) -> None:
    (tmp_path / "t.subdag").write_text("JOB n{run} a.sub\n")
    (tmp_path / "flow.dag").write_text("GEN SUBDAG g t.subdag x from 1 to 30 by 1\n")
    with pytest.raises(AnnexError, match=r"30 instances of .* at most 20, or --max-nodes 30"):
        RUNNER.invoke(app, ["dag", "render", str(tmp_path / "flow.dag"), "--max-nodes", "20"], catch_exceptions=False)
    assert "30 nodes" in typed("render", str(tmp_path / "flow.dag"), "--max-nodes", "30")


def test_a_dag_is_imported_and_what_comes_out_can_be_planned(file: Path) -> None:
    dag, out = file.parent / "aws.dag", file.parent / "aws.yaml"
    dag.write_text(twin()["aws.dag"])
    done = RUNNER.invoke(app, ["dag", "import", str(dag), "-o", str(out)], catch_exceptions=False)
    assert (done.exit_code, done.stdout) == (0, f"{out}: look it through, then siteannex dag plan {out}\n")
    assert f"{dag}:25: WANDB_API_KEY stands here in clear text" in done.stderr
    assert "aws: 2 training runs" in typed("plan", str(out))


def test_an_import_shows_its_file_or_says_all_as_json(file: Path) -> None:
    dag = file.parent / "aws.dag"
    dag.write_text(twin()["aws.dag"])
    done = RUNNER.invoke(app, ["dag", "import", str(dag)], catch_exceptions=False)
    data = json.loads(typed("import", str(dag), "--json"))
    assert done.stdout == data["text"]
    assert [f"{each['place']}: {each['text']}" for each in data["findings"]] == done.stderr.splitlines()


def test_an_import_that_still_lacks_something_says_what(file: Path) -> None:
    (file.parent / "E.yaml").write_text(
        "name: e\nsubmit_template: |\n  executable = /bin/true\n  arguments = $(nothing)\n"
        "vars:\n  epochs: {type: value, value: 2}\n  epochs_per_job: {type: value, value: 1}\n"
    )
    out = file.parent / "e.yaml"
    done = RUNNER.invoke(app, ["dag", "import", str(file.parent / "E.yaml"), "-o", str(out)], catch_exceptions=False)
    assert "to mend: " in done.stderr
    assert "$(nothing) is defined nowhere" in done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("a.dag", "b.yaml"), "one DAG, or Experiment.yaml and resources.yaml"),
        (("none.dag",), "there is no file"),
        (("experiment.yaml", "-o", "experiment.yaml"), "exists; move it away"),
    ],
)
def test_an_import_of_what_is_not_there_is_wrong_usage(
    file: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], says: str
) -> None:
    monkeypatch.chdir(file.parent)
    done = RUNNER.invoke(app, ["dag", "import", *words])
    assert done.exit_code == 2
    assert says in " ".join(done.stderr.split())


def test_a_sites_own_unit_is_charged_for_whole_walltimes(file: Path) -> None:
    text = (
        file.read_text().replace("evaluate: {", "evaluate: {walltime: 1h, ").replace("memory: 64GB,", "memory: 32GB,")
    )
    file.write_text(text)
    data = json.loads(typed("plan", str(file), "--json"))
    [hours] = [site["job_hours_ceiling"] for site in data["sites"] if site["site"] == "expanse"]
    assert hours == 40 * 2 + 40
    amount, unit = data["charges"]["expanse"].split()
    assert (float(amount) >= hours, unit) == (True, "SU")
    assert set(data["charges"]) <= {"expanse", "delta"}


def test_a_tracking_server_is_tried_from_here(file: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as other:
        port, closed = server.getsockname()[1], other.getsockname()[1]
        other.close()
        text = file.read_text()
        for number, there in ((port, True), (closed, False)):
            url = f"http://127.0.0.1:{number}"
            file.write_text(f"{text}tracking: {{mlflow: {{uri: '{url}'}}, wandb: {{project: p, mode: offline}}}}\n")
            assert json.loads(typed("plan", str(file), "--json"))["trackers"] == {url: there}
        assert f"{url}: does not answer from here" in typed("plan", str(file))
