"""From an experiment to DAGMan's language, as a stream of lines: one flat DAG, and its manifest beside it. Pure.

Rules it keeps (checked on HTCondor 25.14.1): node names are `[A-Za-z0-9_-]`; VARS are double-quoted, with PREPEND
(appended ones would make `if defined resume` false and a run start from scratch in silence); submit descriptions stand
in the DAG, one for each kind of job and site; limits for a site are CATEGORY and MAXJOBS.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from siteannex.training.experiment.model import Experiment
from siteannex.training.experiment.origins import UNKNOWN, Origins
from siteannex.training.experiment.places import Target, route
from siteannex.training.experiment.runs import Run, node_count, runs
from siteannex.training.rendering.descriptions import NOT_FINITE_EXIT, USELESS_EXITS, describe, image_of, written_lines
from siteannex.training.rendering.submit_language import mentions, parse

STATUS_S, STATUS_MANY_S, MANY_NODES = 30, 300, 5000
"""DAGMan rewrites every node in its status file each time: seldom for big DAGs."""
STOPPED_EXIT = 77
"""Of the PRE script of a node that early stopping made needless."""


@dataclass(frozen=True, slots=True)
class Names:
    """Where the DAG's companions lie, relative to the directory it is submitted from."""

    config: str
    status: str
    jobstate: str


@dataclass(frozen=True, slots=True)
class Node:
    """One node and what the manifest says of it."""

    name: str
    stage: str
    site: str
    first_epoch: int
    epoch: int
    parents: tuple[str, ...] = ()
    trained_stage: str = ""
    """For side-cars: the stage whose epoch they look at."""
    resume: bool = False
    arrives: bool = False
    """The run was elsewhere before, or nowhere."""


def nodes(experiment: Experiment, run: Run) -> Iterator[Node]:
    """The nodes of one run: its chain, epoch by epoch, each with its side-car."""
    sites = route(experiment, run)
    parents: tuple[str, ...] = ()
    prepare, evaluate = experiment.prepare, experiment.evaluate
    if prepare is not None and prepare.per == "experiment":
        parents = ("prepare",)
    width = max(2, *(len(str(chain.epochs - 1)) for chain in experiment.chains().values()))
    whole = [(stage, chain, at) for stage, chain in experiment.chains().items() for at in range(chain.jobs)]
    before = None
    for count, (stage, chain, at) in enumerate(whole):
        site = next(sites)
        if count == 0 and prepare is not None and prepare.per == "run":
            where = prepare.sites[run.index % len(prepare.sites)] if prepare.sites else site
            yield Node(f"{run.name}-prepare", "prepare", where, 0, 0)
            parents = (f"{run.name}-prepare",)
        first, last = at * chain.epochs_per_job, (at + 1) * chain.epochs_per_job - 1
        name = f"{run.name}-{'e' if stage == 'train' else 'f'}{last:0{width}d}"
        yield Node(name, stage, site, first, last, parents, resume=count > 0, arrives=site != before)
        parents, before = (name,), site
        if evaluate is not None and (evaluate.after == "each" or count == len(whole) - 1):
            where = evaluate.sites[(run.index + count) % len(evaluate.sites)] if evaluate.sites else site
            yield Node(f"{name}-eval", "evaluate", where, first, last, parents, trained_stage=stage)


def dag_lines(
    experiment: Experiment, targets: Mapping[str, Target], names: Names, origins: Origins = UNKNOWN
) -> Iterator[str]:
    """The whole DAG, line by line, without line ends."""
    for lines, _ in pieces(experiment, targets, names, origins, told=False):
        yield from lines


def manifest_lines(experiment: Experiment) -> Iterator[str]:
    """One JSON object a node: what it trains, with which parameters, where."""
    yield from _told_once(experiment)
    for run in runs(experiment):
        yield from _told(run, nodes(experiment, run))


