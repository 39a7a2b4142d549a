"""What is wrong with an experiment whose file keeps the schema: names, texts, secrets, sizes of the sweep. Pure."""

from __future__ import annotations

import difflib
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from siteannex.site.layers import Location
from siteannex.training.experiment.model import Experiment, Sticky, Value, Work
from siteannex.training.experiment.places import ANY, KEYS, Target
from siteannex.training.experiment.runs import node_count, points, run_count
from siteannex.training.experiment.secrets import secret_in
from siteannex.training.rendering.descriptions import COMMAND_SETS, OURS
from siteannex.training.rendering.submit_commands import AUTOMATIC_VARIABLES, SUBMIT_COMMANDS
from siteannex.training.rendering.submit_language import (
    PLACEHOLDER,
    Complaint,
    Line,
    check,
    check_placeholders,
    parse,
    references,
    unknown_variable,
)

RUN_VARS = ("run", "run_name", "run_id", "seed")
EPOCH_VARS = ("first_epoch", "epoch")
VARS = frozenset({*RUN_VARS, *EPOCH_VARS, "stage", "resume", "trained_stage"})


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong at which key; `line` counts from 1 within a text of submit language."""

    location: Location
    code: str
    text: str
    line: int | None = None


def problems(experiment: Experiment, targets: Mapping[str, Target]) -> list[Problem]:
    """Everything found, the sweep's size first: nothing else may expand it."""
    return [
        *_sweep(experiment),
        *_parameters(experiment),
        *_sites(experiment),
        *_given_runs(experiment),
        *_submit_texts(experiment, targets),
        *_commands(experiment),
        *_staged(experiment),
        *_images(experiment),
        *_environment(experiment),
        *_secrets(experiment),
    ]


def _sweep(experiment: Experiment) -> Iterator[Problem]:
    swept = experiment.swept()
    if experiment.runs:
        if swept:
            yield Problem(
                ("runs",), "experiment-invalid", f"runs are written out, and {', '.join(swept)} swept as well"
            )
    elif len(swept) > 1 and experiment.mode is None:
        told = f"{', '.join(swept)} are swept: write mode: product (every combination) or mode: zip (side by side)"
        yield Problem(("parameters",), "experiment-invalid", told)
        return
    elif experiment.mode == "zip" and points(experiment) == 0:
        sizes = ", ".join(f"{name} has {sweep.size()}" for name, sweep in swept.items())
        yield Problem(("mode",), "sweep-empty", f"zip takes lists of one length; {sizes}")
        return
    asked = node_count(experiment)
    if asked > experiment.max_nodes:
        where = ("parameters",) if swept else ("runs_per_point",)
        told = (
            f"{run_count(experiment)} training runs make {asked} DAG nodes; the ceiling is {experiment.max_nodes}. "
            f"To allow it write max_nodes: {asked}"
        )
        yield Problem(where, "sweep-too-large", told)


def _parameters(experiment: Experiment) -> Iterator[Problem]:
    for name in dict.fromkeys([*experiment.parameters, *(each for run in experiment.runs for each in run.parameters)]):
        where: Location = ("parameters", name) if name in experiment.parameters else ("runs",)
        small = name.lower()
        if small in VARS or small in AUTOMATIC_VARIABLES:
            yield Problem(where, "experiment-invalid", f"{name} is a name every job has already; choose another")
        elif small in SUBMIT_COMMANDS:
            yield Problem(where, "experiment-invalid", f"{name} is a submit command and would set it; choose another")
        elif small.startswith("queue"):
            yield Problem(where, "experiment-invalid", f"{name}: DAGMan takes no names that begin with queue")
    small_names = Counter(name.lower() for name in experiment.parameters)
    for name in experiment.parameters:
        if small_names[name.lower()] > 1:
            yield Problem(("parameters", name), "experiment-invalid", f"{name}: HTCondor ignores case; there are two")


