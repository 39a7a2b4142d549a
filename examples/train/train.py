#!/usr/bin/env python3
"""Train a small protein-sequence language model, for real, on the CPU.

The model reads the last CONTEXT residues and predicts the next one: an embedding, one hidden layer, a softmax; Adam,
with gradients written out by hand. The sequences are made from the seed by a known rule, so there is something to learn
and a floor that the loss cannot go below.

Needs Python 3.8 and numpy, nothing else: it runs on whatever node an annex gives it. GPUs are reported, not used.

    train.py --seed 7 --epochs 3 --out run7            # writes run7/checkpoint-epoch{1,2,3}.npz and run7/metrics.json
    train.py --seed 7 --epochs 5 --out run7 --resume run7/checkpoint-epoch3.npz

A resumed run continues bit for bit as the uninterrupted one, on the same kind of processor and numpy: the checkpoint
carries the parameters, the optimizer's moments and the state of the random generator.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any, Dict, NamedTuple  # noqa: UP035 - dict[...] is not subscriptable in Python 3.8

# One thread: a job has the CPUs it asked for, and sums come out the same every time. Must precede numpy.
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"

import numpy as np  # noqa: E402 - see above

RESIDUES = "ACDEFGHIKLMNPQRSTVWY"
START = len(RESIDUES)
"""Token that stands before the first residue."""
CONTEXT = 8
EMBEDDING = 16
HIDDEN = 64
BATCH = 256
RATE = 1e-3

Array = Any
"""A numpy array (typed loosely: numpy of several generations must do)."""
Parameters = Dict[str, Array]  # noqa: UP006


class State(NamedTuple):
    """All that training needs to go on: what a checkpoint holds."""

    epoch: int
    step: int
    parameters: Parameters
    first: Parameters
    """Adam's mean of gradients."""
    second: Parameters
    """Adam's mean of squared gradients."""
    losses: list[float]
    """Mean training loss of each epoch so far, in nats per residue."""
    seconds: list[float]


# Data


def make_sequences(seed: int, count: int, length: int) -> tuple[Array, float]:
    """Synthetic proteins, shape (count, length), of residue numbers, and the loss nobody can beat on them.

    Each residue is drawn by what stands one and four places before it (a turn of a helix), with strengths made from
    the seed. The floor is the mean entropy of those draws, in nats.
    """
    rng = np.random.RandomState(seed)
    kinds = len(RESIDUES)
    by_last, by_turn = rng.normal(0, 1.5, (2, kinds, kinds))
    found = np.empty((count, length), dtype=np.int64)
    found[:, :4] = rng.randint(0, kinds, size=(count, 4))
    entropy = 4 * np.log(kinds)
    for at in range(4, length):
        chances = np.exp(by_last[found[:, at - 1]] + by_turn[found[:, at - 4]])
        chances /= chances.sum(axis=1, keepdims=True)
        entropy -= (chances * np.log(chances)).sum(axis=1).mean()
        drawn = (chances.cumsum(axis=1) < rng.random_sample((count, 1))).sum(axis=1)
        found[:, at] = np.minimum(drawn, kinds - 1)
    return found, float(entropy / length)


def windows(sequences: Array) -> tuple[Array, Array]:
    """Every position's context, shape (n, CONTEXT), and the residue that follows, shape (n,)."""
    count, length = sequences.shape
    padded = np.concatenate([np.full((count, CONTEXT), START, dtype=np.int64), sequences], axis=1)
    contexts = np.stack([padded[:, at : at + length] for at in range(CONTEXT)], axis=2)
    return contexts.reshape(-1, CONTEXT), sequences.reshape(-1)


# Model


def new_parameters(seed: int) -> Parameters:
    """Small random weights."""
    rng = np.random.RandomState(seed + 1)
    inputs, kinds = CONTEXT * EMBEDDING, len(RESIDUES)
    return {
        "embedding": rng.normal(0, 0.1, (kinds + 1, EMBEDDING)),
        "hidden_weight": rng.normal(0, (2.0 / inputs) ** 0.5, (inputs, HIDDEN)),
        "hidden_bias": np.zeros(HIDDEN),
        "out_weight": rng.normal(0, (1.0 / HIDDEN) ** 0.5, (HIDDEN, kinds)),
        "out_bias": np.zeros(kinds),
    }


def loss_and_gradients(parameters: Parameters, contexts: Array, targets: Array) -> tuple[float, Parameters]:
    """Mean cross-entropy (nats per residue) of a batch and its gradient by every parameter."""
    size = len(targets)
    rows = np.arange(size)
    looked_up = parameters["embedding"][contexts].reshape(size, -1)
    hidden = np.tanh(looked_up @ parameters["hidden_weight"] + parameters["hidden_bias"])
    scores = hidden @ parameters["out_weight"] + parameters["out_bias"]
    scores -= scores.max(axis=1, keepdims=True)
    logs = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    loss = -logs[rows, targets].mean()

    by_scores = np.exp(logs)
    by_scores[rows, targets] -= 1.0
    by_scores /= size
    by_hidden = (by_scores @ parameters["out_weight"].T) * (1.0 - hidden**2)
    by_looked_up = (by_hidden @ parameters["hidden_weight"].T).reshape(-1, EMBEDDING)
    one_hot = np.eye(len(parameters["embedding"]))[contexts.reshape(-1)]
    return float(loss), {
        "embedding": one_hot.T @ by_looked_up,
        "hidden_weight": looked_up.T @ by_hidden,
        "hidden_bias": by_hidden.sum(axis=0),
        "out_weight": hidden.T @ by_scores,
        "out_bias": by_scores.sum(axis=0),
    }


# Training


