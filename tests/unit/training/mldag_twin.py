"""A small campaign in the shape of the real ones: MLDAG's DAGs for named sites, for one pool, for one annex."""

from __future__ import annotations

import itertools
import os
import random
from pathlib import Path

from siteannex.training.dag.dagfile import load_text

SITES = {"AMNH-HEL-CE1": "", "expanse": "expanse_annex", "GP-ARGO-ksu-backfill": "", "delta": "delta_annex"}
REAL_ENV = "SITEANNEX_REAL_TRAINING"


def real_training() -> Path | None:
    """The directory of real files, where there is one."""
    named = os.environ.get(REAL_ENV)
    beside = Path(__file__).resolve().parents[4] / "shared" / "data" / "real-training"
    return Path(named) if named else beside if beside.is_dir() else None


def campaign() -> dict[str, str]:
    """File name -> text: the real files where they are, else their twins."""
    real = real_training()
    if real is None:
        return twin()
    names = ["sites.dag", "aws.dag", "ospool.dag", "sites.dag.rescue001", "sites.dag.rescue012"]
    return {name: load_text(real / name) for name in names}


def twin() -> dict[str, str]:
    """The twins of the real files, a few runs and epochs of each."""
    sites = _sites()
    return {
        "sites.dag": sites,
        "aws.dag": _one("aws", annex="aws", script=True),
        "ospool.dag": _one("ospool", annex="", script=False),
        "sites.dag.rescue001": _rescue(done=["run0-train_epoch0"]),
        "sites.dag.rescue012": _rescue(done=[f"run{run}-train_epoch{epoch}" for run in range(3) for epoch in range(3)]),
    }


def description(site: str, annex: str) -> str:
    """MLDAG's inline submit description of one site, tabs, stray indent, bare requirement and all."""
    target = f'MY.TargetAnnexName = "{annex}"' if annex else f'TARGET.GLIDEIN_ResourceName == "{site}"'
    return (
        f"SUBMIT-DESCRIPTION {site}_pretrain.sub {{\n"
        "\tuniverse = container\n"
        "\tcontainer_image = osdf:///ospool/ap40/data/researcher/model.sif \n\n"
        "\trequest_disk = 80GB\n\trequest_memory = 64GB\n\trequest_cpus = 4\n\trequest_gpus = 1\n"
        "\t#gpus_minimum_memory = 8192\n"
        '\n\t+JobDurationCategory = "Long"\n    +ProjectName = "Example"\n\n'
        "\texecutable = /bin/bash\n\targuments = pretrain.sh $(epoch) $(run_uuid) $(random_seed)\n"
        "\ttransfer_input_files = pretrain.sh, osdf:///ospool/ap40/data/researcher/data.tar.gz\n"
        "\tif defined continue_from_checkpoint \n"
        "\t    transfer_input_files = $(transfer_input_files), output/training_logs/$(run_uuid)\n\tendif\n"
        "\toutput = $(run_uuid)/$(epoch)_$(CLUSTERID).out\n\terror = $(run_uuid)/$(epoch)_$(CLUSTERID).err\n"
        f"\tlog = metl.log\n\n\t{target}\n"
        '\tenvironment = "WANDB_API_KEY=0000000000000000000000000000000000000000"\n\tqueue\n}\n'
    )


def _sites(runs: int = 3, epochs: int = 4) -> str:
    choose = random.Random(7)  # noqa: S311
    helper = "#SUBMIT-DESCRIPTION helper.sub {\n    #universe = local\n    #queue\n#}\n#SERVICE helper helper.sub\n"
    text = helper + "".join(description(site, annex) for site, annex in SITES.items())
    for run in range(runs):
        order = [*SITES, *(choose.choice(list(SITES)) for _ in range(epochs))][:epochs]
        text += _run(run, order, f"{choose.getrandbits(32):08x}", str(choose.randint(0, 10**6)), script=True)
    return text + "\n\nRETRY ALL_NODES 5\nNODE_STATUS_FILE nodes.dag.status 30\n"


def _one(site: str, *, annex: str, script: bool, runs: int = 2, epochs: int = 3) -> str:
    choose = random.Random(site)  # noqa: S311
    text = description(site, annex)
    for run in range(runs):
        text += _run(
            run, [site] * epochs, f"{choose.getrandbits(32):08x}", str(choose.randint(0, 10**6)), script=script
        )
    return text + "\n\nRETRY ALL_NODES 3\n" if script else text


def _run(run: int, order: list[str], uuid: str, seed: str, *, script: bool) -> str:
    names = [f"run{run}-train_epoch{epoch}" for epoch in range(len(order))]
    lines = [f"JOB {name} {site}_pretrain.sub\n" for name, site in zip(names, order, strict=True)]
    lines.append("\n")
    for epoch, (name, site) in enumerate(zip(names, order, strict=True)):
        resume = ' continue_from_checkpoint="true"' if epoch else ""
        lines.append(
            f'VARS {name} epoch="{epoch + 1}" run_uuid="{uuid}" random_seed="{seed}" ResourceName="{site}"{resume}\n'
        )
    lines.append("\n\n")
    lines += [f"PARENT {parent} CHILD {child}\n" for parent, child in itertools.pairwise(names)]
    annexes = {"aws": "aws_annex", **{site: annex for site, annex in SITES.items() if annex}}
    for name, site in zip(names, order, strict=True):
        if script and site in annexes:
            lines.append(f"SCRIPT PRE {name} pre_request_annex.sh {site} {annexes[site]}\n")
    return "".join(lines)


def _rescue(done: list[str], runs: int = 3, epochs: int = 4) -> str:
    head = "# Rescue DAG file, created after running\n#   the twin.dag DAG file\n# Rescue DAG version: 2.0.1\n#\n\n"
    lines = []
    for run in range(runs):
        for epoch in range(epochs):
            name = f"run{run}-train_epoch{epoch}"
            lines += [f"DONE {name}\n"] * (name in done) + [f"RETRY {name} 3\n"]
    return head + "".join(lines)
