"""What is written down of launches at a cloud: in the annex's own events, on disk before the cloud is asked.

A command that is killed between two requests leaves either an intent without an answer, or instances that bear the
annex's tag and are not recorded. Both are told from what is written here and what the cloud shows by tag.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from siteannex.annex.events import Event, What
from siteannex.annex.store import Annex
from siteannex.cloud.launch import Launch, OurInstance
from siteannex.errors import Stage


@dataclass(frozen=True, slots=True)
class RecordedLaunches:
    """The LaunchLog of one annex. AnnexError(state-unwritable) of `intend` comes before anything was asked for."""

    annex: Annex

    def intend(self, launch: Launch) -> None:
        """On disk when it returns."""
        attempt = launch.attempt
        self.annex.record(
            Stage.SUBMIT,
            What.BEGIN,
            launch={
                "token": launch.token,
                "number": launch.number,
                "market": attempt.market,
                "instance_type": attempt.choice.instance_type,
                "count": attempt.choice.count,
                "zone": attempt.zone,
                "expires": launch.expires.isoformat(),
            },
        )

    def launched(self, launch: Launch, instance_ids: tuple[str, ...]) -> None:
        """From here on `status` and `down` know each instance, as they know a batch job."""
        self.annex.record(Stage.SUBMIT, What.DONE, job_ids=list(instance_ids), launched=launch.token)

    def refused(self, launch: Launch, code: str) -> None:
        """Nothing of it is there."""
        self.annex.record(Stage.SUBMIT, What.SEEN, refused=launch.token, code=code)


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A launch that was asked for, or was about to be, and of which nobody has written down what came of it."""

    token: str
    number: int
    text: str
    """`2 x g6e.xlarge in us-east-1a, on-demand`."""


def unanswered(events: Iterable[Event]) -> tuple[Unanswered, ...]:
    """Launches that may be there all the same; while there is one, launching anew could launch twice."""
    open_ones: dict[str, Unanswered] = {}
    for event in events:
        if event.stage is not Stage.SUBMIT:
            continue
        begun = event.data.get("launch")
        if event.what is What.BEGIN and isinstance(begun, dict) and isinstance(begun.get("token"), str):
            open_ones[begun["token"]] = _unanswered(begun)
        for word in ("launched", "refused"):
            open_ones.pop(str(event.data.get(word)), None)
    return tuple(open_ones.values())


def next_number(events: Iterable[Event]) -> int:
    """Of the next attempt: one that no launch of this annex has had, since EC2 remembers each one's token."""
    intents = [event.data.get("launch") for event in events]
    numbers = [begun.get("number") for begun in intents if isinstance(begun, dict)]
    return max((number for number in numbers if isinstance(number, int)), default=-1) + 1


def adopt_instances(annex: Annex, found: Iterable[OurInstance]) -> tuple[str, ...]:
    """Record instances that bear the annex's tag and that its events do not know; returns their ids.

    With them the launch that made them is answered. An instance of another annex is passed over, whatever was asked.
    """
    known = annex.state().job_ids
    by_token: dict[str, list[str]] = {}
    for each in found:
        if each.annex_id == annex.plan.annex_id and each.instance_id not in known:
            by_token.setdefault(each.token, []).append(each.instance_id)
    for token, ids in by_token.items():
        annex.record(Stage.SUBMIT, What.DONE, job_ids=ids, launched=token, adopted=True)
    return tuple(each for ids in by_token.values() for each in ids)


def _unanswered(begun: dict[str, object]) -> Unanswered:
    number = begun.get("number")
    what = f"{begun.get('count')} x {begun.get('instance_type')} in {begun.get('zone')}, {begun.get('market')}"
    return Unanswered(str(begun["token"]), number if isinstance(number, int) else 0, what)