def pieces(
    experiment: Experiment, targets: Mapping[str, Target], names: Names, origins: Origins, *, told: bool = True
) -> Iterator[tuple[Iterable[str], Iterable[str]]]:
    """DAG and manifest side by side, run after run: lines of the one, lines of the other (none without `told`)."""
    yield _head(experiment, targets, names, origins), _told_once(experiment)
    capped = {key for key, target in targets.items() if target.cap is not None}
    annexes = {key: target.names["annex"] for key, target in targets.items() if "annex" in target.names}
    asked = asks_resume(experiment)
    for run in runs(experiment):
        its = tuple(nodes(experiment, run))
        yield _run_lines(experiment, run, its, capped, annexes, asked=asked), _told(run, its) if told else ()


def _head(experiment: Experiment, targets: Mapping[str, Target], names: Names, origins: Origins) -> Iterator[str]:
    many = node_count(experiment) > MANY_NODES
    yield f"# Experiment {experiment.name}: {node_count(experiment)} nodes. Written by siteannex; do not edit."
    yield f"CONFIG {names.config}"
    yield f"NODE_STATUS_FILE {names.status} {STATUS_MANY_S if many else STATUS_S} ALWAYS-UPDATE"
    yield f"JOBSTATE_LOG {names.jobstate}"
    first = next(runs(experiment))
    for stage, site in _pairs(experiment, targets):
        yield f"SUBMIT-DESCRIPTION {stage}-{site} {{"
        yield from (f"    {line}" for line in describe(experiment, stage, targets[site], first.parameters, origins))
        yield "}"
    yield from _for_all(experiment, targets)
    if (prepared := _prepared_at(experiment)) is not None:
        yield f"JOB prepare prepare-{prepared}"
        yield 'VARS prepare PREPEND stage="prepare"'
        if _judged(experiment) and experiment.hooks.post is not None:
            yield f"SCRIPT POST prepare {experiment.name}/hooks/judge.sh $RETURN"


def images(experiment: Experiment, targets: Mapping[str, Target]) -> set[str]:
    """The container images that the DAG's jobs run in, as the submit language names them."""
    pairs = _pairs(experiment, targets)
    found = (image_of(written_lines(experiment, stage, targets[site])) for stage, site in pairs)
    return {image for image in found if image is not None}


def _prepared_at(experiment: Experiment) -> str | None:
    """The site of the one preparation for all runs, None when there is none."""
    prepare = experiment.prepare
    return (*prepare.sites, *experiment.sites)[0] if prepare is not None and prepare.per == "experiment" else None


def _pairs(experiment: Experiment, targets: Mapping[str, Target]) -> Iterator[tuple[str, str]]:
    """(stage, site) of every submit description that may be used."""
    usual = ["any"] if experiment.policy == "any" and not experiment.runs else list(targets)
    prepare, evaluate = experiment.prepare, experiment.evaluate
    for stage in experiment.chains():
        yield from ((stage, site) for site in usual)
    if prepare is not None:
        once = _prepared_at(experiment)
        yield from (("prepare", site) for site in ([once] if once else dict.fromkeys(prepare.sites or usual)))
    if evaluate is not None:
        yield from (("evaluate", site) for site in dict.fromkeys(evaluate.sites or usual))


def _for_all(experiment: Experiment, targets: Mapping[str, Target]) -> Iterator[str]:
    if experiment.retries:
        unless = f" UNLESS-EXIT {NOT_FINITE_EXIT}" if _by_runner(experiment) else ""
        yield f"RETRY ALL_NODES {experiment.retries}{unless}"
    if _judged(experiment) and experiment.hooks.post is None:
        yield f"SCRIPT POST ALL_NODES {experiment.name}/hooks/judge.sh $RETURN"
    for key, target in targets.items():
        if target.cap is not None:
            yield f"MAXJOBS {key} {target.cap}"
    for role in ("final", "service"):
        if getattr(experiment.hooks, role) is not None:
            yield f"SUBMIT-DESCRIPTION hook-{role} {{"
            yield "    universe = local"
            yield f"    executable = {experiment.name}/hooks/{role}.sh"
            yield from (["    arguments = $(DAG_STATUS) $(FAILED_COUNT)"] if role == "final" else [])
            yield f"    output = {experiment.name}/hooks/{role}.out"
            yield f"    error = {experiment.name}/hooks/{role}.err"
            yield "}"
            yield f"{role.upper()} {role} hook-{role}"


