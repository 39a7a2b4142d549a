"""The epoch runner as jobs use it: the shipped file, real commands, real signals."""

import hashlib
import json
import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from siteannex.training.sidecar import SideCar
from tests.unit.epoch_ground import Ground, all_steps


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


# Going on


def test_an_epoch_leaves_a_checkpoint_and_a_side_car_that_tells_all_about_it(ground: Ground) -> None:
    ended = ground.attempt(0)
    assert ended.status == 0, ended.output
    assert ground.names() == ["epoch000.ckpt", "epoch000.ckpt.provenance.json"]
    sidecar = SideCar.model_validate(ground.sidecar("epoch000.ckpt"))
    assert sidecar.checkpoint.sha256 == ground.sha256("epoch000.ckpt")
    assert sidecar.checkpoint.complete
    assert (sidecar.parent.kind, sidecar.parent.sha256) == ("none", None)
    assert (sidecar.run.index, sidecar.run.seed, sidecar.run.parameters) == (3, 17, {"lr": 0.001, "width": 8})
    assert sidecar.run.parameters_sha256 == hashlib.sha256(b'{"lr":0.001,"width":8}').hexdigest()
    assert sidecar.where.targeted_site == "delta"
    assert sidecar.software.command == {"versions": {"toy": "1.0"}, "batch": 4}
    assert sidecar.training.metrics == {"val_loss": 1.0}
    assert sidecar.training.start_up_s is not None


def test_each_epoch_goes_on_from_the_one_before_and_names_the_file_it_really_loaded(ground: Ground) -> None:
    ground.train(3)
    assert ground.steps("epoch002.ckpt") == all_steps(3)
    for epoch in (1, 2):
        parent = ground.sidecar(f"epoch00{epoch}.ckpt")["parent"]
        assert parent == {
            "file": f"epoch00{epoch - 1}.ckpt",
            "kind": "epoch",
            "sha256": ground.sha256(f"epoch00{epoch - 1}.ckpt"),
        }


def test_one_job_may_train_several_epochs_each_with_its_own_side_car(ground: Ground) -> None:
    ended = ground.attempt(2, env={"SITEANNEX_FIRST_EPOCH": "0"})
    assert ended.status == 0
    assert [row["epoch"] for row in ended.named("epoch.completed")] == [0, 1, 2]
    assert ground.steps("epoch002.ckpt") == all_steps(3)
    assert ground.sidecar("epoch002.ckpt")["parent"]["sha256"] == ground.sha256("epoch001.ckpt")


@pytest.mark.parametrize(("policy", "loaded"), [("best", "epoch000.ckpt"), ("last", "epoch001.ckpt")])
def test_the_policy_decides_between_the_best_and_the_last(ground: Ground, policy: str, loaded: str) -> None:
    ground.train(2, toy={"losses": {"0": 1.0, "1": 2.0}})
    ended = ground.attempt(2, env={"SITEANNEX_RESUME_FROM": policy})
    assert ended.status == 0
    assert ground.loaded() == loaded
    # The best need not be the newest, and still no epoch is trained twice.
    assert [row["epoch"] for row in ended.named("epoch.completed")] == [2]


def test_where_the_best_did_not_come_back_the_last_is_taken(ground: Ground) -> None:
    ground.train(3, toy={"losses": {"0": 3.0, "1": 1.0, "2": 2.0}})
    (ground.checkpoints / "epoch001.ckpt").unlink()
    ended = ground.attempt(3)
    assert ended.status == 0
    assert ground.loaded() == "epoch002.ckpt"
    assert ended.named("checkpoint.set_aside")[0]["reason"] == "missing"


def test_a_metric_may_be_better_when_it_is_higher(ground: Ground) -> None:
    ground.train(2, toy={"losses": {"0": 1.0, "1": 2.0}})
    assert ground.attempt(2, env={"SITEANNEX_METRIC_MODE": "max"}).status == 0
    assert ground.loaded() == "epoch001.ckpt"


def flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


