"""A node that comes to an annex that is not up leaves a request; one that cannot is submitted all the same."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from siteannex.training.experiment.matrix import AnnexNeed
from siteannex.training.experiment.requests import Asked, RequestFile, announcing, read_requests
from siteannex.training.experiment.runs import runs
from siteannex.training.rendering.render import Names, dag_lines, hook_scripts, nodes
from tests.unit.training.experiments import GOOD, read

NEED = AnnexNeed("delta", gpus=1, cpus=4, memory_mib=1500, at_once=3, walltime_s=3600)


class Ap:
    """A directory with a `condor_status` that says what a test wants, and a requests directory."""

    def __init__(self, root: Path) -> None:
        self.root, self.requests = root, root / "state of it" / "requests"
        (root / "bin").mkdir()
        self.says("")

    def says(self, text: str, status: int = 0) -> None:
        """`condor_status` prints this."""
        program = self.root / "bin" / "condor_status"
        program.write_text(f'#!/bin/sh\necho "$*" >>{self.root}/asked\nprintf %s "{text}"\nexit {status}\n')
        program.chmod(0o755)

    def announce(self, annex: str = "delta-big", shell: str = "dash", *, dag: str | None = "17.0") -> int:
        script = announcing("protein", {"delta-big": NEED, "lab": replace(NEED, site="it's")}, self.requests)
        path = f"{self.root / 'bin'}:{os.environ['PATH']}"
        environment = {"PATH": path} | ({"CONDOR_ID": dag} if dag is not None else {})
        argv = [shell, "-c", f'{script}announce "$1" r00-e01', "pre.sh", annex]
        return subprocess.run(argv, env=environment, check=False).returncode


@pytest.fixture
def ap(tmp_path: Path) -> Ap:
    return Ap(tmp_path)


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_an_annex_that_is_not_up_is_asked_for_in_one_whole_file(ap: Ap, shell: str) -> None:
    assert ap.announce(shell=shell) == 0
    path = ap.requests / "protein.delta-big.17.json"
    asked = Asked(v=1, annex="delta-big", experiment="protein", node="r00-e01", dag=17, need=NEED)
    assert read_requests(ap.requests) == [RequestFile(path, asked)]
    assert (path.stat().st_mode & 0o077, list(ap.requests.iterdir())) == (0, [path])
    assert 'AnnexName == "delta-big"' in (ap.root / "asked").read_text()


def test_asked_again_it_is_the_same_file(ap: Ap) -> None:
    assert (ap.announce(), ap.announce()) == (0, 0)
    assert len(read_requests(ap.requests)) == 1


def test_what_a_shell_would_take_for_its_own_comes_through(ap: Ap) -> None:
    assert ap.announce("lab") == 0
    [found] = read_requests(ap.requests)
    assert found.asked.need.site == "it's"


def test_an_annex_that_is_up_is_not_asked_for(ap: Ap) -> None:
    ap.says("slot1@c1")
    assert (ap.announce(), read_requests(ap.requests)) == (0, [])


def test_a_collector_that_does_not_answer_fails_no_node(ap: Ap) -> None:
    ap.says("", status=1)
    assert (ap.announce(), read_requests(ap.requests)) == (0, [])


def test_a_state_directory_that_cannot_be_written_fails_no_node(ap: Ap) -> None:
    ap.requests.parent.write_text("a file is in the way")
    assert (ap.announce(), read_requests(ap.requests)) == (0, [])


def test_a_dag_that_does_not_know_its_number_asks_all_the_same(ap: Ap) -> None:
    assert ap.announce(dag=None) == 0
    [found] = read_requests(ap.requests)
    assert found.asked.dag == 0


@pytest.mark.parametrize("text", ["", "{", "[]", '{"v": 2}', '{"v": 1, "annex": "a b"}'])
def test_what_is_no_request_is_passed_over(ap: Ap, text: str) -> None:
    ap.announce()
    (ap.requests / "a.json").write_text(text)
    assert [each.asked.annex for each in read_requests(ap.requests)] == ["delta-big"]


def test_a_request_says_what_the_experiments_jobs_want(tmp_path: Path) -> None:
    loaded = read(tmp_path)
    text = "\n".join(dag_lines(loaded.experiment, loaded.targets, Names("c", "s", "j")))
    first = next(runs(loaded.experiment))
    comes = {node.name: node.site for node in nodes(loaded.experiment, first) if node.arrives}
    assert comes  # shuffle: every epoch at another site
    for name, site in comes.items():
        annex = {"expanse": " expanse", "delta": " delta-big"}.get(site)
        asks = [line for line in text.splitlines() if line.startswith(f"SCRIPT PRE {name} ")]
        assert [line.endswith(f"train {int(name[-2:])}{annex}") for line in asks] == ([True] if annex else [])


def test_a_run_that_stays_asks_once(tmp_path: Path) -> None:
    loaded = read(tmp_path, GOOD, ("policy: shuffle", "policy: fixed"))
    for run in runs(loaded.experiment):
        assert [node.arrives for node in nodes(loaded.experiment, run) if node.stage == "train"] == [
            True,
            False,
            False,
            False,
        ]


def test_the_users_own_hook_runs_after_it_and_decides(tmp_path: Path, ap: Ap) -> None:
    loaded = read(tmp_path, GOOD, ("policy: shuffle", 'policy: shuffle\nhooks: {pre: "exit 3 #"}'))
    script = tmp_path / "pre.sh"
    script.write_text(
        hook_scripts(loaded.experiment, announcing("protein", {"delta-big": NEED}, ap.requests))["pre.sh"]
    )
    environment = {"PATH": f"{ap.root / 'bin'}:{os.environ['PATH']}"}
    argv = ["/bin/sh", str(script), "r00-e01", "protein/r00", "train", "1"]
    assert subprocess.run([*argv, "delta-big"], env=environment, check=False).returncode == 3
    assert len(read_requests(ap.requests)) == 1
    assert subprocess.run(argv, env=environment, check=False).returncode == 3
    assert json.loads((ap.requests / "protein.delta-big.0.json").read_text())["need"]["at_once"] == 3