def _by_runner(experiment: Experiment) -> bool:
    return experiment.train.command is not None


def _judged(experiment: Experiment) -> bool:
    """Whether a POST script must say which failures are not worth another attempt: UNLESS-EXIT takes one value."""
    return _by_runner(experiment) and experiment.retries > 0


def asks_resume(experiment: Experiment) -> bool:
    """Whether any submit language looks at `resume`; DAGMan warns of each VARS that nothing uses."""
    written = [experiment.submit, *(place.submit for place in experiment.sites.values())]
    written += [work.submit for work in experiment.works().values()]
    return any("resume" in mentions(line) for text in written for line in parse(text))


def _run_lines(
    experiment: Experiment,
    run: Run,
    its: Iterable[Node],
    capped: set[str],
    annexes: Mapping[str, str],
    *,
    asked: bool,
) -> Iterator[str]:
    same = vars_text(
        {"run": str(run.index), "run_name": run.name, "run_id": run.run_id, "seed": str(run.seed)}
        | {name: value.text for name, value in run.parameters.items()}
    )
    folder = f"{experiment.name}/{run.name}"
    for node in its:
        name = node.name
        yield f"JOB {name} {node.stage}-{node.site}"
        more = {"stage": node.stage, "first_epoch": str(node.first_epoch), "epoch": str(node.epoch)}
        if node.resume and asked:
            more["resume"] = "1"
        if node.trained_stage:
            more["trained_stage"] = node.trained_stage
        yield f"VARS {name} PREPEND {same} {vars_text(more)}"
        for parent in node.parents:
            yield f"PARENT {parent} CHILD {name}"
        if node.site in capped:
            yield f"CATEGORY {name} {node.site}"
        yield from _scripts(experiment, node, folder, annexes.get(node.site) if node.arrives else None)


def _scripts(experiment: Experiment, node: Node, folder: str, annex: str | None) -> Iterator[str]:
    """`annex`: the one that the run comes to with this node; it is asked for (requests.py)."""
    hooks = f"{experiment.name}/hooks"
    trained = node.stage in experiment.chains()
    stops = experiment.early_stopping is not None and (trained or node.stage == "evaluate")
    if stops or annex or (trained and experiment.hooks.pre is not None):
        stage = node.trained_stage or node.stage
        role = "pre" if trained else "stopped"
        yield f"SCRIPT PRE {node.name} {hooks}/{role}.sh {node.name} {folder} {stage} {node.epoch}" + (
            f" {annex}" if annex else ""
        )
        if stops:
            yield f"PRE_SKIP {node.name} {STOPPED_EXIT}"
    if trained and experiment.hooks.post is not None:
        yield f"SCRIPT POST {node.name} {hooks}/post.sh {node.name} {folder} $RETURN"
    elif _judged(experiment) and experiment.hooks.post is not None:
        yield f"SCRIPT POST {node.name} {hooks}/judge.sh $RETURN"


def vars_text(variables: Mapping[str, str]) -> str:
    """`name="value" ...` with DAGMan's two escapes."""
    return " ".join(f'{name}="{_escaped(value)}"' for name, value in variables.items())


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')


