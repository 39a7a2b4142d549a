"""What the DAG says of its nodes before any log does: run, epoch and targeted site of each. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from siteannex.training.dag.daggraph import Graph

_EPOCH_OF_NAME = re.compile(r"(?P<run>.+?)[-_](?:train[-_])?(?:epoch|e)(?P<epoch>\d+)")
_CHAIN_STAGES = ("", "train", "finetune")


@dataclass(frozen=True, slots=True)
class Planned:
    """One node. `epoch` is None for nodes that train nothing; `done`: before this log began (a rescue DAG)."""

    run: str
    epoch: int | None
    site: str = ""
    done: bool = False


def planned_by_name(name: str, site: str = "", *, done: bool = False) -> Planned:
    """A node by its name alone: `run3-train_epoch7`, `r003-e07`. Others are a run of their own."""
    match = _EPOCH_OF_NAME.fullmatch(name)
    if match is None:
        return Planned(name, None, site, done)
    return Planned(match["run"], int(match["epoch"]), site, done)


def plan_of_manifest(text: str) -> dict[str, Planned]:
    """siteannex's own manifest, one JSON object a node; lines without a node are passed over."""
    plan = {}
    for line in text.splitlines():
        told = json.loads(line)
        if not isinstance(told, dict) or "node" not in told:
            continue
        name, site = str(told["node"]), str(told.get("site") or "")
        if told.get("run_name") is None or told.get("stage", "") not in _CHAIN_STAGES:
            plan[name] = Planned(name, None, site)
        else:
            named = planned_by_name(name, site)
            run = str(told["run_name"]) + (" finetune" if told.get("stage") == "finetune" else "")
            plan[name] = Planned(run, int(told.get("epoch") or named.epoch or 0), site)
    return plan


def plan_of_graph(graph: Graph) -> dict[str, Planned]:
    """Any DAG: by the names of nodes, and the site by MLDAG's ResourceName or the name of the submit description."""
    plan = {}
    for name, node in graph.nodes.items():
        if node.kind not in ("JOB", "SUBDAG"):
            continue
        site = graph.variables.get(name, {}).get("ResourceName") or _site_of(node.submit)
        plan[name] = planned_by_name(name, site, done=name in graph.done)
    return plan


def _site_of(submit: str) -> str:
    """`expanse_pretrain.sub` is MLDAG's for expanse, `train-expanse` ours."""
    if submit.endswith("_pretrain.sub"):
        return submit.removesuffix("_pretrain.sub")
    stage, dash, site = submit.partition("-")
    return site if dash and stage in ("train", "finetune", "evaluate", "prepare") else ""


def with_done(plan: Mapping[str, Planned], done: frozenset[str]) -> dict[str, Planned]:
    """The same with nodes marked that a rescue file says are done."""
    return {name: Planned(each.run, each.epoch, each.site, each.done or name in done) for name, each in plan.items()}
