"""The protein example with the sites' own Python and PyTorch: it learns, and going on is as never having stopped."""

import base64
import io
import json
import math
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import Lab
from siteannex.training.rendering.shipping import NAME, epoch_runner
from siteannex.training.sidecar import SideCar

EXAMPLE = Path(__file__).parents[2] / "examples" / "protein"


class Sandbox:
    """A directory of alice's on a compute node, with the example and the epoch runner in it."""

    def __init__(self, lab: Lab, node: str) -> None:
        self.lab = lab
        self.node = node
        self.folder = self.shell("mktemp -d /tmp/protein.XXXXXX").strip()
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            for name, content in (("train.py", (EXAMPLE / "train.py").read_bytes()), (NAME, epoch_runner())):
                entry = tarfile.TarInfo(name)
                entry.size, entry.mode = len(content), 0o755
                archive.addfile(entry, io.BytesIO(content))
        self.shell("base64 -d | tar -xzf -", stdin=base64.b64encode(packed.getvalue()).decode())

    def shell(self, script: str, stdin: str | None = None) -> str:
        """A shell script's output there; fails when it fails."""
        inside = f"cd {getattr(self, 'folder', '/tmp')}; export PYTHONWARNINGS=error; {script}"
        done = self.lab.exec(self.node, ["sh", "-ec", inside], user="alice", input=stdin, timeout=300)
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def train(self, out: str, *options: str) -> None:
        """Run the example by hand."""
        self.shell(f"python3 train.py --preset tiny --lr 3e-3 --out {out} {' '.join(options)}")

    def rows(self, out: str) -> list[dict[str, Any]]:
        """The lines of metrics it wrote, but for the first."""
        return [json.loads(line) for line in self.shell(f"cat {out}/metrics.jsonl").splitlines()[1:]]

    def sha256(self, path: str) -> str:
        return self.shell(f"sha256sum {path}").split()[0]


@pytest.fixture(scope="module")
def sandbox(lab: Lab) -> Iterator[Sandbox]:
    made = Sandbox(lab, "c1")
    made.train("straight", "--epochs 3")
    yield made
    made.shell("rm -r $PWD")


def test_the_loss_falls_below_guessing_on_sequences_it_never_saw(sandbox: Sandbox) -> None:
    losses = [row["val_loss"] for row in sandbox.rows("straight")]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < math.log(20) - 0.2


def test_a_run_that_went_on_from_a_checkpoint_is_the_straight_run_bit_for_bit(sandbox: Sandbox) -> None:
    sandbox.train("parts", "--epochs 1")
    sandbox.train("parts", "--start 1 --epochs 3 --resume parts/epoch0000.ckpt")
    assert sandbox.sha256("parts/epoch0002.ckpt") == sandbox.sha256("straight/epoch0002.ckpt")


def test_so_is_one_that_was_ended_in_the_middle_of_an_epoch(sandbox: Sandbox) -> None:
    # Saves after every batch; ended as soon as one is there.
    sandbox.shell("""
        mkdir midway
        python3 train.py --preset tiny --lr 3e-3 --out midway --epochs 1 --save-every 0 &
        until [ -e midway/time.ckpt ]; do sleep 0.05; kill -0 $!; done
        kill -TERM $!; wait $!
        [ ! -e midway/epoch0000.ckpt ]
    """)
    assert sandbox.rows("midway")[-1]["complete"] is False
    sandbox.train("midway", "--epochs 1 --resume midway/time.ckpt")
    assert sandbox.sha256("midway/epoch0000.ckpt") == sandbox.sha256("straight/epoch0000.ckpt")


def test_the_other_site_makes_the_same_of_the_same_seed_and_another_seed_something_else(
    lab: Lab, sandbox: Sandbox
) -> None:
    other = Sandbox(lab, "d1")
    other.train("here", "--epochs 1")
    other.train("else", "--epochs 1 --seed 2")
    made = {other.sha256("here/epoch0000.ckpt"), other.sha256("else/epoch0000.ckpt")}
    other.shell("rm -r $PWD")
    assert sandbox.sha256("straight/epoch0000.ckpt") in made
    assert len(made) == 2


def test_under_the_epoch_runner_each_epoch_has_a_side_car_with_the_versions_and_the_same_bytes(
    sandbox: Sandbox,
) -> None:
    sandbox.shell(f"""
        export SITEANNEX_RUN_ID=run SITEANNEX_SEED=1
        for epoch in 0 1; do SITEANNEX_EPOCH=$epoch ./{NAME} -- python3 train.py --preset tiny --lr 3e-3; done
    """)
    sidecar = SideCar.model_validate_json(sandbox.shell("cat checkpoints/epoch0001.ckpt.provenance.json"))
    assert sidecar.checkpoint.sha256 == sandbox.sha256("straight/epoch0001.ckpt")
    assert sidecar.parent.sha256 == sandbox.sha256("straight/epoch0000.ckpt")
    assert sidecar.software.command["versions"]["torch"].startswith("2.")
    assert sidecar.software.command["precision"] == "float32"


def test_a_checkpoint_of_other_settings_is_refused(sandbox: Sandbox) -> None:
    said = sandbox.shell("! python3 train.py --preset tiny --lr 1 --out x --resume straight/epoch0000.ckpt 2>&1")
    assert "made with" in said


def test_the_published_shape_has_about_two_point_four_million_parameters(sandbox: Sandbox) -> None:
    count = "train.ProteinModel(train.PRESETS['metl'], 0.1).parameters()"
    said = sandbox.shell(f'python3 -c "import train; print(sum(one.numel() for one in {count}))"')
    assert 2_350_000 < int(said) < 2_450_000
