"""The example training run with the site's own Python, and its submit file with the AP's own condor_submit."""

import json
from pathlib import Path

from lab import Lab

EXAMPLE = Path(__file__).parents[2] / "examples" / "train"


def test_the_example_trains_with_the_python_and_numpy_of_the_site(lab: Lab) -> None:
    there = (
        "d=$(mktemp -d) && python3 -W error - --epochs 2 --sequences 200 --out $d >&2 && cat $d/metrics.json; rm -r $d"
    )
    done = lab.exec("c1", ["sh", "-c", there], user="alice", input=(EXAMPLE / "train.py").read_text())
    assert done.returncode == 0, done.stderr
    metrics = json.loads(done.stdout)
    assert metrics["where"]["host"] == "c1"
    assert metrics["loss_by_guessing"] > metrics["loss_per_epoch"][0] > metrics["loss_per_epoch"][1]


def dry_run(lab: Lab, *assignments: str) -> dict[str, str]:
    script = """
        set -e; d=$(mktemp -d); trap 'rm -r $d' EXIT; cd $d
        cat > train.sub; echo '#!/bin/sh' > train.py; echo saved > old.npz
        condor_submit -dry-run - "$@" train.sub
    """
    given = (EXAMPLE / "train.sub").read_text()
    done = lab.exec("ap", ["sh", "-c", script, "sh", *assignments], user="alice", input=given)
    assert done.returncode == 0, done.stderr
    return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)


def test_the_submit_file_names_the_annex_and_asks_for_a_gpu(lab: Lab) -> None:
    job = dry_run(lab, "annex=expanse")
    assert job["TargetAnnexName"] == '"expanse"'
    assert (job["RequestGPUs"], job["GPUsMinMemory"], job["RequestMemory"]) == ("1", "16384", "1024")
    assert job["Args"] == '"--seed 1 --epochs 3 --out ."'
    assert job["TransferOutput"] == '"metrics.json,checkpoint-epoch3.npz"'


def test_a_checkpoint_travels_with_the_job_that_goes_on_from_it(lab: Lab) -> None:
    job = dry_run(lab, "annex=lab", "epochs=6", "checkpoint=./old.npz")
    assert job["TransferInput"] == '"./old.npz"'
    assert job["Args"] == '"--seed 1 --epochs 6 --out . --resume old.npz"'
