"""One login: a leased annex comes back by itself when work waits, and leaves nothing when it is taken down."""

from __future__ import annotations

from typing import Any

from tests.lab.ground import Ground
from tests.lab.jobs import submit
from tests.lab.person import Person


def test_a_leased_annex_comes_back_for_new_work_without_a_login(alice: Person, ground: Ground) -> None:
    lease = ("--lease", "2h", "--max-gpu-hours", "1", "--max-pilots", "1")
    up = alice.types("up", "lab", "--gpus", "2", "--lifetime", "6m", "--idle", "8s", "--join", "pool", *lease)
    assert up.status == 0, up.text
    assert "core-minutes a day" in up.text
    alice.types("logout", "--all")
    logins, first = ground.logins(), _pilots(ground)

    row = ground.wait_for(lambda: _row(alice), lambda seen: _rests(seen), within_s=90)
    assert _rests(row), row
    assert row["keeper"]["cap_gpu_s"] == 3600
    assert 0 < row["keeper"]["used_gpu_s"] < 720, "its first pilot ended idle, and costs what it ran"
    shown = alice.types("status").text
    assert "RESTING" in shown
    assert "of 1 GPU-h used, 0 waiting" in shown

    too_large = submit(alice, "lab", "true", gpus=3)
    told = ground.wait_for(lambda: _row(alice), lambda seen: "1 too large" in seen["keeper"]["text"], within_s=40)
    assert "1 too large for its pilots" in told["keeper"]["text"]
    assert _pilots(ground) == []
    job = submit(alice, "lab", "hostname", gpus=1)
    assert not ground.wait_for(job.states, lambda seen: not seen, within_s=90), "the keeper brought a pilot"
    assert job.output() in ("c1", "c2")
    too_large.remove()
    assert ground.logins() == logins, "and nobody logged in"
    assert not set(first) & set(_pilots(ground))

    down = alice.types("down", "lab", "--now")
    assert down.status == 0, down.text
    assert "lease withdrawn" in down.text
    ground.nothing_left()


def test_a_lease_at_a_site_without_accounting_is_spent_by_whole_walltimes_and_ends_itself(
    alice: Person, ground: Ground
) -> None:
    lease = ("--lease", "1h", "--max-gpu-hours", "0.3")
    up = alice.types("up", "lab2", "--gpus", "2", "--lifetime", "6m", "--idle", "6s", "--join", "pool", *lease)
    assert up.status == 0, up.text
    job = submit(alice, "lab2", "hostname")
    assert not ground.wait_for(job.states, lambda seen: not seen, within_s=30)

    row = ground.wait_for(lambda: _row(alice, "lab2"), lambda seen: _ended(seen), within_s=90)
    assert row["keeper"]["code"] == "lease-spent", row
    assert row["keeper"]["reserved_gpu_s"] == 720, "nobody says that its pilot ran for seconds"
    assert "lease-spent" in alice.types("status").text
    assert ground.at("login2", "squeue -h -u alice; ls ~alice/.siteannex/annex") == "", "it left nothing by itself"
    assert alice.types("down", "lab2").status == 0


def _ended(row: Any) -> bool:
    return row["keeper"] is not None and row["keeper"]["stage"] == "ended"


def _row(alice: Person, name: str = "lab") -> Any:
    [row] = alice.types("status", name, "--json").json()
    return row


def _rests(row: Any) -> bool:
    return row["keeper"] is not None and row["keeper"]["stage"] == "resting" and row["keeper"]["reserved_gpu_s"] == 0


def _pilots(ground: Ground) -> list[str]:
    return ground.at("login1", "squeue -h -u alice -o '%A %j' | grep -v keeper || true").splitlines()
