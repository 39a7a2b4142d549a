"""One inline submit description for each kind of job and site: the user's template, completed and bound. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from siteannex.training.experiment.model import Experiment, SecretFile, Value, Work
from siteannex.training.experiment.origins import UNKNOWN, Origins
from siteannex.training.experiment.places import Target
from siteannex.training.experiment.staged import directories, place_in_sandbox, told_to_job
from siteannex.training.rendering.submit_language import (
    Line,
    arguments,
    effective,
    environment,
    fill,
    last,
    parse,
    without,
)
from siteannex.units import parse_memory_mib

RUNNER = "siteannex-epoch"
GO_ON_EXIT, NOT_FINITE_EXIT, INTERRUPTED_EXIT = 85, 86, 87
"""Exit codes of the epoch runner: stopped with a checkpoint, goes on; the loss is not finite; stopped without one."""
USELESS_EXITS = (80, 81, 82)
"""More of them that another attempt would end with too: called wrongly, no checkpoint to trust, contract broken."""
MOST_STARTS = 20
"""A job that was told to end so often fails after all, so that no site can keep it for ever."""
STAGES_OF_RUNS = ("train", "finetune", "evaluate")
IMAGE_COMMANDS = ("container_image", "docker_image", "my.singularityimage")
OURS = ("environment", "environment2", "env")
EXECUTE_ATTRS = ("GLIDEIN_ResourceName", "SiteannexSite", "AnnexName", "EPSlurmJobId", "Machine")
"""Attributes of the execution point that HTCondor writes into event 001, so that the log says where a job really ran:
`ulog_execute_attrs`, HTCondor 10 and newer; those that an EP lacks are left out."""
JOB_LOG = "jobs.log"
"""All events of all jobs: DAGMan's own log, beside the DAG, has no transfers, disconnections or errors on the way."""
COMMAND_SETS = ("executable", "arguments", "args", "transfer_executable", "preserve_relative_paths")
"""What `command:` decides, so that a template may not."""


@dataclass(frozen=True, slots=True)
class Texts:
    """The user's submit language for one kind of job at one site, parsed: template, site, stage."""

    template: tuple[Line, ...]
    site: tuple[Line, ...]
    stage: tuple[Line, ...]


def texts(experiment: Experiment, stage: str, target: Target) -> Texts:
    """What the user wrote for these jobs."""
    place = experiment.sites.get(target.key)
    return Texts(
        tuple(parse(experiment.submit)),
        tuple(parse(place.submit if place is not None else "")),
        tuple(parse(experiment.works()[stage].submit)),
    )


def written_lines(experiment: Experiment, stage: str, target: Target) -> list[Line]:
    """The user's submit language for one kind of job at one site, as one text, `{site.*}` filled."""
    written = texts(experiment, stage, target)
    return fill(effective(written.template, written.site, written.stage), dict(target.names))


def _leaves(*, ours: bool) -> str:
    """When a job that ended leaves the queue: not when a site that takes its nodes back ended it, of which HTCondor may
    know nothing (Slurm's SIGTERM reaches the job as soon as the execution point)."""
    told = f"ExitCode =!= {INTERRUPTED_EXIT}" if ours else "true"
    return f"NumJobStarts > {MOST_STARTS} || (ExitBySignal ? ExitSignal =!= 15 : {told})"


def image_of(lines: list[Line]) -> str | None:
    """The container image that jobs run in, as the submit language names it; None without one."""
    named = (last(lines, name) for name in IMAGE_COMMANDS)
    return next((image.strip('"') for image in named if image), None)


