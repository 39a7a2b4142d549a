import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples" / "protein"


def plan(name: str) -> dict[str, Any]:
    program = Path(sys.executable).with_name("siteannex")
    command = [str(program), "dag", "plan", str(EXAMPLES / name), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(("name", "runs", "nodes"), [("ensemble.yaml", 3, 12), ("sweep.yaml", 12, 48)])
def test_the_examples_experiments_are_sound_and_use_both_sites(name: str, runs: int, nodes: int) -> None:
    found = plan(name)
    assert (found["runs"], found["nodes"], found["missing"]) == (runs, nodes, [])
    assert {share["site"] for share in found["sites"]} == {"lab", "lab2"}
