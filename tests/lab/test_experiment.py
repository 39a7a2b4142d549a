"""Experiments on the real access point: DAGMan takes the DAG, jobs go where they were sent, every epoch is trained."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.lab.ground import Ground
from tests.lab.person import Person

TRAIN = """import json, os
env = os.environ
for epoch in range(int(env["SITEANNEX_START_EPOCH"]), int(env["SITEANNEX_STOP_EPOCH"])):
    name = "epoch%04d.ckpt" % epoch
    with open(os.path.join(env["SITEANNEX_CHECKPOINTS"], name), "w") as file:
        file.write("after " + env["SITEANNEX_RESUME"])
    with open(env["SITEANNEX_METRICS"], "a") as file:
        file.write(json.dumps({"checkpoint": name, "epoch": epoch, "val_loss": 1.0 / (epoch + 1)}) + "\\n")
print(env["SITEANNEX_PARAMETERS"], env["GREETING"], len(env["KEY_OF_MINE"]))
"""
EXPERIMENT = """name: tiny
seed: 7
parameters:
  lr: {range: 0.01 to 0.02 by 0.01}
  kind: small one
train: {command: python3 train.py, inputs: [train.py], epochs: 2, walltime: 10m}
evaluate: {command: "sh -c 'echo evaluated $(run_name) $(epoch)'"}
submit: |
  request_cpus = 1
  request_memory = 128MB
  request_disk = 20MB
sites:
  lab: {cap: 3}
