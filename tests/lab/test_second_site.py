"""The second site: a key and a menu, Slurm without accounting, other partitions; beside the first, for one person."""

from lab import Lab
from tests.lab.person import Person


def test_an_annex_comes_up_and_goes_at_each_of_two_sites_at_once(lab: Lab, alice: Person) -> None:
    first = alice.types("up", "lab", "--gpus", "1", "--lifetime", "10m")
    assert first.status == 0, first.text
    second = alice.types("up", "lab2", "--gpus", "2", "--lifetime", "10m")
    assert second.status == 0, second.text
    assert second.answers == ("known", "menu")
    assert "partition accel" in second.text
    slots = alice.shell("condor_status -const 'AnnexName =!= undefined' -af AnnexName GPUs Machine | sort -u")
    assert {line.split()[0] for line in slots.splitlines()} == {"lab", "lab2"}
    down = alice.types("down", "--all", "--now")
    assert down.status == 0, down.text
    assert lab.exec("login2", ["squeue", "-h"]).stdout == ""
    left = lab.exec(
        "login2", ["sh", "-c", "find /home/alice/.siteannex -type f -not -path '*/ep/*' -not -path '*/logs/*'"]
    )
    assert left.stdout == ""


def test_without_its_key_nobody_is_asked_anything(alice: Person) -> None:
    # Alice's key is not bob's there.
    refused = alice.types("up", "lab2", "--login", "bob", "--gpus", "1")
    assert refused.status != 0
    assert "menu" not in refused.answers
    assert "key-refused" in refused.text
