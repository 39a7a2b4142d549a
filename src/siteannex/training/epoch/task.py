"""What a job is told, and how it may end."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Dict, Iterable

Json = Dict[str, Any]
SCHEMA_VERSION = 1
"""Of side-cars and events."""
STAGES = ("prepare", "train", "finetune", "evaluate")
DONE = 0
MISUSED = 80
"""Called wrongly; trying again is useless."""
NO_PARENT = 81
"""A checkpoint is needed to go on and none can be trusted."""
BROKEN_CONTRACT = 82
"""The command ended well but left no checkpoint or metrics for the epoch."""
COMMAND_FAILED = 83
"""The command failed with a status of 80 or more, or by a signal; smaller statuses are passed on."""
CANNOT_WRITE = 84
"""No room (or right) to write side-cars, events or metrics on the node."""
SAVED = 85
"""Told to end, and a checkpoint to go on from is there. HTCondor's checkpoint_exit_code."""
NOT_FINITE = 86
"""The loss is NaN or infinite."""
INTERRUPTED = 87
"""Told to end, and no new checkpoint came in time: work since the last one is lost."""
NOT_STAGED = 88
"""An input that should lie at the site does not, or is damaged."""


class Refusal(Exception):
    """Ends the runner with `status`; the text says why."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class _Spelled(str):
    """A number as it was written."""


def spelled_sha256(text: str) -> str:
    """The sha256 of a flat JSON object with its keys in order, no spaces, and numbers as they were written."""
    pairs = json.loads(text, parse_float=_Spelled, parse_int=_Spelled)
    parts = []
    for name, value in sorted(pairs.items()):
        shown = value if isinstance(value, _Spelled) else json.dumps(value, ensure_ascii=False)
        parts.append(f"{json.dumps(name, ensure_ascii=False)}:{shown}")
    return hashlib.sha256(("{" + ",".join(parts) + "}").encode()).hexdigest()


@dataclass(frozen=True)
class Task:
    """What this job must do, from the environment."""

    experiment: str
    run: int
    run_name: str
    run_id: str
    stage: str
    trained_stage: str
    """What an evaluation looks at."""
    seed: int
    first: int
    """First epoch of this job, from 0 in each stage."""
    last: int
    """Last epoch of this job: it must be finished when the job ends well."""
    parameters: Json
    parameters_sha256: str
    """Of the parameters as they were spelled."""
    node: str
    site: str
    retry: int
    resume_from: str
    """`best` by `metric`, or `last`."""
    metric: str
    mode: str
    patience: int
    """Epochs without improvement after which the run stops; 0: never."""
    min_delta: float
    initial: str
    """A checkpoint to start the first epoch from, or empty."""
    code: str
    container: str
    dataset: str


def read_task(env: Any) -> Task:
    """The task in `env`; Refusal(MISUSED) names the variable that is wrong."""

    def number(name: str, default: str | None = None) -> int:
        text = env.get("SITEANNEX_" + name) or default
        if text is None:
            raise Refusal(MISUSED, "SITEANNEX_" + name + " is not set")
        try:
            return int(text)
        except ValueError:
            raise Refusal(MISUSED, f"SITEANNEX_{name} is not a whole number: {text!r}") from None

    def mapping(name: str) -> Json:
        text = env.get("SITEANNEX_" + name) or "{}"
        try:
            value = json.loads(text)
        except ValueError as error:
            raise Refusal(MISUSED, f"SITEANNEX_{name} is not JSON: {error}") from None
        if not isinstance(value, dict):
            raise Refusal(MISUSED, f"SITEANNEX_{name} is not a JSON object")
        return value

    def choice(name: str, default: str, known: Iterable[str]) -> str:
        word = env.get("SITEANNEX_" + name) or default
        if word not in known:
            raise Refusal(MISUSED, f"SITEANNEX_{name} is {word!r}, not one of {', '.join(known)}")
        return str(word)

    stopping = mapping("EARLY_STOPPING")
    stage = choice("STAGE", "train", STAGES)
    last = number("EPOCH", "0" if stage == "prepare" else None)
    first = number("FIRST_EPOCH", str(last))
    if not 0 <= first <= last:
        raise Refusal(MISUSED, f"SITEANNEX_FIRST_EPOCH {first} and SITEANNEX_EPOCH {last} are not a range")
    return Task(
        experiment=env.get("SITEANNEX_EXPERIMENT", ""),
        run=number("RUN", "0"),
        run_name=env.get("SITEANNEX_RUN_NAME", ""),
        run_id=env.get("SITEANNEX_RUN_ID", ""),
        stage=stage,
        trained_stage=choice("TRAINED_STAGE", "train", ("train", "finetune")),
        seed=number("SEED", "0"),
        first=first,
        last=last,
        parameters=mapping("PARAMETERS"),
        parameters_sha256=spelled_sha256(env.get("SITEANNEX_PARAMETERS") or "{}"),
        node=env.get("SITEANNEX_NODE") or "run",
        site=env.get("SITEANNEX_SITE", ""),
        retry=number("ATTEMPT", "0"),
        resume_from=choice("RESUME_FROM", "best", ("best", "last")),
        metric=str(env.get("SITEANNEX_METRIC") or stopping.get("metric") or "val_loss"),
        mode=choice("METRIC_MODE", str(stopping.get("mode") or "min"), ("min", "max")),
        patience=int(stopping.get("patience") or 0),
        min_delta=float(stopping.get("min_delta") or 0),
        initial=env.get("SITEANNEX_INITIAL_CHECKPOINT", ""),
        code=env.get("SITEANNEX_CODE_VERSION", ""),
        container=env.get("SITEANNEX_CONTAINER", "") or env.get("APPTAINER_CONTAINER", ""),
        dataset=env.get("SITEANNEX_DATASET", ""),
    )
