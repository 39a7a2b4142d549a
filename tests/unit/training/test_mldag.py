from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from siteannex.errors import AnnexError
from siteannex.training.importing.imported import Imported
from siteannex.training.importing.mldag import import_mldag

TEMPLATE = """\
  universe = container
  epoch = $(epoch:1)
  request_disk = {resource.disk}
  request_memory = {resource.mem_mb}
  request_cpus = {resource.cpus}
  request_gpus = {resource.gpus}
  gpus_minimum_memory = {resource.gpu_memory}
  executable = /bin/bash
  arguments = pretrain.sh $(epoch) $(run_uuid) $(random_seed) $(lr)
  if defined continue_from_checkpoint
      transfer_input_files = output/training_logs/$(run_uuid)
  endif
  log = metl.log

  queue
"""
VARS = """\
  epochs: {type: value, value: 30}
  epochs_per_job: {type: value, value: 1}
  run_number: {type: range, stop: 3, description: runs}
  lr: {type: value, value: 0.01}
"""
RESOURCES = """\
expanse:
  queue: gpu
  login_name: alice
  disk: 100GB
  mem_mb: 64000
  cpus: 4
  gpus: 2
delta: {queue: gpu, disk: 80GB, mem_mb: 131072, cpus: 8, annex: false}
"""


def imported(
    tmp_path: Path, template: str = TEMPLATE, variables: str = VARS, resources: str | None = RESOURCES
) -> Imported:
    experiment, places = tmp_path / "Experiment.yaml", tmp_path / "resources.yaml"
    experiment.write_text(
        f"name: GB1 Pretraining\nsubmit_template: |\n{template}\nvars:\n{variables}", encoding="utf-8"
    )
    if resources is not None:
        places.write_text(resources, encoding="utf-8")
    return import_mldag(experiment, places if resources is not None else None)


def loaded(result: Imported) -> dict[str, Any]:
    data: dict[str, Any] = YAML(typ="safe").load(result.text)
    return data


def told(result: Imported, part: str) -> str:
    """The place of the one finding that says this."""
    [finding] = [finding for finding in result.findings if part in finding.text]
    return Path(finding.place).name


def refusal(tmp_path: Path, **given: Any) -> str:
    with pytest.raises(AnnexError) as caught:
        imported(tmp_path, **given)
    assert caught.value.failure.code == "import-invalid"
    return caught.value.failure.summary.removeprefix(f"{tmp_path}/")


def test_both_files_become_one_experiment(tmp_path: Path) -> None:
    experiment = loaded(imported(tmp_path))
    assert experiment["name"] == "gb1_pretraining"
    assert experiment["train"] == {"epochs": 30, "epochs_per_job": 1}
    assert experiment["runs_per_point"] == 3
    assert experiment["parameters"] == {"lr": 0.01}
    assert experiment["policy"] == "shuffle"
    assert experiment["sites"] == {
        "expanse": {
            "annex": "expanse_annex",
            "disk": "100GB",
            "memory": "64000MB",
            "cpus": 4,
            "gpus": 2,
            "gpu_memory": "8GB",
        },
        "delta": {"requirements": "true", "disk": "80GB", "memory": "128GB", "cpus": 8, "gpus": 1, "gpu_memory": "8GB"},
    }
    assert "request_memory = {site.memory}" in experiment["submit"].splitlines()
    assert "arguments = pretrain.sh $INT(next_epoch) $(run_id) $(seed) $(lr)" in experiment["submit"].splitlines()


def test_the_shuffle_that_is_never_called_and_the_unseeded_draws_are_told(tmp_path: Path) -> None:
    result = imported(tmp_path)
    assert told(result, "never calls its shuffle") == "resources.yaml:1"
    assert told(result, "drawn without a seed") == "Experiment.yaml"


def test_a_range_ends_before_its_stop_and_that_is_told(tmp_path: Path) -> None:
    result = imported(tmp_path, variables=VARS + "  width: {type: range, start: 2, stop: 8, step: 2}\n")
    assert loaded(result)["parameters"]["width"] == {"values": [2, 4, 6]}
    assert told(result, "ends at 6, before stop: 8") == "Experiment.yaml:24"
    assert "mode" not in loaded(result)


def test_two_swept_vars_are_a_product(tmp_path: Path) -> None:
    more = "  a: {type: range, stop: 2}\n  b: {type: value, value: [x, y]}\n"
    assert loaded(imported(tmp_path, variables=VARS + more))["mode"] == "product"


def test_a_range_with_decimals_never_worked_and_is_exact_here(tmp_path: Path) -> None:
    result = imported(tmp_path, variables=VARS + "  a: {type: range, start: 0.01, stop: 0.1, step: 0.01}\n")
    assert loaded(result)["parameters"]["a"] == {"range": "0.01 to 0.1 by 0.01"}
    assert told(result, "end in a TypeError here; stop is included")


def test_memory_where_mem_mb_is_read_is_told_and_taken(tmp_path: Path) -> None:
    result = imported(tmp_path, resources=RESOURCES.replace("mem_mb: 64000", "memory: 64000"))
    assert loaded(result)["sites"]["expanse"]["memory"] == "64000MB"
    assert told(result, "memory: MLDAG reads mem_mb, so this never took effect") == "resources.yaml:5"


def test_a_bare_disk_is_kilobytes_to_htcondor(tmp_path: Path) -> None:
    result = imported(tmp_path, resources=RESOURCES.replace("disk: 100GB", "disk: 2048"))
    assert loaded(result)["sites"]["expanse"]["disk"] == "2MB"
    assert told(result, "HTCondor takes a bare number as KB") == "resources.yaml:4"