@pytest.mark.parametrize("damage", [flip_a_byte, cut_short])
def test_a_damaged_checkpoint_is_set_aside_and_its_epoch_trained_again(ground: Ground, damage: Any) -> None:
    ground.train(3)
    damage(ground.checkpoints / "epoch002.ckpt")
    ended = ground.attempt(3)
    assert ended.status == 0, ended.output
    assert ground.loaded() == "epoch001.ckpt"
    assert ended.named("checkpoint.set_aside")[0]["file"] == "epoch002.ckpt"
    assert ended.named("epoch.repeated")[0]["first"] == 2
    assert ground.steps("epoch003.ckpt") == all_steps(4)
    assert "epoch002.ckpt.damaged" in ground.names()
    assert ground.sidecar("epoch002.ckpt")["checkpoint"]["sha256"] == ground.sha256("epoch002.ckpt")


def test_a_file_without_a_side_car_is_never_loaded(ground: Ground) -> None:
    ground.train(1)
    (ground.checkpoints / "epoch005.ckpt").write_text("half of a checkpoi")
    assert ground.attempt(1).status == 0
    assert ground.loaded() == "epoch000.ckpt"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"checkpoint": {}}', '{"checkpoint": {"file": 3}, "epoch": "x"}'])
def test_a_side_car_that_cannot_be_read_is_as_none(ground: Ground, text: str) -> None:
    ground.train(2)
    (ground.checkpoints / "epoch001.ckpt.provenance.json").write_text(text)
    ended = ground.attempt(1)
    assert ended.status == 0, ended.output
    assert ground.steps("epoch001.ckpt") == all_steps(2)


def test_without_any_sound_checkpoint_a_later_epoch_is_refused_rather_than_begun_from_nothing(ground: Ground) -> None:
    ground.train(1)
    flip_a_byte(ground.checkpoints / "epoch000.ckpt")
    (ground.folder / "started").unlink()
    ended = ground.attempt(1)
    assert ended.status == 81
    assert "epoch 1 needs a checkpoint" in ended.output
    assert not (ground.folder / "started").exists()


def test_an_epoch_that_is_finished_is_not_trained_again_pruned_or_not(ground: Ground) -> None:
    ground.train(2)
    for pruned in (False, True):
        if pruned:
            (ground.checkpoints / "epoch001.ckpt").unlink()
        (ground.folder / "started").unlink(missing_ok=True)
        ended = ground.attempt(1)
        assert ended.status == 0
        assert ended.named("epoch.skipped")[0]["reason"] == "epoch 1 is already finished"
        assert not (ground.folder / "started").exists()


def test_a_finished_epoch_that_came_back_damaged_is_trained_again(ground: Ground) -> None:
    ground.train(2)
    cut_short(ground.checkpoints / "epoch001.ckpt")
    assert ground.attempt(1).status == 0
    assert ground.steps("epoch001.ckpt") == all_steps(2)


def test_the_checkpoint_of_another_run_is_refused(ground: Ground) -> None:
    ground.train(1)
    ended = ground.attempt(1, env={"SITEANNEX_RUN_ID": "another"})
    assert ended.status == 80
    assert "belongs to run" in ended.output


def test_finetuning_goes_on_from_the_best_of_training(ground: Ground) -> None:
    ground.train(2, toy={"losses": {"0": 1.0, "1": 2.0}})
    ended = ground.attempt(
        0, env={"SITEANNEX_STAGE": "finetune"}, command=("sh", "-c", "echo $SITEANNEX_RESUME > started; exit 3")
    )
    assert ended.status == 3
    assert ground.loaded() == "epoch000.ckpt"


def test_the_first_epoch_may_start_from_a_given_checkpoint(ground: Ground) -> None:
    (ground.folder / "given.ckpt").write_text('{"steps": [], "step": 0}')
    ended = ground.attempt(0, env={"SITEANNEX_INITIAL_CHECKPOINT": "given.ckpt"})
    assert ended.status == 0
    parent = ground.sidecar("epoch000.ckpt")["parent"]
    assert parent["kind"] == "initial"
    assert parent["sha256"] == hashlib.sha256((ground.folder / "given.ckpt").read_bytes()).hexdigest()


