"""The shape of an experiment file: what is trained, with which parameters, how long, and where."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    InstanceOf,
    PlainSerializer,
    Tag,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from siteannex.site.fields import DurationS, Facts, MemoryMib
from siteannex.training.experiment.ranges import Grid, RangeError, parse_range

Kind = Literal["number", "text", "truth"]
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
_UNQUOTABLE = re.compile(r"[\"'\\$\x00-\x1f\x7f]")
_SAMPLE = re.compile(r"\s*(\S+)\s+to\s+(\S+)\s*")
MOST_TEXT = 1000


@dataclass(frozen=True, slots=True)
class Value:
    """One value of a parameter, spelled as it goes into DAG and JSON."""

    text: str
    kind: Kind


def _value(given: object) -> object:
    """A scalar of YAML, or a Value that already keeps its spelling."""
    if isinstance(given, Value):
        value = given
    elif isinstance(given, bool):
        value = Value("true" if given else "false", "truth")
    elif isinstance(given, int | float):
        value = Value(repr(given), "number")
    elif isinstance(given, str):
        value = Value(given, "text")
    else:
        raise PydanticCustomError("value", "is no single value; a sweep is written {{values: [...]}} or {{range: ...}}")
    if value.kind == "text" and (_UNQUOTABLE.search(value.text) or len(value.text) > MOST_TEXT):
        raise PydanticCustomError(
            "quoting-impossible",
            "{text} cannot be carried through DAG, submit language and shell unchanged: no quotes, backslashes, "
            "dollar signs or line ends; at most 1000 characters",
            {"text": repr(value.text)[:60]},
        )
    if value.kind == "number" and _NUMBER.fullmatch(value.text) is None:
        raise PydanticCustomError("value", "{text} is not a finite decimal number", {"text": value.text})
    return value


_SCALAR = {"type": ["string", "number", "boolean"]}
Scalar = Annotated[
    InstanceOf[Value], BeforeValidator(_value), PlainSerializer(lambda value: value.text), WithJsonSchema(_SCALAR)
]
"""A number, a text or true/false."""


def as_value(text: str) -> Value:
    """A number as ranges spell it (`.5`, `+1` and `1.` become JSON's way of writing them)."""
    sign, digits = ("-", text[1:]) if text[:1] == "-" else ("", text.removeprefix("+"))
    whole, point, rest = digits.partition(".")
    if point:
        fraction, e, exponent = rest.lower().partition("e")
        digits = (whole or "0") + (f".{fraction}" if fraction else "") + (f"e{exponent}" if e else "")
    return Value(sign + re.sub(r"^0+(?=\d)", "", digits), "number")


class Sweep(Facts):
    """The values a parameter takes: listed, a range, or drawn at random."""

    values: Annotated[tuple[Scalar, ...], Field(min_length=1)] | None = None
    range: str | None = None
    """`START to STOP by STEP`, `... times FACTOR` or `... log COUNT`; both ends included."""
    sample: str | None = None
    """`LOW to HIGH`: random numbers between; whole ones when both ends are written whole."""
    count: Annotated[int, Field(gt=0)] | None = None
    """How many samples."""
    scale: Literal["linear", "log"] = "linear"

    @field_validator("values", mode="before")
    @classmethod
    def _not_empty(cls, given: object) -> object:
        if given == []:
            raise PydanticCustomError("sweep-empty", "no values: a sweep needs at least one")
        return given

    @model_validator(mode="after")
    def _one_way(self) -> Sweep:
        ways = [way for way in ("values", "range", "sample") if getattr(self, way) is not None]
        if len(ways) != 1:
            raise PydanticCustomError("value", "write exactly one of values, range, sample")
        if (self.sample is None) != (self.count is None):
            raise PydanticCustomError("value", "sample and count belong together: {{sample: 0.1 to 0.5, count: 8}}")
        try:
            if self.range is not None:
                parse_range(self.range)
        except RangeError as problem:
            raise PydanticCustomError(
                "range-invalid", "{text} (column {column})", {"text": str(problem), "column": problem.column + 1}
            ) from problem
        if self.sample is not None:
            low, high = self.bounds()
            if not (low < high and (self.scale == "linear" or low > 0)):
                raise PydanticCustomError("range-invalid", "LOW must be below HIGH, and above 0 on a log scale")
        kinds = {value.kind for value in self.values or ()}
        if len(kinds) > 1:
            raise PydanticCustomError(
                "value", "values of one parameter must be all numbers, all texts or all true/false"
            )
        return self

    def grid(self) -> Grid | None:
        """The range, lazily."""
        return parse_range(self.range) if self.range is not None else None

    def bounds(self) -> tuple[float, float]:
        """LOW and HIGH of a sample."""
        match = _SAMPLE.fullmatch(self.sample or "")
        try:
            return (float(match[1]), float(match[2])) if match else (1.0, 0.0)
        except ValueError:
            return (1.0, 0.0)

    def whole(self) -> bool:
        """True when samples are whole numbers."""
        match = _SAMPLE.fullmatch(self.sample or "")
        return (
            match is not None
            and self.scale == "linear"
            and all(re.fullmatch(r"[+-]?[0-9]+", end) for end in match.groups())
        )

    def size(self) -> int:
        """How many values, without making them."""
        grid = self.grid()
        return grid.count if grid is not None else len(self.values) if self.values is not None else self.count or 0


def _kind_of_parameter(given: object) -> str:
    return "sweep" if isinstance(given, Mapping | Sweep) else "value"


Parameter = Annotated[
    Annotated[Sweep, Tag("sweep")] | Annotated[Scalar, Tag("value")],
    Discriminator(_kind_of_parameter),
]


class Work(Facts):
    """What jobs of one kind run."""

    command: str | None = None
    """Run by the epoch runner in the sandbox; without it the submit template names an executable itself."""
    inputs: tuple[str, ...] = ()
    """Files and URLs, relative to the experiment file."""
    staged: tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9_./@+-]*[A-Za-z0-9_@+-]$")], ...] = ()
    """Files too big to move with every job: read at sites where `siteannex stage` has put them, moved elsewhere."""
    outputs: tuple[str, ...] = ()
    """More files and directories it brings back; a job that does not make them is held."""
    submit: str = ""
    """More lines of submit language for these jobs; they win over the template's and the site's."""
    walltime: DurationS | None = None
    """The longest one attempt may run (`allowed_execute_duration`); gives `dag plan` its ceiling."""


