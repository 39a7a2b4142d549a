"""Compute capability by GPU model: what HTCondor will advertise as `Capability`, before a node is seen."""

from __future__ import annotations

import re

# https://developer.nvidia.com/cuda-gpus and /cuda-legacy-gpus, read by the model names the driver reports.
_CAPABILITIES = {
    "K80": 3.7,
    "P100": 6.0,
    "P40": 6.1,
    "V100": 7.0,
    "V100S": 7.0,
    "T4": 7.5,
    "RTX 6000": 7.5,
    "RTX 8000": 7.5,
    "A100": 8.0,
    "A30": 8.0,
    "A2": 8.6,
    "A10": 8.6,
    "A10G": 8.6,
    "A16": 8.6,
    "A40": 8.6,
    "RTX A6000": 8.6,
    "L4": 8.9,
    "L40": 8.9,
    "L40S": 8.9,
    "RTX 6000 Ada": 8.9,
    "H100": 9.0,
    "H200": 9.0,
    "GH200": 9.0,
    "B200": 10.0,
    "GB200": 10.0,
}
_LONGEST_FIRST = sorted(_CAPABILITIES, key=len, reverse=True)


def compute_capability(model: str) -> float | None:
    """`NVIDIA A100-SXM4-40GB` -> 8.0; None for a model that is not in the table."""
    for name in _LONGEST_FIRST:
        if re.search(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", model, re.IGNORECASE):
            return _CAPABILITIES[name]
    return None