# Warnings


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_warning_saves_the_middle_of_the_epoch_and_nothing_is_lost_or_done_twice(ground: Ground, number: int) -> None:
    ground.train(1)
    ended = ground.interrupt(1, number, {"pause": [1, 3]})
    assert ended.status == 85, ended.output
    assert not ended.named("epoch.completed")
    midway = ground.sidecar("time.ckpt")
    assert not midway["checkpoint"]["complete"]
    ended = ground.attempt(1)
    assert ended.status == 0, ended.output
    assert ground.loaded() == "time.ckpt"
    assert ground.steps("epoch001.ckpt") == all_steps(2)
    # The file has gone, what it was stays in the chain.
    assert "time.ckpt" not in ground.names()
    sha256 = midway["checkpoint"]["sha256"]
    assert ground.sidecar("epoch001.ckpt")["parent"] == {"file": "time.ckpt", "kind": "time", "sha256": sha256}
    assert ground.sidecar(f"time.ckpt.{sha256[:12]}")["parent"]["sha256"] == ground.sha256("epoch000.ckpt")


def test_an_epoch_interrupted_twice_is_still_trained_once(ground: Ground) -> None:
    assert ground.interrupt(0, signal.SIGTERM, {"pause": [0, 1]}).status == 85
    assert ground.interrupt(0, signal.SIGTERM, {"pause": [0, 4]}).status == 85
    assert ground.attempt(0).status == 0
    assert ground.steps("epoch000.ckpt") == all_steps(1)


def test_a_damaged_midway_checkpoint_costs_only_the_way(ground: Ground) -> None:
    ground.train(1)
    assert ground.interrupt(1, signal.SIGTERM, {"pause": [1, 3]}).status == 85
    flip_a_byte(ground.checkpoints / "time.ckpt")
    assert ground.attempt(1).status == 0
    assert ground.loaded() == "epoch000.ckpt"
    assert ground.steps("epoch001.ckpt") == all_steps(2)


def test_a_warning_after_the_first_of_two_epochs_keeps_the_first(ground: Ground) -> None:
    env = {"SITEANNEX_FIRST_EPOCH": "0"}
    assert ground.interrupt(1, signal.SIGTERM, {"pause": [1, 2]}, env=env).status == 85
    ended = ground.attempt(1, env=env)
    assert ended.status == 0
    assert [row["epoch"] for row in ended.named("epoch.completed")] == [1]
    assert ground.steps("epoch001.ckpt") == all_steps(2)


def test_a_command_that_heeds_no_warning_is_ended_and_says_so_by_its_own_status(ground: Ground) -> None:
    options = ("--grace", "0.3", "--gpu-every", "0")
    ended = ground.interrupt(0, signal.SIGTERM, {"pause": [0, 2], "deaf": True}, options=options)
    assert ended.status == 87
    assert ground.names() == []


def test_it_ends_before_htcondor_kills_so_that_what_was_saved_on_the_way_goes_back(ground: Ground) -> None:
    (ground.folder / "machine.ad").write_text("MachineMaxVacateTime = 9\n")
    ended = ground.interrupt(
        0,
        signal.SIGTERM,
        {"save": [0, 1], "pause": [0, 2], "deaf": True},
        env={"_CONDOR_MACHINE_AD": "machine.ad"},
        options=("--grace", "50", "--gpu-every", "0"),
    )
    assert ended.status == 85, ended.output
    assert ended.named("signal.received")[0]["grace_s"] == 1.0
    assert ground.attempt(0).status == 0
    assert ground.steps("epoch000.ckpt") == all_steps(1)


def test_nothing_the_command_started_runs_on(ground: Ground) -> None:
    command = ("sh", "-c", "sleep 300 & echo $! > child; wait")
    process = ground.start(0, command=command, options=("--grace", "0.2", "--gpu-every", "0"))
    while not (ground.folder / "child").exists() or not (ground.folder / "child").read_text().strip():
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert ground.finish(process).status == 87
    child = Path("/proc") / (ground.folder / "child").read_text().strip() / "stat"
    assert not child.exists() or child.read_text().rpartition(")")[2].split()[0] == "Z"


# Failures


def test_a_loss_that_is_not_a_number_ends_the_epoch_at_once_with_its_own_status(ground: Ground) -> None:
    ground.train(1)
    ended = ground.attempt(1, toy={"nan": [1, 2]})
    assert ended.status == 86
    assert "train_loss is nan in epoch 1" in ended.output
    assert ended.named("epoch.failed")
    assert ground.names() == ["epoch000.ckpt", "epoch000.ckpt.provenance.json"]


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", '"nan"', '"inf"'])
def test_a_checkpoint_with_such_a_loss_is_not_kept(ground: Ground, word: str) -> None:
    row = f'{{"checkpoint": "bad.ckpt", "epoch": 0, "val_loss": {word}}}'
    command = ("sh", "-c", f"echo x > $SITEANNEX_CHECKPOINTS/bad.ckpt; echo '{row}' >> $SITEANNEX_METRICS")
    assert ground.attempt(0, command=command).status == 86
    assert ground.names() == []


