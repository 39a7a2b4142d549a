#!/usr/bin/env python3
"""Train a small protein language model: a transformer encoder that guesses hidden residues. One or more epochs.

Under `siteannex-epoch` everything about checkpoints comes from SITEANNEX_* variables (docs/epoch-runner.md). By hand:

    python3 train.py --preset tiny --epochs 3 --out run7

Sequences are made from the seed by a known rule, so there is something to learn and nothing to download. The preset
`metl` has the shape of METL-Local: 3 layers, 4 heads, width 256, feed-forward 1024, about 2.4 million parameters.

On one kind of CPU a resumed run is the uninterrupted one, bit for bit, also from the middle of an epoch: the checkpoint
has weights, optimizer, learning rate, loss scale, random states and the place in the order of batches. On CUDA the
precision is what the GPU does well (bfloat16 from capability 8.0, float16 from 7.0, else float32).

Needs Python 3.8 and PyTorch 2.3 or newer.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import platform
import signal
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS repeats itself only with this

import torch
from torch import nn

RESIDUES = 20
MASK = RESIDUES
"""The token that stands where a residue is hidden."""
HIDDEN_SHARE = 0.15


class Preset(NamedTuple):
    """Shape of the model and amount of data."""

    layers: int
    heads: int
    width: int
    feed_forward: int
    length: int
    """Residues in a sequence."""
    sequences: int
    """For training; an eighth as many again for validation."""
    batch: int


PRESETS = {
    "metl": Preset(3, 4, 256, 1024, length=128, sequences=65536, batch=128),
    "tiny": Preset(1, 4, 64, 128, length=24, sequences=2048, batch=32),
}


# Data


def make_sequences(seed: int, count: int, length: int) -> torch.Tensor:
    """Synthetic proteins, shape (count, length): each residue drawn by what stands one and four places before it."""
    drawing = torch.Generator().manual_seed(seed)
    by_last, by_turn = torch.randn(2, RESIDUES, RESIDUES, generator=drawing) * 3
    found = torch.randint(RESIDUES, (count, length), generator=drawing)
    for at in range(4, length):
        chances = torch.softmax(by_last[found[:, at - 1]] + by_turn[found[:, at - 4]], dim=1)
        found[:, at] = torch.multinomial(chances, 1, generator=drawing)[:, 0]
    return found


def hide(sequences: torch.Tensor, drawing: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """The sequences with some residues replaced by MASK, and where they are."""
    hidden = torch.rand(sequences.shape, generator=drawing) < HIDDEN_SHARE
    hidden[:, 0] |= ~hidden.any(dim=1)
    return sequences.masked_fill(hidden, MASK), hidden


# Model


class ProteinModel(nn.Module):  # type: ignore[misc]  # PyTorch is not installed where types are checked
    """Residues and positions in, a score for every residue at every place out."""

    def __init__(self, preset: Preset, dropout: float) -> None:
        super().__init__()
        self.residue = nn.Embedding(RESIDUES + 1, preset.width)
        self.position = nn.Parameter(torch.randn(preset.length, preset.width) * 0.02)
        layer = nn.TransformerEncoderLayer(
            preset.width, preset.heads, preset.feed_forward, dropout, "gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, preset.layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(preset.width)
        self.scores = nn.Linear(preset.width, RESIDUES)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Tokens of shape (batch, length); scores of shape (batch, length, RESIDUES)."""
        return self.scores(self.norm(self.encoder(self.residue(tokens) + self.position)))


def precision(device: torch.device) -> torch.dtype:
    """What this device computes well."""
    if device.type != "cuda":
        return torch.float32
    capability = torch.cuda.get_device_capability(device)
    return torch.bfloat16 if capability >= (8, 0) else torch.float16 if capability >= (7, 0) else torch.float32


# Training


class Told(NamedTuple):
    """Where to go on, how far, and where things are: from the epoch runner, or from the command line."""

    resume: str
    start: int
    stop: int
    checkpoints: Path
    metrics: Path
    seed: int
    stage: str
    """Begins the names of checkpoints."""


