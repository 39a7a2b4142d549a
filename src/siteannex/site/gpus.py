"""The GPU catalogue: the names one model goes by, and what is true of every card of that name.

Memory is not: an A100 has 40 or 80 GB, an H100 80, 94 or 96, a GH200 calls itself "120GB" for memory that is not the
GPU's. `memory_seen` only lists what drivers were seen to report, for people to compare with.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal


@dataclass(frozen=True, slots=True)
class GpuModel:
    """One model of GPU."""

    name: str
    """Canonical: what `--gpu-type` is compared with."""
    capability: float | None
    """CUDA compute capability, HTCondor's `Capability`; None where it is not known or there is none."""
    aliases: tuple[str, ...] = ()
    """Other spellings beside the name: Slurm's GRES types, EC2's, marketing's. Case, `-` and `_` do not matter."""
    memory_seen: tuple[int, ...] = ()
    """MiB of one GPU as reported, where it was seen."""
    maker: Literal["nvidia", "amd", "intel"] = "nvidia"
    has_bf16: bool | None = None
    """Where no capability is known."""

    @property
    def bf16(self) -> bool | None:
        """Native bfloat16: at NVIDIA from compute capability 8.0 on."""
        return self.has_bf16 if self.capability is None else self.capability >= 8.0


# Capabilities: https://developer.nvidia.com/cuda-gpus and /cuda-legacy-gpus, by the names the driver reports.
# Memory: what EC2 reports (instance-types.md of karpenter-provider-aws, 2026-07-11), in MiB.
CATALOGUE = (
    GpuModel("K80", 3.7),
    GpuModel("P100", 6.0),
    GpuModel("P40", 6.1),
    GpuModel("V100", 7.0, ("v100-16", "v100-32", "v100-32g"), (32768,)),
    GpuModel("V100S", 7.0),
    GpuModel("T4", 7.5, memory_seen=(16384,)),
    GpuModel("T4G", 7.5),
    GpuModel("RTX 5000", 7.5, ("Quadro RTX 5000",)),
    GpuModel("RTX 6000", 7.5, ("Quadro RTX 6000",)),
    GpuModel("RTX 8000", 7.5, ("Quadro RTX 8000",)),
    GpuModel("A100", 8.0, ("a100-40", "a100-80"), (40960, 81920)),
    GpuModel("A30", 8.0),
    GpuModel("A2", 8.6),
    GpuModel("A10", 8.6),
    GpuModel("A10G", 8.6, memory_seen=(22888,)),
    GpuModel("A16", 8.6),
    GpuModel("A40", 8.6),
    GpuModel("RTX A5000", 8.6),
    GpuModel("RTX A6000", 8.6),
    GpuModel("L4", 8.9, memory_seen=(22888,)),
    GpuModel("L40", 8.9),
    GpuModel("L40S", 8.9, ("l40s-48",), (45776,)),
    GpuModel("RTX 6000 Ada", 8.9),
    GpuModel("H100", 9.0, ("h100-80",), (81920,)),
    GpuModel("H200", 9.0, memory_seen=(144384,)),
    GpuModel("GH200", 9.0),
    GpuModel("B200", 10.0, memory_seen=(183359,)),
    GpuModel("GB200", 10.0),
    GpuModel("B300", None, memory_seen=(275040,), has_bf16=True),
    GpuModel("RTX PRO 4500", 12.0, (), (32768,)),
    GpuModel("RTX PRO 6000", 12.0, ("rtx-pro-server-6000",), (98304,)),
    GpuModel("MI100", None, maker="amd"),
    GpuModel("MI210", None, maker="amd", has_bf16=True),
    GpuModel("Max 1550", None, ("pvc", "Data Center GPU Max 1550"), maker="intel"),
)


def find_model(text: str) -> GpuModel | None:
    """The model that a spelling names, or None: `NVIDIA A100-SXM4-40GB`, `gpu:v100-32`, `l40s`.

    A name counts only where neither a letter nor a digit touches it, and the longest name wins, so that `l4` is never
    an L40S and an RTX 6000 Ada never an RTX 6000.
    """
    words = _plain(text)
    return next((model for pattern, model in _patterns() if pattern.search(words)), None)


def compute_capability(text: str) -> float | None:
    """`NVIDIA A100-SXM4-40GB` -> 8.0; None for a model that is not in the catalogue."""
    model = find_model(text)
    return model.capability if model else None


@lru_cache(maxsize=1)
def _patterns() -> tuple[tuple[re.Pattern[str], GpuModel], ...]:
    spellings = {_plain(name): model for model in CATALOGUE for name in (model.name, *model.aliases)}
    longest_first = sorted(spellings, key=len, reverse=True)
    return tuple(
        (re.compile(rf"(?<![a-z0-9]){re.escape(spelling)}(?![a-z0-9])"), spellings[spelling])
        for spelling in longest_first
    )


def _plain(text: str) -> str:
    return re.sub(r"[\s_-]+", " ", text.lower())
