"""What every part of a site file is made of: sizes and durations with units, frozen facts, and how sure they are."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, WithJsonSchema, model_validator

from siteannex.units import parse_duration_s, parse_memory_mib

FROM_YAML = "yaml"
"""Validation context of a file a person wrote: there a bare number has no unit and is refused."""


def _memory(value: object, info: ValidationInfo) -> object:
    return parse_memory_mib(str(value)) if isinstance(value, str) or _bare(value, info) else value


def _duration(value: object, info: ValidationInfo) -> object:
    return parse_duration_s(str(value)) if isinstance(value, str) or _bare(value, info) else value


def _bare(value: object, info: ValidationInfo) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and info.context == FROM_YAML


_MEMORY_WORDS = {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)? ?([MGTmgt]([iI]?[bB])?)$"}
_DURATION_WORDS = {"type": "string", "pattern": r"^([0-9]+[smhd] ?)+$"}

MemoryMib = Annotated[int, BeforeValidator(_memory), Field(gt=0), WithJsonSchema(_MEMORY_WORDS, mode="validation")]
"""Written as `256GB` or `249000M`, which is what Slurm takes them for; MiB inside."""
DurationS = Annotated[int, BeforeValidator(_duration), Field(gt=0), WithJsonSchema(_DURATION_WORDS, mode="validation")]
"""Written as `4h` or `7d`; seconds inside."""
Count = Annotated[int, Field(gt=0)]
Confidence = Literal["solid", "likely", "doubtful"]
"""solid: the site's own text or a live command, or two sources. likely: one good source. doubtful: see `doubts`."""


class Facts(BaseModel):
    """Read from outside, checked, never changed."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Sourced(Facts):
    """Facts that say when and where they were read, and how far to trust them."""

    verified: date
    """The day the facts were true, as far as their source tells."""
    source: str
    confidence: Confidence | None = None
    doubts: tuple[str, ...] = ()
    """What the sources disagree on or do not say, in words; shown in plans."""

    @model_validator(mode="after")
    def _a_doubt_says_what(self) -> Sourced:
        if self.confidence == "doubtful" and not self.doubts:
            raise ValueError("confidence is doubtful: say under doubts: what is in doubt")
        return self