def _sites(experiment: Experiment) -> Iterator[Problem]:
    if ANY in experiment.sites:
        yield Problem(
            ("sites", ANY), "experiment-invalid", "any is what policy: any calls all sites; choose another name"
        )
    wanted: list[tuple[Location, str]] = []
    for stage in ("prepare", "evaluate"):
        work = getattr(experiment, stage)
        wanted += [((stage, "sites", at), site) for at, site in enumerate(work.sites if work is not None else ())]
    wanted += [
        (("runs", at, "sites"), site) for at, run in enumerate(experiment.runs) for site in dict.fromkeys(run.sites)
    ]
    for where, site in wanted:
        if site not in experiment.sites:
            near = difflib.get_close_matches(site, experiment.sites, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(experiment.sites)}"
            yield Problem(where, "site-unknown", f"{site!r} is not under sites:{hint}")
    policy = experiment.policy
    if isinstance(policy, Sticky) and policy.sticky % experiment.train.epochs_per_job:
        told = f"{policy.sticky} epochs at one site do not divide into jobs of {experiment.train.epochs_per_job}"
        yield Problem(("policy", "sticky"), "epochs-indivisible", told)


def _given_runs(experiment: Experiment) -> Iterator[Problem]:
    names = Counter(run.name for run in experiment.runs if run.name is not None)
    jobs = sum(chain.jobs for chain in experiment.chains().values())
    kinds = [{name: value.kind for name, value in run.parameters.items()} for run in experiment.runs]
    for at, run in enumerate(experiment.runs):
        if run.name is not None and names[run.name] > 1:
            yield Problem(("runs", at, "name"), "dag-duplicate-node", f"{names[run.name]} runs are called {run.name!r}")
        if run.sites and len(run.sites) != jobs:
            told = f"{len(run.sites)} sites for {jobs} jobs: write one for each, or none"
            yield Problem(("runs", at, "sites"), "experiment-invalid", told)
        if kinds[at] != kinds[0]:
            yield Problem(
                ("runs", at), "experiment-invalid", "its parameters are not those of the first run, or of other kinds"
            )


def variables(experiment: Experiment, stage: str) -> set[str]:
    """Names that DAGMan's VARS define for the jobs of a stage."""
    if stage == "prepare":
        assert experiment.prepare is not None
        if experiment.prepare.per == "experiment":
            return {"stage"}
    own = {"trained_stage"} if stage == "evaluate" else {"resume"} if stage in experiment.chains() else set()
    given = {name for run in experiment.runs for name in run.parameters}
    return {*RUN_VARS, *EPOCH_VARS, "stage", *own, *experiment.parameters, *given}


def _submit_texts(experiment: Experiment, targets: Mapping[str, Target]) -> Iterator[Problem]:
    template = parse(experiment.submit)
    sites = {key: parse(place.submit) for key, place in experiment.sites.items()}
    stages = {stage: parse(work.submit) for stage, work in experiment.works().items()}
    blocks: list[tuple[Location, list[Line], list[Line]]] = [
        (("submit",), template, [line for block in (*sites.values(), *stages.values()) for line in block]),
        *((("sites", key, "submit"), block, [*template, *_all(stages)]) for key, block in sites.items()),
        *(((stage, "submit"), block, [*template, *_all(sites)]) for stage, block in stages.items()),
    ]
    trained = set().union(*(variables(experiment, stage) for stage in experiment.works()))
    for where, lines, others in blocks:
        stage = str(where[0])
        names = variables(experiment, stage) if stage in stages else trained
        found = check(lines, names, others=others)
        found += _not_ours(experiment, lines, stage)
        placeholders = [*KEYS, *(name for place in experiment.sites.values() for name in place.values)]
        yield from (_at(where, each) for each in (*found, *check_placeholders(lines, placeholders)))
    yield from _unfilled(experiment, targets, [line for _, lines, _ in blocks for line in lines])
    yield from _executable(experiment, template, stages)


