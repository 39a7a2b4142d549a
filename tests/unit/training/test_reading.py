"""Wrong experiment files: each mistake has its code, the line it stands on, and what to write instead."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from siteannex.errors import AnnexError
from siteannex.training.dag.daggraph import read_graph
from siteannex.training.experiment.reading import read_experiment
from siteannex.training.rendering.render import Names, dag_lines
from tests.unit.training.experiments import GOOD, read, refusal


@pytest.mark.parametrize(
    ("old", "new", "code", "words"),
    [
        ("$(width)", "$(widht)", "variable-unknown", ":11: train.command: $(widht) is defined nowhere; did you mean"),
        ("{site.cpus}", "{site.cpu}", "variable-unknown", ":16: submit: {site.cpu} is no name of a site; did you mean"),
        ("{site.cpus}", "{resource.cpus}", "variable-unknown", "write {site.cpus}"),
        ("{site.cpus}", "$(cpuz)", "variable-unknown", ":16: submit: $(cpuz) is defined nowhere"),
        ("{site.cpus}", "{site.gpus}", "variable-unknown", ":22: sites.expanse: the template uses {site.gpus}"),
        ("by 0.01", "by 0", "range-invalid", ":4: parameters.lr: the step of 0.01 to 0.1 is 0"),
        ("0.01 to 0.1", "0.1 to 0.01", "range-invalid", "the step has the wrong sign"),
        ("{range: 0.01 to 0.1 by 0.01}", "{sample: 3 to 1, count: 2}", "range-invalid", "LOW must be below HIGH"),
        ("[128, 256]", "[]", "sweep-empty", ":5: parameters.width.values: no values"),
        (
            "mode: product",
            "mode: zip",
            "sweep-empty",
            ":8: mode: zip takes lists of one length; lr has 10, width has 2",
        ),
        ("0.01 to 0.1 by 0.01", "1 to 10000000 by 1", "sweep-too-large", "write max_nodes: 320000000"),
        ("small one", "it's", "quoting-impossible", ":7: parameters.kind: "),
        ("--lr $", "'--lr $", "quoting-impossible", ":11: train.command: "),
        ("request_gpus = 1", 'arguments = "a', "quoting-impossible", ":19: submit: arguments: a double quote"),
        ("it's fine", "hf_abcdefghijklmnopqrstuvwxyz0123", "secret-exposed", ":27: environment.GREETING: "),
        (
            "# a comment",
            "# WANDB_API_KEY=0123456789abcdef",
            "secret-exposed",
            ":17: submit: the value of WANDB_API_KEY",
        ),
        ("  syracuse: {resource: SU-ITS-CE2, ", "  syracuse: {", "site-unknown", ":24: sites.syracuse: no site file"),
        ("  expanse:", "  expans:", "site-unknown", ":22: sites.expans: no site file 'expans'; did you mean expanse?"),
        ("memory: 64GB", "memory: 64", "unit-missing", ":22: sites.expanse.memory: '64' has no unit"),
        ("{site.memory}", "64", "unit-missing", ":18: submit: request_memory: '64' has no unit; did you mean 64GB"),
        ("  epochs: 4", "  epochs: 4\n  epochs_per_job: 3", "epochs-indivisible", ":10: train: 4 epochs do not divide"),
        ("policy: shuffle", "policy: {sticky: 3}\n", "", ""),
        (
            "request_gpus = 1",
            "request_gpu = 1",
            "submit-command-unknown",
            ":19: submit: request_gpu is no submit command",
        ),
        ("request_gpus = 1", "request_dsk = 1GB", "submit-command-unknown", "did you mean request_disk?"),
        ("request_gpus = 1", "job_ad_file = x", "submit-command-unknown", "would be ignored"),
        ("request_gpus = 1", 'TARGET.GLIDEIN_ResourceName == "X"', "submit-invalid", "belongs in requirements ="),
        ("request_gpus = 1", "environment = A=1", "submit-invalid", "write it under environment:"),
        ("request_gpus = 1", "executable = /bin/sh", "submit-invalid", ":19: submit: executable: command: decides it"),
        ("request_gpus = 1", "queue 5", "submit-invalid", "leave queue out"),
        ("request_gpus = 1", "request_cpus = 2", "submit-invalid", "is set on line 1 already"),
        ("request_gpus = 1", "if defined resume", "submit-invalid", "not closed by endif"),
        ("request_gpus = 1", 'MY.TargetAnnexName = "x"', "submit-invalid", "the site decides it"),
        ("mode: product\n", "", "experiment-invalid", ":3: parameters: lr, width are swept: write mode: product"),
        ("runs_per_point", "runs_per_pont", "experiment-invalid", ":9: runs_per_pont: no such key; did you mean"),
        ("cap: 4", "kap: 4", "experiment-invalid", ":22: sites.expanse.kap: no such key; did you mean cap?"),
        ("{values: [128, 256]}", "[128, 256]", "experiment-invalid", ":5: parameters.width: "),
        ("[128, 256]", "[128, wide]", "experiment-invalid", "all numbers, all texts or all true/false"),
        ("  decay:", "  epoch:", "experiment-invalid", ":6: parameters.epoch: epoch is a name every job has"),
        ("  decay:", "  output:", "experiment-invalid", "output is a submit command"),
        ("  decay:", "  queue_x:", "experiment-invalid", "begin with queue"),
        ("resource: SU", "annex: x, resource: SU", "experiment-invalid", "at most one of annex, resource"),
        ("policy: shuffle", "policy: random", "experiment-invalid", ":26: policy: write fixed, shuffle, ordered, any"),
        ("policy: shuffle", "policy: any", "experiment-invalid", "policy: any needs one {site.cpus} for all sites"),
        ("GREETING: it's fine", "SITEANNEX_RUN: '1'", "experiment-invalid", "is set for every job already"),
        ("  command: python3 train.py --lr $(lr) --width $(width)\n", "", "experiment-invalid", "what is to run?"),
        ("  inputs: [train.py]", "  staged: [a b]", "experiment-invalid", "train.staged.0: "),
        ("  inputs: [train.py]", "  staged: ['osdf:///x']", "experiment-invalid", "train.staged.0: "),
        ("  inputs: [train.py]", "  inputs: [x.tar]\n  staged: [x.tar]", "experiment-invalid", "under inputs: as well"),
        ("request_gpus = 1", "container_image = images/a.sif", "submit-invalid", "beside the experiment file"),
        ("request_gpus = 1", "container_image = osdf:///ospool/a.sif", "", ""),
        ("request_gpus = 1", "container_image = docker://debian:12", "", ""),
        ("request_gpus = 1", "container_image = /home/alice/images/a.sif", "", ""),
        ("name: protein", "name: [protein", "experiment-invalid", "protein.yaml:"),
    ],
)
def test_a_mistake_is_located_and_has_its_code(tmp_path: Path, old: str, new: str, code: str, words: str) -> None:
    if not code:
        read(tmp_path, GOOD, (old, new))  # close to wrong, and right
        return
    failure = refusal(tmp_path, (old, new))
    assert (failure.code, failure.stage.value) == (code, "PLAN")
    assert words in "\n".join([failure.summary, *(item.text for item in failure.evidence)])


def test_a_secret_is_never_repeated(tmp_path: Path) -> None:
    secret = "0123456789abcdef0123456789abcdef01234567"
    failure = refusal(tmp_path, ("# a comment", f"WANDB_API_KEY={secret}"))
    assert failure.code in ("secret-exposed", "submit-command-unknown")
    failure = refusal(tmp_path, ("{GREETING: it's fine}", f"{{WANDB_API_KEY: '{secret}'}}"))
    assert failure.code == "secret-exposed"
    assert secret not in repr(failure)


def test_ten_million_points_are_refused_before_they_are_made(tmp_path: Path) -> None:
    begun = time.process_time()
    refusal(tmp_path, ("0.01 to 0.1 by 0.01", "1 to 10000000 by 1"))
    assert time.process_time() - begun < 5  # making them would take minutes


def test_the_ceiling_can_be_raised_as_the_failure_says(tmp_path: Path) -> None:
    failure = refusal(tmp_path, ("seed: 20261129", "seed: 1\nmax_nodes: 100"))
    assert "To allow it write max_nodes: 320" in failure.summary
    read(tmp_path, GOOD, ("seed: 20261129", "seed: 1\nmax_nodes: 320"))


def test_every_mistake_is_told_at_once(tmp_path: Path) -> None:
    failure = refusal(tmp_path, ("$(width)", "$(widht)"), ("request_gpus = 1", "request_gpsu = 1"))
    assert len(failure.evidence[0].text.splitlines()) == 2
    assert "(and 1 more)" in failure.summary


def test_two_runs_of_one_name_are_a_duplicate_node(tmp_path: Path) -> None:
    runs = "runs:\n  - {name: a, parameters: {lr: 1, width: 2}}\n  - {name: a, parameters: {lr: 2, width: 2}}\n"
    swept = "  lr: {range: 0.01 to 0.1 by 0.01}\n  width: {values: [128, 256]}\n"
    failure = refusal(tmp_path, (swept, ""), ("mode: product\n", runs))
    assert failure.code == "dag-duplicate-node"
    assert ":7: runs.0.name: 2 runs are called 'a'" in failure.summary


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(AnnexError, match=r"nowhere\.yaml"):
        read_experiment(tmp_path / "nowhere.yaml", lambda _: None, [])


JUNK = [
    "{}",
    "[]",
    "null",
    "'x'",
    "1.5",
    "true",
    "{a: 1}",
    "[1, 2]",
    "|",
    ".inf",
    "{values: [null]}",
    "{range: 5}",
    "{1: 2}",
]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, len(GOOD.splitlines()) - 1), st.sampled_from(JUNK), st.sampled_from(["value", "gone", "twice"]))
def test_any_damaged_file_is_read_or_refused_in_words(tmp_path: Path, at: int, junk: str, how: str) -> None:
    lines = GOOD.splitlines()
    if how == "value":
        lines[at] = f"{lines[at].partition(':')[0]}: {junk}"
    lines[at : at + 1] = {"value": [lines[at]], "gone": [], "twice": [lines[at]] * 2}[how]
    failure, loaded = None, None
    try:
        loaded = read(tmp_path, "\n".join(lines))
    except AnnexError as problem:
        failure = problem.failure
    if failure is not None:
        assert str(tmp_path / "protein.yaml") in failure.evidence[0].source
    if loaded is not None:
        written = "\n".join(dag_lines(loaded.experiment, loaded.targets, Names("c", "s", "j")))
        assert read_graph(f"{written}\n").problems == ()
