"""A command that is killed at any moment of its dealings with EC2: no launch has left that is not on disk, and whatever
was launched is known again by its tag."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from siteannex.annex.launches import RecordedLaunches, adopt_instances, next_number, unanswered
from siteannex.annex.store import Annex, Store
from siteannex.cloud.launch import Launch, OurInstance
from siteannex.errors import AnnexError
from tests.unit.doubles import FakeClock
from tests.unit.samples import plan
from tests.unit.test_cloud_launch import KilledError, Region, launches, lost
from tests.unit.test_cloud_launch import only_region as only_region
from tests.unit.test_cloud_launch import region as region

ID = "aws-00000001"
MOMENTS = range(1, 19)
"""Three launches, the first two refused: before and after each line that is written and each request."""


class Mortal:
    """Keeps the annex's own log and dies before or after one of its lines, as `moment` says."""

    def __init__(self, annex: Annex, moment: Callable[[], None]) -> None:
        self.log, self.moment = RecordedLaunches(annex), moment

    def intend(self, launch: Launch) -> None:
        self._around(lambda: self.log.intend(launch))

    def launched(self, launch: Launch, instance_ids: tuple[str, ...]) -> None:
        self._around(lambda: self.log.launched(launch, instance_ids))

    def refused(self, launch: Launch, code: str) -> None:
        self._around(lambda: self.log.refused(launch, code))

    def _around(self, write: Callable[[], None]) -> None:
        self.moment()
        write()
        self.moment()


def store(root: Path) -> Store:
    return Store(root / "state", FakeClock())


def annex(root: Path, annex_id: str = ID) -> Annex:
    return store(root).create(replace(plan(), annex_id=annex_id))


def read_again(root: Path) -> Annex:
    """What the next command finds."""
    [found] = store(root).annexes()
    return found


def bring(region: Region, mortal: Annex, dies_at: int = 0) -> int:
    """Launch into the third zone, and die at that moment; returns how many moments there were."""
    passed = 0

    def moment() -> None:
        nonlocal passed
        passed += 1
        if passed == dies_at:
            raise KilledError

    def leaving(asked: object, nth: int) -> str | None:
        moment()
        return "InsufficientInstanceCapacity" if nth <= 2 else None

    def answered(nth: int) -> bool:
        moment()
        return False

    region.breaks, region.dies_after = leaving, answered
    try:
        region.ec2.launch_first(launches(), region.ground, Mortal(mortal, moment))
    except KilledError:
        assert passed == dies_at
    finally:
        region.breaks, region.dies_after = lambda asked, nth: None, lambda nth: False
    return passed


def test_there_are_so_many_moments(region: Region, tmp_path: Path) -> None:
    assert bring(region, annex(tmp_path)) == MOMENTS[-1]


@pytest.mark.parametrize("dies_at", MOMENTS)
def test_killed_at_any_moment_leaves_no_unknown_instance(region: Region, tmp_path: Path, dies_at: int) -> None:
    bring(region, annex(tmp_path), dies_at)
    after = read_again(tmp_path)
    intended = {each["token"] for event in after.events() if isinstance(each := event.data.get("launch"), dict)}
    assert {each["ClientToken"] for each in region.asked()} <= intended
    known = set(after.state().job_ids)
    there = region.ec2.instances(ID)
    assert known <= {each.instance_id for each in there}
    assert len(known) == len(there) or unanswered(after.events()), "an unknown instance that nobody would look for"
    adopt_instances(after, there)
    assert set(after.state().job_ids) == {each.instance_id for each in there}
    assert len(there) in (0, 2)
    assert {each.number for each in unanswered(after.events())}.isdisjoint({next_number(after.events())})


def test_a_launch_without_an_answer_stays_open_until_its_instances_are_seen(region: Region, tmp_path: Path) -> None:
    mine = annex(tmp_path)
    region.breaks = lambda asked, nth: lost()
    with pytest.raises(AnnexError):
        region.ec2.launch_first(launches(), region.ground, RecordedLaunches(mine))
    [left] = unanswered(mine.events())
    assert left.text == "2 x g6e.xlarge in us-east-1a, on-demand"
    seen = OurInstance("i-0abc", ID, "aws", "running", "", "us-east-1a", "g6e.xlarge", "", left.token)
    assert adopt_instances(mine, [seen]) == ("i-0abc",)
    assert unanswered(mine.events()) == ()
    assert adopt_instances(mine, [seen]) == ()


def test_an_instance_of_another_annex_is_not_adopted(tmp_path: Path) -> None:
    other = OurInstance("i-0abc", "aws-00000002", "aws", "running", "", "us-east-1a", "g6e.xlarge", "")
    mine = annex(tmp_path)
    assert adopt_instances(mine, [other]) == ()
    assert mine.state().job_ids == ()


def test_a_launch_that_cannot_be_written_down_is_not_asked_for(region: Region, tmp_path: Path) -> None:
    mine = annex(tmp_path)
    shutil.rmtree(mine.path)
    with pytest.raises(AnnexError) as raised:
        region.ec2.launch_first(launches(), region.ground, RecordedLaunches(mine))
    assert raised.value.failure.code == "state-unwritable"
    assert region.asked() == []
