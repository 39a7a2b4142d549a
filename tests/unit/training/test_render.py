"""The rendered DAG: a golden file, and what HTCondor's own rules demand of every node."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from itertools import pairwise
from pathlib import Path

import classad2
import pytest

from siteannex.errors import AnnexError
from siteannex.model import StagedCopy
from siteannex.training.dag.daggraph import read_graph
from siteannex.training.experiment.runs import node_count
from siteannex.training.experiment.staged import with_copies
from siteannex.training.rendering.render import Names, config_text, dag_lines, hook_scripts, manifest_lines
from siteannex.training.rendering.writing import default_dag, loose_secrets, missing_inputs, write_dag
from tests.unit.training.experiments import GOOD, read

GOLDEN = Path(__file__).resolve().parent.parent.parent / "golden" / "experiment.dag"
NAMES = Names("protein.config", "protein.status", "protein.jobstate")
SMALL = (("0.01 to 0.1", "0.01 to 0.01"), ("[128, 256]", "[128]"), ("runs_per_point: 2\n", ""))


def text(tmp_path: Path, *changes: tuple[str, str]) -> str:
    loaded = read(tmp_path, GOOD, *changes)
    return "".join(f"{line}\n" for line in dag_lines(loaded.experiment, loaded.targets, NAMES))


def description(dag: str, name: str) -> list[str]:
    match = re.search(rf"SUBMIT-DESCRIPTION {name} {{\n(.*?)\n}}\n", dag, re.DOTALL)
    assert match is not None
    return [line.strip() for line in match[1].splitlines()]


def test_the_golden_dag(tmp_path: Path) -> None:
    assert text(tmp_path, *SMALL) == GOLDEN.read_text(encoding="utf-8")


def test_dagman_would_find_nothing_wrong_and_every_node_is_there(tmp_path: Path) -> None:
    loaded = read(tmp_path)
    graph = read_graph(text(tmp_path))
    assert graph.problems == ()
    assert len(graph.nodes) == node_count(loaded.experiment) == 320
    assert all(re.fullmatch(r"[A-Za-z0-9_-]+", name) for name in graph.nodes)
    assert len(graph.edges) == 40 * (3 + 4)
    assert graph.max_jobs == {"expanse": 4}
    assert {node.submit for node in graph.nodes.values()} <= set(graph.descriptions)


def test_vars_are_quoted_and_prepended(tmp_path: Path) -> None:
    lines = [line for line in text(tmp_path).splitlines() if line.startswith("VARS")]
    assert len(lines) == 320
    for line in lines:
        assert re.fullmatch(r'VARS [\w-]+ PREPEND( \w+="([^"\\]|\\["\\])*")+', line)


def test_resume_is_defined_where_it_is_asked_for_from_the_second_job_of_a_chain_on(tmp_path: Path) -> None:
    assert 'resume="1"' not in text(tmp_path)  # nothing asks: DAGMan would warn at every node
    asks = "request_gpus = 1", "request_gpus = 1\n  if defined resume\n    priority = 1\n  endif"
    graph = read_graph(text(tmp_path, asks))
    trained = {name: values for name, values in graph.variables.items() if not name.endswith("-eval")}
    assert {name for name, values in trained.items() if "resume" not in values} == {f"r{n:02d}-e00" for n in range(40)}


def test_every_kind_of_site_binds_its_jobs(tmp_path: Path) -> None:
    dag = text(tmp_path)
    own = "(TARGET.HasDocker =!= true)"
    wanted = {
        "expanse": 'TARGET.AnnexName == "expanse"',
        "delta": 'TARGET.AnnexName == "delta-big"',
        "syracuse": 'TARGET.GLIDEIN_ResourceName == "SU-ITS-CE2"',
        "pool": "TARGET.HasChirp",
    }
    for site, clause in wanted.items():
        lines = description(dag, f"train-{site}")
        assert f"requirements = {own} && ({clause})" in lines
        annexes = [line for line in lines if line.startswith("MY.TargetAnnexName")]
        assert annexes == (
            [f'MY.TargetAnnexName = "{"delta-big" if site == "delta" else site}"'] if "Annex" in clause else []
        )


def test_a_target_sites_file_gives_requirement_and_lines(tmp_path: Path) -> None:
    dag = text(tmp_path, ("  pool: {requirements: TARGET.HasChirp, ", "  ospool: {"))
    assert {"requirements = (TARGET.HasDocker =!= true) && (TARGET.IsOsg =?= true)", "+WantOsg = true"} <= set(
        description(dag, "train-ospool")
    )


def test_any_site_is_all_clauses_at_once(tmp_path: Path) -> None:
    changes = ("policy: shuffle", "policy: any"), ("{site.cpus}", "1"), ("{site.memory}", "1GB")
    lines = description(text(tmp_path, *changes), "train-any")
    [requirements] = [line for line in lines if line.startswith("requirements")]
    assert requirements.count("||") == 3
    annexes = 'IfThenElse(member(TARGET.AnnexName, {"expanse", "delta-big"}), TARGET.AnnexName, undefined)'
    assert f"MY.TargetAnnexName = {annexes}" in lines


def test_stage_and_site_lines_win_over_the_template(tmp_path: Path) -> None:
    dag = text(tmp_path, ("cap: 4", 'cap: 4, submit: "request_gpus = 2"'))
    assert [line for line in description(dag, "train-expanse") if "request_gpus" in line] == ["request_gpus = 2"]
    assert [line for line in description(dag, "evaluate-expanse") if "request_gpus" in line] == ["request_gpus = 0"]


def test_the_log_is_asked_to_say_where_a_job_runs_beside_what_the_user_asks(tmp_path: Path) -> None:
    ours = "GLIDEIN_ResourceName, SiteannexSite, AnnexName, EPSlurmJobId, Machine"
    assert f"ulog_execute_attrs = {ours}" in description(text(tmp_path), "train-expanse")
    lines = description(text(tmp_path, ("cap: 4", 'cap: 4, submit: "ulog_execute_attrs = Rack"')), "train-expanse")
    asked = [line for line in lines if line.startswith("ulog_execute_attrs")]
    assert asked == ["ulog_execute_attrs = Rack", f"ulog_execute_attrs = $(ulog_execute_attrs), {ours}"]


def test_epochs_per_job_finetuning_and_preparation_make_one_chain(tmp_path: Path) -> None:
    more = (
        "finetune: {command: python3 tune.py, epochs: 2}\n"
        "prepare: {command: python3 simulate.py, per: run, sites: [pool]}\nsubmit: |\n"
    )
    graph = read_graph(
        text(tmp_path, *SMALL, ("  epochs: 4", "  epochs: 4\n  epochs_per_job: 2"), ("submit: |\n", more))
    )
    chain = ["r00-prepare", "r00-e01", "r00-e03", "r00-f00", "r00-f01"]
    assert set(pairwise(chain)) <= graph.edges
    assert graph.nodes["r00-prepare"].submit == "prepare-pool"
    told = [(graph.variables[name]["first_epoch"], graph.variables[name]["epoch"]) for name in chain[1:]]
    assert told == [("0", "1"), ("2", "3"), ("0", "0"), ("1", "1")]


def test_one_preparation_for_all_runs(tmp_path: Path) -> None:
    graph = read_graph(text(tmp_path, ("submit: |\n", "prepare: {command: python3 fetch.py}\nsubmit: |\n")))
    assert {child for parent, child in graph.edges if parent == "prepare"} == {f"r{n:02d}-e00" for n in range(40)}
    told = description(
        text(tmp_path, ("submit: |\n", "prepare: {command: python3 fetch.py}\nsubmit: |\n")), "prepare-expanse"
    )
    assert "transfer_output_files = protein/attempts" in told
    assert any("SITEANNEX_RUN_DIR=protein " in line for line in told), "where the runner writes attempts/"
    changed = read(tmp_path, GOOD, ("submit: |\n", "prepare: {command: python3 fetch.py}\nsubmit: |\n"))
    first = json.loads(next(manifest_lines(changed.experiment)))
    assert first == {"node": "prepare", "stage": "prepare", "site": "expanse"}


COPY = StagedCopy("a" * 64, 25, f"/scratch/alice/.siteannex/data/{'a' * 64}", "data.tar")
BIG = ("  inputs: [train.py]", "  inputs: [train.py]\n  staged: [sets/data.tar, /big/x.tar]")


def test_where_an_input_is_staged_jobs_are_told_its_place_and_elsewhere_they_bring_it_along(tmp_path: Path) -> None:
    loaded = read(tmp_path, GOOD, BIG)
    at = {("expanse", "sets/data.tar"): COPY, ("expanse", "/big/x.tar"): COPY, ("pool", "sets/data.tar"): COPY}
    targets = with_copies(loaded.experiment, loaded.targets, lambda site, path: at.get((site, path)))
    dag = "\n".join(dag_lines(loaded.experiment, targets, NAMES))
    told = f'{{""path"":""{COPY.path}"",""sha256"":""{COPY.sha256}"",""bytes"":25}}'
    there = description(dag, "train-expanse")
    [inputs] = [line for line in there if line.startswith("transfer_input_files")]
    assert inputs == "transfer_input_files = train.py, protein/$(run_name)/checkpoints"
    [environment] = [line for line in there if line.startswith("environment")]
    assert f'SITEANNEX_STAGED={{""sets/data.tar"":{told},""x.tar"":{told}}}' in environment
    assert 'MY.SiteannexStagedAt = "/scratch/alice/.siteannex/data"' in there
    for elsewhere in ("delta", "pool"):  # a pool without annexes sees no site's files
        moved = description(dag, f"train-{elsewhere}")
        assert "transfer_input_files = train.py, sets/data.tar, /big/x.tar, protein/$(run_name)/checkpoints" in moved
        assert "STAGED" not in "".join(moved)
    assert "STAGED" not in "".join(description(dag, "evaluate-expanse"))


def test_hooks_keep_a_failed_job_failed(tmp_path: Path) -> None:
    hooks = 'hooks: {pre: "true", post: "true", final: "true"}\npolicy: shuffle'
    loaded = read(tmp_path, GOOD, ("policy: shuffle", hooks))
    scripts = hook_scripts(loaded.experiment)
    for name, arguments, status in [
        ("pre.sh", ["n", "d", "train", "0"], 0),
        ("post.sh", ["n", "d", "0"], 0),
        ("post.sh", ["n", "d", "86"], 86),
        ("post.sh", ["n", "d", "81"], 86),
        ("post.sh", ["n", "d", "-1004"], 1),
        ("final.sh", ["0", "0"], 0),
        ("final.sh", ["2", "1"], 1),
    ]:
        path = tmp_path / name
        path.write_text(scripts[name])
        assert subprocess.run(["/bin/sh", str(path), *arguments], check=False).returncode == status, name


def test_what_another_attempt_would_repeat_is_not_tried_again(tmp_path: Path) -> None:
    """DAGMan's UNLESS-EXIT takes one value: the POST script makes one of them."""
    loaded = read(tmp_path)
    dag = text(tmp_path, ("policy: shuffle", "prepare: {command: ./fetch}\npolicy: shuffle"))
    assert "RETRY ALL_NODES 3 UNLESS-EXIT 86\nSCRIPT POST ALL_NODES protein/hooks/judge.sh $RETURN\n" in dag
    script = tmp_path / "judge.sh"
    script.write_text(hook_scripts(loaded.experiment)["judge.sh"])
    judged = {
        "0": 0,
        "1": 1,
        "79": 79,
        "80": 86,
        "81": 86,
        "82": 86,
        "83": 83,
        "84": 84,
        "86": 86,
        "87": 87,
        "-1015": 1,
    }
    for status, wanted in judged.items():
        assert subprocess.run(["/bin/sh", str(script), status], check=False).returncode == wanted, status


