"""What is true of every failure with one code."""

from __future__ import annotations

from dataclasses import dataclass

from siteannex.errors import Stage


@dataclass(frozen=True, slots=True)
class FailureKind:
    """What is true of every failure with this code."""

    stage: Stage
    meaning: str
    hint: str
    retryable: bool = False
