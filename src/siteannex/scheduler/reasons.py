"""Slurm's reasons for a pending job in plain words, and whether waiting can mend them.

Reasons: https://slurm.schedmd.com/job_reason_codes.html, which forms most of them from parts: AssocGrp* and QOSGrp*
are sums over all of an account or QOS, *PerJob is the job alone, *PerUser all of one user's jobs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from siteannex.model import BatchJob, BatchState


@dataclass(frozen=True, slots=True)
class Reason:
    """What a reason means. `hopeless`: no waiting mends it. `todo` is what a person can do, "" when only waiting."""

    text: str
    hopeless: bool = False
    todo: str = ""
    held: str = ""
    """Who must release it: `admin`, `user`, or `launch` where Slurm holds it after a launch that failed."""


_HELD = "only an administrator of the site can release it: ask the help desk"
_LAUNCH = "tell the help desk which node it was; siteannex down NAME, then up again"
_ASK_LESS = "siteannex down NAME, then up with less, or another --partition"

# Reasons that no waiting mends: squeue(1), JOB REASON CODES. The rest (Priority, Resources, ...) may clear.
HOPELESS_REASONS = {
    "PartitionTimeLimit": "the walltime is longer than the partition allows",
    "PartitionNodeLimit": "more nodes than the partition allows",
    "BadConstraints": "no node satisfies the constraints",
    "AssocMaxWallDurationPerJobLimit": "the walltime is longer than your account may ask",
    "QOSMaxWallDurationPerJobLimit": "the walltime is longer than the QOS allows",
    "QOSMaxGRESPerJob": "more GPUs than the QOS allows a job",
    "QOSMaxCpuPerJobLimit": "more CPUs than the QOS allows a job",
    "QOSMaxMemoryPerJob": "more memory than the QOS allows a job",
    "AssocMaxGRESPerJob": "more GPUs than your account may ask in a job",
    "InvalidAccount": "the account is not valid",
    "InvalidQOS": "the QOS is not valid",
    "DependencyNeverSatisfied": "it depends on a job that failed",
    "AccountNotAllowed": "the partition does not take this account",
    "QOSNotAllowed": "the partition does not take this QOS",
}

_EXACT: dict[str, Reason] = {
    "": Reason("Slurm gives no reason yet: it looks at the job in its next scheduling cycle"),
    "None": Reason("Slurm gives no reason yet: it looks at the job in its next scheduling cycle"),
    "Priority": Reason("other jobs stand before it in the queue of this partition"),
    "Resources": Reason("it is next in line and waits for nodes to become free"),
    "BeginTime": Reason("its earliest start time is not reached; after a requeue Slurm sets one two minutes ahead"),
    "Cleaning": Reason("it is being requeued and its last run is still being cleaned up"),
    "Prolog": Reason("its node runs the site's prologue: it starts in a moment"),
    "Dependency": Reason("it waits for another job that it depends on"),
    "JobArrayTaskLimit": Reason("as many tasks of its array run as its limit allows"),
    "Licenses": Reason("it waits for a licence"),
    "Reservation": Reason("it waits for its reservation to begin"),
    "ReqNodeNotAvail": Reason(
        "the nodes it could use are reserved or down; before a maintenance only jobs that end in time start",
        todo="a shorter --lifetime may still fit before a maintenance",
    ),
    "NodeDown": Reason("a node that it needs is down"),
    "PartitionDown": Reason("the partition is switched off", todo="see the site's status page, or another --partition"),
    "PartitionInactive": Reason(
        "the partition starts no jobs at present", todo="see the site's status page, or another --partition"
    ),
    "PartitionConfig": Reason("it breaks a limit of the partition", todo=_ASK_LESS),
    "Constraints": Reason("no node that satisfies its constraints is there at present"),
    "JobHeldUser": Reason(
        "you hold it (scontrol hold), or a coordinator of your account",
        hopeless=True,
        todo="at the site: scontrol release JOB",
        held="user",
    ),
    "JobHeldAdmin": Reason("an administrator holds the job", hopeless=True, todo=_HELD, held="admin"),
    "JobHoldMaxRequeue": Reason("it was requeued as often as the site allows", hopeless=True, todo=_HELD, held="admin"),
    "launch failed requeued held": Reason(
        "its launch failed on the node and Slurm holds it", hopeless=True, todo=_LAUNCH, held="launch"
    ),
    "job requeued in held state": Reason("it was requeued and held", hopeless=True, todo=_HELD, held="admin"),
    "JobLaunchFailure": Reason("its last launch failed on the node"),
    "SchedDefer": Reason("the site starts no job at the moment it is submitted"),
    "QOSUsageThreshold": Reason("your usage is too low or too high for the QOS", todo="ask the help desk"),
    "ReservationDeleted": Reason("its reservation no longer exists", hopeless=True, todo=_ASK_LESS),
    "DeadLine": Reason("it cannot end before its deadline", hopeless=True, todo=_ASK_LESS),
    "MaxMemPerLimit": Reason("it asks more memory a CPU or a node than the site allows", hopeless=True, todo=_ASK_LESS),
}

_THINGS = {
    "gres": "GPUs",
    "cpu": "CPUs",
    "mem": "memory",
    "memory": "memory",
    "node": "nodes",
    "nodes": "nodes",
    "jobs": "running jobs",
    "job": "running jobs",
    "submitjobs": "jobs in the queue",
    "submitjob": "jobs in the queue",
    "wall": "walltime",
    "wallduration": "walltime",
    "billing": "billing units",
    "license": "licences",
    "energy": "energy",
    "bb": "burst buffer",
    "unknown": "a resource",
}
_FORM = re.compile(
    r"(?P<whose>Assoc|QOS)?(?P<how>Grp|Max|Min)(?P<thing>GRES|C[Pp][Uu]|Memory|Mem|Nodes?|SubmitJobs?|Jobs?|"
    r"WallDuration|Wall|Billing|License|Energy|BB|Unknown)(?P<time>Run)?(?P<minutes>Minutes)?"
    r"(?P<per>PerJob|PerUser|PerAccount|PerNode|NotSatisfied)?(?:Limit)?"
)


def explain_reason(reason: str) -> Reason:
    """Plain words for a reason, whole as squeue prints it (`ReqNodeNotAvail, UnavailableNodes:...`)."""
    whole = reason.strip().replace("_", " ")  # sentences instead of a code; some versions join them by "_"
    word = re.split(r"[,( ]", reason.strip(), maxsplit=1)[0]
    if word in HOPELESS_REASONS:
        return Reason(HOPELESS_REASONS[word], hopeless=True, todo=_ASK_LESS)
    if found := _EXACT.get(whole) or _EXACT.get(word):
        return found
    if match := _FORM.fullmatch(word):
        return _from_parts(match)
    return Reason(f"Slurm's own word for it is {reason.strip()!r}; no plain words are known here")


def _from_parts(match: re.Match[str]) -> Reason:
    thing = _THINGS[match["thing"].lower()]
    if match["minutes"]:
        thing = f"{thing} x time" + (" of what runs now" if match["time"] else "")
    whose = "your account" if match["whose"] == "Assoc" else "the QOS"
    if match["how"] == "Min":
        return Reason(f"it asks less than the {thing} {whose} wants at least", hopeless=True, todo="ask for more")
    if match["how"] == "Grp":
        return _group(thing, whose, spent=bool(match["minutes"]) and not match["time"])
    if match["per"] in ("PerJob", "PerNode"):
        each = "a job" if match["per"] == "PerJob" else "a job on one node"
        return Reason(f"it asks more {thing} than {whose} allows {each}", hopeless=True, todo=_ASK_LESS)
    if match["per"] == "PerAccount":
        return Reason(f"all jobs of your account together would have more {thing} than {whose} allows")
    return Reason(
        f"all your jobs together would have more {thing} than {whose} allows one user: "
        "it starts when others of yours end",
        todo="siteannex status shows what you hold there; a pilot that asks more than the limit by itself never starts",
    )


def _group(thing: str, whose: str, *, spent: bool) -> Reason:
    if spent:
        return Reason(
            f"{whose} has used up its {thing}",
            todo="check what is left of the allocation; another --account may have some",
        )
    return Reason(f"all jobs under {whose} together have as many {thing} as is allowed: it starts when others end")


def queue_text(job: BatchJob) -> str:
    """A waiting or running job in two words: `PENDING, Priority`, `RUNNING on c1`."""
    if job.state is BatchState.PENDING:
        return f"PENDING, {job.reason or 'no reason given yet'}"
    return f"{job.state_text or job.state}" + (f" on {job.node}" if job.node else "")
