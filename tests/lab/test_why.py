"""`why` and the warning before spending, on the real thing: real ads, real negotiation, real Slurm limits."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from tests.lab.ground import Ground
from tests.lab.jobs import Batch
from tests.lab.person import Person

SUBMIT = """executable = /bin/sleep
arguments = 600
transfer_executable = false
should_transfer_files = YES
request_cpus = 1
request_memory = 128MB
request_disk = 10MB
{lines}
queue {count}
"""
LONG_SITE = "sed 's/^name: lab/name: long/; s/max_walltime: 4h/max_walltime: 24h/' /opt/siteannex-src/sites/lab.yaml"


def submit(person: Person, lines: str, *, annex: str | None = "lab", count: int = 1) -> Batch:
    """Submit jobs with these lines in their submit file, targeting an annex or none."""
    target = f'\nMY.TargetAnnexName = "{annex}"' if annex else ""
    text = SUBMIT.format(lines=lines + target, count=count)
    said = person.shell(f"cd && cat >why.sub <<'END'\n{text}\nEND\ncondor_submit -terse why.sub")
    return Batch(person, said.split(".")[0])


@pytest.fixture
def bob(alice: Person) -> Iterator[Person]:
    person = Person(alice.lab, user="bob", account="bob")
    yield person
    person.shell("condor_rm -all >/dev/null 2>&1 || true")


def why(person: Person, what: str, *options: str) -> str:
    """What `siteannex why` shows, its folded lines as one; it asks nothing and ends well."""
    shown = person.types("why", what, *options)
    assert shown.status == 0, shown.text
    assert shown.answers == ()
    return re.sub(r" *\n {9}(?=\S)", " ", shown.text)


def verdict(person: Person, what: str) -> str:
    """The one word for scripts."""
    return str(person.types("why", what, "--json").json()["verdict"])


def test_jobs_against_an_annex_that_is_up(alice: Person, bob: Person, ground: Ground) -> None:
    assert alice.types("up", "lab", "--gpus", "2", "--lifetime", "30m").status == 0

    big = submit(alice, "request_memory = 128GB")
    said = why(alice, f"{big.cluster}.0")
    assert "nothing that exists or is coming can run it" in said
    assert "memory 131072 MB" in said
    assert "no: 30720 MB" in said
    assert f"condor_qedit {big.cluster}.0 RequestMemory 30720" in said

    small_gpu = submit(alice, "request_gpus = 1\ngpus_minimum_memory = 60000\ngpus_minimum_capability = 7.5")
    said = why(alice, small_gpu.cluster)
    assert "GPU memory >= 60000 MB" in said
    assert "no: 47661 MB (A100-SXM4-40GB)" in said
    assert "the job asks GPU capability" not in said

    many = submit(alice, "request_gpus = 4")
    assert "the job asks 4 GPUs; lab has 2." in why(alice, many.cluster)

    lost = submit(alice, "", annex="expanse1")
    said = why(alice, lost.cluster)
    assert 'TargetAnnexName = "expanse1", but no annex of that name is up or on its way' in said
    assert "siteannex up lab --name expanse1" in said
    assert "sends it to lab, which fits" in said
    alice.shell(f"condor_qedit {lost.cluster}.0 TargetAnnexName '\"lab\"'")
    assert ground.wait_for(lost.states, lambda seen: seen == ["2"], within_s=30) == ["2"], "what it says to do helps"
    assert "runs on slot1_1@" in why(alice, lost.cluster)

    node = submit(alice, 'requirements = OpSysMajorVer == 9\nMY.DAGNodeName = "prep"')
    said = why(alice, "prep")
    assert f"job {node.cluster}.0 (prep)" in said
    assert "no: OpSysMajorVer = 13" in said

    held = submit(alice, "hold = true")
    said = why(alice, held.cluster)
    assert "HoldReason: submitted on hold at user's request" in said
    assert "(code 15)" in said

    assert verdict(alice, submit(alice, "", annex=None).cluster) == "no-target"
    theirs = submit(bob, "")
    assert f"job {theirs.cluster}.0 is bob's, not yours (alice)" in why(alice, theirs.cluster)

    lost.remove()
    gone = ground.wait_for(lambda: why(alice, lost.cluster), lambda said: "was removed" in said, within_s=20)
    assert "was removed" in gone
    assert alice.types("why", "999999").status == 10


@pytest.mark.parametrize("join", ["pool", "direct"])
def test_a_full_annex_is_busy(alice: Person, ground: Ground, join: str) -> None:
    assert alice.types("up", "lab", "--gpus", "1", "--lifetime", "30m", "--join", join).status == 0
    first = submit(alice, "request_gpus = 1")
    assert ground.wait_for(first.states, lambda seen: seen == ["2"], within_s=30) == ["2"]
    second = submit(alice, "request_gpus = 1")
    said = ground.wait_for(lambda: why(alice, second.cluster), lambda said: "waits for room" in said, within_s=20)
    assert "it fits lab and waits for room there" in said


def test_a_pilot_beyond_the_users_share_waits_and_its_jobs_know(alice: Person, ground: Ground) -> None:
    assert alice.types("up", "lab", "--gpus", "4", "--partition", "gpu", "--name", "one").status == 0
    assert alice.types("up", "lab", "--gpus", "4", "--partition", "gpu", "--name", "two", "--no-wait").status == 0
    said = ground.wait_for(lambda: why(alice, "two"), lambda said: "QOSMaxGRESPerUser" in said, within_s=20)
    assert "QOS normal allows you 6 GPUs at once; this pilot asks 4" in said
    assert "it can never start" not in said
    assert "would start" not in said, "the limit holds in every partition"
    assert len(ground.batch_jobs()) == 2, "asking what would start sooner submits nothing"

    fits = submit(alice, "request_gpus = 4\ngpus_minimum_memory = 30000", annex="two")
    assert verdict(alice, fits.cluster) == "coming"
    too_big = submit(alice, "request_gpus = 1\ngpus_minimum_memory = 60000", annex="two")
    assert "two will have 47661 MB" in why(alice, too_big.cluster)

    assert alice.types("logout", "--all").status == 0
    assert "Slurm: not asked (no session is held; siteannex why two --remote logs in)" in why(alice, "two")
    asked = alice.types("why", "two", "--remote")
    assert asked.answers == ("password", "code")
    assert "QOSMaxGRESPerUser" in asked.text


@pytest.fixture
def occupy(ground: Ground) -> Iterator[Callable[[int], None]]:
    """A function with which somebody else takes so many cores of every node, for ten minutes."""
    taken: list[str] = []

    def take(cores: int) -> None:
        size = f"-p debug -N 2 --ntasks-per-node={cores} --time=10 -o /dev/null"
        job_id = ground.at("login1", f"cd /tmp && sbatch --parsable {size} --wrap 'sleep 600'", user="bob")
        taken.append(job_id)
        running = [f"{job_id} RUNNING"]
        assert ground.wait_for(lambda: ground.batch_jobs("bob"), lambda jobs: jobs == running, within_s=20) == running

    yield take
    for job_id in taken:
        ground.at("login1", f"scancel {job_id}", user="bob")
    ground.wait_for(lambda: ground.batch_jobs("bob"), lambda jobs: not jobs, within_s=30)


def test_a_pilot_behind_others_says_when_it_starts(
    alice: Person, ground: Ground, occupy: Callable[[int], None]
) -> None:
    occupy(16)
    assert alice.types("up", "lab", "--gpus", "1", "--lifetime", "20m", "--no-wait").status == 0
    said = ground.wait_for(lambda: why(alice, "lab"), lambda said: "Slurm projects its start" in said, within_s=40)
    assert "Slurm projects its start at" in said
    assert "(in 9 m" in said
    assert "would start" not in said, "whole nodes are no sooner free than parts of them"
    assert len(ground.batch_jobs()) == 1
    [waiting] = alice.types("why", "lab", "--json").json()["waiting"]
    assert waiting["reason"] in ("Resources", "Priority", "")
    assert waiting["start"] is not None


def test_what_would_start_sooner_does(alice: Person, ground: Ground, occupy: Callable[[int], None]) -> None:
    occupy(1)
    assert alice.types("up", "lab", "--gpus", "1", "--partition", "gpu", "--no-wait").status == 0
    said = ground.wait_for(lambda: why(alice, "lab"), lambda said: "would start now" in said, within_s=40)
    advice = "siteannex up lab --gpus 1 --partition gpu-shared"
    assert f"siteannex down lab, then {advice}   would start now" in said
    assert alice.types("down", "lab").status == 0
    up = alice.types(*advice.split()[1:])
    assert up.status == 0, up.text
    assert "1 GPU until" in up.text


def test_a_pilot_that_can_never_start(alice: Person, ground: Ground) -> None:
    alice.shell(f"mkdir -p ~/.config/siteannex/sites && {LONG_SITE} >~/.config/siteannex/sites/long.yaml")
    assert alice.types("up", "long", "--gpus", "1", "--lifetime", "10h", "--no-wait").status == 0
    said = ground.wait_for(lambda: why(alice, "long"), lambda said: "PartitionTimeLimit" in said, within_s=20)
    assert "pending-forever" in said
    assert "it can never start: you asked 10 h, partition gpu-shared takes at most 4 h" in said
    assert "siteannex down long, then siteannex up long --gpus 1 --lifetime 4h" in said
    assert "would start" not in said, "the other partitions would not take ten hours either"


def test_an_annex_tells_its_whole_life(alice: Person) -> None:
    assert alice.types("up", "lab", "--cpus", "1").status == 0
    said = why(alice, "lab")
    order = [said.index(f"  {label} ") for label in ("plan", "pack", "connect", "ship", "submit", "pilot", "now", "do")]
    assert order == sorted(order)
    assert "READY" in said.splitlines()[0]
    assert alice.types("down", "lab").status == 0
    assert "RELEASED" in why(alice, "lab").splitlines()[0]
    assert alice.types("why", "nobody").status == 10


def test_up_warns_before_it_spends(alice: Person) -> None:
    submit(alice, "request_memory = 128GB", count=3)
    submit(alice, "request_gpus = 1\ngpus_minimum_memory = 60000")
    up = alice.types("up", "lab", "--gpus", "1", "--no-wait")
    assert up.status == 0, up.text
    warning = "warning: none of your 4 jobs that wait for lab can ever run on these slots"
    assert warning in up.text
    assert up.text.index(warning) < up.text.index("connect")
    assert "the job asks memory 131072 MB; lab will have 15360 MB (3 jobs)" in up.text
    assert alice.types("down", "--all", "--now").status == 0
    submit(alice, "")
    again = alice.types("up", "lab", "--gpus", "1", "--no-wait")
    assert "warning: 4 of your 5 jobs that wait for lab can never run on these slots" in again.text


@pytest.fixture
def limits(ground: Ground) -> Iterator[Callable[[str, str], None]]:
    """`limits("qos normal", "MaxTRESPerUser=gres/gpu=1")`: what the site allows, put back afterwards."""

    def modify(whom: str, what: str) -> None:
        ground.at("login1", f"sacctmgr -i modify {whom} set {what}")

    yield modify
    modify("qos normal", "MaxTRESPerUser=gres/gpu=6")
    modify("account abc123", "GrpTRES=cpu=-1")


def test_a_pilot_beyond_a_limit_by_itself_is_told_that_it_never_starts(
    alice: Person, ground: Ground, limits: Callable[[str, str], None]
) -> None:
    limits("qos normal", "MaxTRESPerUser=gres/gpu=1")
    assert alice.types("up", "lab", "--gpus", "2", "--no-wait").status == 0
    said = ground.wait_for(lambda: why(alice, "lab"), lambda said: "QOSMaxGRESPerUser" in said, within_s=20)
    assert "it can never start: you asked 2 GPUs, QOS normal allows 1 GPU per user" in said
    assert "siteannex down lab, then siteannex up lab --gpus 1" in said

    limits("account abc123", "GrpTRES=cpu=1")
    assert alice.types("up", "lab", "--cpus", "2", "--lifetime", "30m", "--name", "wide", "--no-wait").status == 0
    said = ground.wait_for(lambda: why(alice, "wide"), lambda said: "AssocGrpCpuLimit" in said, within_s=20)
    assert "you asked 2 CPUs, account abc123 allows 1 CPU for all its jobs together" in said


def test_up_says_on_its_queue_line_that_this_takes_long(
    alice: Person, ground: Ground, limits: Callable[[str, str], None]
) -> None:
    limits("qos normal", "MaxTRESPerUser=gres/gpu=1")
    assert alice.types("login", "lab").status == 0
    child = alice.start("up", "lab", "--gpus", "2")
    child.expect_exact("you asked 2 GPUs, QOS normal allows 1 GPU per user")
    child.expect_exact("siteannex why lab")
    child.expect_exact("Ctrl-C leaves it queued")
    child.sendintr()
    child.expect_exact("Whatever was submitted goes on")
    child.close()