def test_with_a_hook_of_the_users_each_node_has_one_post_script(tmp_path: Path) -> None:
    more = 'prepare: {command: ./fetch}\nhooks: {post: "true"}\npolicy: shuffle'
    graph = read_graph(text(tmp_path, *SMALL, ("policy: shuffle", more)))
    assert graph.problems == ()
    judged = {"prepare", *(f"r00-e0{epoch}-eval" for epoch in range(4))}
    assert {node for (node, when), script in graph.scripts.items() if when == "POST" and "judge" in script} == judged
    assert {node for node, when in graph.scripts if when == "POST"} == set(graph.nodes)


def test_nothing_is_judged_where_nothing_is_tried_again_or_the_runner_is_not_there(tmp_path: Path) -> None:
    never = text(tmp_path, ("policy: shuffle", "retries: 0\npolicy: shuffle"))
    assert ("\nRETRY " in never, "SCRIPT POST" in never) == (False, False)
    trained = "  command: python3 train.py --lr $(lr) --width $(width)\n", "  submit: executable = a\n"
    evaluated = 'evaluate: {command: python3 evaluate.py, submit: "request_gpus = 0"}\n', ""
    own = text(tmp_path, trained, evaluated)
    assert ("\nRETRY ALL_NODES 3\n" in own, "SCRIPT POST" in own) == (True, False)


