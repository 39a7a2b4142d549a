"""What is debris: only what is surely ours and surely of no living annex."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siteannex.annex.marks import is_annex_id, read_comment
from siteannex.annex.sweeping.debris import UNHEARD_S, Finding, Kind, Record, debris
from siteannex.annex.sweeping.inventory import (
    MarkedDirectory,
    MarkedJob,
    SiteInventory,
    read_inventory,
)
from siteannex.model import MarkedAd
from tests.unit.samples import NOW, ago

MINE, OTHER_AP, OTHER_STATE = "ap.lab/00000000", "ap2.lab/00000000", "ap.lab/11111111"
IDS = ["a-00000001", "b-00000002", "c-00000003"]


def at_lab(*marks: MarkedJob | MarkedDirectory, squeue: bool = True) -> SiteInventory:
    jobs = tuple(mark for mark in marks if isinstance(mark, MarkedJob))
    directories = tuple(mark for mark in marks if isinstance(mark, MarkedDirectory))
    return SiteInventory("lab", "alice@login.lab", jobs if squeue else None, directories)


def job(annex_id: str = IDS[0], origin: str = MINE, job_id: str = "71") -> MarkedJob:
    return MarkedJob(job_id, annex_id, origin, "RUNNING")


def ad(annex_id: str = IDS[0], origin: str = MINE, *, heard: datetime | None = NOW, job_id: str = "71") -> MarkedAd:
    return MarkedAd("slot1@ep71@c1", annex_id, origin, job_id, "lab", heard)


def look(
    *sites: SiteInventory,
    records: list[Record] | None = None,
    ads: list[MarkedAd] | None = None,
    mine: str | None = MINE,
) -> list[Finding]:
    known = {record.annex_id: record for record in records or []}
    return list(debris(known, mine, sites, ads or [], NOW))


def test_a_job_and_a_directory_of_an_annex_nobody_remembers_are_ours_by_their_origin() -> None:
    found = look(at_lab(job(), MarkedDirectory(IDS[0], MINE)))
    assert [(each.kind, each.removable) for each in found] == [(Kind.JOB, True), (Kind.DIRECTORY, True)]
    assert found[0].why == "its annex is no longer recorded here"


def test_what_belongs_to_a_living_annex_is_no_finding() -> None:
    living = [Record(IDS[0], "a", ended=False)]
    assert look(at_lab(job(), MarkedDirectory(IDS[0], MINE)), records=living, ads=[ad()]) == []


def test_what_an_ended_annex_has_left_is_ours_whatever_its_mark_says() -> None:
    ended = [Record(IDS[0], "a", ended=True)]
    for origin in ("", MINE, OTHER_AP):
        [found] = look(at_lab(job(origin=origin)), records=ended)
        assert found.removable
        assert found.why == "a has ended and left it"


@pytest.mark.parametrize(
    ("origin", "words"),
    [
        (OTHER_AP, "belongs to another AP (ap2.lab)"),
        (OTHER_STATE, "belongs to another state directory of ap.lab"),
        ("", "does not say whose it is"),
    ],
)
def test_what_is_not_surely_ours_is_shown_and_never_touched(origin: str, words: str) -> None:
    found = look(at_lab(job(origin=origin), MarkedDirectory(IDS[0], origin)), ads=[ad(origin=origin)])
    assert len(found) == 3
    assert not any(each.removable for each in found)
    assert all(words in each.why for each in found)


def test_the_directory_says_whose_a_job_is_when_a_site_rewrites_comments() -> None:
    found = look(at_lab(job(origin=""), MarkedDirectory(IDS[0], MINE)))
    assert all(each.removable for each in found)


def test_without_the_access_point_only_recorded_annexes_can_be_told() -> None:
    ended = [Record(IDS[1], "b", ended=True)]
    found = look(at_lab(job(), job(IDS[1], job_id="72")), records=ended, mine=None)
    assert [(each.annex_id, each.removable) for each in found] == [(IDS[0], False), (IDS[1], True)]
    assert "HTCondor does not answer" in found[0].why


def test_an_ad_is_debris_when_no_ep_stands_behind_it() -> None:
    assert look(at_lab(), ads=[ad()])[0].removable, "its job has ended"
    assert look(at_lab(job()), ads=[ad()])[-1].removable, "its job is removed with it"
    assert look(ads=[ad(heard=ago(UNHEARD_S))])[0].removable, "nobody renews it"
    [fresh] = look(ads=[ad()])
    assert not fresh.removable
    assert "siteannex sweep lab looks there" in fresh.why
    [silent] = look(at_lab(squeue=False), ads=[ad()])
    assert not silent.removable, "squeue did not answer: its job may run"


def test_a_pilots_slots_and_master_are_one_finding() -> None:
    found = look(at_lab(), ads=[ad(heard=ago(10)), ad(), ad(heard=None), ad(job_id="72")])
    assert len(found) == 2


ORIGINS = st.sampled_from(["", MINE, OTHER_AP, OTHER_STATE])


@given(
    ended=st.dictionaries(st.sampled_from(IDS), st.booleans()),
    jobs=st.lists(st.tuples(st.sampled_from(IDS), ORIGINS), max_size=6),
    directories=st.lists(st.tuples(st.sampled_from(IDS), ORIGINS), max_size=6),
    ads=st.lists(st.tuples(st.sampled_from(IDS), ORIGINS, st.integers(0, 600)), max_size=6),
    mine=st.sampled_from([None, MINE]),
    squeue=st.booleans(),
)
def test_nothing_is_removable_that_is_not_proved_ours_and_dead(
    ended: dict[str, bool],
    jobs: list[tuple[str, str]],
    directories: list[tuple[str, str]],
    ads: list[tuple[str, str, int]],
    mine: str | None,
    squeue: bool,
) -> None:
    site = at_lab(
        *(job(annex, origin, str(at)) for at, (annex, origin) in enumerate(jobs)),
        *(MarkedDirectory(*each) for each in directories),
        squeue=squeue,
    )
    shown = [ad(annex, origin, heard=ago(age), job_id=str(at)) for at, (annex, origin, age) in enumerate(ads)]
    records = {annex: Record(annex, annex, over) for annex, over in ended.items()}
    said = {(annex, origin) for annex, origin, *_ in [*jobs, *directories, *((a, o) for a, o, _ in ads)]}
    for found in debris(records, mine, [site], shown, NOW):
        assert records.get(found.annex_id, Record("", "", ended=True)).ended, "a living annex is never shown"
        if found.removable and found.annex_id not in records:
            assert mine is not None
            assert (found.annex_id, mine) in said, "it says that it is ours"


def test_comments_are_read_strictly() -> None:
    assert read_comment(f"siteannex:{IDS[0]}:{MINE}") == (IDS[0], MINE)
    assert read_comment(f"siteannex:{IDS[0]}") == (IDS[0], "")
    for foreign in ("", "(null)", "siteannex", f"siteannex:{IDS[0]}:x y", f"other:{IDS[0]}", "siteannex:lab:ap/0000"):
        assert read_comment(foreign) is None


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=300))
def test_foreign_text_is_never_an_exception_and_never_a_job(text: str) -> None:
    seen = read_inventory(text, "lab", "alice@login.lab")
    assert seen.jobs is None or all(is_annex_id(mark.annex_id) for mark in seen.jobs)
    assert all(is_annex_id(mark.annex_id) for mark in seen.directories)


def test_a_job_that_only_borrowed_a_comment_is_not_ours() -> None:
    text = f"@jobs\n7|RUNNING|train|siteannex:{IDS[0]}:{MINE}\n8|PENDING|{IDS[1]}|siteannex:{IDS[1]}:{MINE}\n@jobs ok\n"
    seen = read_inventory(text, "lab", "")
    assert seen.jobs == (MarkedJob("8", IDS[1], MINE, "PENDING"),)
