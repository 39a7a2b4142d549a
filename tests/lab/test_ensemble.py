"""The protein ensemble over two sites, with an eviction, a damaged checkpoint and a DAGMan that is killed midway."""

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lab import Lab
from tests.lab.person import Person
from tests.lab.test_protein_example import Sandbox

RUNS = ("r00", "r01", "r02")
EPOCHS = 4
PATIENCE_S = 300


class Campaign:
    """Alice's ensemble on the AP, seen with HTCondor's own tools."""

    def __init__(self, lab: Lab, alice: Person) -> None:
        self.lab = lab
        self.alice = alice

    def shell(self, script: str) -> str:
        return self.alice.shell(f"cd ~/protein && {script}")

    def submit(self) -> int:
        """DAGMan's cluster."""
        done = self.alice.types("dag", "submit", "/home/alice/protein/ensemble.yaml")
        assert done.status == 0, done.text
        found = re.search(r"DAGMan is job (\d+)\.0", done.text)
        assert found, done.text
        return int(found[1])

    def wait(self, look: Callable[[], bool], what: str) -> None:
        until = time.monotonic() + PATIENCE_S
        while not look():
            assert time.monotonic() < until, f"{what}\n{self.shell('condor_q -nobatch')}"
            time.sleep(0.3)

    def events(self, run: str) -> list[dict[str, Any]]:
        """Every event of a run's attempts that came back."""
        text = self.shell(f"cat ensemble/{run}/attempts/*.ndjson 2>/dev/null || true")
        return [json.loads(line) for line in text.splitlines()]

    def finished(self, run: str) -> list[int]:
        """The epochs of which a complete checkpoint came back, one entry each time it did."""
        return [event["payload"]["epoch"] for event in self.events(run) if event["type"] == "epoch.completed"]

    def sidecars(self, run: str) -> dict[str, dict[str, Any]]:
        """By the sha256 of the checkpoint they describe."""
        names = self.shell(f"ls ensemble/{run}/checkpoints/*.provenance.json").split()
        found = [json.loads(self.shell(f"cat {name}")) for name in names]
        return {each["checkpoint"]["sha256"]: each for each in found}

    def lineage(self, run: str) -> list[dict[str, Any]]:
        """The side-cars from the last epoch's checkpoint back to the beginning, by what was really loaded."""
        by_sha256 = self.sidecars(run)
        last = self.shell(f"sha256sum ensemble/{run}/checkpoints/epoch{EPOCHS - 1:04d}.ckpt").split()[0]
        chain = [by_sha256[last]]
        while (parent := chain[-1]["parent"]["sha256"]) is not None:
            chain.append(by_sha256[parent])
        return chain


@pytest.fixture
def campaign(lab: Lab, alice: Person) -> Iterator[Campaign]:
    alice.shell("rm -rf ~/protein && cp -r /opt/siteannex-src/examples/protein ~/protein")
    # Long enough to be caught in the middle.
    alice.shell("cd ~/protein && sed -i 's/--lr $(lr)/& --slow 0.1/' ensemble.yaml && grep -q slow ensemble.yaml")
    yield Campaign(lab, alice)
    alice.shell("condor_rm -all || true; rm -rf ~/protein")


def trains(campaign: Campaign, node: str) -> bool:
    """Whether the node's command has loaded everything, on whichever host."""
    look = f"find /scratch -name '{node}.*.metrics.jsonl' -exec cat {{}} +"
    return any("ready" in campaign.lab.exec(host, ["sh", "-c", look]).stdout for host in ("c1", "c2", "d1"))


def test_eviction_damage_and_a_killed_dagman_cost_no_epoch_and_change_no_bit(
    lab: Lab, alice: Person, campaign: Campaign
) -> None:
    for site in ("lab", "lab2"):
        assert alice.types("up", site, "--gpus", "2", "--lifetime", "25m").status == 0
    cluster = campaign.submit()

    # One epoch is evicted in the middle.
    campaign.wait(lambda: trains(campaign, "r00-e00"), "r00-e00 does not train")
    job = campaign.shell("condor_q -const 'DAGNodeName == \"r00-e00\"' -af ClusterId")
    campaign.shell(f"condor_vacate_job {job}")
    campaign.wait(lambda: 0 in campaign.finished("r00"), "the evicted epoch does not end")
    evicted = campaign.events("r00")
    assert [event["payload"]["signal"] for event in evicted if event["type"] == "signal.received"] == ["SIGTERM"]
    kinds = [event["payload"]["kind"] for event in evicted if event["type"] == "checkpoint.chosen"]
    assert kinds == ["none", "time"]

    # DAGMan is killed midway, and a checkpoint damaged meanwhile.
    campaign.wait(lambda: 1 in campaign.finished("r01"), "r01 does not come to epoch 1")
    campaign.shell(f"condor_rm {cluster}")
    campaign.wait(lambda: not campaign.shell("condor_q -af ClusterId"), "the DAG does not end")
    before = {run: campaign.finished(run) for run in RUNS}
    damaged = f"epoch{max(before['r01']):04d}.ckpt"
    campaign.shell(f"printf x | dd of=ensemble/r01/checkpoints/{damaged} bs=1 seek=5000 conv=notrunc 2>/dev/null")

    # The rescue DAG does what is left.
    campaign.submit()
    campaign.wait(lambda: not campaign.shell("condor_q -af ClusterId"), "the rescue DAG does not end")
    assert "EXITING WITH STATUS 0" in campaign.shell("tail -1 ensemble.dag.dagman.out")
    told = campaign.events("r01")
    assert [event["payload"]["file"] for event in told if event["type"] == "checkpoint.set_aside"] == [damaged]
    for run in RUNS:
        again = [max(before[run])] if run == "r01" else []
        assert sorted(campaign.finished(run)) == sorted([*range(EPOCHS), *again])

    # The chain of what was really loaded has every epoch once, at both sites, with a falling loss.
    for run in RUNS:
        chain = campaign.lineage(run)
        complete = [each for each in reversed(chain) if each["checkpoint"]["complete"]]
        assert [each["epoch"] for each in complete] == list(range(EPOCHS))
        assert {each["where"]["site"] for each in complete} == {"lab", "lab2"}
        assert all(each["where"]["site"] == each["where"]["targeted_site"] for each in chain)
        losses = [each["training"]["metrics"]["val_loss"] for each in complete]
        assert losses == sorted(losses, reverse=True)
    assert [each["checkpoint"]["complete"] for each in campaign.lineage("r00")].count(False) == 1

    the_screen_and_the_provenance_tell_the_same(campaign)

    # And it is what one host makes of the same seeds without any of this, byte for byte.
    straight = Sandbox(lab, "c1")
    for run in RUNS:
        last = campaign.lineage(run)[0]
        straight.train(run, f"--epochs {EPOCHS}", f"--seed {last['run']['seed']}")
        assert straight.sha256(f"{run}/epoch{EPOCHS - 1:04d}.ckpt") == last["checkpoint"]["sha256"]
    straight.shell("rm -r $PWD")

    # The hook has cleared up after each epoch.
    left = campaign.shell(
        "cd ensemble/r02 && cmp last.ckpt checkpoints/epoch0003.ckpt && ls checkpoints/*.ckpt | wc -l"
    )
    assert left == "2"