@pytest.mark.parametrize(
    ("ended", "leaves"),
    [
        ("ExitBySignal = false; ExitCode = 0; NumJobStarts = 1", True),
        ("ExitBySignal = false; ExitCode = 1; NumJobStarts = 1", True),
        ("ExitBySignal = false; ExitCode = 87; NumJobStarts = 20", False),
        ("ExitBySignal = false; ExitCode = 87; NumJobStarts = 21", True),
        ("ExitBySignal = true; ExitSignal = 15; NumJobStarts = 1", False),
        ("ExitBySignal = true; ExitSignal = 15; NumJobStarts = 21", True),
        ("ExitBySignal = true; ExitSignal = 9; NumJobStarts = 1", True),
        ("ExitBySignal = false; ExitCode = 0; ExitSignal = 15; NumJobStarts = 2", True),
    ],
)
def test_a_job_that_its_site_ended_stays_in_the_queue(tmp_path: Path, ended: str, leaves: bool) -> None:
    [line] = [each for each in description(text(tmp_path), "train-delta") if each.startswith("on_exit_remove")]
    ad = classad2.ClassAd(f"[ {ended}; leaves = {line.partition('=')[2]} ]")
    assert ad.eval("leaves") is leaves


def test_on_exit_remove_of_the_users_own_holds(tmp_path: Path) -> None:
    dag = text(tmp_path, ("  request_gpus = 1\n", "  request_gpus = 1\n  on_exit_remove = ExitCode == 0\n"))
    lines = description(dag, "train-delta")
    assert [each for each in lines if each.startswith("on_exit_remove")] == ["on_exit_remove = ExitCode == 0"]


