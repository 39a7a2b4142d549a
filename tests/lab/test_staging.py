"""A big input put once at one of two sites: jobs there read the copy, jobs elsewhere bring the file along."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.lab.ground import Ground
from tests.lab.person import Person

TRAIN = """import hashlib, json, os
env = os.environ
data = open("sets/data.bin", "rb").read()
how = os.readlink("sets/data.bin") if os.path.islink("sets/data.bin") else "moved"
print(env["SITEANNEX_SITE"], how, hashlib.sha256(data).hexdigest())
name = "epoch%04d.ckpt" % int(env["SITEANNEX_EPOCH"])
open(os.path.join(env["SITEANNEX_CHECKPOINTS"], name), "w").close()
with open(env["SITEANNEX_METRICS"], "a") as file:
    file.write(json.dumps({"checkpoint": name, "epoch": int(env["SITEANNEX_EPOCH"]), "val_loss": 1.0}) + "\\n")
"""
EXPERIMENT = """name: big
seed: 7
runs_per_point: 2
train: {command: python3 train.py, inputs: [train.py], staged: [sets/data.bin], epochs: 1, walltime: 10m}
submit: |
  request_cpus = 1
  request_memory = 128MB
  request_disk = 20MB
sites: {lab: {}, lab2: {}}
retries: 0
"""
MIB = 5 << 20
LIMIT_S = 240


@pytest.fixture
def folder(alice: Person) -> Iterator[str]:
    """An experiment's directory with 5 MiB of data; nothing stays staged, nothing of hers in the queue."""
    alice.shell(f"rm -rf ~/big && mkdir -p ~/big/sets && head -c {MIB} /dev/urandom > ~/big/sets/data.bin")
    for name, text in (("train.py", TRAIN), ("big.yaml", EXPERIMENT)):
        alice.lab.exec("ap", ["sh", "-c", f"cat > ~/big/{name}"], user=alice.user, input=text, check=True)
    yield "/home/alice/big"
    alice.types("stage", "lab", "--remove", "data.bin")
    alice.shell(
        "condor_rm -all >/dev/null 2>&1; rm -rf ~/big; cd ~/.local/state/siteannex && rm -rf experiments staged"
    )


def test_jobs_read_the_staged_copy_where_there_is_one(alice: Person, ground: Ground, folder: str) -> None:
    first = alice.types("stage", "lab", f"{folder}/sets/data.bin", "--json")
    assert first.status == 0, first.text
    [copy] = first.json()["staged"]
    assert copy["sent_bytes"] == MIB
    second = alice.types("stage", "lab", f"{folder}/sets/data.bin", "--json")
    assert (second.json()["staged"][0]["sent_bytes"], second.answers) == (0, ())
    told = json.loads(alice.shell(f"cd {folder} && siteannex dag plan big.yaml --json"))
    assert told["staged"] == {"sets/data.bin": {"lab": copy["path"], "lab2": None}}

    for site in ("lab", "lab2"):
        up = alice.types("up", site, "--cpus", "2", "--mem", "2GB", "--lifetime", "10m")
        assert up.status == 0, up.text
    alice.shell(f"cd {folder} && siteannex dag submit big.yaml")
    asked: dict[str, str] = {}

    def look() -> str:
        for line in alice.shell(
            "condor_q -const 'JobUniverse == 5' -af SiteannexTargetSite TransferInput"
        ).splitlines():
            site, _, moved = line.partition(" ")
            asked[site] = moved
        return alice.shell("condor_q -af ClusterId JobStatus HoldReason")

    left = ground.wait_for(look, lambda seen: not seen, within_s=LIMIT_S)
    assert not left, left
    said = sorted(alice.shell(f"cat {folder}/big/r0*/logs/*.out | grep '^lab'").splitlines())
    assert said == [f"lab {copy['path']} {copy['sha256']}", f"lab2 moved {copy['sha256']}"]
    assert "data.bin" not in asked["lab"]
    assert "sets/data.bin" in asked["lab2"]
