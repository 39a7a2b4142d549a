"""Failures as values: which stage, what was seen, what to do next. The heart of siteannex.

Every failure a user can meet is one `StageFailure`, built from the catalogue in `failures/` and carried by
`AnnexError`. Only the command line catches it. `Secret` keeps what must never be printed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Stage(StrEnum):
    """Where an annex is, in order. Up to SUBMIT under our hands; from BATCH_JOB to READY at the site."""

    PLAN = "PLAN"
    PACK = "PACK"
    CONNECT = "CONNECT"
    SHIP = "SHIP"
    SUBMIT = "SUBMIT"
    BATCH_JOB = "BATCH_JOB"
    EP_START = "EP_START"
    AP_CONNECT = "AP_CONNECT"
    EP_CONFIG = "EP_CONFIG"
    READY = "READY"
    DRAIN = "DRAIN"
    RELEASED = "RELEASED"

    @property
    def label(self) -> str:
        """The short word for it on the screen, the same in every verb."""
        return _LABELS[self]

    @property
    def order(self) -> int:
        """Position in the life of an annex, 0 for PLAN."""
        return list(Stage).index(self)


_LABELS = {
    Stage.PLAN: "plan",
    Stage.PACK: "pack",
    Stage.CONNECT: "connect",
    Stage.SHIP: "ship",
    Stage.SUBMIT: "submit",
    Stage.BATCH_JOB: "batch",
    Stage.EP_START: "ep",
    Stage.AP_CONNECT: "join",
    Stage.EP_CONFIG: "config",
    Stage.READY: "ready",
    Stage.DRAIN: "drain",
    Stage.RELEASED: "released",
}


@dataclass(frozen=True, slots=True)
class Secret:
    """A value that must not be shown: its repr and str hide it; `reveal()` is the only way in."""

    _value: str = field(repr=False)

    def reveal(self) -> str:
        """The value itself, for the one call that needs it."""
        return self._value

    def __str__(self) -> str:
        return "<secret>"

    def __repr__(self) -> str:
        return "Secret(...)"


EVIDENCE_LIMIT_CHARS = 2000


@dataclass(frozen=True, slots=True)
class Evidence:
    """Something really seen: `source` says where (command, log file, ad), `text` is verbatim, bounded, redacted."""

    source: str
    text: str

    @classmethod
    def tail(cls, source: str, text: str, secrets: tuple[Secret, ...] = ()) -> Evidence:
        """Keep the last part of a long text and blank every secret in it."""
        for secret in secrets:
            if secret.reveal():
                text = text.replace(secret.reveal(), "<secret>")
        text = text.strip()
        if len(text) > EVIDENCE_LIMIT_CHARS:
            text = "..." + text[-EVIDENCE_LIMIT_CHARS:]
        return cls(source, text)


@dataclass(frozen=True, slots=True)
class StageFailure:
    """What went wrong, in the one shape used from the compute node to the terminal and `--json`."""

    stage: Stage
    code: str
    site: str
    summary: str
    evidence: tuple[Evidence, ...] = ()
    hint: str = ""
    retryable: bool = False


class AnnexError(Exception):
    """Carries a StageFailure up to the command line, the only place that renders it."""

    def __init__(self, failure: StageFailure) -> None:
        super().__init__(f"{failure.stage}: {failure.code}: {failure.summary}")
        self.failure = failure