def config_text(experiment: Experiment) -> str:
    """DAGMan's settings for this DAG."""
    limits = experiment.throttles
    return "".join(
        f"{name} = {value}\n"
        for name, value in {
            "DAGMAN_MAX_JOBS_IDLE": limits.max_idle,
            "DAGMAN_MAX_JOBS_SUBMITTED": limits.max_jobs,
            "DAGMAN_MAX_PRE_SCRIPTS": limits.max_pre,
            "DAGMAN_MAX_POST_SCRIPTS": limits.max_post,
            "DAGMAN_MAX_JOB_HOLDS": limits.max_holds,
            "DAGMAN_DEFAULT_APPEND_VARS": False,
            "DAGMAN_PROHIBIT_MULTI_JOBS": True,
            "DAGMAN_PENDING_REPORT_INTERVAL": 600,
        }.items()
    )


def _told_once(experiment: Experiment) -> Iterator[str]:
    if (site := _prepared_at(experiment)) is not None:
        yield json.dumps({"node": "prepare", "stage": "prepare", "site": site})


def _told(run: Run, its: Iterable[Node]) -> Iterator[str]:
    same = json.dumps({"run": run.index, "run_name": run.name, "run_id": run.run_id, "seed": run.seed})[1:-1]
    told = f'"parameters": {run.parameters_json()}, "parameters_sha256": "{run.parameters_sha256()}"'
    for node in its:
        yield (
            f'{{"node": "{node.name}", "stage": "{node.stage}", "site": "{node.site}", '
            f'"first_epoch": {node.first_epoch}, "epoch": {node.epoch}, {same}, {told}}}'
        )


def hook_scripts(experiment: Experiment, announcing: str = "") -> dict[str, str]:
    """File name -> the shell script that DAGMan starts around the user's hook.

    `announcing`: the shell function that asks for an annex.
    """
    head = "#!/bin/sh\n# Written by siteannex dag render.\n"
    stopped = f'[ -e "$2/checkpoints/stopped-$3.json" ] && exit {STOPPED_EXIT}\n'
    found: dict[str, str] = {}
    hooks = experiment.hooks
    if hooks.pre is not None or experiment.early_stopping is not None or announcing:
        pre = f'{hooks.pre} "$1" "$2"\n' if hooks.pre is not None else "exit 0\n"
        skips = stopped if experiment.early_stopping is not None else ""
        asks = f'{announcing}[ -z "$5" ] || announce "$5" "$1"\n' if announcing else ""
        found["pre.sh"] = head + skips + asks + pre
        if experiment.early_stopping is not None and experiment.evaluate is not None:
            found["stopped.sh"] = head + stopped + "exit 0\n"
    if hooks.post is not None:
        found["post.sh"] = f'{head}{hooks.post} "$1" "$2" "$3" || exit 1\n{_judgement(experiment, "$3")}'
    if _judged(experiment):
        found["judge.sh"] = head + _judgement(experiment, "$1")
    if hooks.final is not None:
        found["final.sh"] = f'{head}{hooks.final} "$1" || exit 1\n[ "$1" -eq 0 ]  # a failed DAG stays a failed one\n'
    if hooks.service is not None:
        found["service.sh"] = f"{head}exec {hooks.service}\n"
    return found


def _judgement(experiment: Experiment, status: str) -> str:
    """The end of a POST script: the job's failure stays one, and is tried again or not."""
    useless = "|".join(map(str, USELESS_EXITS))
    last = f"{useless}) exit {NOT_FINITE_EXIT} ;; # another attempt would end the same\n" if _judged(experiment) else ""
    signal = "-*) exit 1 ;; # ended by a signal, or not even submitted\n"
    return f'case "{status}" in\n{signal}{last}*) exit "{status}" ;;\nesac\n'


def run_folders(experiment: Experiment) -> Iterator[str]:
    """Directories that must exist before the DAG runs, those above before those below."""
    yield from (experiment.name, f"{experiment.name}/logs", f"{experiment.name}/attempts", f"{experiment.name}/hooks")
    for run in runs(experiment):
        yield from (f"{experiment.name}/{run.name}{part}" for part in ("", "/checkpoints", "/attempts", "/logs"))