def describe(
    experiment: Experiment,
    stage: str,
    target: Target,
    parameters: Mapping[str, Value],
    origins: Origins = UNKNOWN,
) -> list[str]:
    """The lines between the braces of SUBMIT-DESCRIPTION. `parameters` gives the names and kinds every run has."""
    work = experiment.works()[stage]
    lines = written_lines(experiment, stage, target)
    per_run = stage in STAGES_OF_RUNS or (experiment.prepare is not None and experiment.prepare.per == "run")
    folder = f"{experiment.name}/$(run_name)" if per_run else experiment.name
    secrets = secret_files(experiment)
    copies = {path: target.staged[path] for path in work.staged if path in target.staged}
    moved = [path for path in work.staged if path not in copies]
    inputs = [*work.inputs, *moved, *(path for path, _ in secrets.values())]
    told = _origins(origins, image_of(lines))
    variables = {**told, **_variables(experiment, stage, target, parameters, per_run=per_run)}
    if copies:
        variables["SITEANNEX_STAGED"] = told_to_job(copies)
    added: list[str] = []
    if work.command is not None:
        inputs, outputs = _moved(experiment, stage, folder, inputs)
        added += [
            f"executable = {experiment.name}/{RUNNER}",
            f"arguments = {arguments(['--', *shlex.split(work.command)])}",
            "transfer_executable = true",
            "preserve_relative_paths = true",
            *_unless(lines, "should_transfer_files", "YES"),
            f"transfer_output_files = {', '.join(outputs)}",
        ]
        lines = without(lines, "transfer_output_files")
        if stage in experiment.chains():
            added += [
                f"checkpoint_exit_code = {GO_ON_EXIT}",
                f"transfer_checkpoint_files = {', '.join(outputs)}",
                *_unless(lines, "when_to_transfer_output", "ON_EXIT_OR_EVICT"),
            ]
        else:
            added += _unless(lines, "when_to_transfer_output", "ON_EXIT")
    if inputs:
        own = "$(transfer_input_files), " if any(line.name == "transfer_input_files" for line in lines) else ""
        added.append(f"transfer_input_files = {own}{', '.join(inputs)}")
    added += _unless(lines, "on_exit_remove", _leaves(ours=work.command is not None))
    also = "$(ulog_execute_attrs), " if any(line.name == "ulog_execute_attrs" for line in lines) else ""
    added.append(f"ulog_execute_attrs = {also}{', '.join(EXECUTE_ATTRS)}")
    added += _unless(lines, "log", f"{experiment.name}/{JOB_LOG}")
    for name, ending in (("output", "out"), ("error", "err")):
        added += _unless(lines, name, f"{folder}/logs/$(JOB).$(Cluster).{ending}")
    if work.walltime is not None:
        added += _unless(lines, "allowed_execute_duration", str(work.walltime))
    added.append(f"environment = {environment(variables)}")
    if copies:
        added.append(f'MY.SiteannexStagedAt = "{directories(copies)}"')
    return [*_user_lines(lines), *added, *_bound(lines, target), *_marks(experiment, stage, target, per_run=per_run)]


def requested_gpus(experiment: Experiment, stage: str, target: Target) -> int:
    """GPUs that one job of a stage asks for there; 0 when it says none, or says it by a macro."""
    asked = _asked(experiment, stage, target, "request_gpus")
    return int(asked) if asked.isascii() and asked.isdecimal() else 0


def requested_cpus(experiment: Experiment, stage: str, target: Target) -> int | None:
    """Cores that one job of a stage asks for there; None when it says none, or says it by a macro."""
    asked = _asked(experiment, stage, target, "request_cpus")
    return int(asked) if asked.isascii() and asked.isdecimal() and int(asked) else None


def requested_memory_mib(experiment: Experiment, stage: str, target: Target) -> int | None:
    """Memory that one job of a stage asks for there; None when it says none, or says it by a macro."""
    try:
        return parse_memory_mib(_asked(experiment, stage, target, "request_memory"))
    except ValueError:
        return None


def _asked(experiment: Experiment, stage: str, target: Target, command: str) -> str:
    return last(written_lines(experiment, stage, target), command) or ""


def _user_lines(lines: list[Line]) -> list[str]:
    """As written, without what is completed below."""
    return [line.text for line in without(lines, *OURS) if line.name != "requirements" or line.conditional]


def _bound(lines: list[Line], target: Target) -> list[str]:
    """Bind the job: a Requirements clause for every matchmaker, TargetAnnexName for annexes."""
    own = last(lines, "requirements")
    clauses = [clause for clause in (own, target.requirement) if clause]
    return [
        *([f"requirements = {' && '.join(f'({clause})' for clause in clauses)}"] if clauses else []),
        *([f"MY.TargetAnnexName = {target.annex}"] if target.annex is not None else []),
        *target.lines,
    ]


def _marks(experiment: Experiment, stage: str, target: Target, *, per_run: bool) -> list[str]:
    """Attributes that let monitors know a job without its DAG."""
    marks = {"Experiment": f'"{experiment.name}"', "Stage": f'"{stage}"', "TargetSite": f'"{target.key}"'}
    if per_run:
        marks |= {"RunId": '"$(run_id)"', "Run": "$(run)"}
    if stage in STAGES_OF_RUNS:
        marks |= {"Epoch": "$(epoch)"}
    return [f"MY.Siteannex{name} = {value}" for name, value in marks.items()]


def _moved(experiment: Experiment, stage: str, folder: str, inputs: list[str]) -> tuple[list[str], list[str]]:
    """What a job run by the epoch runner brings in and back."""
    outputs = [*experiment.works()[stage].outputs, f"{folder}/attempts"]
    if stage == "prepare":
        return inputs, outputs
    inputs = [*inputs, f"{folder}/checkpoints"]
    return inputs, outputs if stage == "evaluate" else [f"{folder}/checkpoints", *outputs]


