"""`stage`: look, send what is not there, verify, remember. One straight line; every step can be repeated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from siteannex.errors import Evidence
from siteannex.failures import fail
from siteannex.model import StagedCopy
from siteannex.ports import Command, Transport, View
from siteannex.site.schema import Site
from siteannex.staging.ground import Ground, Place, look_script, read_look, remove_script, settle_script, verify_script
from siteannex.staging.record import Record
from siteannex.transport.room import write_failure
from siteannex.units import format_bytes

_BYTES_A_SECOND = 30e6
"""The slowest a site may read a copy for its sum."""


@dataclass(frozen=True, slots=True)
class Staged:
    """One file, staged. `sent_bytes` is 0 when it was there already."""

    file: str
    copy: StagedCopy
    sent_bytes: int


def look(site: Site, transport: Transport) -> Ground:
    """What is at the site and where more could be put. AnnexError: SHIP when no place can be written."""
    answer = transport.run([Command(look_script(site.directories))])[0]
    ground = read_look(answer.stdout)
    if not ground.places:
        seen = [Evidence.tail(f"making {site.directories.home}/data, exit status {answer.status}", answer.stderr)]
        raise write_failure(site.name, f"no place for data can be made at {site.name}", answer.stderr, seen)
    return ground


def stage(files: Sequence[Path], site: Site, transport: Transport, record: Record, view: View) -> list[Staged]:
    """Put the files at the site unless they are there. AnnexError as uploads raise; what was staged before stays."""
    ground = look(site, transport)
    record.replace(site.name, ground.copies)
    done = []
    for file in files:
        sha256 = _sum_of(file, site, record, view)
        there = ground.copy(sha256)
        if there is not None and _is_whole(there, site, transport, view):
            view.line("staged", f"{file.name}: already at {site.name}, verified: {there.path}")
            done.append(Staged(str(file), there, 0))
            record.add(site.name, there)
            continue
        done.append(_ship(file, sha256, ground, site, transport, view))
        record.add(site.name, done[-1].copy)
    return done


def _sum_of(file: Path, site: Site, record: Record, view: View) -> str:
    try:
        return record.sum_of(file, partial(view.progress, "sum", file.name))
    except OSError as problem:
        seen = [Evidence(str(file), f"{problem.strerror} (errno {problem.errno})")]
        hint = "Check the file on this machine."
        raise fail("ship-failed", site.name, f"{file} cannot be read here", evidence=seen, hint=hint) from problem


def _ship(file: Path, sha256: str, ground: Ground, site: Site, transport: Transport, view: View) -> Staged:
    size = file.stat().st_size
    begun = next((part for part in ground.parts if part.sha256 == sha256), None)
    place = _place_for(size - (begun.size_bytes if begun else 0), begun, ground, site)
    copy = StagedCopy(sha256, size, f"{place.path}/{sha256}", file.name)
    if begun is not None:
        view.line("resume", f"{file.name}: {format_bytes(begun.size_bytes)} of {format_bytes(size)} are there already")
    sent = transport.put(
        file,
        copy.path,
        progress=partial(view.progress, "stage", file.name),
        sha256=sha256,
    )
    settled = transport.run([Command(settle_script(copy))])[0]
    if not settled.ok:
        seen = [Evidence.tail(f"naming {copy.path}, exit status {settled.status}", settled.stderr)]
        raise write_failure(site.name, f"{copy.path} could not be named", settled.stderr, seen)
    view.line("staged", f"{file.name}: {format_bytes(sent)} sent, sha256 verified at {site.name}: {copy.path}")
    if place.scratch and site.directories.purge:
        view.line("note", f"{site.name} purges files there ({site.directories.purge}); jobs then say so")
    return Staged(str(file), copy, sent)


def _place_for(needed: int, begun: StagedCopy | None, ground: Ground, site: Site) -> Place:
    """Where it began, else the first place with room. AnnexError(site-disk-full) before a byte is sent."""
    if begun is not None:
        folder = begun.path.rpartition("/")[0]
        started = [place for place in ground.places if place.path == folder]
    else:
        started = []
    places = started or ground.places
    roomy = [place for place in places if place.free_bytes is None or place.free_bytes > needed]
    if roomy:
        return roomy[0]
    told = "\n".join(f"{place.path}: {format_bytes(place.free_bytes or 0)} free" for place in places)
    what = f"no room for {format_bytes(needed)} at {site.name}"
    hint = f"siteannex stage {site.name} --list shows what could go (--remove)."
    raise fail("site-disk-full", site.name, what, evidence=[Evidence("df", told)], hint=hint)


def _is_whole(copy: StagedCopy, site: Site, transport: Transport, view: View) -> bool:
    """Whether a copy still is what its name says; one that is not is removed."""
    view.live("verify", f"{copy.name}: the site reads {format_bytes(copy.size_bytes)} for its sha256")
    patience = 60 + copy.size_bytes / _BYTES_A_SECOND
    answer = transport.run([Command(verify_script(copy))], timeout_s=patience)[0]
    if answer.stdout.strip() == copy.sha256:
        return True
    view.line(
        "verify", f"{copy.path} is damaged and was removed (its sha256 is {answer.stdout.strip() or 'unreadable'})"
    )
    transport.run([Command(remove_script(copy))])
    return False


def remove(
    wanted: Sequence[str], ground: Ground, site: Site, transport: Transport, record: Record
) -> tuple[list[StagedCopy], list[str]]:
    """Remove copies, and what cut uploads left, by name or start of their sum: (removed, words that mean none)."""
    gone: list[StagedCopy] = []
    unknown = []
    for word in wanted:
        named = [each for each in (*ground.copies, *ground.parts) if _means(word, each)]
        gone += [each for each in named if each not in gone]
        unknown += [] if named else [word]
    for copy in gone:
        answer = transport.run([Command(remove_script(copy))])[0]
        if not answer.ok:
            seen = [Evidence.tail(f"rm {copy.path}, exit status {answer.status}", answer.stderr)]
            raise write_failure(site.name, f"{copy.path} could not be removed", answer.stderr, seen)
    record.replace(site.name, [each for each in ground.copies if each not in gone])
    return gone, unknown


def _means(word: str, copy: StagedCopy) -> bool:
    return word == copy.name or (len(word) >= 6 and copy.sha256.startswith(word))
