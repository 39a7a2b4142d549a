"""What a site file cannot say: facts that contradict each other are refused with the reason, where they stand."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from siteannex.errors import AnnexError
from siteannex.resources import data_dir
from siteannex.site.layers import overlaid
from siteannex.site.loader import read_any

LAB: dict[str, Any] = YAML(typ="safe").load((data_dir("sites") / "lab.yaml").read_text(encoding="utf-8"))


def with_value(key: str, value: Any) -> dict[str, Any]:
    data = copy.deepcopy(LAB)
    *path, last = key.split(".")
    place: Any = data
    for part in path:
        place = place.setdefault(part, {})
    place[last] = value
    return data


def complaint(data: dict[str, Any], directory: Path) -> str:
    path = directory / "lab.yaml"
    with path.open("w", encoding="utf-8") as file:
        YAML(typ="safe").dump(data, file)
    with pytest.raises(AnnexError) as raised:
        read_any(path)
    return "\n".join(item.text for item in raised.value.failure.evidence)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("partitions.gpu.caps", {"running_per_user": 3, "submitted_per_user": 2}, "running_per_user (3) is more than"),
        (
            "partitions.gpu.caps",
            {"gpus_per_job": 3, "gpus_per_account": 2},
            "gpus_per_job (3) is more than gpus_per_account",
        ),
        ("partitions.gpu.caps", {"min_nodes_per_job": 65, "nodes_per_user": 64}, "min_nodes_per_job (65) is more than"),
        ("partitions.gpu.caps", {"nodes_per_job": 1, "gpus_per_job": 5}, "caps.gpus_per_job is more than the 4 GPUs"),
        (
            "partitions.gpu.caps",
            {"gpus_per_job": 0},
            "partitions.gpu.caps.gpus_per_job: should be greater than 0",
        ),
        ("partitions.gpu.default_walltime", "5h", "default_walltime is more than max_walltime"),
        ("partitions.gpu.gpu_request", "--gres=gpu", "gpu_request must contain {count}"),
        ("partitions.debug.gpu_request", "--gpus={count}", "gpu_request needs a kind of node with gpus"),
        ("partitions.gpu.memory_request", "--mem=all", "memory_request must contain {mib}"),
        ("partitions.gpu.request_by", "qos", "request_by is qos: say which qos"),
        ("partitions.gpu.confidence", "doubtful", "say under doubts: what is in doubt"),
        ("partitions.gpu.preemption", {"grace": "fast"}, "partitions.gpu.preemption.grace: 'fast' is not a duration"),
        ("partitions.gpu.charge", {"unit": "SU", "per": "day"}, "partitions.gpu.charge.per: "),
        ("nodes.a100.memory_nominal", "59GB", "memory (requestable) is more than memory_nominal"),
        ("nodes.a100.cpus_per_gpu", 5, "cpus_per_gpu x 4 GPUs is more than cores"),
        ("nodes.a100.memory_per_gpu", "16GB", "memory_per_gpu x 4 GPUs is more than memory"),
        ("nodes.plain.cpus_per_gpu", 5, "cpus_per_gpu and memory_per_gpu need gpus"),
        ("nodes.a100.gpus.memory_nominal", "40GB", "memory (as reported) is more than memory_nominal"),
        ("login.keys", "forbidden", "keys are forbidden, and auth has a publickey step"),
        ("login.auth", [{"by": ["password"]}], None),
        ("login.jump", "a b", "login.jump: "),
        ("login.auth", [{"by": ["pasword"]}], "login.auth.0.by.0: should be 'publickey', 'password'"),
        ("default_partition", "fast", "default_partition 'fast' is none of the partitions"),
        ("partitions", {}, "partitions: "),
        ("scheduler.version", 22.05, "scheduler.version: should be text; put it in quotes"),
        ("nodes.plain", [16], "nodes.plain: should be a mapping of keys to values"),
        ("partitions.gpu.nodes", "a100", "partitions.gpu.nodes: should be a list: [one, two]"),
        ("partitions.gpu.nodes", [], "partitions.gpu.nodes: should not be empty"),
        ("nodes.plain.count", "many", "nodes.plain.count: should be a whole number"),
        ("session.persist", "maybe", "session.persist: should be true or false"),
        ("verified", "lately", "verified: should be a date: 2026-11-29"),
        ("deadlines", {"joins": "5m"}, "deadlines.joins: no such key; did you mean join?"),
    ],
)
def test_facts_that_contradict_each_other_are_refused(key: str, value: Any, words: str | None, tmp_path: Path) -> None:
    if words is None:
        data = with_value(key, value)
        data["login"]["keys"], words = "required", "keys are required, and auth has no publickey step"
        assert words in complaint(data, tmp_path)
    else:
        assert words in complaint(with_value(key, value), tmp_path)


words = st.text("abc", min_size=1, max_size=3)
plain = st.recursive(
    st.integers() | st.booleans() | st.lists(st.integers(), max_size=2),
    lambda inner: st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)
mappings = st.dictionaries(words, plain, max_size=4)


@given(mappings)
def test_a_file_that_changes_nothing_leaves_all_as_it_is(base: dict[str, Any]) -> None:
    assert overlaid(base, {}) == base
    assert overlaid({}, base) == base
    assert overlaid(base, base) == base


@given(mappings, mappings)
def test_what_the_file_says_holds_and_the_rest_stays(base: dict[str, Any], change: dict[str, Any]) -> None:
    whole = overlaid(base, change)
    assert set(whole) == set(base) | set(change)
    for key in base.keys() - change.keys():
        assert whole[key] == base[key]
    for key, value in change.items():
        nested = isinstance(value, dict) and isinstance(base.get(key), dict)
        assert whole[key] == (overlaid(base[key], value) if nested else value)
    assert overlaid(whole, change) == whole


@given(mappings, words)
def test_null_takes_mappings_and_lists_away_and_leaves_null_for_single_values(base: dict[str, Any], key: str) -> None:
    whole = overlaid(base, {key: None})
    if isinstance(base.get(key), dict | list):
        assert key not in whole
    else:
        assert whole[key] is None


def test_taking_away_what_is_not_there_any_more_is_no_mistake(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("extends: lab\npartitions: {gone: null}\nnodes: {old: null}\n")
    assert read_any(tmp_path / "mine.yaml", (tmp_path, data_dir("sites"))).name == "mine"


def test_a_partition_without_a_word_is_a_mistake(tmp_path: Path) -> None:
    assert "partitions.gpu: " in complaint(with_value("partitions.gpu", None), tmp_path)


def test_a_mistake_in_a_kind_of_node_is_told_once(tmp_path: Path) -> None:
    told = complaint(with_value("nodes.a100.cores", "many"), tmp_path)
    assert len(told.splitlines()) == 1
    assert "nodes.a100.cores: should be a whole number" in told