class Chain(Work):
    """Epochs, one after the other."""

    epochs: Annotated[int, Field(gt=0, le=1_000_000)]
    epochs_per_job: Annotated[int, Field(gt=0)] = 1

    @model_validator(mode="after")
    def _divides(self) -> Chain:
        if self.epochs % self.epochs_per_job:
            near = next(n for n in range(self.epochs_per_job, 0, -1) if self.epochs % n == 0)
            raise PydanticCustomError(
                "epochs-indivisible",
                "{epochs} epochs do not divide by epochs_per_job: {each}; {near} would do",
                {"epochs": self.epochs, "each": self.epochs_per_job, "near": near},
            )
        return self

    @property
    def jobs(self) -> int:
        """Nodes of one run's chain."""
        return self.epochs // self.epochs_per_job


class Prepare(Work):
    """One job before training, for the experiment or for every run (a simulation, a preprocessing)."""

    per: Literal["experiment", "run"] = "experiment"
    sites: tuple[str, ...] = ()


class Evaluate(Work):
    """Side-cars that look at a checkpoint; nothing waits for them."""

    after: Literal["each", "last"] = "each"
    sites: tuple[str, ...] = ()
    """Where they may go; empty: where the epoch ran."""


class EarlyStopping(Facts):
    """A run stops when a metric has not improved for `patience` epochs."""

    metric: str
    patience: Annotated[int, Field(gt=0)]
    min_delta: Annotated[float, Field(ge=0)] = 0.0
    mode: Literal["min", "max"] = "min"