def test_other_metrics_may_be_infinite(ground: Ground) -> None:
    row = '{"checkpoint": "a.ckpt", "epoch": 0, "val_loss": 1.5, "perplexity": Infinity}'
    command = ("sh", "-c", f"echo x > $SITEANNEX_CHECKPOINTS/a.ckpt; echo '{row}' >> $SITEANNEX_METRICS")
    assert ground.attempt(0, command=command).status == 0
    assert ground.sidecar("a.ckpt")["training"]["metrics"] == {"val_loss": 1.5, "perplexity": "inf"}


@pytest.mark.parametrize(
    ("script", "status", "told"),
    [
        ("exit 3", 3, "with status 3"),
        ("exit 85", 83, "with status 85"),
        ("kill -9 $$", 83, "by signal 9"),
        ("true", 82, "reported no checkpoint of epoch 1"),
        ("""echo '{"checkpoint": "a", "epoch": 0}' >> $SITEANNEX_METRICS""", 82, "checkpoint a was reported"),
        ("""echo '{"checkpoint": "../a", "epoch": 0}' >> $SITEANNEX_METRICS""", 82, "plain file name"),
        ("""echo '{"checkpoint": "a"}' >> $SITEANNEX_METRICS""", 82, "and an epoch"),
        ("""echo '{"checkpoint": "a", "epoch": 1}' >> $SITEANNEX_METRICS""", 82, "epoch 0 comes next"),
        (
            """cd $SITEANNEX_CHECKPOINTS; echo x > a; echo '{"checkpoint": "a", "epoch": 0}' >> $SITEANNEX_METRICS
            sleep 1; echo '{"checkpoint": "a", "epoch": 1}' >> $SITEANNEX_METRICS""",
            82,
            "each epoch needs a name of its own",
        ),
        ("echo nonsense >> $SITEANNEX_METRICS", 82, "reported no checkpoint"),
    ],
)
def test_each_way_to_fail_has_its_status_and_its_words(ground: Ground, script: str, status: int, told: str) -> None:
    ended = ground.attempt(1, command=("sh", "-c", script), env={"SITEANNEX_FIRST_EPOCH": "0"})
    assert ended.status == status
    assert told in ended.output
    assert ended.named("attempt.ended")[0]["status"] == status


@pytest.mark.parametrize(
    ("env", "told"),
    [
        ({"SITEANNEX_EPOCH": "two"}, "SITEANNEX_EPOCH is not a whole number: 'two'"),
        ({"SITEANNEX_FIRST_EPOCH": "4"}, "are not a range"),
        ({"SITEANNEX_PARAMETERS": "{"}, "SITEANNEX_PARAMETERS is not JSON"),
        ({"SITEANNEX_PARAMETERS": "[1]"}, "SITEANNEX_PARAMETERS is not a JSON object"),
        ({"SITEANNEX_STAGE": "trian"}, "SITEANNEX_STAGE is 'trian', not one of"),
        ({"SITEANNEX_SECRET_FILES": "WORD=nowhere"}, "the secret file of WORD: No such file"),
    ],
)
def test_what_it_is_told_wrongly_is_named(ground: Ground, env: dict[str, str], told: str) -> None:
    ended = ground.attempt(0, env=env)
    assert ended.status == 80
    assert told in ended.output


def test_a_missing_command_and_a_missing_program_are_named(ground: Ground) -> None:
    assert "no command" in ground.attempt(0, command=()).output
    ended = ground.attempt(0, command=("no-such-program",))
    assert (ended.status, "cannot start no-such-program" in ended.output) == (80, True)


def test_an_epoch_counts_when_its_checkpoint_is_there_though_the_command_then_fails(ground: Ground) -> None:
    ended = ground.attempt(0, toy={"status": 9})
    assert ended.status == 0
    assert ended.named("command.failed_late") == [{"returned": 9}]


