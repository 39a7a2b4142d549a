"""The GPU catalogue: every spelling finds its model, no other model, and says nothing of memory."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siteannex.site.gpus import CATALOGUE, GpuModel, compute_capability, find_model
from siteannex.site.schema import Gpus

SPELLINGS = [(name, model) for model in CATALOGUE for name in (model.name, *model.aliases)]


def found(text: str) -> str | None:
    model = find_model(text)
    return model.name if model else None


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("NVIDIA A100-SXM4-40GB", "A100"),
        ("NVIDIA A100 80GB PCIe", "A100"),
        ("Tesla V100-SXM2-32GB", "V100"),
        ("Tesla V100S-PCIE-32GB", "V100S"),
        ("gpu:v100-32:8", "V100"),
        ("h100-80", "H100"),
        ("NVIDIA H100 NVL", "H100"),
        ("NVIDIA GH200 120GB", "GH200"),
        ("NVIDIA GH200 480GB", "GH200"),
        ("l40s-48", "L40S"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA L40", "L40"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA A10G", "A10G"),
        ("NVIDIA A10", "A10"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"),
        ("Quadro RTX 6000", "RTX 6000"),
        ("NVIDIA RTX A6000", "RTX A6000"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX PRO 6000"),
        ("AMD Instinct MI210", "MI210"),
        ("Intel(R) Data Center GPU Max 1550", "Max 1550"),
        ("NVIDIA GeForce RTX 9999", None),
        ("A100X", None),
        ("", None),
    ],
)
def test_names_as_slurm_and_drivers_spell_them(text: str, name: str | None) -> None:
    assert found(text) == name


@given(st.sampled_from(SPELLINGS), st.sampled_from([str.lower, str.upper, str.title, str]), st.sampled_from(" -_"))
def test_neither_case_nor_separators_matter(spelling: tuple[str, GpuModel], case: type[str], separator: str) -> None:
    name, model = spelling
    assert find_model(re.sub(r"[ _-]", separator, case(name))) is model


@given(
    st.sampled_from([(name, model) for name, model in SPELLINGS if name.isalnum()]),
    st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=1, max_size=3),
    st.booleans(),
)
def test_a_longer_word_is_never_the_model_of_its_part(spelling: tuple[str, GpuModel], more: str, before: bool) -> None:
    name, model = spelling
    assert find_model(more + name if before else name + more) is not model


@given(st.text(max_size=30))
def test_any_text_is_answered(text: str) -> None:
    model = find_model(text)
    assert model is None or model in CATALOGUE


def test_l4_is_never_an_l40s() -> None:
    assert {found(text) for text in ("l40s", "L40S-48", "gpu:l40s", "NVIDIA L40S")} == {"L40S"}
    assert found("l4") == "L4"


def test_names_are_unambiguous() -> None:
    plain = [re.sub(r"[\s_-]+", " ", name.lower()) for name, _ in SPELLINGS]
    assert len(plain) == len(set(plain))


@pytest.mark.parametrize("model", ["NVIDIA A100-SXM4-80GB", "NVIDIA GH200 120GB", "h100-80", "l40s-48"])
def test_memory_is_never_read_from_a_name(model: str) -> None:
    gpus = Gpus(type="x", model=model, per_node=1)
    assert (gpus.memory, gpus.memory_nominal, gpus.memory_floor) == (None, None, None)


def test_what_the_site_saw_wins_over_the_catalogue() -> None:
    assert Gpus(type="x", model="A100", per_node=1).compute_capability == 8.0
    assert Gpus(type="x", model="A100", per_node=1, capability=9.9, bf16=False).compute_capability == 9.9
    assert Gpus(type="x", model="new thing", per_node=1).compute_capability is None
    assert Gpus(type="x", model="new thing", per_node=1, bf16=True).has_bf16 is True


def test_bf16_comes_with_capability_8() -> None:
    native = {model.name for model in CATALOGUE if model.bf16}
    assert {"A100", "A40", "L4", "L40S", "H100", "GH200", "B200", "MI210"} <= native
    assert not {"V100", "T4", "RTX 6000", "P100"} & native
    assert compute_capability("V100") == 7.0


def test_asking_with_the_nominal_size_fits_what_drivers_report() -> None:
    nominal = Gpus(type="a10g", model="A10G", per_node=1, memory_nominal=24 * 1024)
    assert nominal.memory_floor is not None
    assert nominal.memory_floor <= 22888
    assert Gpus(type="a10g", model="A10G", per_node=1, memory=22888, memory_nominal=24 * 1024).memory_floor == 22888