class Training:
    """The model and everything that changes while it is trained."""

    def __init__(self, options: argparse.Namespace, told: Told) -> None:
        self.told = told
        self.preset = PRESETS[options.preset]
        self.slow = options.slow
        self.settings = {"preset": options.preset, "lr": options.lr, "dropout": options.dropout, "seed": told.seed}
        torch.use_deterministic_algorithms(True)
        torch.set_num_threads(options.threads)
        torch.manual_seed(told.seed)
        self.device = torch.device("cuda" if torch.cuda.is_available() and not options.cpu else "cpu")
        self.dtype = precision(self.device)
        self.model = ProteinModel(self.preset, options.dropout).to(self.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=options.lr)
        self.scaler = torch.amp.GradScaler("cuda") if self.dtype is torch.float16 else None
        self.scaler_state: dict[str, Any] = {}
        validation = self.preset.sequences // 8
        made = make_sequences(told.seed, self.preset.sequences + validation, self.preset.length)
        self.data, self.validation = made[validation:], made[:validation]
        self.epoch, self.step = told.start, 0
        """The epoch under way, and how many of its batches are done."""
        self.losses: list[float] = []
        self.masks = torch.Generator()
        self.asked = False

    @property
    def batches(self) -> int:
        """In an epoch."""
        return self.preset.sequences // self.preset.batch

    def loss(self, sequences: torch.Tensor, drawing: torch.Generator) -> torch.Tensor:
        """Mean cross-entropy of the hidden residues, in nats."""
        tokens, hidden = hide(sequences, drawing)
        tokens, hidden, sequences = (part.to(self.device) for part in (tokens, hidden, sequences))
        with torch.autocast(self.device.type, self.dtype, enabled=self.dtype is not torch.float32):
            scores = self.model(tokens)
        return nn.functional.cross_entropy(scores[hidden].float(), sequences[hidden])

    def begin_epoch(self) -> None:
        """Every epoch draws from the seed and its own number: it is the same after whatever checkpoint."""
        mixed = (self.told.seed * 1_000_003 + self.epoch) % 2**63
        torch.manual_seed(mixed)
        self.masks.manual_seed(mixed)
        self.step, self.losses = 0, []

    def order(self) -> torch.Tensor:
        """The order of the sequences in this epoch."""
        mixed = (self.told.seed * 7_368_787 + self.epoch) % 2**63
        return torch.randperm(self.preset.sequences, generator=torch.Generator().manual_seed(mixed))

    def train_epoch(self, save_every: float) -> bool:
        """From wherever it is to the end of the epoch; False when asked to stop before that (and saved)."""
        order = self.order()
        self.model.train()
        saved = time.monotonic()
        while self.step < self.batches:
            batch = order[self.step * self.preset.batch : (self.step + 1) * self.preset.batch]
            loss = self.loss(self.data[batch], self.masks)
            self.optimizer.zero_grad(set_to_none=True)
            self.walk(loss)
            self.step += 1
            self.losses.append(loss.item())
            time.sleep(self.slow)
            if self.losses[-1] != self.losses[-1]:
                self.tell(epoch=self.epoch, step=self.step, train_loss=self.losses[-1])
            if self.step < self.batches and (self.asked or time.monotonic() - saved > save_every):
                self.save("time.ckpt")
                self.tell(checkpoint="time.ckpt", epoch=self.epoch, step=self.step, complete=False)
                saved = time.monotonic()
            if self.asked and self.step < self.batches:
                return False
        return True

    def walk(self, loss: torch.Tensor) -> None:
        """One step of the optimizer."""
        scaler = self.scaler
        (scaler.scale(loss) if scaler else loss).backward()
        if scaler:
            scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        if scaler:
            scaler.step(self.optimizer)
            scaler.update()
            self.scaler_state = scaler.state_dict()
        else:
            self.optimizer.step()

    def validate(self) -> float:
        """Loss on sequences never trained on, the same residues hidden each time."""
        self.model.eval()
        drawing = torch.Generator().manual_seed(self.told.seed)
        total = 0.0
        with torch.no_grad():
            for part in self.validation.split(self.preset.batch):
                total += self.loss(part, drawing).item() * len(part)
        return total / len(self.validation)

    # Files

    def tell(self, **row: Any) -> None:
        """One line for the runner."""
        with self.told.metrics.open("a") as file:
            file.write(json.dumps(row) + "\n")

    def save(self, name: str) -> None:
        """Everything `load` needs, under its name only when it is whole."""
        state = {
            "settings": self.settings,
            "epoch": self.epoch,
            "step": self.step,
            "losses": self.losses,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler_state,
            "random": torch.get_rng_state(),
            "cuda_random": torch.cuda.get_rng_state_all() if self.device.type == "cuda" else [],
            "masks": self.masks.get_state(),
        }
        # Through memory, so that the file's own name does not get into it.
        content = io.BytesIO()
        torch.save(plain(state), content)
        partial = self.told.checkpoints / (name + ".partial")
        partial.write_bytes(content.getvalue())
        partial.replace(self.told.checkpoints / name)

    def load(self, path: str) -> None:
        """Go on where `path` was saved."""
        state = torch.load(path, map_location="cpu", weights_only=True)
        if state["settings"] != self.settings:
            sys.exit(f"{path}: made with {state['settings']}, not with {self.settings}")
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler_state = state["scaler"]
        if self.scaler and self.scaler_state:
            self.scaler.load_state_dict(self.scaler_state)
        if state["epoch"] == self.epoch and state["step"] < self.batches:
            self.step, self.losses = state["step"], state["losses"]
            self.masks.set_state(state["masks"])
            torch.set_rng_state(state["random"])
            if self.device.type == "cuda" and len(state["cuda_random"]) == torch.cuda.device_count():
                torch.cuda.set_rng_state_all(state["cuda_random"])

    def facts(self) -> dict[str, Any]:
        """What the side-cars should say of this command."""
        return {
            "versions": {"torch": torch.__version__, "python": platform.python_version(), "cuda": torch.version.cuda},
            "device": torch.cuda.get_device_name(0) if self.device.type == "cuda" else platform.processor() or "cpu",
            "precision": str(self.dtype).rpartition(".")[2],
            "batch": self.preset.batch,
            "gpus": 1 if self.device.type == "cuda" else 0,
            "model_parameters": sum(one.numel() for one in self.model.parameters()),
        }