def test_a_full_disk_is_told_and_leaves_no_half_side_car(ground: Ground) -> None:
    (ground.folder / "run").mkdir()
    script = 'mount -t tmpfs -o size=64k tiny run && mkdir run/checkpoints && "$@"; s=$?; ls run/checkpoints; exit $s'
    within = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh")
    row = '{"checkpoint": "a.ckpt", "epoch": 0, "val_loss": 1.0}'
    fill = "dd if=/dev/zero of=$SITEANNEX_CHECKPOINTS/a.ckpt bs=1k 2>/dev/null"
    metrics = "exec 3>>$SITEANNEX_METRICS; echo '#' >&3"
    ended = ground.attempt(0, within=within, command=("sh", "-c", f"{metrics}; {fill}; echo '{row}' >&3"))
    assert ended.status == 84, ended.output
    assert "No space left on device" in ended.output
    assert ended.output.splitlines()[-1] == "a.ckpt"


# Where it ran


def test_the_job_and_the_machine_are_known_from_htcondors_own_files(ground: Ground) -> None:
    (ground.folder / "job.ad").write_text(
        'ClusterId = 4711\nProcId = 2\nNumShadowStarts = 3\nGlobalJobId = "ap.lab#4711.2#1700000000"\n'
    )
    gpu = (
        '[ DeviceName = "NVIDIA A40"; DeviceUuid = "a0223334-0000-1111-2222-333344445555"; Id = "GPU-a0223334"; '
        "DriverVersion = 12.2; GlobalMemoryMb = 45634; Capability = 8.6 ]"
    )
    (ground.folder / "machine.ad").write_text(
        f'Name = "slot1_2@ep99@c1.lab"\nAnnexName = "delta"\nSiteannexSite = "delta"\nGPUs_GPU_a0223334 = {gpu}\n'
    )
    env = {"_CONDOR_JOB_AD": "job.ad", "_CONDOR_MACHINE_AD": "machine.ad", "_CONDOR_SCRATCH_DIR": "."}
    ended = ground.attempt(0, env=env)
    assert ended.status == 0, ended.output
    sidecar = SideCar.model_validate(ground.sidecar("epoch000.ckpt"))
    assert sidecar.attempt.model_dump() == {
        "node": "r03-train-e0",
        "retry": 0,
        "start": 3,
        "job": {"cluster": 4711, "proc": 2, "schedd": "ap.lab"},
    }
    assert (sidecar.where.site, sidecar.where.slot) == ("delta", "slot1_2@ep99@c1.lab")
    assert sidecar.where.advertised_gpus[0].model_dump() == {
        "uuid": "a0223334-0000-1111-2222-333344445555",
        "model": "NVIDIA A40",
        "driver": "12.2",
        "memory_mib": 45634.0,
    }
    assert sidecar.training.transfer_in_s is not None
    assert [path.name for path in ground.attempts.glob("*.ndjson")] == ["r03-train-e0.4711.3.0.ndjson"]


def test_only_what_this_job_made_goes_back_and_every_side_car(ground: Ground) -> None:
    for epoch in range(2):
        (ground.folder / "job.ad").write_text(f'ClusterId = {epoch + 1}\nProcId = 0\nGlobalJobId = "ap#{epoch}#1"\n')
        assert ground.attempt(epoch, env={"_CONDOR_JOB_AD": "job.ad"}).status == 0
    assert ground.names() == [
        "epoch000.ckpt.provenance.json",
        "epoch001.ckpt",
        "epoch001.ckpt.provenance.json",
    ]


SMI = """#!/bin/sh
case $1 in
*name*) printf '%s\\n' '0, GPU-aaaa-1, NVIDIA A40, 535.1, 46068' '1, GPU-bbbb-2, NVIDIA A40, 535.1, 46068' ;;
*) printf '%s\\n' '0, GPU-aaaa-1, 90, 1000, 250.5, 1400' '1, GPU-bbbb-2, 10, [N/A], 30.0, 300' ;;
esac
"""


