"""Site files and the live site: every drift is found, a copy can be mended, a new site's file brings an annex up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.ground import Ground
from tests.lab.person import Person

STALE_COPY = """\
extends: lab
account: old-project
default_partition: quick
keeper: null
nodes:
  plain: {cores: 32, count: 5}
  a100: {memory: 120GB}
  v100:
    count: 1
    cores: 16
    memory: 60GB
    gpus: {type: v100, model: V100, per_node: 4, memory: 32GB}
partitions:
  debug: null
  quick:
    sharing: shared
    nodes: [plain]
    max_walltime: 30m
    verified: 2025-01-01
    source: test
  gpu:
    nodes: [v100]
  gpu-shared:
    nodes: [a100, v100]
    gpu_request: --gres=gpu:volta:{count}
"""


@pytest.fixture
def changed_site(ground: Ground) -> Iterator[None]:
    """A walltime shortened, a partition down, a QOS cap lowered; put back afterwards."""
    ground.at("login1", "scontrol update partitionname=cpu maxtime=180 && scontrol update partitionname=gpu state=down")
    ground.at("login1", "sacctmgr -i modify qos normal set MaxTRESPerUser=gres/gpu=4")
    yield
    ground.at("login1", "scontrol update partitionname=cpu maxtime=240 && scontrol update partitionname=gpu state=up")
    ground.at("login1", "sacctmgr -i modify qos normal set MaxTRESPerUser=gres/gpu=6")


def write_copy(person: Person, text: str) -> None:
    person.shell(f"mkdir -p ~/.config/siteannex/sites && cat > ~/.config/siteannex/sites/lab.yaml <<'END'\n{text}END\n")


def test_the_file_and_the_site_agree(alice: Person) -> None:
    seen = alice.types("sites", "check", "lab")
    assert seen.status == 0, seen.text
    assert "the file and the site agree" in seen.text


@pytest.mark.usefixtures("changed_site")
def test_every_drift_is_found_and_what_can_be_written_is(alice: Person) -> None:
    write_copy(alice, STALE_COPY)
    seen = alice.types("sites", "check", "lab", "--json")
    assert seen.status == 1, seen.text
    drift = {each["key"]: (each["here"], each["there"]) for each in seen.json()["drift"]}
    assert drift["account"] == ("old-project", "yours are abc123")
    assert drift["partitions.quick"] == ("quick", "renamed to debug?")
    assert drift["partitions.cpu.max_walltime"] == ("4 h", "3 h")
    assert drift["partitions.gpu"] == ("usable", "state DOWN")
    assert drift["nodes.plain.cores"] == ("32", "16")
    assert drift["nodes.plain.count"] == ("5", "2")
    assert drift["nodes.a100.memory"] == ("120 GB", "62.5 GB")
    assert drift["partitions.gpu-shared.caps.gpus_per_user"] == ("6", "4")
    assert drift["partitions.gpu-shared.gpu_request"][1].startswith("refused: ")
    assert drift["partitions.gpu-shared.nodes"][0] == "v100: 4 v100, 16 cores"  # a kind of node is gone
    nodes = [(each["here"], each["there"]) for each in seen.json()["drift"] if each["key"] == "partitions.gpu.nodes"]
    assert ("not in the file", "2 nodes of 4 a100, 16 cores, 62.5 GB") in nodes  # a GPU type is new

    alice.types("sites", "check", "lab", "--write")
    left = {each["key"] for each in alice.types("sites", "check", "lab", "--json").json()["drift"]}
    by_hand = {"account", "partitions.gpu", "partitions.gpu.nodes", "partitions.gpu-shared.nodes"}
    assert by_hand <= left
    assert not left & {"partitions.quick", "partitions.cpu.max_walltime", "nodes.plain.cores", "nodes.a100.memory"}
    shown = alice.types("sites", "show", "lab", "--json").json()
    assert shown["partitions"]["cpu"]["max_walltime"] == 3 * 3600
    assert "quick" not in shown["partitions"]


def test_a_drafted_site_brings_an_annex_up_unchanged(alice: Person, ground: Ground) -> None:
    drafted = alice.types("sites", "discover", "login.lab", "--name", "found")
    assert drafted.status == 0, drafted.text
    assert "4 partitions: debug, cpu, gpu, gpu-shared" in drafted.text
    up = alice.types("up", "found", "--cpus", "2")
    assert up.status == 0, up.text
    assert len(ground.batch_jobs()) == 1
    again = alice.types("sites", "discover", "login.lab", "--name", "found")
    assert again.status == 2
    assert "found.yaml is the file of a site 'found'" in again.text