def the_screen_and_the_provenance_tell_the_same(campaign: Campaign) -> None:
    """Both sites, the eviction and every transfer, as HTCondor's log and the jobs themselves tell of them."""
    shown = json.loads(campaign.shell("siteannex dag status ensemble.dag --json"))
    nodes = {node["node"]: node for run in shown["runs"] for node in run["nodes"]}
    attempts = [each for each in shown["attempts"] if each["node"] in nodes]
    for run in RUNS:
        where = {each["attempt"]["node"]: each["where"]["site"] for each in campaign.lineage(run)}
        assert {name: nodes[name]["site"] for name in where} == where
        assert {name: nodes[name]["target"] for name in where} == where
    hosts = {"lab": {"c1.lab", "c2.lab"}, "lab2": {"d1.lab"}}
    assert {each["site"] for each in attempts} == set(hosts)
    assert all(each["host"] in hosts[each["site"]] and each["batch_job"] for each in attempts)
    assert [each["outcome"] for each in attempts if each["node"] == "r00-e00"] == ["evicted", "completed"]
    assert all(node["transfer_s"] >= 0 and node["state"] == "completed" for node in nodes.values())

    first = json.loads(campaign.shell("siteannex provenance merge ensemble --json"))
    again = json.loads(campaign.shell("siteannex provenance merge ensemble --json"))
    assert [each["added"] for each in again["runs"]] == [0] * len(RUNS)
    assert (again["access_point"]["new"], again["access_point"]["head"]) == (0, first["access_point"]["head"])
    witnessed = [json.loads(line) for line in campaign.shell("cat ensemble/ap-events.ndjson").splitlines()]
    types = Counter(each["type"] for each in witnessed)
    assert (types["dag.generated"], types["dag.submitted"]) == (1, 2)
    assert types["job.executing"] == len(shown["attempts"])
    assert types["transfer.input.finished"] >= types["job.executing"]
    story = [each["type"] for each in witnessed if each["node"] == "r00-e00" and each["type"].startswith("job.")]
    assert story == ["job.submitted", "job.executing", "job.evicted", "job.executing", "job.completed"]

    verified = json.loads(campaign.shell("siteannex provenance verify ensemble --json"))
    assert verified["sound"]
    assert [each["epochs"] for each in verified["runs"]] == [EPOCHS] * len(RUNS)
    lineage = json.loads(campaign.shell("siteannex provenance lineage ensemble/r00/last.ckpt --json"))
    assert [(link["epoch"], link["complete"]) for link in lineage["links"]] == [
        *((epoch, True) for epoch in reversed(range(EPOCHS))),
        (0, False),
    ]
    assert {link["site"] for link in lineage["links"]} == set(hosts)
    assert [link["start"] for link in lineage["links"]][-2:] == [2, 1]


def test_a_warning_on_the_node_saves_and_goes_on_in_the_same_job(alice: Person, campaign: Campaign) -> None:
    one_run = "s/^runs_per_point: 3/runs_per_point: 1/; s/epochs: 4/epochs: 1/; s/^retries: 2/retries: 0/"
    campaign.shell(f"sed -i '{one_run}; /^  lab2:/d; s/^policy: .*/policy: fixed/' ensemble.yaml")
    assert alice.types("up", "lab", "--gpus", "1", "--lifetime", "15m").status == 0
    campaign.submit()
    campaign.wait(lambda: trains(campaign, "r00-e00"), "r00-e00 does not train")
    runners = "pgrep -f '[s]iteannex-epoch -- python3' | head -n 1 | xargs -r kill -USR1"
    for host in ("c1", "c2"):
        campaign.lab.exec(host, ["sh", "-c", runners])
    campaign.wait(lambda: not campaign.shell("condor_q -af ClusterId"), "the DAG does not end")
    assert "EXITING WITH STATUS 0" in campaign.shell("tail -1 ensemble.dag.dagman.out")
    events = campaign.events("r00")
    assert [event["payload"]["status"] for event in events if event["type"] == "attempt.ended"] == [85, 0]
    assert len({event["attempt"]["job"]["cluster"] for event in events}) == 1
    assert campaign.finished("r00") == [0]