def new_state(seed: int) -> State:
    """Before the first step."""
    parameters = new_parameters(seed)
    zeros = {name: np.zeros_like(value) for name, value in parameters.items()}
    return State(0, 0, parameters, zeros, {name: value.copy() for name, value in zeros.items()}, [], [])


def train_epoch(state: State, rng: Any, contexts: Array, targets: Array) -> State:
    """One pass over the data in random order, a step of Adam for each batch. Arrays of `state` change in place."""
    begun = time.perf_counter()
    order = rng.permutation(len(targets))
    step, total = state.step, 0.0
    for start in range(0, len(order), BATCH):
        batch = order[start : start + BATCH]
        loss, gradients = loss_and_gradients(state.parameters, contexts[batch], targets[batch])
        total += loss * len(batch)
        step += 1
        for name, gradient in gradients.items():
            first, second = state.first[name], state.second[name]
            first += 0.1 * (gradient - first)
            second += 0.001 * (gradient**2 - second)
            scale = RATE * (1 - 0.999**step) ** 0.5 / (1 - 0.9**step)
            state.parameters[name] -= scale * first / (np.sqrt(second) + 1e-8)
    return state._replace(
        epoch=state.epoch + 1,
        step=step,
        losses=[*state.losses, total / len(order)],
        seconds=[*state.seconds, time.perf_counter() - begun],
    )


# Files: each appears whole or not at all


def save_checkpoint(path: Path, state: State, rng: Any, settings: dict[str, int]) -> None:
    """Write everything `load_checkpoint` needs, and move it into place."""
    _, keys, position, has_gauss, cached = rng.get_state()
    arrays = {
        f"{part}/{name}": value
        for part in ("parameters", "first", "second")
        for name, value in getattr(state, part).items()
    }
    facts = {"epoch": state.epoch, "step": state.step, "losses": state.losses, "seconds": state.seconds}
    facts.update(settings=settings, position=int(position), has_gauss=int(has_gauss), cached=float(cached))
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        np.savez(file, keys=keys, facts=np.array(json.dumps(facts)), **arrays)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def load_checkpoint(path: Path, settings: dict[str, int]) -> tuple[State, Any]:
    """The state and the random generator as they were saved. SystemExit when it is another run's checkpoint."""
    with np.load(path, allow_pickle=False) as saved:
        facts = json.loads(str(saved["facts"]))
        if facts["settings"] != settings:
            sys.exit(f"{path}: made with {facts['settings']}, not with {settings}")
        parts = {
            part: {name[len(part) + 1 :]: saved[name] for name in saved.files if name.startswith(part + "/")}
            for part in ("parameters", "first", "second")
        }
        keys = saved["keys"]
    rng = np.random.RandomState()
    rng.set_state(("MT19937", keys, facts["position"], facts["has_gauss"], facts["cached"]))
    state = State(facts["epoch"], facts["step"], losses=facts["losses"], seconds=facts["seconds"], **parts)
    return state, rng


def save_metrics(path: Path, state: State, settings: dict[str, int], resumed_at: int, floor: float) -> None:
    """What happened and where, for people and for `siteannex` reports."""
    metrics = {
        "settings": settings,
        "epochs": state.epoch,
        "resumed_at_epoch": resumed_at,
        "loss_per_epoch": state.losses,
        "loss_by_guessing": float(np.log(len(RESIDUES))),
        "loss_floor": floor,
        "seconds_per_epoch": state.seconds,
        "unit": "nats per residue",
        "parameters": int(sum(value.size for value in state.parameters.values())),
        "where": where(),
    }
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(metrics, indent=2, sort_keys=True) + "\n")
    partial.replace(path)


def where() -> dict[str, str | None]:
    """The machine, the HTCondor slot and the GPU this runs in, as the environment tells."""
    return {
        "host": platform.node(),
        "slot": os.environ.get("_CONDOR_SLOT_NAME") or os.environ.get("_CONDOR_SLOT"),
        "assigned_gpus": os.environ.get("_CONDOR_AssignedGPUs"),  # noqa: SIM112 - HTCondor spells it so
        "cuda_visible_devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "slurm_job": os.environ.get("SLURM_JOB_ID"),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Train a small protein language model on synthetic sequences.")
    parser.add_argument("--seed", type=int, default=1, help="makes data, weights and order (default 1)")
    parser.add_argument("--epochs", type=int, default=3, help="train until so many epochs are done in all (default 3)")
    parser.add_argument("--out", type=Path, default=Path(), metavar="DIR", help="where checkpoints and metrics.json go")
    parser.add_argument("--resume", type=Path, metavar="FILE", help="go on from this checkpoint")
    parser.add_argument("--sequences", type=int, default=1000, help="how many, of 128 residues each (default 1000)")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    """Train, with a checkpoint after every epoch."""
    options = parse(arguments)
    settings = {"seed": options.seed, "sequences": options.sequences}
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    sequences, floor = make_sequences(options.seed, options.sequences, 128)
    contexts, targets = windows(sequences)
    if options.resume:
        state, rng = load_checkpoint(options.resume, settings)
    else:
        state, rng = new_state(options.seed), np.random.RandomState(options.seed + 2)
    resumed_at = state.epoch
    here = where()
    print(f"host {here['host']}, slot {here['slot']}, GPUs {here['assigned_gpus']}", flush=True)
    while state.epoch < options.epochs:
        state = train_epoch(state, rng, contexts, targets)
        save_checkpoint(out / f"checkpoint-epoch{state.epoch}.npz", state, rng, settings)
        save_metrics(out / "metrics.json", state, settings, resumed_at, floor)
        print(
            f"epoch {state.epoch}: loss {state.losses[-1]:.4f} nats per residue, {state.seconds[-1]:.1f} s", flush=True
        )


if __name__ == "__main__":
    main()
