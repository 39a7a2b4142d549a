"""One training run as the checks of provenance look at it, and what they all ask of it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from siteannex.training.provenance.events import AttemptLog, Writing
from siteannex.training.provenance.files import Car, RunFiles


@dataclass(frozen=True, slots=True)
class Run:
    """What the checks look at: the run's own files, without strangers."""

    files: RunFiles
    cars: tuple[Car, ...]
    logs: tuple[AttemptLog, ...]
    written: tuple[Writing, ...]
    elsewhere: Mapping[str, str]

    def by_digest(self, sha256: str | None) -> list[Car]:
        """Side-cars of a checkpoint with these bytes."""
        return [car for car in self.cars if car.said.checkpoint.sha256 == sha256]

    def whose(self, sha256: object) -> str:
        """What another run calls a checkpoint with these bytes, as the end of a sentence; empty when none does."""
        return f"; it is {self.elsewhere[sha256]}" if isinstance(sha256, str) and sha256 in self.elsewhere else ""


def known(run: Run, sha256: str | None) -> bool:
    """Whether a side-car or event of the run tells of these bytes."""
    return bool(run.by_digest(sha256)) or any(each.get("sha256") == sha256 for each in run.written)


def name_of(parent: Any) -> str:
    """`epoch001.ckpt (0123456789ab...)`."""
    if not isinstance(parent, dict) or not parent.get("sha256"):
        return "nothing"
    return f"{parent.get('file')} ({str(parent['sha256'])[:12]}...)"


def attempt_of(log: AttemptLog) -> dict[str, Any]:
    """As a side-car spells it."""
    event = log.lines[0].event
    return {"node": event.node, **event.attempt.model_dump()}


def short(value: Any) -> str:
    """A value in a sentence."""
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 80 else text[:77] + "..."


def replaced(run: Run, writing: Writing) -> bool:
    """Whether an attempt tells why that epoch was trained again."""
    for log in run.logs:
        for aside in log.payloads("checkpoint.set_aside"):
            expected = aside.get("expected")
            if isinstance(expected, dict) and expected.get("sha256") == writing.get("sha256"):
                return True
        for again in log.payloads("epoch.repeated"):
            first, before = again.get("first"), again.get("before")
            told = isinstance(first, int) and isinstance(before, int) and writing.get("epoch") in range(first, before)
            if told and log is not writing.log:
                return True
    return False


def completed_again(run: Run, writing: Writing) -> bool:
    """Whether other events tell of the end of the same epoch."""
    same = (writing.stage, writing.get("epoch"))
    return any(
        (each.stage, each.get("epoch")) == same and each.get("complete") and each != writing for each in run.written
    )
