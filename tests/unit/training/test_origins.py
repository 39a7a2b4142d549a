"""What side-cars will say of code, container and data: a real git repository, real files."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from siteannex.training.dag.daggraph import read_graph
from siteannex.training.experiment.origins import Origins
from siteannex.training.rendering.writing import Written, default_dag, missing_inputs, write_dag
from tests.unit.training.experiments import GOOD, read, refusal

INPUT = "train.py"
IMAGE = ("  request_gpus = 1\n", "  request_gpus = 1\n  container_image = train.sif\n")


def git(folder: Path, *words: str) -> str:
    author = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *author, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def rendered(folder: Path, *changes: tuple[str, str]) -> Written:
    loaded = read(folder, GOOD, *changes)
    return write_dag(loaded, default_dag(loaded), lambda: b"runner", folder / "requests")


@pytest.fixture
def committed(tmp_path: Path) -> Path:
    """The experiment in a directory of a repository, everything it needs committed."""
    folder = tmp_path / "repository" / "experiment"
    folder.mkdir(parents=True)
    (folder / INPUT).write_text("print(1)\n")
    (folder.parent / ".gitignore").write_text("*.tar\n")
    read(folder)
    git(folder.parent, "init", "-q")
    git(folder.parent, "add", "-A")
    git(folder.parent, "commit", "-qm", "one")
    return folder


def test_code_is_the_commit_and_rendering_again_gives_the_same_bytes(committed: Path) -> None:
    first = rendered(committed)
    assert first.origins.code == git(committed, "rev-parse", "HEAD")
    assert f"SITEANNEX_CODE_VERSION={first.origins.code} " in first.dag.read_text()
    git(committed, "add", "-A")
    git(committed, "commit", "-qm", "what was rendered")
    second = rendered(committed)  # the commit is another now, so the DAG changes, and it is in the repository
    assert second.origins.code == git(committed, "rev-parse", "HEAD") != first.origins.code
    assert rendered(committed) == second


@pytest.mark.parametrize(
    ("path", "text", "modified"),
    [
        (INPUT, "print(2)\n", True),
        ("../elsewhere.py", "", False),
        ("notes.txt", "nothing needs it", False),
        ("data.tar", "ignored by git", False),
        ("new.py", "an input, not committed", True),
    ],
)
def test_code_is_modified_when_what_the_jobs_need_is_not_in_the_commit(
    committed: Path, path: str, text: str, modified: bool
) -> None:
    inputs = ("inputs: [train.py]", "inputs: [train.py, data.tar, new.py, ../elsewhere.py, /etc/hosts, 'osdf:///x/y']")
    read(committed, GOOD, inputs)
    git(committed, "commit", "-qam", "inputs")
    (committed / "../elsewhere.py").resolve().write_text("print(3)\n")
    git(committed.parent, "add", "elsewhere.py")
    git(committed.parent, "commit", "-qm", "elsewhere")
    (committed / path).write_text(text or "print(3)\n")
    code = rendered(committed, inputs).origins.code
    assert code == git(committed, "rev-parse", "HEAD") + ("+modified" if modified else "")


def test_the_file_may_say_which_code_and_data_it_is(committed: Path) -> None:
    said = ("policy: shuffle", "policy: shuffle\ncode: v1.2 of the paper\ndataset: doi:10.5281/zenodo.1")
    assert rendered(committed, said).origins == Origins("v1.2 of the paper", "doi:10.5281/zenodo.1")


def test_without_a_repository_nothing_is_said(tmp_path: Path) -> None:
    written = rendered(tmp_path)
    assert written.origins == Origins()
    text = written.dag.read_text()
    assert not [name for name in ("CODE_VERSION", "CONTAINER", "DATASET") if f"SITEANNEX_{name}" in text]


def test_a_local_image_and_local_data_are_known_by_their_content(tmp_path: Path) -> None:
    (tmp_path / "train.sif").write_bytes(b"image")
    (tmp_path / "data.tar").write_bytes(b"data")
    image, data = (hashlib.sha256(content).hexdigest() for content in (b"image", b"data"))
    written = rendered(tmp_path, IMAGE, ("policy: shuffle", "policy: shuffle\ndataset: {file: data.tar}"))
    for description in read_graph(written.dag.read_text()).descriptions.values():
        assert f"SITEANNEX_CONTAINER=train.sif@sha256:{image} " in description
        assert f"SITEANNEX_DATASET=data.tar@sha256:{data} " in description


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("container_image = docker://example.org/train:1", "docker://example.org/train:1"),
        ("docker_image = example.org/train@sha256:ab", "example.org/train@sha256:ab"),
        ('+SingularityImage = "osdf:///x/train.sif"', "osdf:///x/train.sif"),
        ("container_image = not-here.sif", "not-here.sif"),
        ("container_image = $(kind).sif", "'$(kind).sif'"),
    ],
)
def test_other_images_are_told_as_they_are_named(tmp_path: Path, line: str, told: str) -> None:
    written = rendered(tmp_path, (IMAGE[0], f"{IMAGE[0]}  {line}\n"))
    assert f"SITEANNEX_CONTAINER={told} " in written.dag.read_text()


def test_data_that_is_not_there_is_missing_and_wrong_words_are_refused(tmp_path: Path) -> None:
    data = ("policy: shuffle", "policy: shuffle\ndataset: {file: data.tar}")
    loaded = read(tmp_path, GOOD, data)
    (tmp_path / INPUT).touch()
    assert missing_inputs(loaded.experiment, tmp_path) == ["dataset: data.tar"]
    for wrong, part in [
        ("policy: shuffle\ndataset: 3", "valid string"),
        ("policy: shuffle\ndataset: {path: x}", "dataset.file: required"),
        ("policy: shuffle\ncode: 'a $(b)'", "pattern"),
    ]:
        assert part in refusal(tmp_path, ("policy: shuffle", wrong)).summary
    told = refusal(tmp_path, ("{GREETING: it's fine}", "{SITEANNEX_DATASET: mine}")).summary
    assert "write dataset: of the experiment file" in told
