import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[3] / "examples" / "train" / "train.py"


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("train_example", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


train = load()


def run(out: Path, *arguments: str) -> dict[str, Any]:
    train.main(["--sequences", "60", "--out", str(out), *arguments])
    metrics: dict[str, Any] = json.loads((out / "metrics.json").read_text())
    return metrics


@pytest.mark.parametrize("name", list(train.new_parameters(0)))
def test_each_gradient_is_the_slope_of_the_loss(name: str) -> None:
    parameters = train.new_parameters(3)
    contexts, targets = train.windows(train.make_sequences(3, 2, 16)[0])
    gradient = train.loss_and_gradients(parameters, contexts, targets)[1][name]
    rng = np.random.RandomState(0)
    for _ in range(12):
        # entries that matter: where the gradient is largest, and one at random
        flat = int(np.abs(gradient).argmax()) if _ == 0 else rng.randint(gradient.size)
        at = np.unravel_index(flat, gradient.shape)
        kept, step = parameters[name][at], 1e-5
        parameters[name][at] = kept + step
        above = train.loss_and_gradients(parameters, contexts, targets)[0]
        parameters[name][at] = kept - step
        below = train.loss_and_gradients(parameters, contexts, targets)[0]
        parameters[name][at] = kept
        assert gradient[at] == pytest.approx((above - below) / (2 * step), rel=1e-5, abs=1e-9)


def test_the_loss_falls_below_guessing_and_stays_above_the_floor(tmp_path: Path) -> None:
    metrics = run(tmp_path, "--epochs", "4", "--sequences", "400")
    losses = metrics["loss_per_epoch"]
    assert losses == sorted(losses, reverse=True)
    assert metrics["loss_floor"] < losses[-1] < metrics["loss_by_guessing"] - 0.5


def test_a_resumed_run_is_the_straight_run_bit_for_bit(tmp_path: Path) -> None:
    straight = run(tmp_path / "straight", "--epochs", "4")
    run(tmp_path / "first", "--epochs", "2")
    resumed = run(tmp_path / "second", "--epochs", "4", "--resume", str(tmp_path / "first/checkpoint-epoch2.npz"))
    assert resumed["loss_per_epoch"] == straight["loss_per_epoch"]
    assert resumed["resumed_at_epoch"] == 2
    with (
        np.load(tmp_path / "straight/checkpoint-epoch4.npz") as left,
        np.load(tmp_path / "second/checkpoint-epoch4.npz") as right,
    ):
        assert left.files == right.files
        for name in left.files:
            assert name == "facts" or left[name].tobytes() == right[name].tobytes()


def test_another_seed_is_another_run(tmp_path: Path) -> None:
    assert run(tmp_path / "a", "--seed", "1")["loss_per_epoch"] != run(tmp_path / "b", "--seed", "2")["loss_per_epoch"]


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    run(tmp_path, "--epochs", "1")
    with pytest.raises(SystemExit, match="made with"):
        run(tmp_path, "--epochs", "2", "--seed", "9", "--resume", str(tmp_path / "checkpoint-epoch1.npz"))


def test_each_epoch_leaves_a_checkpoint_and_nothing_half_written(tmp_path: Path) -> None:
    run(tmp_path, "--epochs", "2")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "checkpoint-epoch1.npz",
        "checkpoint-epoch2.npz",
        "metrics.json",
    ]


def test_the_metrics_say_where_it_ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_CONDOR_SLOT", "slot1_2")
    monkeypatch.setenv("_CONDOR_AssignedGPUs", "GPU-a0223334")
    where = run(tmp_path, "--epochs", "1")["where"]
    assert (where["slot"], where["assigned_gpus"]) == ("slot1_2", "GPU-a0223334")


def test_it_runs_as_a_program_and_says_what_it_does(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(SCRIPT), "--epochs", "1", "--sequences", "20"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[1].startswith("epoch 1: loss ")