@pytest.mark.parametrize("visible", ["GPU-aaaa", "0"])
def test_this_jobs_gpus_are_sampled_and_no_others(ground: Ground, visible: str) -> None:
    tools = ground.folder / "tools"
    tools.mkdir()
    (tools / "nvidia-smi").write_text(SMI)
    (tools / "nvidia-smi").chmod(0o755)
    env = {"PATH": f"{tools}:{os.environ['PATH']}", "CUDA_VISIBLE_DEVICES": visible}
    ended = ground.attempt(0, env=env, options=("--gpu-every", "0.01"))
    assert ended.status == 0
    sidecar = SideCar.model_validate(ground.sidecar("epoch000.ckpt"))
    assert [gpu.model_dump() for gpu in sidecar.where.gpus] == [
        {"uuid": "GPU-aaaa-1", "model": "NVIDIA A40", "driver": "535.1", "memory_mib": 46068.0}
    ]
    readings = ended.named("attempt.ended")[0]["gpu"]["GPU-aaaa-1"]
    assert (readings["utilization_percent"]["mean"], readings["power_w"]["max"]) == (90.0, 250.5)


# The record


def test_events_form_a_chain_in_which_a_change_shows(ground: Ground) -> None:
    ended = ground.attempt(0)
    assert [event["type"] for event in ended.events] == [
        "attempt.started",
        "checkpoint.chosen",
        "epoch.started",
        "command.started",
        "command.ready",
        "checkpoint.written",
        "epoch.completed",
        "attempt.ended",
    ]
    previous = ""
    for number, event in enumerate(ended.events):
        said = event.pop("hash")
        text = json.dumps(event, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        assert hashlib.sha256(text.encode()).hexdigest() == said
        assert (event["prev_hash"], event["seq"]) == (previous, number)
        previous = said


def test_a_second_start_in_the_same_sandbox_has_a_file_of_its_own(ground: Ground) -> None:
    assert ground.interrupt(0, signal.SIGTERM, {"pause": [0, 1]}).status == 85
    assert ground.attempt(0).status == 0
    assert sorted(path.name for path in ground.attempts.glob("*.ndjson")) == [
        "r03-train-e0.0.0.0.ndjson",
        "r03-train-e0.0.0.1.ndjson",
    ]


def test_a_secret_reaches_the_command_and_no_file(ground: Ground) -> None:
    (ground.folder / "key").write_text("opensesame\n")
    assert ground.attempt(0, env={"SITEANNEX_SECRET_FILES": "WORD=key"}).status == 0
    assert (ground.folder / "started").read_text().endswith("opensesame")
    for path in (ground.folder / "run").rglob("*"):
        assert path.is_dir() or b"opensesame" not in path.read_bytes()


# Other jobs


def staged(ground: Ground, content: bytes, **said: object) -> dict[str, str]:
    """A copy at the site, and what the job is told of it."""
    copy = ground.folder / "site" / "copy"
    copy.parent.mkdir(exist_ok=True)
    copy.write_bytes(content)
    told = {"path": str(copy), "sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content), **said}
    return {"SITEANNEX_STAGED": json.dumps({"sets/data.bin": told})}


def test_a_staged_input_is_read_where_it_would_have_been_brought(ground: Ground) -> None:
    env = staged(ground, b"big")
    ended = ground.attempt(0, env=env)
    assert ended.status == 0, ended.output
    assert (ground.folder / "sets/data.bin").is_symlink()
    assert (ground.folder / "sets/data.bin").read_bytes() == b"big"
    assert ended.named("inputs.staged")[0]["verify_s"] >= 0
    assert ground.attempt(1, env=env).status == 0, "also in a sandbox where it was linked before"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"path": "/nowhere/copy"}, "it is gone"),
        ({"bytes": 4}, "3 bytes, not 4"),
        ({"sha256": "0" * 64}, "its sha256 is another"),
    ],
)
def test_a_staged_copy_that_is_not_what_it_was_is_never_read(ground: Ground, said: dict[str, Any], told: str) -> None:
    ended = ground.attempt(0, env=staged(ground, b"big", **said))
    assert ended.status == 88
    assert told in ended.output
    assert not (ground.folder / "started").exists()


def test_the_sum_of_a_staged_copy_may_be_left_out(ground: Ground) -> None:
    env = {**staged(ground, b"big", sha256="0" * 64), "SITEANNEX_STAGED_CHECK": "size"}
    assert ground.attempt(0, env=env).status == 0


