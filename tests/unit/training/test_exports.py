"""Provenance leaves the access point in formats that their own tools accept, whole in lineage and without secrets."""

import json
import shutil
import signal
import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from siteannex.cli import provenance_export
from siteannex.cli.provenance import app
from siteannex.errors import AnnexError
from siteannex.training.epoch.files import canonical
from siteannex.training.provenance.exports.openlineage import AttemptRunFacet, CheckpointOutputFacet
from siteannex.training.prune import Keep, prune
from tests.unit.epoch_ground import Ground
from tests.unit.training.openlineage_types import check_event

SECRETS = ("hunter2", "0123456789abcdef0123", "s3cretpass")
OURS = {"siteannex_attempt": AttemptRunFacet, "siteannex_checkpoint": CheckpointOutputFacet}
ROOT = Path(__file__).parents[3]


def machine(folder: Path, site: str, gpu: str) -> dict[str, str]:
    """A slot's ad as HTCondor leaves it beside the job."""
    ad = folder / f"{site}.ad"
    ad.write_text(
        f'Name = "slot1@{site}"\nGLIDEIN_ResourceName = "{site}"\n'
        f'GPUs_GPU_1 = [ DeviceUuid = "GPU-{site}"; DeviceName = "{gpu}"; DriverVersion = "570.86" ]\n'
    )
    return {"_CONDOR_MACHINE_AD": str(ad)}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run over two sites, evicted in epoch 1, failed once in epoch 2, pruned; secrets where people put them."""
    folder = tmp_path_factory.mktemp("campaign")
    ground = Ground(folder)
    told = {
        "SITEANNEX_RUN_DIR": "toy/r03",
        "SITEANNEX_DATASET": f"https://me:{SECRETS[2]}@data.example.org/x",
        "SITEANNEX_PARAMETERS": json.dumps({"lr": 0.1, "db_password": SECRETS[0], "wandb_api_key": SECRETS[1]}),
    }
    delta, anvil = ({**told, **machine(folder, *each)} for each in (("delta", "NVIDIA A40"), ("anvil", "A100")))
    assert ground.attempt(0, env=delta).status == 0
    assert ground.interrupt(1, signal.SIGTERM, {"pause": [1, 3]}, env=delta).status == 85
    assert ground.attempt(1, env=anvil).status == 0
    assert ground.attempt(2, env=anvil, toy={"nan": [2, 1]}).status == 86
    assert ground.attempt(2, env={**delta, "SITEANNEX_RETRY": "1"}).status == 0
    prune(folder / "toy" / "r03", Keep(last=1))
    (folder / "toy.dag").write_text(f'JOB r03-train-e0 train\nVARS r03-train-e0 token="{SECRETS[1]}"\n')
    return folder


@pytest.fixture
def toy(made: Path, tmp_path: Path) -> Path:
    shutil.copy(made / "toy.dag", tmp_path)
    return Path(shutil.copytree(made / "toy", tmp_path / "toy"))


def export(*words: object) -> Result:
    return CliRunner().invoke(app, ["export", *map(str, words)])


def events_of(toy: Path) -> list[dict[str, Any]]:
    answer = export(toy, "--format", "openlineage")
    assert answer.exit_code == 0, answer.output
    return [json.loads(line) for line in answer.stdout.splitlines()]


def validated(crate: Path, cache: Path) -> "subprocess.CompletedProcess[str]":
    python = Path(sys.prefix) / "validator" / "bin" / "python"
    words = [python, ROOT / "scripts" / "validate_crate.py", crate, cache]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def entities(crate: Path) -> list[dict[str, Any]]:
    graph = json.loads((crate / "ro-crate-metadata.json").read_text())["@graph"]
    return [each for each in graph if isinstance(each, dict)]


def test_every_openlineage_event_is_what_the_standards_own_types_take(toy: Path) -> None:
    for event in events_of(toy):
        check_event(event, OURS)


def test_every_attempt_starts_once_and_ends_once_as_it_did(toy: Path) -> None:
    states: dict[str, list[str]] = {}
    for event in events_of(toy):
        states.setdefault(event["run"]["runId"], []).append(event["eventType"])
    assert sorted(each[0] for each in states.values()) == ["START"] * 5
    assert Counter(each[-1] for each in states.values()) == {"COMPLETE": 3, "ABORT": 1, "FAIL": 1}
    assert all(set(each[1:-1]) <= {"OTHER"} for each in states.values())
    assert events_of(toy) == events_of(toy)


def test_openlineage_has_the_lineage_over_sites_and_pruned_checkpoints(toy: Path) -> None:
    ends = [event for event in events_of(toy) if event["eventType"] in ("COMPLETE", "ABORT")]
    place = {}
    came_from = {}
    for event in ends:
        loaded = [each["facets"]["version"]["datasetVersion"] for each in event["inputs"] if each["name"] != "dataset"]
        for output in event["outputs"]:
            version = output["facets"]["version"]["datasetVersion"]
            came_from[version] = loaded[-1] if loaded else None
            place[version] = event["run"]["facets"]["siteannex_attempt"]["site"]
    newest = json.loads((toy / "r03/checkpoints/epoch002.ckpt.provenance.json").read_text())["checkpoint"]["sha256"]
    chain = [newest]
    while (before := came_from[chain[-1]]) is not None:
        chain.append(before)
    assert [place[each] for each in chain] == ["delta", "anvil", "delta", "delta"]


def test_the_crate_is_valid_by_the_workflow_run_profiles_validator(toy: Path, tmp_path: Path) -> None:
    answer = export(toy, "--format", "ro-crate", "--out", tmp_path / "crate")
    assert answer.exit_code == 0, answer.output
    assert "1 runs, 5 attempts, 4 checkpoints" in answer.output
    seen = validated(tmp_path / "crate", tmp_path / "cache")
    assert seen.returncode == 0, seen.stdout + seen.stderr
    assert seen.stdout.strip().endswith("workflow-run-crate-0.5")
    broken = json.loads((tmp_path / "crate/ro-crate-metadata.json").read_text())
    broken["@graph"] = [each for each in broken["@graph"] if not each["@id"].startswith("#run-")]
    (tmp_path / "crate/ro-crate-metadata.json").write_text(json.dumps(broken))
    assert validated(tmp_path / "crate", tmp_path / "cache").returncode == 1


def test_the_crate_tells_where_each_attempt_ran_and_which_checkpoint_came_from_which(toy: Path, tmp_path: Path) -> None:
    export(toy / "r03", "--format", "ro-crate", "--out", tmp_path / "crate")
    found = {each["@id"]: each for each in entities(tmp_path / "crate")}
    attempts = [each for name, each in found.items() if name.startswith("#attempt-")]
    assert Counter(each["actionStatus"].rpartition("/")[2] for each in attempts) == {
        "CompletedActionStatus": 3,
        "FailedActionStatus": 2,
    }
    places = {found[each["location"]["@id"]]["name"].partition(":")[0] for each in attempts}
    assert places == {"delta", "anvil"}
    newest = next(each for each in found.values() if each.get("name") == "r03/checkpoints/epoch002.ckpt")
    assert found[newest["isBasedOn"]["@id"]]["name"] == "r03/checkpoints/epoch001.ckpt"
    assert not list((tmp_path / "crate").rglob("*.ckpt"))


def test_a_crate_may_be_one_file(toy: Path, tmp_path: Path) -> None:
    export(toy, "--format", "ro-crate", "--out", tmp_path / "c.zip", "--license", "https://spdx.org/licenses/MIT")
    with zipfile.ZipFile(tmp_path / "c.zip") as crate:
        assert {"toy.dag", "ro-crate-metadata.json"} <= set(crate.namelist())
        assert b"https://spdx.org/licenses/MIT" in crate.read("ro-crate-metadata.json")


def test_a_run_whose_dag_is_gone_has_a_valid_crate_all_the_same(toy: Path, tmp_path: Path) -> None:
    (tmp_path / "toy.dag").unlink()
    export(toy, "--format", "ro-crate", "--out", tmp_path / "crate")
    assert "# r03-train-e2" in (tmp_path / "crate/toy.dag").read_text()
    assert validated(tmp_path / "crate", tmp_path / "cache").returncode == 0


def test_no_secret_leaves(toy: Path, tmp_path: Path) -> None:
    everything = "".join(path.read_text() for path in toy.rglob("*.json"))
    assert SECRETS[0] in everything
    export(toy, "--format", "ro-crate", "--out", tmp_path / "crate")
    told = "".join(path.read_text() for path in (tmp_path / "crate").rglob("*") if path.is_file())
    told += export(toy, "--format", "openlineage").stdout
    assert [secret for secret in SECRETS if secret in told] == []
    assert "removed: the value of db_password" in told


def test_what_does_not_agree_is_not_exported(toy: Path, tmp_path: Path) -> None:
    sidecar = toy / "r03/checkpoints/epoch001.ckpt.provenance.json"
    value = json.loads(sidecar.read_text())
    value["where"]["site"] = "expanse"
    sidecar.write_bytes(canonical(value))
    answer = export(toy, "--format", "ro-crate", "--out", tmp_path / "crate")
    assert answer.exit_code == 1
    assert "first    sidecar-edited r03/checkpoints/epoch001.ckpt.provenance.json" in answer.stdout
    assert not (tmp_path / "crate").exists()


def test_nothing_that_is_there_is_overwritten(toy: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    assert export(toy, "--format", "openlineage", "--out", tmp_path / "mine").exit_code == 2
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_library_that_is_missing_is_named_with_what_to_install(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(provenance_export.LIBRARIES, provenance_export.Format.RO_CRATE, ("not_there", "rocrate"))
    problem = export(toy, "--format", "ro-crate", "--out", "x").exception
    assert isinstance(problem, AnnexError)
    assert problem.failure.code == "export-not-installed"
    assert "siteannex[export]" in problem.failure.hint