def _all(blocks: Mapping[str, list[Line]]) -> list[Line]:
    return [line for block in blocks.values() for line in block]


def _at(where: Location, complaint: Complaint) -> Problem:
    return Problem(where, complaint.code, complaint.text, complaint.line)


def _not_ours(experiment: Experiment, lines: list[Line], stage: str) -> Iterator[Complaint]:
    commands = any(work.command is not None for work in experiment.works().values())
    for line in lines:
        if line.name in OURS:
            told = "write it under environment: of the experiment file, where it is completed and checked for secrets"
            yield Complaint(line.number, "submit-invalid", f"{line.name}: {told}")
        elif line.name == "requirements" and line.conditional:
            told = "requirements in an if block cannot be completed with the site; write it outside"
            yield Complaint(line.number, "submit-invalid", told)
        elif line.name == "my.targetannexname":
            told = "the site decides it (sites: NAME: {annex: ...})"
            yield Complaint(line.number, "submit-invalid", f"TargetAnnexName: {told}")
        elif line.name in COMMAND_SETS and commands:
            told = "command: decides it; leave it out, or leave every command: out"
            yield Complaint(line.number, "submit-invalid", f"{line.name}: {told}")
        elif line.text.strip() == "}":
            yield Complaint(line.number, "submit-invalid", "a } alone on a line would end the description in the DAG")


def _unfilled(experiment: Experiment, targets: Mapping[str, Target], lines: list[Line]) -> Iterator[Problem]:
    used = dict.fromkeys(name for line in lines for group, name in PLACEHOLDER.findall(line.text) if group == "site")
    known = {*KEYS, *(name for place in experiment.sites.values() for name in place.values)}
    for key, target in targets.items():
        for name in used:
            if name in known and name not in target.names:
                if key == ANY:
                    told = f"policy: any needs one {{site.{name}}} for all sites, and they differ or leave it out"
                    yield Problem(("policy",), "experiment-invalid", told)
                elif experiment.policy != "any":
                    told = f"the template uses {{site.{name}}}, and this site has no {name}:"
                    yield Problem(("sites", key), "variable-unknown", told)


def _executable(experiment: Experiment, template: list[Line], stages: Mapping[str, list[Line]]) -> Iterator[Problem]:
    for stage, work in experiment.works().items():
        written = any(line.name == "executable" for line in [*template, *stages[stage]])
        if work.command is None and not written:
            yield Problem(
                (stage,), "experiment-invalid", "what is to run? write command: here, or executable in submit:"
            )
        if stage in experiment.chains() and experiment.early_stopping is not None and work.command is None:
            told = "it is the epoch runner that judges: write command: instead of an executable"
            yield Problem(("early_stopping",), "experiment-invalid", told)


def _commands(experiment: Experiment) -> Iterator[Problem]:
    for stage, work in experiment.works().items():
        yield from _command(experiment, stage, work)
    for hook, text in experiment.hooks:
        if text is not None:
            yield from _words(("hooks", hook), text)


def _command(experiment: Experiment, stage: str, work: Work) -> Iterator[Problem]:
    if work.command is None:
        return
    where = (stage, "command")
    yield from _words(where, work.command)
    yield from _names(where, work.command, variables(experiment, stage))


def _staged(experiment: Experiment) -> Iterator[Problem]:
    for stage, work in experiment.works().items():
        if work.staged and work.command is None:
            told = "it is the epoch runner that looks for staged files: write command: instead of an executable"
            yield Problem((stage, "staged"), "experiment-invalid", told)
        for at, path in enumerate(work.staged):
            if path in work.inputs:
                yield Problem((stage, "staged", at), "experiment-invalid", f"{path} stands under inputs: as well")


