"""SHIP: no room, no right, a cut connection, a file system without exec; nothing half-written is ever used or left."""

from __future__ import annotations

import pytest

from lab import Lab
from siteannex.errors import Stage
from tests.faultbook import FaultRow
from tests.lab.ground import Ground
from tests.lab.person import Person
from tests.lab.probing import AtSite, Probe, changed, program

UPLOAD = 5_000_000


def left(lab: Lab, directory: str) -> str:
    return lab.exec("login1", ["ls", "-A", directory], check=True).stdout


@pytest.mark.fault("home over quota", code="quota-exceeded")
def test_a_home_over_quota(lab: Lab, probe: Probe, at_site: AtSite, fault: FaultRow) -> None:
    """EDQUOT in the middle, as write(2) gives it; the kernels tests run on have no quota to set for real."""
    full = program(
        "cat",
        '[ "$(id -un)" = bob ] || exec /usr/bin/cat "$@"\n'
        "head -c 1000000; echo 'cat: write error: Disk quota exceeded' >&2; exit 1",
    )
    with at_site(*full), at_site(*program("quota", "echo '/home 950M* 900M 1000M'")):
        result = probe("bob", do=[f"put:{UPLOAD}:.probe/file"])
        assert left(lab, "/home/bob/.probe") == ""
    assert "your quota there is used up; it needs 5.0 MB" in result["summary"]
    assert "Disk quota exceeded" in result["evidence"]
    assert "free on /home" in result["evidence"]
    assert "/home 950M* 900M 1000M" in result["evidence"]
    fault.saw(result["failure"], seconds=result["seconds"])


@pytest.mark.fault("disk full halfway", code="site-disk-full")
def test_a_disk_that_fills_up_in_the_middle(lab: Lab, probe: Probe, at_site: AtSite, fault: FaultRow) -> None:
    with at_site(
        "mkdir -p /home/bob/full && mount -t tmpfs -o size=1m,mode=777 tmpfs /home/bob/full",
        "umount /home/bob/full && rmdir /home/bob/full",
    ):
        result = probe("bob", do=[f"put:{UPLOAD}:full/file"])
        assert left(lab, "/home/bob/full") == ""
    assert "the file system there is full; it needs 5.0 MB" in result["summary"]
    assert "No space left on device" in result["evidence"]
    assert "1.0 MB of 1.0 MB free on /home/bob/full" in result["evidence"]
    fault.saw(result["failure"], seconds=result["seconds"])


@pytest.mark.fault("read-only home", code="home-unwritable")
def test_a_home_that_is_read_only(probe: Probe, at_site: AtSite, fault: FaultRow) -> None:
    with at_site(
        "mkdir -p /home/bob/fixed && mount -t tmpfs -o ro tmpfs /home/bob/fixed",
        "umount /home/bob/fixed && rmdir /home/bob/fixed",
    ):
        result = probe("bob", do=["put:100:fixed/new/file"])
    assert "Read-only file system" in result["evidence"]
    fault.saw(result["failure"], seconds=result["seconds"])


@pytest.mark.fault("connection cut halfway", code="upload-cut")
def test_a_connection_cut_in_the_middle_leaves_nothing(
    lab: Lab, probe: Probe, at_site: AtSite, fault: FaultRow
) -> None:
    cut = program(
        "cat",
        '[ "$(id -un)" = bob ] || exec /usr/bin/cat "$@"\n'
        "head -c 1000000; pkill -KILL -u bob sshd; exec /usr/bin/cat >/dev/null",
    )
    with at_site(*cut):
        result = probe("bob", do=[f"put:{UPLOAD}:.probe/file"])
    assert left(lab, "/home/bob/.probe") == ""
    assert "nothing of it is used" in result["summary"]
    assert result["failure"]["retryable"]
    fault.saw(result["failure"], seconds=result["seconds"])
    again = probe("bob", do=[f"put:{UPLOAD}:.probe/file", "run:rm -r .probe"])
    assert again["did"][0] == UPLOAD


@pytest.mark.fault("wrong architecture", code="site-arch-differs")
def test_a_login_node_of_another_processor(alice: Person, ground: Ground, at_site: AtSite, fault: FaultRow) -> None:
    with at_site(*program("uname", 'case $1 in -m) echo aarch64 ;; *) exec /usr/bin/uname "$@" ;; esac')):
        shown = alice.types("up", "lab", "--json")
    assert shown.status == 13
    failure = shown.json()["failure"]
    assert failure["evidence"] == [{"source": "uname -m at lab", "text": "aarch64"}]
    fault.saw(failure, seconds=shown.seconds_after_answers)
    ground.nothing_left()


@pytest.mark.fault("noexec home", code="-")
def test_a_home_without_exec_serves(lab: Lab, alice: Person, fault: FaultRow) -> None:
    """The EP runs from the node's scratch and the pilot by sh, so nothing needs exec where it is shipped."""
    remount = "mount -o remount,bind,{} /home"
    no_exec, execs = remount.format("noexec"), remount.format("exec")
    with changed(lab, "login1", no_exec, execs), changed(lab, "c1", no_exec, execs), changed(lab, "c2", no_exec, execs):
        shown = alice.types("up", "lab", "--lifetime", "5m")
        assert shown.status == 0, shown.text
        alice.types("down", "lab", "--now")
    fault.no_failure(Stage.SHIP, seconds=shown.seconds_after_answers)