def test_early_stopping_skips_what_follows_in_its_own_stage(tmp_path: Path) -> None:
    stopping = "early_stopping: {metric: val_loss, patience: 2}\npolicy: shuffle"
    loaded = read(tmp_path, GOOD, ("policy: shuffle", stopping))
    dag = text(tmp_path, ("policy: shuffle", stopping))
    assert re.search(
        r"SCRIPT PRE r00-e01 protein/hooks/pre\.sh r00-e01 protein/r00 train 1( [\w-]+)?\nPRE_SKIP r00-e01 77\n", dag
    )
    assert "PRE_SKIP r00-e01-eval 77" in dag
    (tmp_path / "pre.sh").write_text(hook_scripts(loaded.experiment)["pre.sh"])
    (tmp_path / "r/checkpoints").mkdir(parents=True)
    argv = ["/bin/sh", str(tmp_path / "pre.sh"), "n", str(tmp_path / "r"), "train", "1"]
    assert subprocess.run(argv, check=False).returncode == 0
    (tmp_path / "r/checkpoints/stopped-finetune.json").touch()
    assert subprocess.run(argv, check=False).returncode == 0
    (tmp_path / "r/checkpoints/stopped-train.json").touch()
    assert subprocess.run(argv, check=False).returncode == 77


def test_the_manifest_has_every_node_and_equal_parameters_have_equal_hashes(tmp_path: Path) -> None:
    lines = [json.loads(line) for line in manifest_lines(read(tmp_path).experiment)]
    graph = read_graph(text(tmp_path))
    assert [line["node"] for line in lines] == list(graph.nodes)
    for line in lines:
        assert graph.nodes[line["node"]].submit == f"{line['stage']}-{line['site']}"
        assert graph.variables[line["node"]]["lr"] == str(line["parameters"]["lr"])
    hashes = {line["parameters_sha256"] for line in lines}
    assert len(hashes) == 20
    ordered = json.dumps(dict(sorted(lines[0]["parameters"].items())), separators=(",", ":"))
    assert hashlib.sha256(ordered.replace("0.1,", "0.10,", 1).encode()).hexdigest() == lines[0]["parameters_sha256"]


