"""The nouns: what was asked, what was planned, what the three witnesses saw. Frozen values, no effects."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Join(StrEnum):
    """How an EP joins the AP: through collector and negotiator, or attached straight to the schedd."""

    AUTO = "auto"
    POOL = "pool"
    DIRECT = "direct"


@dataclass(frozen=True, slots=True)
class Lease:
    """What a keeper at the site may do alone: bring pilots back, so long, for so much, so many at once."""

    lease_s: int
    gpu_hours: float
    pilots: int = 1


@dataclass(frozen=True, slots=True)
class Request:
    """What the user asked for. Two requests are the same annex when name and every field agree."""

    name: str
    site: str
    gpus: int = 0
    """GPUs of the whole annex."""
    nodes: int | None = None
    """Number of pilots, each on a node of its own; None lets the planner choose."""
    gpus_per_pilot: int | None = None
    gpu_type: str | None = None
    """The site's word for the GPU, or the catalogue's: `a100`."""
    gpu_memory_mib: int | None = None
    """The least memory of one GPU as cards are sold; drivers report up to 8 % less."""
    gpu_capability: float | None = None
    bf16: bool = False
    cpus: int | None = None
    """CPUs of each pilot."""
    memory_mib: int | None = None
    """Memory of each pilot."""
    partition: str | None = None
    account: str | None = None
    preemptible: bool = False
    """Partitions whose jobs can be preempted may be chosen."""
    lifetime_s: int = 3600
    idle_s: int = 600
    join: Join = Join.AUTO
    lease: Lease | None = None


@dataclass(frozen=True, slots=True)
class PilotShape:
    """What one pilot (one batch job on one node) asks of the batch system."""

    gpus: int
    gpu_type: str | None
    """The batch system's word for the GPU (`a100`), None without GPUs."""
    cpus: int
    memory_mib: int


@dataclass(frozen=True, slots=True)
class Deadlines:
    """How long a stage may be silent before that is a failure, in seconds. A site's file may say otherwise."""

    queue_s: int = 7 * 86400
    """How long a pilot may wait in the queue: as long as its token lasts."""
    submit_s: int = 60
    """How long sbatch may take; then the pilot is looked for by its name."""
    ep_start_s: int = 180
    """From the batch job running to the pilot's first report."""
    step_s: int = 600
    """From one of the pilot's reports to the next, until it reaches the AP (a hung scratch file system)."""
    join_s: int = 180
    """From the EP's start to its ad at the collector."""
    unheard_s: int = 240
    """From an ad's last update (60 s apart) until it is taken for a dead EP's."""
    lost_s: int = 120
    """From submission until "Slurm does not know the job" is believed; one empty answer of squeue proves nothing."""
    silent_s: int = 300
    """How long a command that watches bears a site that gives no answer."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A request laid out on one partition. `pilots` equal batch jobs of `shape`, each for `walltime_s`."""

    request: Request
    annex_id: str
    """Unique mark of this annex: Slurm job name, directory name at the site, `SiteannexRequestId` in ads."""
    partition: str
    account: str | None
    qos: str | None
    pilots: int
    shape: PilotShape
    walltime_s: int
    idle_s: int
    ceiling_gpu_hours: float
    """GPU-hours billed if every pilot runs its whole walltime."""
    ceiling_core_hours: float
    notes: tuple[str, ...] = ()
    """What the reader should know: rounding, stale and doubtful facts, preemption."""
    passed_over: tuple[str, ...] = ()
    """The partitions that come close and were not chosen, each with the reason."""
    charge: float | None = None
    """The ceiling in the site's own unit; None where its rate is not known."""
    charge_unit: str = ""
    charge_minimum_s: int = 0
    """A pilot that ran shorter is charged as this long."""
    deadlines: Deadlines = Deadlines()
    """The site's, as they were when this was planned."""
    node_kind: str = ""
    """The kind of node, by its name in the site's file."""


class BatchState(StrEnum):
    """A batch job's state, reduced to what a pilot's life needs; the scheduler's own word rides along."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    ENDING = "ENDING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    TIMEOUT = "TIMEOUT"
    NODE_FAIL = "NODE_FAIL"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    PREEMPTED = "PREEMPTED"
    UNKNOWN = "UNKNOWN"

    @property
    def ended(self) -> bool:
        """True when the job cannot run any more."""
        return self not in _LIVING

    @property
    def living(self) -> bool:
        """True when the job waits, runs or is ending (or cannot be told: then it must be taken to live)."""
        return self in _LIVING


_LIVING = frozenset({BatchState.PENDING, BatchState.RUNNING, BatchState.ENDING, BatchState.UNKNOWN})


@dataclass(frozen=True, slots=True)
class BatchJob:
    """One pilot as the batch system sees it. Times carry a zone; unknown is None or empty."""

    job_id: str
    """As the scheduler spells it: `31337421`, or `31337421_2` for an array's task."""
    name: str
    state: BatchState
    state_text: str = ""
    """The scheduler's own word, whole (`CANCELLED by 1234`)."""
    reason: str = ""
    node: str = ""
    start: datetime | None = None
    """When it started, or when the scheduler projects it to start while it is pending."""
    end: datetime | None = None
    exit_code: str = ""
    cancelled_by: str = ""
    """Who cancelled it, where accounting says so: `root (uid 0)`, `uid 1234`, or `you`."""