hooks: {pre: ./note pre, post: ./note post, final: ./note final, service: ./note service}
environment: {GREETING: it's fine, KEY_OF_MINE: {secret_file: secret.key}}
"""
EVERYTHING = """name: all
seed: 7
parameters: {lr: {range: 1e-4 to 1e-1 log 4}, width: {values: [1, 2, 3, 4]}, kind: small one}
mode: zip
train: {command: ./run --lr $(lr), epochs: 4, epochs_per_job: 2}
finetune: {command: ./run, epochs: 2, submit: "request_disk = 2GB"}
prepare: {command: ./run, per: run}
evaluate: {command: ./run, after: last, sites: [pool]}
early_stopping: {metric: val_loss, patience: 2}
submit: |
  request_cpus = 1
  request_memory = {site.memory}
  +JobDurationCategory = "Long"
  if defined resume
    priority = 10
  endif
sites:
  lab: {memory: 1GB, cap: 3, weight: 2}
  other: {annex: other.annex, memory: 2GB}
  osg: {resource: NOWHERE-CE1, memory: 900MB}
  pool: {requirements: TARGET.HasNothing =?= true, memory: 1GB}
policy: {sticky: 2}
tracking: {wandb: {project: p, mode: offline}, mlflow: {uri: "http://t:5000"}}
hooks: {pre: ./note, post: ./note, final: ./note, service: ./note}
throttles: {max_idle: 10, max_jobs: 20}
"""
LIMIT_S = 240


@pytest.fixture
def folder(alice: Person) -> Iterator[str]:
    """A directory of alice's with what the experiments need; no DAG of hers is left behind."""
    note = '#!/bin/sh\\necho "$@" >> notes\\n'
    alice.shell(
        "rm -rf ~/exp ~/.local/state/siteannex/experiments && mkdir ~/exp && cd ~/exp && "
        f"printf '{note}' > note && printf '#!/bin/sh\\n' > run && chmod +x note run && "
        "echo top-secret > secret.key && chmod 600 secret.key"
    )
    put(alice, "train.py", TRAIN)
    yield "exp"
    alice.shell("condor_rm -all >/dev/null 2>&1; rm -rf ~/exp ~/.local/state/siteannex/experiments")


def put(person: Person, name: str, text: str) -> None:
    """Write a file into the person's experiment directory."""
    done = person.lab.exec("ap", ["sh", "-c", f"cat > ~/exp/{name}"], user=person.user, input=text)
    assert done.returncode == 0, done.stderr


def siteannex(person: Person, *words: str) -> str:
    """A command in the experiment directory; its output."""
    return person.shell(f"cd ~/exp && siteannex {' '.join(words)}")


def nodes_done(person: Person, dag: str) -> list[str]:
    """Nodes that succeeded, once for each time they did, by DAGMan's own job state log."""
    lines = person.shell(f"cat ~/exp/{dag}.jobstate 2>/dev/null || true").splitlines()
    return sorted(line.split()[1] for line in lines if " JOB_SUCCESS " in line)


def wait_for_end(ground: Ground, person: Person) -> None:
    """Until nothing of the person is in the queue, or an assertion with what is."""
    look = "condor_q -af ClusterId DAGNodeName JobStatus HoldReason"
    left = ground.wait_for(lambda: person.shell(look), lambda seen: not seen, within_s=LIMIT_S)
    assert not left, f"{left}\n{person.shell('tail -n 30 ~/exp/*.dagman.out')}"


def test_dagman_finds_nothing_wrong_with_a_dag_that_uses_everything(alice: Person, folder: str) -> None:
    put(alice, "all.yaml", EVERYTHING)
    for policy in ("{sticky: 2}", "shuffle", "fixed", "ordered"):
        put(alice, "all.yaml", EVERYTHING.replace("{sticky: 2}", policy))
        shown = json.loads(siteannex(alice, "dag", "render", "all.yaml", "--json"))
        assert shown["nodes"] == 4 * (1 + 2 + 2 + 1) + 1
        alice.shell(f"cd ~/{folder} && condor_submit_dag -no_submit -update_submit all.dag")
        said = alice.shell(f"cd ~/{folder} && condor_dag_checker -CheckJDL -json all.dag")
        [checked] = json.loads(said)
        assert {key: value for key, value in checked.items() if "rror" in key or "arn" in key} == {}
        assert (checked["NumNodes"], checked["FinalNode"], checked["NumServiceNodes"]) == (24, "final", 1)


@pytest.mark.usefixtures("folder")
def test_a_tiny_experiment_trains_every_epoch_once(alice: Person, ground: Ground) -> None:
    put(alice, "tiny.yaml", EXPERIMENT)
    assert alice.types("up", "lab", "--cpus", "4", "--mem", "4GB", "--lifetime", "20m").status == 0
    assert "annex    lab: up" in siteannex(alice, "dag", "plan", "tiny.yaml")
    submitted = json.loads(siteannex(alice, "dag", "submit", "tiny.yaml", "--json"))
    refused = alice.lab.exec("ap", ["sh", "-c", "cd ~/exp && siteannex dag submit tiny.yaml"], user="alice")
    assert (refused.returncode, "dag-running" in refused.stderr) == (14, True)
    asked = alice.shell("condor_q -all -long; condor_history -long -limit 20")
    wait_for_end(ground, alice)

    manifest = [json.loads(line) for line in alice.shell("cat ~/exp/tiny.manifest.jsonl").splitlines()]
    trained = sorted(f"r0{run}-e0{epoch}{kind}" for run in (0, 1) for epoch in (0, 1) for kind in ("", "-eval"))
    assert nodes_done(alice, "tiny") == sorted(["final", "service", *trained])
    assert sorted(line["node"] for line in manifest[:-1]) == trained
    assert (manifest[-1]["nodes"], manifest[-1]["dag_sha256"]) == (9, submitted["sha256"])
    assert alice.shell("cat ~/exp/tiny/r00/checkpoints/epoch0001.ckpt").endswith("/epoch0000.ckpt")
    told = alice.shell("cat ~/exp/tiny/r01/logs/r01-e00.*.out")
    assert told.splitlines()[0] == '{"lr":0.02,"kind":"small one"} it\'s fine 10'
    assert "evaluated r01 1" in alice.shell("cat ~/exp/tiny/r01/logs/r01-e01-eval.*.out")
    notes = alice.shell("cat ~/exp/notes").splitlines()
    assert {"pre r00-e00 tiny/r00", "post r01-e01 tiny/r01 0", "final 0", "service"} <= set(notes)
    everywhere = alice.shell("cat ~/exp/*.dag* ~/exp/*.jsonl ~/exp/tiny/r0*/attempts/* ~/exp/tiny/r0*/logs/*")
    assert "top-secret" not in everywhere + asked + alice.shell("condor_history -long -limit 20")
    assert "unused" not in alice.shell("grep -i unused ~/exp/tiny.dag.dagman.out || true")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("hooks", ["# hooks:", "hooks:"], ids=["plain", "with FINAL"])
def test_what_was_done_before_a_dag_was_removed_is_not_repeated(alice: Person, ground: Ground, hooks: str) -> None:
    longer = EXPERIMENT.replace("epochs: 2", "epochs: 3").replace(
        "python3 train.py", "sh -c 'sleep 2; python3 train.py'"
    )
    put(alice, "tiny.yaml", longer.replace("hooks:", hooks).replace("evaluate:", "# evaluate:"))
    assert alice.types("up", "lab", "--cpus", "4", "--mem", "4GB", "--lifetime", "20m").status == 0
    cluster = json.loads(siteannex(alice, "dag", "submit", "tiny.yaml", "--json"))["cluster"]
    ground.wait_for(
        lambda: alice.shell("cat ~/exp/tiny.jobstate 2>/dev/null || true").count(" JOB_SUCCESS "),
        lambda count: count >= 2,
        within_s=LIMIT_S,
    )
    alice.shell(f"condor_rm {cluster}")
    wait_for_end(ground, alice)
    assert alice.shell("cd ~/exp && ls tiny.dag.rescue001")
    before = nodes_done(alice, "tiny")
    assert {node for node in before if node.startswith("r")}
    siteannex(alice, "dag", "submit", "tiny.yaml")
    wait_for_end(ground, alice)
    assert {f"r0{run}-e0{epoch}" for run in (0, 1) for epoch in (0, 1, 2)} <= set(nodes_done(alice, "tiny"))
    for run in (
        "r00",
        "r01",
    ):  # what the training itself wrote down: each epoch once, whatever nodes were started for it
        lines = alice.shell(f"cat ~/exp/tiny/{run}/attempts/*.metrics.jsonl").splitlines()
        assert sorted(json.loads(line)["epoch"] for line in lines if "checkpoint" in line) == [0, 1, 2]


BOUND = """name: bound
seed: 1
runs_per_point: 2
parameters: {}
train: {epochs: 1}
submit: |
  executable = /bin/true
  transfer_executable = false
  request_cpus = 1
  request_memory = 64MB
  request_disk = 1MB
  requirements = TARGET.Arch == "X86_64"
sites:
  lab: {}
  elsewhere: {annex: elsewhere}
  osg: {resource: NOWHERE-CE1}
  chtc: {requirements: TARGET.IsCHTC =?= true}
retries: 0
"""


@pytest.mark.usefixtures("folder")
def test_a_job_runs_at_its_site_or_not_at_all(alice: Person, ground: Ground) -> None:
    """Four jobs for four sites, two runs each; only one of the sites is there, with room for all of them."""
    put(alice, "bound.yaml", BOUND.replace("runs_per_point: 2", "runs_per_point: 8"))
    assert alice.types("up", "lab", "--cpus", "8", "--mem", "4GB", "--lifetime", "20m").status == 0
    siteannex(alice, "dag", "submit", "bound.yaml")
    sites = {
        line["node"]: line["site"]
        for line in map(json.loads, alice.shell("head -n 8 ~/exp/bound.manifest.jsonl").splitlines())
    }
    here = sorted(node for node, site in sites.items() if site == "lab")
    assert len(here) == 2
    ground.wait_for(lambda: nodes_done(alice, "bound"), lambda done: done == here, within_s=LIMIT_S)
    # A negotiation cycle is two seconds here: those that could run anywhere would have run beside them.
    ads = json.loads(alice.shell("condor_q -json -constraint 'JobUniverse == 5'"))
    assert {(ad["DAGNodeName"], ad["JobStatus"]) for ad in ads} == {(node, 1) for node in sites if node not in here}
    clauses = {
        "elsewhere": 'TARGET.AnnexName == "elsewhere"',
        "osg": 'TARGET.GLIDEIN_ResourceName == "NOWHERE-CE1"',
        "chtc": "TARGET.IsCHTC is true",
    }
    for ad in ads:
        site = sites[ad["DAGNodeName"]]
        assert ad["SiteannexTargetSite"] == site
        assert clauses[site].replace(" is ", " ").split()[0] in ad["Requirements"]
        assert 'TARGET.Arch == "X86_64"' in ad["Requirements"]
        assert ad.get("TargetAnnexName") == ("elsewhere" if site == "elsewhere" else None)
    assert nodes_done(alice, "bound") == here


@pytest.mark.usefixtures("folder")
def test_any_site_takes_an_annex_that_is_there(alice: Person, ground: Ground) -> None:
    text = EXPERIMENT.replace(
        "  lab: {cap: 3}", "  elsewhere: {annex: elsewhere}\n  lab: {}\n  osg: {resource: NOWHERE}"
    )
    put(alice, "tiny.yaml", text.replace("hooks:", "policy: any\n# hooks:").replace("evaluate:", "# evaluate:"))
    assert alice.types("up", "lab", "--cpus", "4", "--mem", "4GB", "--lifetime", "20m").status == 0
    siteannex(alice, "dag", "submit", "tiny.yaml")
    wait_for_end(ground, alice)
    assert nodes_done(alice, "tiny") == ["r00-e00", "r00-e01", "r01-e00", "r01-e01"]
    shown = json.loads(siteannex(alice, "dag", "plan", "tiny.yaml", "--json"))
    assert (set(shown["annexes"]), shown["annexes_up"]) == ({"elsewhere", "lab"}, ["lab"])


ENDINGS = """name: ends
seed: 3
parameters: {how: {values: [stale, broken]}}
train: {command: python3 train.py, inputs: [train.py], epochs: 4}
early_stopping: {metric: val_loss, patience: 1}
evaluate: {command: "true"}
submit: |
  request_cpus = 1
  request_memory = 128MB
  request_disk = 20MB
sites: {lab: {}}
hooks: {post: ./note post}
environment: {GREETING: hello, KEY_OF_MINE: {secret_file: secret.key}}
"""


@pytest.mark.usefixtures("folder")
def test_a_stale_run_stops_without_more_jobs_and_a_broken_loss_is_not_tried_again(
    alice: Person, ground: Ground
) -> None:
    loss = '(1.0 if "stale" in env["SITEANNEX_PARAMETERS"] else float("nan"))'
    put(alice, "train.py", TRAIN.replace("1.0 / (epoch + 1)", loss))
    put(alice, "ends.yaml", ENDINGS)
    assert alice.types("up", "lab", "--cpus", "4", "--mem", "4GB", "--lifetime", "20m").status == 0
    siteannex(alice, "dag", "submit", "ends.yaml")
    wait_for_end(ground, alice)
    log = alice.shell("cat ~/exp/ends.jobstate").splitlines()
    submitted = sorted(line.split()[1] for line in log if " SUBMIT " in line)
    assert submitted == ["r00-e00", "r00-e00-eval", "r00-e01", "r01-e00"]  # retries: 3 holds, exit 86 is excepted
    assert alice.shell("cat ~/exp/ends.dag.rescue001 | grep -E '^DONE' | sort").split()[1::2] == sorted(
        f"r00-e0{epoch}{kind}" for epoch in range(4) for kind in ("", "-eval")
    )
    assert "post r01-e00 ends/r01 86" in alice.shell("cat ~/exp/notes")
    assert alice.shell("ls ~/exp/ends/r00/checkpoints").split().count("stopped-train.json") == 1


CHAIN = """name: chain
seed: 5
runs_per_point: 2
parameters: {kind: any}
prepare: {command: "sh -c 'echo simulated > data.txt'", outputs: [data.txt]}
train: {command: python3 train.py, inputs: [train.py, data.txt], epochs: 2}
finetune: {command: python3 train.py, inputs: [train.py, tune.txt], epochs: 2, epochs_per_job: 2}
submit: |
  request_cpus = 1
  request_memory = 128MB
  request_disk = 20MB
sites: {lab: {}}
environment: {GREETING: hello, KEY_OF_MINE: {secret_file: secret.key}}
"""


@pytest.mark.usefixtures("folder")
def test_data_is_prepared_once_and_finetuning_goes_on_from_the_best_of_training(alice: Person, ground: Ground) -> None:
    told = 'name = "%s%04d.ckpt" % (env["SITEANNEX_STAGE"], epoch)\n    '
    told += 'data = open("data.txt" if name[0] == "t" else "tune.txt").read()'
    train = TRAIN.replace('name = "epoch%04d.ckpt" % epoch', told).replace('"after " +', 'data + "after " +')
    # The first epoch is the better one.
    put(alice, "train.py", train.replace("1.0 / (epoch + 1)", "1.0 + epoch"))
    put(alice, "chain.yaml", CHAIN)
    put(alice, "tune.txt", "tuned ")
    assert alice.types("up", "lab", "--cpus", "4", "--mem", "4GB", "--lifetime", "20m").status == 0
    siteannex(alice, "dag", "submit", "chain.yaml")
    wait_for_end(ground, alice)
    each = [f"r0{run}-{node}" for run in (0, 1) for node in ("e00", "e01", "f01")]
    assert nodes_done(alice, "chain") == ["prepare", *each]
    for run in ("r00", "r01"):
        files = alice.shell(f"cd ~/exp/chain/{run}/checkpoints && tail -n +1 train0001.ckpt finetune*.ckpt").split()
        words = [word.rpartition("/")[2] for word in files if word not in ("==>", "<==")]
        assert words == [
            *("train0001.ckpt", "simulated", "after", "train0000.ckpt"),
            *("finetune0000.ckpt", "tuned", "after", "train0000.ckpt"),
            *("finetune0001.ckpt", "tuned", "after", "train0000.ckpt"),
        ]


SLOW = EXPERIMENT.replace("evaluate:", "# evaluate:").replace("hooks:", "# hooks:")


@pytest.mark.usefixtures("folder")
def test_a_dagman_killed_outright_recovers_and_repeats_no_epoch(alice: Person, ground: Ground) -> None:
    put(alice, "tiny.yaml", SLOW.replace("python3 train.py", "sh -c 'sleep 2; python3 train.py'"))
    assert alice.types("up", "lab", "--cpus", "4", "--mem", "4GB", "--lifetime", "20m").status == 0
    cluster = json.loads(siteannex(alice, "dag", "submit", "tiny.yaml", "--json"))["cluster"]
    log = "cat ~/exp/tiny.jobstate 2>/dev/null || true"
    running = ground.wait_for(
        lambda: alice.shell(log), lambda seen: " JOB_SUCCESS " in seen and "-e01 EXECUTE " in seen, within_s=LIMIT_S
    )
    assert "-e01 EXECUTE " in running
    alice.shell("kill -KILL $(pgrep -x condor_dagman -u alice)")
    ground.wait_for(lambda: recovered(alice), lambda seen: seen, within_s=LIMIT_S)
    wait_for_end(ground, alice)
    assert recovered(alice)
    ends = alice.shell(f"condor_history {cluster} -limit 1 -af NumJobStarts ExitCode")
    assert ends == "2 0"
    started = [line.split()[1] for line in alice.shell(log).splitlines() if " SUBMIT " in line]
    assert sorted(started) == ["r00-e00", "r00-e01", "r01-e00", "r01-e01"]
    assert epochs_trained(alice) == {"r00": [0, 1], "r01": [0, 1]}


def recovered(person: Person) -> bool:
    """Whether DAGMan has started anew and read the log of the one before."""
    return person.shell("grep -c 'Running in RECOVERY mode' ~/exp/tiny.dag.dagman.out || true") != "0"


def epochs_trained(person: Person) -> dict[str, list[int]]:
    """What the training itself wrote down, whatever nodes were started for it."""
    found = {}
    for run in ("r00", "r01"):
        lines = person.shell(f"cat ~/exp/tiny/{run}/attempts/*.metrics.jsonl").splitlines()
        found[run] = sorted(json.loads(line)["epoch"] for line in lines if "checkpoint" in line)
    return found


@pytest.mark.usefixtures("folder")
def test_a_job_that_its_site_ended_stays_in_the_queue_and_uses_no_retry(alice: Person, ground: Ground) -> None:
    """Slurm's SIGTERM reaches everything a batch job has started, the training before HTCondor knows of it."""
    one = SLOW.replace("0.01 to 0.02", "0.01 to 0.01").replace("epochs: 2", "epochs: 1")
    put(alice, "tiny.yaml", one + "retries: 0\n")
    put(alice, "train.py", 'import time\nprint("begun", flush=True)\ntime.sleep(600)\n')
    assert alice.types("up", "lab", "--cpus", "1", "--mem", "2GB", "--lifetime", "20m").status == 0
    siteannex(alice, "dag", "submit", "tiny.yaml")
    [batch_job] = ground.batch_jobs()
    ground.wait_for(lambda: trainings(ground), lambda seen: seen == 1, within_s=LIMIT_S)
    put(alice, "train.py", TRAIN)
    ground.at("login1", f"scancel --full --signal=TERM {batch_job.split()[0]}")
    ground.wait_for(ground.batch_jobs, lambda seen: not seen, within_s=LIMIT_S)
    states = alice.shell("condor_q -const 'JobUniverse == 5' -af DAGNodeName JobStatus NumJobStarts")
    assert states == "r00-e00 1 1"
    assert alice.types("up", "lab", "--cpus", "1", "--mem", "2GB", "--lifetime", "20m").status == 0
    wait_for_end(ground, alice)
    assert nodes_done(alice, "tiny") == ["r00-e00"]
    log = alice.shell("cat ~/exp/tiny.jobstate")
    assert (log.count(" SUBMIT "), log.count(" JOB_FAILURE ")) == (1, 0)


def trainings(ground: Ground) -> int:
    """Training commands that run on the compute nodes."""
    return sum("python3 train.py" in line and "siteannex-epoch" not in line for line in ground.processes())
