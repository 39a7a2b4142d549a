"""What `judge` says: where an annex and each of its pilots is, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from siteannex.annex.events import QueueSeen
from siteannex.errors import Stage, StageFailure
from siteannex.model import BatchJob, Slot


class Confidence(StrEnum):
    """How far the three witnesses (batch system, pilot, collector) bear a verdict out."""

    AGREED = "agreed"
    """Every witness that can know says the same."""
    PARTIAL = "partial"
    """One was not asked or gives no answer; the others agree."""
    DISPUTED = "disputed"
    """They contradict each other; the verdict says whom it believes and why."""


def confidence_text(confidence: Confidence, doubt: str) -> str:
    """The same words wherever it is shown."""
    if confidence is Confidence.AGREED:
        return "the witnesses agree"
    return f"the witnesses disagree: {doubt}" if confidence is Confidence.DISPUTED else f"known in part: {doubt}"


@dataclass(frozen=True, slots=True)
class PilotVerdict:
    """Where one pilot is. `failure` is set when it will not come up, or came up wrong."""

    job_id: str
    stage: Stage
    text: str
    failure: StageFailure | None = None
    job: BatchJob | None = None
    slots: tuple[Slot, ...] = ()
    confidence: Confidence = Confidence.AGREED
    doubt: str = ""
    """Who is silent, or who contradicts whom and what that means; "" when they agree."""
    remembered: QueueSeen | None = None
    """What the queue said when it was last asked, where it was not asked now."""

    @property
    def ready(self) -> bool:
        """True when its EP is up and right."""
        return self.stage is Stage.READY and self.failure is None

    @property
    def over(self) -> bool:
        """True when this pilot can no longer run anything."""
        return self.stage is Stage.RELEASED


@dataclass(frozen=True, slots=True)
class Verdict:
    """Where the whole annex is: its most advanced living pilot decides."""

    stage: Stage
    text: str
    pilots: tuple[PilotVerdict, ...]
    failure: StageFailure | None = None
    confidence: Confidence = Confidence.AGREED
    doubt: str = ""
    """Of the pilot that decides."""

    @property
    def ready(self) -> int:
        """Pilots whose EP is up and right."""
        return sum(pilot.ready for pilot in self.pilots)

    @property
    def settled(self) -> bool:
        """True when waiting longer brings nothing new: all ready, or failed, or over."""
        return bool(self.pilots) and all(
            pilot.stage in (Stage.READY, Stage.DRAIN, Stage.RELEASED) or pilot.failure for pilot in self.pilots
        )
