"""Jobs wait for annexes at two sites: status says so, one command answers all of them, with one login a site."""

from __future__ import annotations

from siteannex.pool.ads import IDLE
from tests.lab import jobs
from tests.lab.ground import Ground
from tests.lab.person import Person


def test_one_command_brings_up_what_jobs_wait_for_at_two_sites(alice: Person, ground: Ground) -> None:
    first = jobs.submit(alice, "lab", "hostname", count=2)
    second = jobs.submit(alice, "lab2", "hostname")
    stranger = jobs.submit(alice, "nowhere", "hostname")
    shown = alice.types("status").text
    assert "3 jobs wait for annexes that are not up (lab 2, lab2 1): siteannex up --pending" in shown
    assert "1 job waits for nowhere: no annex or site has that name" in shown

    # Nothing without leave.
    asked = alice.lab.exec("ap", ["siteannex", "up", "--pending"], user="alice", input="")
    assert (asked.returncode, "say --yes" in asked.stdout) == (1, True)
    assert alice.shell("ls ~/.local/state/siteannex/annexes 2>/dev/null || true") == ""

    up = alice.types("up", "--pending", "--yes", "--lifetime", "10m")
    assert up.status == 0, up.text
    assert sorted(up.answers) == sorted(["known", "password", "code", "known", "menu"])
    assert "nowhere: 1 job waits; no annex or site has that name" in up.text
    for batch in (first, second):
        left = ground.wait_for(batch.states, lambda seen: not seen, within_s=120)
        assert not left, alice.types("status").text
    assert {first.output(0), first.output(1)} <= {"c1", "c2"}
    assert second.output() == "d1"
    assert stranger.states() == [str(IDLE)]

    # Again: nothing is done twice, and nobody is asked anything.
    more = jobs.submit(alice, "lab", "sleep 300", count=6)
    ground.wait_for(more.states, lambda states: set(states) == {"1", "2"}, within_s=120)
    before = alice.shell("ls ~/.local/state/siteannex/annexes")
    again = alice.types("up", "--pending", "--yes")
    assert again.answers == ()
    assert "lab is up" in again.text
    assert alice.shell("ls ~/.local/state/siteannex/annexes") == before
