"""Jobs wait for annexes at two sites: status says so, one command answers all of them, with one login a site."""

from __future__ import annotations

import json

import pytest

from siteannex.pool.ads import IDLE
from tests.lab import jobs
from tests.lab.ground import Ground
from tests.lab.person import Person
from tests.lab.test_experiment import folder, nodes_done, put, siteannex, wait_for_end

__all__ = ["folder"]

CAMPAIGN = """name: campaign
seed: 7
runs_per_point: 2
train: {epochs: 2, walltime: 10m}
submit: |
  executable = /bin/hostname
  transfer_executable = false
  request_cpus = 1
  request_memory = 200MB
  request_disk = 1MB
sites:
  one: {annex: first-annex, site: lab, cap: 1}
  two: {annex: second-annex, site: lab2}
policy: ordered
"""


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

    # The schedd may first try a claim on the EP of an earlier test, and takes ten seconds to see that it is gone.
    ground.wait_for(first.states, lambda states: set(states) == {str(IDLE)}, within_s=60)
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


@pytest.mark.usefixtures("folder")
def test_a_dag_asks_for_the_annexes_it_comes_to(alice: Person, ground: Ground) -> None:
    put(alice, "campaign.yaml", CAMPAIGN)
    planned = siteannex(alice, "dag", "plan", "campaign.yaml")
    assert "first-annex: not up; jobs for it wait" in planned
    assert "siteannex up --for campaign.yaml" in planned
    # Without `dag submit` nothing but the requests says which site an annex goes with.
    siteannex(alice, "dag", "render", "campaign.yaml")
    dagman = alice.shell("cd ~/exp && condor_submit_dag campaign.dag").split("cluster ")[1].split(".")[0]
    look = "ls ~/.local/state/siteannex/requests 2>/dev/null || true"
    files = ground.wait_for(lambda: alice.shell(look), lambda seen: bool(seen), within_s=60)
    assert files == f"campaign.first-annex.{dagman}.json"
    shown = ground.wait_for(
        lambda: alice.types("status").text, lambda text: "1 job waits for first-annex" in text, within_s=60
    )
    assert "1 job waits for first-annex, which is not up: siteannex up --pending" in shown

    up = alice.types("up", "--pending", "--yes", "--lifetime", "15m")
    assert up.status == 0, up.text
    assert "first-annex at lab: " in up.text
    ground.wait_for(lambda: alice.shell(look), lambda seen: "second-annex" in seen, within_s=120)
    told = json.loads(alice.shell(f"cat ~/.local/state/siteannex/requests/campaign.second-annex.{dagman}.json"))
    assert (told["dag"], told["need"]["site"], told["need"]["memory_mib"]) == (int(dagman), "lab2", 200)
    up = alice.types("up", "--pending", "--yes", "--lifetime", "15m")
    assert up.status == 0, up.text
    assert "there    first-annex is up" in up.text
    wait_for_end(ground, alice)
    assert nodes_done(alice, "campaign") == ["r00-e00", "r00-e01", "r01-e00", "r01-e01"]

    # The DAG is gone, and with it what it asked for.
    assert "wait" not in alice.types("status").text.split("NEXT")[1]
    assert alice.types("up", "--pending", "--yes").status == 0
    assert alice.shell(look) == ""


@pytest.mark.usefixtures("folder")
def test_the_annexes_of_an_experiment_come_up_before_anything_waits(alice: Person) -> None:
    put(alice, "campaign.yaml", CAMPAIGN)
    asked = alice.start("up", "--for", "/home/alice/exp/campaign.yaml", "--lifetime", "10m")
    asked.expect("Bring these 2 up")
    asked.sendline("no")
    asked.expect("nothing is brought up")
    asked.close()
    assert alice.shell("ls ~/.local/state/siteannex/annexes 2>/dev/null || true") == ""
    up = alice.types("up", "--for", "/home/alice/exp/campaign.yaml", "--lifetime", "10m", "--yes")
    assert up.status == 0, up.text
    assert "2 of 2: second-annex at lab2, first-annex at lab" in up.text
    rows = {row["annex"]: row for row in alice.types("status", "--json").json()}
    assert {name: row["stage"] for name, row in rows.items()} == {"first-annex": "READY", "second-annex": "READY"}
    again = alice.types("up", "--for", "/home/alice/exp/campaign.yaml", "--yes")
    assert (again.status, again.answers) == (0, ())