@dataclass(frozen=True, slots=True)
class PilotReport:
    """One line of a pilot's progress file: the same stages and codes as everywhere."""

    job_id: str
    stage: str
    code: str
    """`ok`, or a failure code of the catalogue."""
    text: str
    at: datetime
    node: str = ""
    seen: str = ""
    """What logs and programs said of it, one line each, each beginning with its source."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One startd ad of an annex, as the collector shows it."""

    name: str
    slot_type: str
    """`Partitionable`, `Dynamic` or `Static`."""
    annex_name: str
    annex_id: str
    batch_job_id: str
    site: str
    machine: str
    owner: str
    """The authenticated identity the collector stamped on the ad, e.g. `alice@ap.lab`."""
    state: str
    activity: str
    cpus: int
    memory_mib: int
    gpus: int
    gpu_model: str = ""
    gpu_memory_mib: int = 0
    total_cpus: int = 0
    total_memory_mib: int = 0
    total_gpus: int = 0
    """GPUs of the whole EP, busy or not (only meaningful for the partitionable slot)."""
    job: str = ""
    """The job running in it, `cluster.proc`."""
    last_heard: datetime | None = None
    version: str = ""
    ends_at: datetime | None = None
    """When the batch job under the EP ends, as its pilot was told."""
    draining: bool = False
    """The EP takes no new jobs."""
    failed_code: str = ""
    """Set in the ad of a pilot that could not become an EP: its failure code, what that means there, what it saw."""
    failed_text: str = ""
    failed_seen: str = ""


@dataclass(frozen=True, slots=True)
class KeeperAd:
    """What the keeper of a leased annex last told the collector."""

    annex_id: str
    stage: str
    """`resting`, `working` or `ended`."""
    code: str
    """Why it ended, a code of the catalogue; "" while it lives."""
    text: str
    used_gpu_s: int
    reserved_gpu_s: int
    cap_gpu_s: int
    pilots: int
    waiting: int
    lease_left_s: int
    """When it told this."""
    interval_s: int
    told_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class MarkedAd:
    """One ad of an annex at a collector, of a slot or of a master."""

    name: str
    annex_id: str
    origin: str
    """Which access point and state directory keeps the annex (annex/marks.py); "" when it does not say."""
    job_id: str
    site: str
    last_heard: datetime | None = None


@dataclass(frozen=True, slots=True)
class JobCounts:
    """The owner's HTCondor jobs that name an annex in TargetAnnexName."""

    waiting: int = 0
    running: int = 0
    held: int = 0


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """What the AP says of itself, as far as an EP needs it."""

    identity: str
    """The user as tokens name them: `alice@ap.lab`."""
    trust_domain: str
    collector: str
    """Address the EP must reach, `host:port` or `host:port?sock=ap_collector`."""
    schedd: str
    cm_version: str
    """The central manager's HTCondor version, `25.14.1`."""
    join: Join
    """The way this annex will join (never AUTO here)."""


@dataclass(frozen=True, slots=True)
class EpSoftware:
    """A packed EP tarball in the AP's cache."""

    path: str
    sha256: str
    size_bytes: int
    version: str
    """HTCondor version, `25.14.1`."""
    arch: str
    """As `uname -m` prints it: `x86_64`, `aarch64`."""


@dataclass(frozen=True, slots=True)
class Witnesses:
    """What is known of one annex at one moment. None means: not asked or no answer, never "nothing there"."""

    batch: tuple[BatchJob, ...] | None = None
    reports: tuple[PilotReport, ...] | None = None
    slots: tuple[Slot, ...] | None = None
    site_now: datetime | None = None
    """The site's own clock when it answered."""
    complaint: str = ""
    """What the batch system said instead of an answer, or beside a half one."""


@dataclass(frozen=True, slots=True)
class StagedCopy:
    """A big input at a site, as it was verified there."""

    sha256: str
    size_bytes: int
    path: str
    """Absolute, at the site."""
    name: str
    """What it is called at home."""