def test_early_stopping_ends_the_run_and_the_epochs_that_follow_do_nothing(ground: Ground) -> None:
    env = {"SITEANNEX_EARLY_STOPPING": '{"metric": "val_loss", "patience": 2, "min_delta": 0.01, "mode": "min"}'}
    toy = {"losses": {"0": 1.0, "1": 0.999, "2": 1.1}}
    for epoch in range(2):
        assert ground.attempt(epoch, toy=toy, env=env).status == 0
        assert "stopped-train.json" not in ground.names()
    assert ground.attempt(2, toy=toy, env=env).status == 0
    assert json.loads((ground.checkpoints / "stopped-train.json").read_text())["epoch"] == 2
    ended = ground.attempt(3, toy=toy, env=env)
    assert (ended.status, ended.named("epoch.skipped")[0]["reason"]) == (0, "the run was stopped early")
    # Finetuning is another stage: it goes on from the best.
    ended = ground.attempt(0, toy=toy, env={**env, "SITEANNEX_STAGE": "finetune"})
    assert (ended.status, [row["epoch"] for row in ended.named("epoch.completed")]) == (0, [0])


def test_an_evaluation_gets_the_sound_checkpoint_of_its_epoch_and_needs_no_gpu(ground: Ground) -> None:
    ground.train(2)
    row = '{"epoch": 1, "test_loss": 0.25}'
    command = ("sh", "-c", f"echo $SITEANNEX_RESUME > started; echo '{row}' >> $SITEANNEX_METRICS")
    ended = ground.attempt(1, env={"SITEANNEX_STAGE": "evaluate"}, command=command, options=())
    assert ended.status == 0
    assert ground.loaded() == "epoch001.ckpt"
    told = ended.named("evaluate.ended")[0]
    assert told["metrics"] == [{"epoch": 1, "test_loss": 0.25}]
    assert told["checkpoint"]["sha256"] == ground.sha256("epoch001.ckpt")
    env = {"SITEANNEX_STAGE": "evaluate", "SITEANNEX_TRAINED_STAGE": "finetune"}
    assert ground.attempt(1, env=env, command=command).status == 81
    flip_a_byte(ground.checkpoints / "epoch001.ckpt")
    assert ground.attempt(1, env={"SITEANNEX_STAGE": "evaluate"}, command=command).status == 81


def test_a_preparation_knows_no_epochs(ground: Ground) -> None:
    env = {"SITEANNEX_STAGE": "prepare", "SITEANNEX_EPOCH": ""}
    assert ground.attempt(0, env=env, command=("sh", "-c", "echo made > data")).status == 0
    assert (ground.folder / "data").read_text() == "made\n"


def test_data_is_unpacked_first_and_the_time_it_took_is_told(ground: Ground) -> None:
    (ground.folder / "words.txt").write_text("data")
    assert os.system(f"cd {ground.folder} && tar -czf data.tar.gz words.txt && rm words.txt") == 0  # noqa: S605
    ended = ground.attempt(0, options=("--unpack", "data.tar.gz", "--gpu-every", "0"))
    assert ended.status == 0
    assert (ground.folder / "words.txt").read_text() == "data"
    assert ground.sidecar("epoch000.ckpt")["training"]["unpack_s"] >= 0


# Tracking servers


def test_a_tracking_server_that_does_not_answer_is_told_and_training_goes_on(ground: Ground) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mlflow:
        with socket.create_server(("127.0.0.1", 0)) as gone:
            closed = gone.getsockname()[1]
        env = {
            "MLFLOW_TRACKING_URI": f"http://127.0.0.1:{mlflow.getsockname()[1]}",
            "WANDB_PROJECT": "toy",
            "WANDB_BASE_URL": f"http://127.0.0.1:{closed}",
        }
        ended = ground.attempt(0, env=env)
    assert ended.status == 0, ended.output
    told = {row["server"]: row["wrong"] for row in ended.named("tracking.checked")}
    assert told["MLflow"] is None
    assert told["W&B"].endswith("Connection refused")
    assert "W&B at http://127.0.0.1" in ended.output


@pytest.mark.parametrize(
    "env", [{}, {"MLFLOW_TRACKING_URI": "file:///runs"}, {"WANDB_PROJECT": "toy", "WANDB_MODE": "offline"}]
)
def test_nothing_is_tried_where_nothing_has_to_be_reached(ground: Ground, env: dict[str, str]) -> None:
    assert ground.attempt(0, env=env).named("tracking.checked") == []