def _images(experiment: Experiment) -> Iterator[Problem]:
    """An image below a directory is never found: the file keeps its path, HTCondor looks for its last part."""
    if all(work.command is None for work in experiment.works().values()):
        return
    texts: dict[Location, str] = {("submit",): experiment.submit}
    texts |= {("sites", key, "submit"): place.submit for key, place in experiment.sites.items()}
    texts |= {(stage, "submit"): work.submit for stage, work in experiment.works().items()}
    for where, text in texts.items():
        for line in parse(text):
            if (
                line.name == "container_image"
                and "/" in line.value
                and line.value[0] not in "/$"
                and ":" not in line.value
            ):
                told = f"{line.value}: put the image beside the experiment file, or write its absolute path"
                yield Problem(where, "submit-invalid", told, line.number)


def _words(where: Location, text: str) -> Iterator[Problem]:
    try:
        words = shlex.split(text)
    except ValueError as problem:
        yield Problem(where, "quoting-impossible", f"{text!r}: {problem}")
        return
    if not words:
        yield Problem(where, "experiment-invalid", "an empty command")
    if re.search(r"[\n\r]", text.strip()):
        yield Problem(where, "quoting-impossible", "a command is one line; put a script into inputs:")


def _names(where: Location, text: str, defined: set[str]) -> Iterator[Problem]:
    small = {name.lower() for name in defined}
    for name in sorted(references(Line(1, text)) - small - AUTOMATIC_VARIABLES):
        yield Problem(where, "variable-unknown", unknown_variable(name, small))


def _environment(experiment: Experiment) -> Iterator[Problem]:
    always = set.intersection(*(variables(experiment, stage) for stage in experiment.works()))
    for name, value in experiment.environment.items():
        where = ("environment", name)
        if name.startswith(("SITEANNEX_", "_CONDOR_")) and name not in _SETTABLE:
            key = {"SITEANNEX_CODE_VERSION": "code", "SITEANNEX_DATASET": "dataset"}.get(name)
            told = f"write {key}: of the experiment file" if key else f"{name} is set for every job already"
            yield Problem(where, "experiment-invalid", told)
        if isinstance(value, str):
            yield from _names(where, value, always)
            if re.search(r"[\n\r]", value):
                yield Problem(where, "quoting-impossible", "a value of one line; put longer texts into inputs:")


_SETTABLE = frozenset(
    f"SITEANNEX_{name}"
    for name in (
        "RESUME_FROM",
        "METRIC",
        "METRIC_MODE",
        "INITIAL_CHECKPOINT",
        "CONTAINER",
        "STAGED_CHECK",
    )
)
"""What the epoch runner also reads, for the user to set (docs/epoch-runner.md)."""


def _secrets(experiment: Experiment) -> Iterator[Problem]:
    """Whatever would be readable in DAG, queue or log. Comments too: the file itself is shared."""
    texts: dict[Location, str] = {("submit",): experiment.submit, ("description",): experiment.description}
    texts |= {(key,): value for key in ("code", "dataset") if isinstance(value := getattr(experiment, key), str)}
    texts |= {
        (stage, key): str(getattr(work, key) or "")
        for stage, work in experiment.works().items()
        for key in ("submit", "command")
    }
    texts |= {("sites", key, "submit"): place.submit for key, place in experiment.sites.items()}
    texts |= {("hooks", hook): text or "" for hook, text in experiment.hooks}
    texts |= {
        ("parameters", name): f"{name}={each.text}"
        for name, each in experiment.parameters.items()
        if isinstance(each, Value)
    }
    texts |= {
        ("environment", name): f"{name}={value}"
        for name, value in experiment.environment.items()
        if isinstance(value, str)
    }
    if (mlflow := experiment.tracking.mlflow) is not None:
        texts |= {("tracking", "mlflow", "uri"): mlflow.uri}
    for where, text in texts.items():
        block = where[-1] == "submit"
        for number, line in enumerate(text.splitlines(), 1):
            if (what := secret_in(line)) is not None:
                told = f"{what} stands here in clear; write environment: {{NAME: {{secret_file: PATH}}}} instead"
                yield Problem(where, "secret-exposed", told, number if block else None)