class Place(Facts):
    """A site as this experiment uses it. Exactly one thing binds jobs to it: an annex, a resource or an expression."""

    annex: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_.-]{0,62}$")] | None = None
    """TargetAnnexName. Default: the key, when a site file of that name can have annexes."""
    resource: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$")] | None = None
    """GLIDEIN_ResourceName, one resource of an OSPool."""
    requirements: str | None = None
    """ClassAd expression, for pools that jobs reach by what they ask for."""
    site: str | None = None
    """The site file, when the key is not its name (two ways to use one site)."""
    cpus: Annotated[int, Field(gt=0)] | None = None
    gpus: Annotated[int, Field(ge=0)] | None = None
    memory: MemoryMib | None = None
    disk: MemoryMib | None = None
    gpu_memory: MemoryMib | None = None
    gpu_capability: Annotated[float, Field(gt=0)] | None = None
    weight: Annotated[int, Field(gt=0, le=100)] = 1
    cap: Annotated[int, Field(gt=0)] | None = None
    """At most so many nodes of the DAG there at once."""
    submit: str = ""
    """More lines of submit language for jobs there; they win over the template's."""
    values: Mapping[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")], Scalar] = {}
    """More names for `{site.NAME}` in the template."""

    @model_validator(mode="after")
    def _binds_once(self) -> Place:
        if sum(way is not None for way in (self.annex, self.resource, self.requirements)) > 1:
            raise PydanticCustomError("value", "write at most one of annex, resource, requirements")
        return self


class Sticky(Facts):
    """As shuffle, but so many consecutive epochs at one site."""

    sticky: Annotated[int, Field(gt=0)]


class SecretFile(Facts):
    """A secret by reference: the file travels with the job, its content is written nowhere."""

    secret_file: str


class LocalFile(Facts):
    """A file on the AP, known by its content."""

    file: str


class Wandb(Facts):
    """Weights & Biases; the API key is a secret_file of `environment`."""

    project: str
    entity: str | None = None
    mode: Literal["online", "offline"] = "online"
    base_url: str | None = None


class Mlflow(Facts):
    """An MLflow tracking server."""

    uri: str
    experiment: str | None = None
    parent_run_id: str | None = None


class Tracking(Facts):
    """Where metrics go besides the run's own files; handed to the jobs by environment."""

    wandb: Wandb | None = None
    mlflow: Mlflow | None = None


class Hooks(Facts):
    """Commands run on the AP, relative to the experiment file. A hook that fails makes its node fail."""

    pre: str | None = None
    """Before each training node; gets node name and run directory as further arguments."""
    post: str | None = None
    """After each training node, with node name, run directory and the job's exit code; a job's failure stays one."""
    final: str | None = None
    """When the DAG ends, however it ends; gets the DAG's status. It cannot turn a failed DAG into a success."""
    service: str | None = None
    """Runs beside the DAG and is ended with it; best effort."""


class Throttles(Facts):
    """DAGMan's limits for this DAG."""

    max_idle: Annotated[int, Field(ge=0)] = 1000
    max_jobs: Annotated[int, Field(ge=0)] = 0
    """0: no limit."""
    max_pre: Annotated[int, Field(gt=0)] = 20
    max_post: Annotated[int, Field(gt=0)] = 20
    max_holds: Annotated[int, Field(ge=0)] = 20
    """A job held this often is removed and its node fails; 0: never."""


class GivenRun(Facts):
    """A training run written out, as imports of older DAGs need it."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,100}$")] | None = None
    id: UUID | str | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    parameters: Mapping[str, Scalar] = {}
    sites: tuple[str, ...] = ()
    """The site of each of its jobs in order; empty: by the policy."""


EnvName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
VarName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$")]


OneLine = Annotated[str, Field(pattern=r"^[^\s\"'$][^\r\n\"'$]{0,199}$")]


def _kind_of_dataset(given: object) -> str:
    return "LocalFile" if isinstance(given, Mapping | LocalFile) else "OneLine"


Dataset = Annotated[
    Annotated[LocalFile, Tag("LocalFile")] | Annotated[OneLine, Tag("OneLine")], Discriminator(_kind_of_dataset)
]


def _policy(given: object) -> object:
    if not isinstance(given, Mapping | Sticky) and given not in ("fixed", "shuffle", "ordered", "any"):
        raise PydanticCustomError("value", "write fixed, shuffle, ordered, any or {{sticky: 2}}")
    return given


def _env_value(given: object) -> object:
    if not isinstance(given, str | Mapping | SecretFile):
        raise PydanticCustomError("value", "write a text (in quotes), or {{secret_file: PATH}}")
    return given


class Experiment(Facts):
    """One experiment file."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,62}$")]
    seed: Annotated[int, Field(ge=0, lt=2**63)]
    description: str = ""
    code: OneLine | None = None
    """The version of the code that is trained with; None: the git commit of the file's directory."""
    dataset: Dataset | None = None
    """What side-cars say the data was."""
    parameters: Mapping[VarName, Parameter] = {}
    mode: Literal["product", "zip"] | None = None
    runs_per_point: Annotated[int, Field(gt=0)] = 1
    runs: tuple[GivenRun, ...] = ()
    """Runs written out one by one; then nothing is swept."""
    train: Chain
    finetune: Chain | None = None
    prepare: Prepare | None = None
    evaluate: Evaluate | None = None
    early_stopping: EarlyStopping | None = None
    submit: str
    sites: Annotated[
        Mapping[Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,62}$")], Place], Field(min_length=1)
    ]
    policy: Annotated[Literal["fixed", "shuffle", "ordered", "any"] | Sticky, BeforeValidator(_policy)] = "fixed"
    environment: Mapping[EnvName, Annotated[str | SecretFile, BeforeValidator(_env_value)]] = {}
    tracking: Tracking = Tracking()
    hooks: Hooks = Hooks()
    retries: Annotated[int, Field(ge=0, le=100)] = 3
    throttles: Throttles = Throttles()
    max_nodes: Annotated[int, Field(gt=0)] = 100_000

    def swept(self) -> dict[str, Sweep]:
        """The parameters that take several values, in the file's order."""
        return {name: each for name, each in self.parameters.items() if isinstance(each, Sweep)}

    def chains(self) -> dict[str, Chain]:
        """Stage name -> chain, in the order they are trained."""
        return {"train": self.train} | ({"finetune": self.finetune} if self.finetune else {})

    def works(self) -> dict[str, Work]:
        """Stage name -> what its jobs run, every stage this experiment has."""
        extra: dict[str, Any] = {"prepare": self.prepare, "evaluate": self.evaluate}
        return {**self.chains(), **{stage: work for stage, work in extra.items() if work is not None}}
