"""Sites compared, and several brought up at once: one login after another, then all of them together."""

from __future__ import annotations

from lab import Lab
from tests.lab.ground import Ground
from tests.lab.person import Person


def test_sites_with_a_session_say_when_a_request_would_start(alice: Person) -> None:
    assert alice.types("login", "lab").status == 0
    offers = {each["site"]: each for each in alice.types("plan", "--gpus", "2", "--lifetime", "1h", "--json").json()}
    assert offers["lab"]["fits"]
    assert offers["lab"]["start"] is not None
    assert offers["lab2"]["start"] is None  # nobody is logged in there
    assert offers["expanse"]["plan"]["partition"] == "gpu-shared"
    shown = alice.types("plan", "--gpus", "2", "--gpu-memory", "60GB")
    assert "its a100 have 46.5 GB each, 60 GB asked" in shown.text


def test_a_job_of_the_queue_is_compared_with_its_own_conditions(alice: Person) -> None:
    text = "executable = /bin/true\nrequest_gpus = 1\ngpus_minimum_memory = 60000\nrequest_memory = 4GB\nqueue\n"
    job = alice.shell(f"cd && cat >big.sub <<'END'\n{text}END\ncondor_submit -terse big.sub").split()[0]
    offers = {each["site"]: each for each in alice.types("plan", "--for", job, "--json").json()}
    assert not offers["lab"]["fits"]
    assert "60000 MB" in offers["lab"]["reason"]
    assert offers["anvil"]["plan"]["partition"] == "ai"


def test_several_sites_come_up_together_and_one_that_cannot_is_no_reason_to_stop(
    alice: Person, ground: Ground, lab: Lab
) -> None:
    up = alice.types("up", "lab", "lab2", "--gpus", "1", "--lifetime", "20m")
    assert up.status == 0, up.text
    assert "2 of 2: lab, lab2" in up.text
    assert "lab2: " in up.text
    assert len(ground.batch_jobs()) == 1
    assert lab.exec("login2", ["squeue", "-h", "-o", "%T"]).stdout.split() == ["RUNNING"]

    again = alice.types("up", "lab", "lab2", "--gpus", "1", "--lifetime", "20m")
    assert again.status == 0, again.text
    assert again.answers == ()  # nothing to type
    assert again.text.count("lives already") == 2
    assert alice.types("down", "--all", "--now").status == 0

    half = alice.types("up", "lab", "lab2", "--gpus", "5", "--nodes", "1", "--partition", "gpu-shared")
    assert half.status == 10
    assert half.text.count("FAILED: request-impossible") == 2
    assert ground.batch_jobs() == []
