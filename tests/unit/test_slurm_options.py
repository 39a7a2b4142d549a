"""The sbatch options of a pilot, against golden files: a change of what sites are asked is seen in review.

`pytest --update-golden` does not exist on purpose: write the file by hand, and read it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siteannex.model import PilotShape, Plan
from siteannex.resources import data_dir
from siteannex.scheduler.slurm import submit_options
from siteannex.site.loader import read_site
from siteannex.site.schema import Partition
from tests.unit.samples import partition, plain_partition, plan

GOLDEN = Path(__file__).parent.parent / "golden"

CASES: dict[str, tuple[Plan, Partition]] = {
    "shared-gpus": (plan(), partition()),
    "exclusive-gpus": (plan(partition="gpu"), partition(sharing="exclusive")),
    "cpus-only": (
        plan(partition="debug", account=None, shape=PilotShape(0, None, 1, 4096), walltime_s=1800),
        plain_partition(),
    ),
    "partition-implies-gpus": (plan(), partition(gpu_request=None)),
    "untyped-qos-and-options": (
        plan(qos="gpu-qos", walltime_s=100 * 3600 + 61),
        partition(gpu_request="--gpus={count}", qos="gpu-qos", options=("--constraint=lustre", "--licenses=scratch")),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_options_are_those_of_the_golden_file(name: str) -> None:
    asked, facts = CASES[name]
    golden = (GOLDEN / f"sbatch-{name}.txt").read_text(encoding="utf-8")
    assert "\n".join(submit_options(asked, facts, drain_notice_s=120)) + "\n" == golden


def test_where_memory_comes_with_the_cores_none_is_asked_for() -> None:
    asked = submit_options(plan(), partition(memory_request=None), drain_notice_s=120)
    whole = submit_options(plan(), partition(), drain_notice_s=120)
    assert [option for option in whole if option not in asked] == ["--mem=32768M"]


def test_every_golden_file_of_sbatch_options_has_a_case() -> None:
    assert {path.stem.removeprefix("sbatch-") for path in GOLDEN.glob("sbatch-*.txt")} == set(CASES)


def test_the_packaged_lab_partitions_ask_for_typed_gpus() -> None:
    lab = read_site(data_dir("sites") / "lab.yaml")
    assert "--gres=gpu:a100:2" in submit_options(plan(), lab.partitions["gpu-shared"], drain_notice_s=120)


@given(
    st.integers(1, 300),
    st.integers(1, 2**22),
    st.integers(0, 16),
    st.integers(1, 366 * 86400),
    st.integers(1, 3600),
    st.sampled_from(["shared", "exclusive"]),
)
def test_options_are_whole_words_each_said_once(
    cpus: int, memory: int, gpus: int, walltime: int, notice: int, sharing: str
) -> None:
    asked = replace(plan(), shape=PilotShape(gpus, "a100" if gpus else None, cpus, memory), walltime_s=walltime)
    options = submit_options(asked, partition(sharing=sharing), drain_notice_s=notice)
    names = [option.partition("=")[0] for option in options]
    assert len(set(names)) == len(names)
    assert all(option.startswith("--") and " " not in option for option in options)
    assert f"--mem={memory}M" in options
    assert "--no-requeue" in options
    assert ("--exclusive" in options) is (sharing == "exclusive")


def test_the_comment_says_whose_annex_it_is() -> None:
    options = submit_options(plan(), partition(), drain_notice_s=120, origin="ap.lab/0123abcd")
    assert "--comment=siteannex:sweep1-00000001:ap.lab/0123abcd" in options