def test_writing_twice_gives_the_same_bytes_and_leaves_results_alone(tmp_path: Path) -> None:
    loaded = read(tmp_path)
    first = write_dag(loaded, default_dag(loaded), lambda: b"runner", tmp_path / "requests")
    kept = tmp_path / "protein/r00/checkpoints/epoch0000.ckpt"
    kept.write_text("weights")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert write_dag(loaded, default_dag(loaded), lambda: b"runner", tmp_path / "requests") == first
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert hashlib.sha256(first.dag.read_bytes()).hexdigest() == first.sha256
    assert (tmp_path / "protein/siteannex-epoch").read_bytes() == b"runner"
    assert "DAGMAN_MAX_JOBS_IDLE = 1000" in (tmp_path / "protein.config").read_text()


def test_throttles_reach_the_config(tmp_path: Path) -> None:
    limits = "throttles: {max_idle: 7, max_jobs: 9}\npolicy: shuffle"
    config = config_text(read(tmp_path, GOOD, ("policy: shuffle", limits)).experiment)
    assert "DAGMAN_MAX_JOBS_IDLE = 7\nDAGMAN_MAX_JOBS_SUBMITTED = 9\n" in config


def test_missing_inputs_and_readable_secrets_are_seen(tmp_path: Path) -> None:
    changes = (
        ("inputs: [train.py]", "inputs: [train.py, 'osdf:///x/data.tar', made.txt]"),
        (
            "{GREETING: it's fine}",
            "{KEY_X: {secret_file: key}}",
        ),
    )
    prepared = ("submit: |\n", "prepare: {command: make, outputs: [made.txt]}\nsubmit: |\n")
    loaded = read(tmp_path, GOOD, *changes, prepared)
    assert missing_inputs(loaded.experiment, tmp_path) == ["train: train.py", "environment.KEY_X: key"]
    (tmp_path / "train.py").touch()
    (tmp_path / "key").write_text("secret")
    (tmp_path / "key").chmod(0o644)
    assert missing_inputs(loaded.experiment, tmp_path) == []
    assert loose_secrets(loaded.experiment, tmp_path) == ["key"]
    dag = "".join(dag_lines(loaded.experiment, loaded.targets, NAMES))
    assert "SITEANNEX_SECRET_FILES=KEY_X=key" in dag


@pytest.mark.parametrize(
    "tracker", ["wandb: {project: p, mode: offline}", "mlflow: {uri: 'http://t:5000', parent_run_id: ab}"]
)
def test_trackers_are_told_by_environment(tmp_path: Path, tracker: str) -> None:
    dag = text(tmp_path, ("policy: shuffle", f"tracking: {{{tracker}}}\npolicy: shuffle"))
    [line] = [line for line in description(dag, "train-expanse") if line.startswith("environment")]
    wanted = {
        "wandb": ["WANDB_PROJECT=p", "WANDB_MODE=offline", "WANDB_RUN_ID='$(run_id)'", "WANDB_RUN_GROUP=protein"],
        "mlflow": ["MLFLOW_TRACKING_URI=http://t:5000", "MLFLOW_PARENT_RUN_ID=ab", "MLFLOW_EXPERIMENT_NAME=protein"],
    }[tracker.split(":")[0]]
    assert all(f" {each}" in line.replace('"', " ") for each in wanted)


def test_results_of_one_run_are_never_taken_for_anothers(tmp_path: Path) -> None:
    loaded = read(tmp_path)
    write_dag(loaded, default_dag(loaded), lambda: b"", tmp_path / "requests")
    other = read(tmp_path, GOOD, ("seed: 20261129", "seed: 2"))
    write_dag(other, default_dag(other), lambda: b"", tmp_path / "requests")  # nothing was trained yet
    (tmp_path / "protein/r07/checkpoints/epoch0000.ckpt").touch()
    before = default_dag(loaded).read_bytes()
    with pytest.raises(AnnexError, match="experiment-changed: r07 would now be a run with seed"):
        write_dag(loaded, default_dag(loaded), lambda: b"", tmp_path / "requests")
    assert default_dag(loaded).read_bytes() == before
    longer = read(tmp_path, GOOD, ("seed: 20261129", "seed: 2"), ("epochs: 4", "epochs: 8"), ("gpus = 1", "gpus = 2"))
    assert write_dag(longer, default_dag(longer), lambda: b"", tmp_path / "requests").nodes == 640
