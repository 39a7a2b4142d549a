"""The wheel carries everything: sites, what runs at a site, and a command that works without the checkout."""

from __future__ import annotations

import base64
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.person import Person

REPO = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built wheel."""
    out = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "build", "--wheel", "--outdir", str(out), str(REPO)], check=True, timeout=300)
    return next(out.glob("*.whl"))


def test_it_installs_into_a_clean_environment(wheel: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "env")], check=True, timeout=120)
    python = tmp_path / "env" / "bin" / "python"
    subprocess.run([str(python), "-m", "pip", "install", "-q", str(wheel)], check=True, timeout=300)

    def siteannex(*arguments: str) -> str:
        command = [str(python.with_name("siteannex")), *arguments]
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert "siteannex test bed" in siteannex("sites", "list")
    assert str(tmp_path) in siteannex("sites", "list"), "the packaged site file, not the checkout's"
    assert "--gres=gpu:a100:2" in siteannex("up", "lab", "--gpus", "2", "--dry-run")


def test_it_packs_and_brings_up_an_annex_from_there(wheel: Path, alice: Person) -> None:
    """On the AP, which has the dependencies: the wheel's own code comes first on the path."""
    encoded = base64.b64encode(wheel.read_bytes()).decode()
    receive = f"rm -rf clean && mkdir clean && cd clean && base64 -d >{wheel.name}"
    alice.lab.exec("ap", ["sh", "-c", receive], user="alice", input=encoded, check=True)
    alice.shell(f"cd clean && /opt/siteannex/bin/python -m zipfile -e {wheel.name} .")
    main = "from siteannex.cli.main import main; main()"
    run = f"cd clean && PYTHONPATH=$PWD exec /opt/siteannex/bin/python -c '{main}' \"$@\""
    through = ("sh", "-c", run, "siteannex")
    where = alice.types("sites", "list", through=through)
    assert "/clean/siteannex/data/sites/lab.yaml" in where.text
    assert "EP 25" in alice.types("pack", through=through).text
    up = alice.types("up", "lab", "--cpus", "1", through=through)
    assert up.status == 0, up.text