def _variables(
    experiment: Experiment, stage: str, target: Target, parameters: Mapping[str, Value], *, per_run: bool
) -> dict[str, str]:
    found = {"SITEANNEX_EXPERIMENT": experiment.name, "SITEANNEX_STAGE": "$(stage)", "SITEANNEX_SITE": target.key}
    found |= {"SITEANNEX_NODE": "$(JOB)", "SITEANNEX_ATTEMPT": "$(RETRY)"}
    if not per_run:
        found |= {"SITEANNEX_RUN_DIR": experiment.name}
    if per_run:
        found |= {
            "SITEANNEX_RUN": "$(run)",
            "SITEANNEX_RUN_NAME": "$(run_name)",
            "SITEANNEX_RUN_ID": "$(run_id)",
            "SITEANNEX_SEED": "$(seed)",
            "SITEANNEX_RUN_DIR": f"{experiment.name}/$(run_name)",
            "SITEANNEX_PARAMETERS": _parameters(parameters),
        }
    if stage in STAGES_OF_RUNS:
        chain = experiment.chains().get(stage, experiment.train)
        found |= {"SITEANNEX_FIRST_EPOCH": "$(first_epoch)", "SITEANNEX_EPOCH": "$(epoch)"}
        found |= {"SITEANNEX_EPOCHS": str(chain.epochs)}
    if stage == "evaluate":
        found |= {"SITEANNEX_TRAINED_STAGE": "$(trained_stage)"}
    if experiment.early_stopping is not None and stage in experiment.chains():
        found |= {"SITEANNEX_EARLY_STOPPING": experiment.early_stopping.model_dump_json()}
    secrets = secret_files(experiment)
    if secrets:
        found |= {"SITEANNEX_SECRET_FILES": ":".join(f"{name}={place}" for name, (_, place) in secrets.items())}
    plain = {name: value for name, value in experiment.environment.items() if isinstance(value, str)}
    return {**found, **tracking(experiment, stage, per_run=per_run), **plain}


def _origins(origins: Origins, image: str | None) -> dict[str, str]:
    """What side-cars will say of code, container and data."""
    container = origins.images.get(image, image) if image is not None else ""
    found = {"CODE_VERSION": origins.code, "CONTAINER": container, "DATASET": origins.dataset}
    return {f"SITEANNEX_{name}": value for name, value in found.items() if value}


def _parameters(parameters: Mapping[str, Value]) -> str:
    """JSON that condor_submit completes from the node's VARS."""
    members = (
        f'"{name}":' + (f'"$({name})"' if each.kind == "text" else f"$({name})") for name, each in parameters.items()
    )
    return "{" + ",".join(members) + "}"


def tracking(experiment: Experiment, stage: str, *, per_run: bool) -> dict[str, str]:
    """What W&B and MLflow read from the environment. One W&B run goes on over all epochs of a training run."""
    found: dict[str, str | None] = {}
    if (wandb := experiment.tracking.wandb) is not None:
        found |= {"WANDB_PROJECT": wandb.project, "WANDB_ENTITY": wandb.entity, "WANDB_MODE": wandb.mode}
        found |= {"WANDB_BASE_URL": wandb.base_url, "WANDB_RUN_GROUP": experiment.name, "WANDB_JOB_TYPE": stage}
        if per_run and stage in experiment.chains():
            found |= {"WANDB_RUN_ID": "$(run_id)", "WANDB_NAME": "$(run_name)", "WANDB_RESUME": "allow"}
    if (mlflow := experiment.tracking.mlflow) is not None:
        found |= {"MLFLOW_TRACKING_URI": mlflow.uri, "MLFLOW_PARENT_RUN_ID": mlflow.parent_run_id}
        found |= {"MLFLOW_EXPERIMENT_NAME": mlflow.experiment or experiment.name}
    return {name: value for name, value in found.items() if value is not None}


def trackers(experiment: Experiment) -> list[str]:
    """URLs that jobs will report to."""
    wandb, mlflow = experiment.tracking.wandb, experiment.tracking.mlflow
    online = [wandb.base_url or "https://api.wandb.ai"] if wandb is not None and wandb.mode == "online" else []
    return [*online, *([mlflow.uri] if mlflow is not None and "://" in mlflow.uri else [])]


def secret_files(experiment: Experiment) -> dict[str, tuple[str, str]]:
    """Variable -> (file on the AP, where it lies in the sandbox)."""
    found = {}
    for name, value in experiment.environment.items():
        if isinstance(value, SecretFile):
            found[name] = (value.secret_file, place_in_sandbox(value.secret_file))
    return found


def _unless(lines: list[Line], name: str, value: str) -> list[str]:
    return [] if any(line.name == name for line in lines) else [f"{name} = {value}"]


def words_of(work: Work) -> list[str]:
    """The command's words. ValueError when a quote is not closed."""
    return shlex.split(work.command or "")


def local_images(experiment: Experiment) -> list[str]:
    """Container images that are files on the AP; HTCondor itself adds them to what a job brings along."""
    written = [experiment.submit, *(place.submit for place in experiment.sites.values())]
    written += [work.submit for work in experiment.works().values()]
    values = [line.value for text in written for line in parse(text) if line.name == "container_image"]
    return [value for value in dict.fromkeys(values) if ":" not in value and "{" not in value]