def plain(value: Any) -> Any:
    """A copy without history, on the CPU: equal states make equal files, byte for byte."""
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().clone()
    if isinstance(value, dict):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(plain(item) for item in value)
    # Pickle writes one and the same string once, and an equal one again.
    return sys.intern(value) if isinstance(value, str) else value


def train(training: Training, save_every: float) -> None:
    """Every epoch that was asked for, each with its checkpoint."""
    told = training.told
    begun = time.monotonic()
    if told.resume:
        training.load(told.resume)
    training.tell(ready=training.facts())
    while training.epoch < told.stop:
        if training.step == 0:
            training.begin_epoch()
        if not training.train_epoch(save_every):
            print(f"epoch {training.epoch}: stopped at batch {training.step} of {training.batches}", flush=True)
            return
        loss, validation = sum(training.losses) / training.batches, training.validate()
        name = f"{told.stage}{training.epoch:04d}.ckpt"
        training.save(name)
        training.tell(
            checkpoint=name, epoch=training.epoch, step=training.batches, train_loss=loss, val_loss=validation
        )
        seconds = time.monotonic() - begun
        print(f"epoch {training.epoch}: loss {loss:.4f}, validation {validation:.4f}, {seconds:.1f} s", flush=True)
        training.epoch, training.step, begun = training.epoch + 1, 0, time.monotonic()


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Train a small protein language model on synthetic sequences.")
    parser.add_argument("--preset", choices=sorted(PRESETS), default="metl")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--threads", type=int, default=1, help="of the CPU; sums come out the same for the same number")
    parser.add_argument("--save-every", type=float, default=900.0, help="seconds between checkpoints within an epoch")
    parser.add_argument("--slow", type=float, default=0.0, metavar="S", help="rest after each batch, to be interrupted")
    parser.add_argument("--cpu", action="store_true", help="leave GPUs alone")
    parser.add_argument("--epochs", type=int, default=3, help="by hand: train so many")
    parser.add_argument("--seed", type=int, default=1, help="by hand: makes data, weights and order")
    parser.add_argument("--out", type=Path, default=Path(), help="by hand: where checkpoints go")
    parser.add_argument("--resume", default="", help="by hand: go on from this checkpoint, of the epoch before --start")
    parser.add_argument("--start", type=int, default=0, help="by hand: the first epoch to train")
    return parser.parse_args(arguments)


def listen(options: argparse.Namespace) -> Told:
    """What the epoch runner says, or else the command line."""
    said = {name[len("SITEANNEX_") :]: value for name, value in os.environ.items() if name.startswith("SITEANNEX_")}
    if "METRICS" not in said:
        options.out.mkdir(parents=True, exist_ok=True)
        metrics = options.out / "metrics.jsonl"
        return Told(options.resume, options.start, options.epochs, options.out, metrics, options.seed, "epoch")
    return Told(
        resume=said["RESUME"],
        start=int(said["START_EPOCH"]),
        stop=int(said["STOP_EPOCH"]),
        checkpoints=Path(said["CHECKPOINTS"]),
        metrics=Path(said["METRICS"]),
        seed=int(said["SEED"]),
        stage=said["STAGE"] + "-" if said.get("STAGE", "train") != "train" else "epoch",
    )


def main(arguments: list[str] | None = None) -> None:
    """Train."""
    options = parse(arguments)
    training = Training(options, listen(options))

    def ask(*_: object) -> None:
        training.asked = True

    signal.signal(signal.SIGTERM, ask)
    train(training, options.save_every)


if __name__ == "__main__":
    main()