def test_keys_about_logging_in_are_for_another_file(tmp_path: Path) -> None:
    assert told(imported(tmp_path), "left out: queue, login_name") == "resources.yaml:1"


def test_an_environment_never_took_effect_and_its_secret_is_not_carried_on(tmp_path: Path) -> None:
    line = "  environment = \"A=b WANDB_API_KEY=0123456789 C='x y'\"\n"
    result = imported(tmp_path, template=line + TEMPLATE)
    assert loaded(result)["environment"] == {
        "A": "b",
        "C": "x y",
        "WANDB_API_KEY": {"secret_file": "secrets/WANDB_API_KEY"},
    }
    assert told(result, "MLDAG appends an environment of its own") == "Experiment.yaml:3"
    assert "0123456789" not in result.text


def test_the_first_of_two_environments_is_told(tmp_path: Path) -> None:
    result = imported(tmp_path, template="  environment = A=1;B=2\n  env = C=3\n" + TEMPLATE)
    assert loaded(result)["environment"] == {"C": "3"}
    assert told(result, "replaced the one at") == "Experiment.yaml:4"


def test_a_bare_requirement_is_told_and_dropped(tmp_path: Path) -> None:
    line = '  TARGET.GLIDEIN_ResourceName == "$(ResourceName)"\n  SOMETHING else\n  job_ad_file = x\n  log = a.log\n'
    result = imported(tmp_path, template=line + TEMPLATE)
    assert told(result, "it never bound jobs to a site") == "Experiment.yaml:3"
    assert told(result, "left out: SOMETHING else") == "Experiment.yaml:4"
    assert told(result, "job_ad_file is no submit command") == "Experiment.yaml:5"
    assert told(result, "log was set twice") == "Experiment.yaml:19"
    assert loaded(result)["submit"].count("log = ") == 1


@pytest.mark.parametrize(
    ("last", "says"),
    [
        (
            "  arguments = --partition queue\n",
            "arguments = --partition queue became arguments = --partition; kept whole",
        ),
        ("  queue 5\n", "left out: queue 5: what MLDAG wrote after it took no effect"),
    ],
)
def test_what_rstrip_eats_is_told(tmp_path: Path, last: str, says: str) -> None:
    assert told(imported(tmp_path, template=TEMPLATE.replace("  queue\n", last)), says)


def test_epochs_beyond_the_last_whole_job_are_never_trained_and_that_is_told(tmp_path: Path) -> None:
    result = imported(tmp_path, variables=VARS.replace("value: 1}", "value: 4}"))
    assert loaded(result)["train"] == {"epochs": 28, "epochs_per_job": 4}
    assert told(result, "MLDAG stops after 28 of 30 epochs") == "Experiment.yaml:20"


def test_a_field_of_another_name_becomes_a_value_of_the_site(tmp_path: Path) -> None:
    resources = RESOURCES.replace("  cpus: 4", "  cpus: 4\n  gpu_type: v100").replace(
        "cpus: 8", "cpus: 8, gpu_type: a100"
    )
    result = imported(tmp_path, template="  +Wants = {resource.gpu_type}\n" + TEMPLATE, resources=resources)
    assert "+Wants = {site.gpu_type}" in loaded(result)["submit"].splitlines()
    assert loaded(result)["sites"]["delta"]["values"] == {"gpu_type": "a100"}


def test_without_resources_there_is_one_pool(tmp_path: Path) -> None:
    plain = TEMPLATE.replace("{resource.mem_mb}", "64GB").replace("{resource.cpus}", "1")
    assert loaded(imported(tmp_path, template=plain, resources=None))["sites"]["ospool"]["requirements"] == "true"


def test_a_post_script_is_a_hook_and_unknown_keys_are_told(tmp_path: Path) -> None:
    result = imported(tmp_path, variables=VARS + "post_script: done.sh\nclassad_fields_file: f.yaml\n")
    assert loaded(result)["hooks"] == {"post": "done.sh"}
    assert told(result, "left out: classad_fields_file")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"variables": VARS + "  f: {type: function, value: x}\n"}, "Experiment.yaml:24: f: type: function"),
        ({"variables": VARS + "  f: 3\n"}, "Experiment.yaml:24: f: needs type: value"),
        ({"variables": VARS + "  f: {type: range, stop: 0}\n"}, "Experiment.yaml:24: f: range(0, 0, 1) is empty"),
        ({"variables": VARS + "  f: {type: range, start: 1.5, stop: 1, step: 0.5}\n"}, "the step has the wrong sign"),
        ({"variables": VARS.replace("value: 30", "value: many")}, "Experiment.yaml:20: epochs: one whole number"),
        ({"variables": VARS.replace("value: 1}", "value: 31}")}, "30 epochs make no job of 31 epochs"),
        ({"variables": "  [\n"}, "Experiment.yaml:"),
        ({"template": ""}, "submit_template: is missing"),
        ({"resources": RESOURCES.replace("  mem_mb: 64000\n", "")}, "resources.yaml:1: expanse: the template uses"),
        ({"resources": "expanse: 3\n"}, "resources.yaml:1: expanse: a resource is a mapping"),
        ({"resources": "{}\n"}, "resources.yaml:1: no resource"),
        ({"resources": "- a\n"}, "resources.yaml:1: not a mapping"),
    ],
)
def test_files_that_mldag_could_not_read_are_refused_with_their_line(
    tmp_path: Path, given: dict[str, str], says: str
) -> None:
    assert says in refusal(tmp_path, **given)
