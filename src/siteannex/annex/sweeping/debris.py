"""What is debris: whatever bears our marks and belongs to no living annex. A function of inventories, pure.

Ours is what an annex recorded here has left, or what says by its origin (marks.py) that it was kept here. All else,
another access point's annexes of the same user above all, is shown and never touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from siteannex.annex.marks import origin_words
from siteannex.annex.sweeping.inventory import MarkedDirectory, MarkedJob, SiteInventory
from siteannex.model import MarkedAd
from siteannex.units import format_duration, seconds_between

AP, HERE = "access point", "here"
UNHEARD_S = 240.0
"""An ad not renewed for so long (EPs do it once a minute) is a dead EP's."""


@dataclass(frozen=True, slots=True)
class Record:
    """An annex as its events have it. What `up` is at work on is recorded before anything of it is at a site."""

    annex_id: str
    name: str
    ended: bool


class Kind(StrEnum):
    """What kind of thing was found."""

    JOB = "job"
    DIRECTORY = "directory"
    AD = "ad"
    RECORD = "record"
    LOCAL = "local"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing. `removable` only when it is surely ours and surely of no living annex."""

    kind: Kind
    place: str
    """The site, AP or HERE."""
    what: str
    annex_id: str
    why: str = ""
    removable: bool = False


def debris(
    records: Mapping[str, Record],
    origin: str | None,
    sites: Sequence[SiteInventory],
    ads: Iterable[MarkedAd],
    now: datetime,
) -> tuple[Finding, ...]:
    """Everything marked that belongs to no living annex of ours. `records` must be read after the inventories.

    `origin` is our own mark, None when the access point cannot be asked for it.
    """
    pilots = _one_a_pilot(ads)
    said = _origins(sites, pilots)
    things = [
        *(
            Finding(Kind.JOB, at.site, f"job {job.job_id} {job.state}", job.annex_id)
            for at in sites
            for job in at.jobs or ()
        ),
        *(
            Finding(Kind.DIRECTORY, at.site, f"annex/{left.annex_id}", left.annex_id)
            for at in sites
            for left in at.directories
        ),
    ]
    found = [_judged(thing, records.get(thing.annex_id), said[thing.annex_id], origin) for thing in things]
    running = {at.site: {job.job_id for job in at.jobs} for at in sites if at.jobs is not None}
    ending = {(thing.place, thing.annex_id) for thing in found if thing is not None and thing.removable}
    for ad in pilots:
        thing = Finding(Kind.AD, AP, ad.name, ad.annex_id)
        judged = _judged(thing, records.get(ad.annex_id), said[ad.annex_id], origin)
        over = (ad.site, ad.annex_id) in ending or ad.job_id not in running.get(ad.site, {ad.job_id})
        found.append(judged if over or judged is None else _unless_heard(judged, ad, now))
    return tuple(thing for thing in found if thing is not None)


def _one_a_pilot(ads: Iterable[MarkedAd]) -> list[MarkedAd]:
    """Of a pilot's slots and master the ad that was heard last."""
    latest: dict[tuple[str, str], MarkedAd] = {}
    for ad in sorted(ads, key=lambda ad: (ad.last_heard is not None, ad.last_heard)):
        latest[ad.annex_id, ad.job_id] = ad
    return list(latest.values())


def _origins(sites: Sequence[SiteInventory], ads: Sequence[MarkedAd]) -> dict[str, str]:
    """By annex, whose it says to be: in the job's comment, in the directory or in an ad."""
    marks: list[MarkedJob | MarkedDirectory | MarkedAd] = []
    for at in sites:
        marks += [*(at.jobs or ()), *at.directories]
    said: dict[str, str] = {}
    for mark in (*marks, *ads):
        said[mark.annex_id] = said.get(mark.annex_id) or mark.origin
    return said


def _judged(thing: Finding, record: Record | None, said: str, origin: str | None) -> Finding | None:
    """Whether it is debris, and why; None for what belongs to a living annex."""
    if record is not None:
        return replace(thing, why=f"{record.name} has ended and left it", removable=True) if record.ended else None
    unknown = "no annex of that id is recorded here"
    if not said:
        return replace(thing, why=f"{unknown}, and it does not say whose it is")
    if origin is None:
        return replace(thing, why=f"{unknown}, and HTCondor does not answer: whose it is cannot be told")
    if said == origin:
        return replace(thing, why="its annex is no longer recorded here", removable=True)
    if origin_words(said) == origin_words(origin):
        return replace(thing, why=f"belongs to another state directory of {origin_words(said)}")
    return replace(thing, why=f"belongs to another AP ({origin_words(said)})")


def _unless_heard(thing: Finding, ad: MarkedAd, now: datetime) -> Finding:
    """An ad whose job was not asked about is only debris when nobody has renewed it for long."""
    unheard_s = seconds_between(ad.last_heard, now) if ad.last_heard else UNHEARD_S
    if not thing.removable or unheard_s >= UNHEARD_S:
        return thing
    why = f"renewed {format_duration(unheard_s)} ago, an EP may stand behind it: siteannex sweep {ad.site} looks there"
    return replace(thing, why=why, removable=False)
