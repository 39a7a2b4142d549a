"""`sweep` on real debris: lost records, foreign marks, leftover directories, holders nobody reaches."""

from __future__ import annotations

import pexpect
import pytest

from tests.lab.ground import Ground
from tests.lab.person import Person, Screenful

KILLED_AFTER_SUBMIT = (
    "/opt/siteannex/bin/python",
    "/opt/siteannex-src/tests/lab/killed_up.py",
    "before",
    "SUBMIT",
    "done",
    "--",
)
FORGET = "rm -rf ~/.local/state/siteannex/annexes"
DIRECTORY = "~/.siteannex/annex"
HOLDERS = "pgrep -u alice -f siteannex.transport.holder || true"


def swept(alice: Person, *options: str) -> Screenful:
    shown = alice.types("sweep", *options)
    assert shown.status == 0, shown.text
    return shown


@pytest.mark.parametrize("answer", ["--yes", ""], ids=["option", "answer"])
def test_a_killed_up_whose_records_are_lost_leaves_nothing_after_a_sweep(
    alice: Person, ground: Ground, answer: str
) -> None:
    assert alice.types("up", "lab", "--gpus", "1", through=KILLED_AFTER_SUBMIT).status == 137
    alice.shell(FORGET)
    assert len(ground.batch_jobs()) == 1
    shown = swept(alice, "lab", *([answer] if answer else []))
    assert "its annex is no longer recorded here" in shown.text
    assert "nothing is left of lab-" in shown.text
    ground.nothing_left()
    assert "Nothing is left behind on this machine and at lab." in swept(alice).text


def test_what_another_access_point_has_at_the_site_is_shown_and_stays(alice: Person, ground: Ground) -> None:
    assert alice.types("up", "lab", "--cpus", "1").status == 0
    theirs = "big-0badcafe"
    submit = f"mkdir -p {DIRECTORY}/{theirs} && echo ap2.lab/0123abcd >{DIRECTORY}/{theirs}/origin"
    batch = (
        f"sbatch --parsable -J {theirs} --comment=siteannex:{theirs}:ap2.lab/0123abcd -o /dev/null --wrap 'sleep 600'"
    )
    job = ground.at("login1", f"cd ~ && {submit} && {batch}", user="alice").splitlines()[-1]
    try:
        shown = swept(alice, "--yes")
        assert shown.text.count("belongs to another AP (ap2.lab)") == 2
        assert "1 living annex is left alone" in shown.text
        assert len(ground.batch_jobs()) == 2, "theirs and the living one of ours"
        found = alice.types("sweep", "--json").json()["found"]
        assert {each["annex_id"] for each in found} == {theirs}
        assert not any(each["removable"] for each in found)
    finally:
        ground.at("login1", f"scancel {job}; rm -rf {DIRECTORY}/{theirs}", user="alice")


def test_a_directory_an_ended_annex_left_is_removed_and_the_log_archive_stays(alice: Person, ground: Ground) -> None:
    assert alice.types("up", "lab", "--cpus", "1").status == 0
    [row] = alice.types("status", "--json").json()
    assert alice.types("down", "lab", "--now").status == 0
    left = f"{DIRECTORY}/{row['annex_id']}"
    ground.at("login1", f"mkdir -p {left} && echo secret >{left}/token", user="alice")
    shown = swept(alice, "--yes")
    assert "lab has ended and left it" in shown.text
    ground.nothing_left()
    assert ground.at("login1", f"ls ~/.siteannex/logs/{row['annex_id']}", user="alice")


def test_ads_of_a_pilot_that_died_unseen_are_withdrawn(alice: Person, ground: Ground) -> None:
    assert alice.types("up", "lab", "--cpus", "1").status == 0
    alice.shell(FORGET)
    [job] = [line.split()[0] for line in ground.batch_jobs()]
    ground.at("login1", f"scancel --signal=KILL --full {job}")
    ground.wait_for(ground.batch_jobs, lambda seen: not seen, within_s=30)
    ground.at("login1", f"rm -rf {DIRECTORY}/*", user="alice")
    swept(alice, "lab", "--yes")
    ground.nothing_left()


def test_a_holder_whose_socket_is_gone_does_not_stay(alice: Person, ground: Ground) -> None:
    assert alice.types("login", "lab").status == 0
    [pid] = ground.at("ap", HOLDERS).split()
    ground.at("ap", f"kill -STOP {pid}")
    alice.shell("find / -user alice -name holder.sock -exec rm {} + 2>/dev/null; true")
    shown = swept(alice, "--yes")
    assert f"removed session holder, process {pid}" in shown.text
    assert ground.at("ap", HOLDERS) == ""


def test_without_a_terminal_or_yes_nothing_is_removed(alice: Person, ground: Ground) -> None:
    assert alice.types("up", "lab", "--cpus", "1").status == 0
    alice.shell(FORGET)
    assert "Nothing is removed: say --yes." in alice.shell("siteannex sweep </dev/null")
    assert len(ground.batch_jobs()) == 1
    swept(alice, "--yes")
    ground.nothing_left()


def test_sweeps_beside_an_up_leave_it_alone(alice: Person, ground: Ground) -> None:
    assert alice.types("login", "lab").status == 0
    up = alice.start("up", "lab", "--cpus", "1", "--lifetime", "30m")
    for _ in range(3):
        swept(alice, "lab", "--yes")
    up.expect_exact("new jobs reach it with")
    up.expect(pexpect.EOF)
    up.close()
    assert up.exitstatus == 0
    assert len(ground.batch_jobs()) == 1
    [row] = alice.types("status", "--json").json()
    assert row["stage"] == "READY"
