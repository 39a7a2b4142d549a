"""The AP's job queue beside its slots: jobs whole, slots whole, and HTCondor's own answer to whether they match."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from siteannex.errors import AnnexError
from siteannex.pool import ads
from siteannex.pool.clauses import names
from siteannex.pool.condor import CondorPool
from siteannex.pool.matching import Ad, Candidate, FullAd, Match, cases, matches
from siteannex.pool.predicted import ApWords

MOST_JOBS = 2000
"""More jobs than these are not looked at: the first thousands of a sweep tell what the rest would."""
ALIKE = (
    *("Requirements", "RequireGPUs", "RequestCpus", "RequestMemory", "RequestDisk", "RequestGPUs", "GPUsM*"),
    *("TargetAnnexName", "JobDurationCategory", "User", "AllowedExecuteDuration", "AllowedJobDuration"),
)
"""Jobs alike in these match the same slots."""
_NAMES = ("TargetAnnexName",)
SCHEDULER_UNIVERSE = 7
_DAGMAN = ("ClusterId", "ProcId", "JobStatus", "HoldReason", "Iwd", "Arguments", "Args")
_PAST = (
    *("ClusterId", "ProcId", "Owner", "JobStatus", "ExitCode", "ExitBySignal", "ExitSignal", "CompletionDate"),
    *("RemoveReason", "EnteredCurrentStatus", "LastRemoteHost", "MachineAttrAnnexName0", "RemoteWallClockTime"),
)


@dataclass(frozen=True, slots=True)
class Demand:
    """Jobs that match the same slots: one of them, and how many there are."""

    job: FullAd
    count: int


class JobQueue:
    """Reads queue and collector through a CondorPool; changes nothing."""

    def __init__(self, pool: CondorPool) -> None:
        self._pool = pool

    def ap(self) -> ApWords:
        """What the AP writes into this user's ads. AnnexError(ap-unreachable)."""
        version = ads.parse_version(ads.text_of(self._pool.schedd(), "CondorVersion"))
        return ApWords(self._pool.identity(), version)

    def owner(self) -> str:
        """Whose jobs are "yours"."""
        return self._pool.owner()

    def by_id(self, cluster: int, process: int | None) -> list[FullAd]:
        """Jobs in the queue of one cluster (or one of its processes), whoever owns them."""
        one = "" if process is None else f" && ProcId == {process}"
        return self._jobs(f"ClusterId == {cluster}{one}")

    def of_dag(self, cluster: int) -> list[FullAd]:
        """A DAGMan job and the jobs it has submitted, as far as they are in the queue."""
        return self._jobs(f"ClusterId == {cluster} || DAGManJobId =?= {cluster}")

    def by_node(self, name: str) -> list[FullAd]:
        """This user's jobs in the queue that are the DAG node of that name (several DAGs may have one)."""
        try:
            wanted = ads.quote(name)
        except ValueError:
            return []
        return self._jobs(f"Owner =?= {ads.quote(self.owner())} && DAGNodeName =?= {wanted}")

    def dagmans(self) -> list[Ad]:
        """This user's DAGMan jobs in the queue, the newest first."""
        dagman = f"JobUniverse == {SCHEDULER_UNIVERSE} && DAG_NodesTotal isnt undefined"
        wanted = f"Owner =?= {ads.quote(self.owner())} && {dagman}"
        found: list[Ad] = self._pool.at_schedd("jobs", constraint=wanted, projection=list(_DAGMAN))
        return sorted(found, key=lambda ad: -ads.count_of(ad, "ClusterId"))

    def past(self, cluster: int, process: int | None) -> Ad | None:
        """The last job of that id that left the queue, as the AP's history has it; None when it has none."""
        one = "" if process is None else f" && ProcId == {process}"
        try:
            found = self._pool.at_schedd("history", constraint=f"ClusterId == {cluster}{one}", keep=list(_PAST))
        except AnnexError:  # an AP may keep no history, or not show it
            return None
        return dict(found[0]) if found else None

    def waiting_for(self, annex_name: str) -> list[Demand]:
        """This user's idle jobs that target an annex, alike ones as one."""
        wanted = f"Owner =?= {ads.quote(self.owner())} && JobStatus == {ads.IDLE}"
        return self._demand(f"{wanted} && TargetAnnexName == {ads.quote(annex_name)}", ALIKE, MOST_JOBS)

    def waiting(self, *, whole: bool) -> list[Demand]:
        """This user's idle jobs that target any annex, or any of several, alike ones as one.

        Without `whole` all of them are counted, and the ads have no more than the names; with it the first thousands
        are there to be matched.
        """
        constraint = ads.waiting_constraint(self.owner())
        if whole:
            return self._demand(constraint, ALIKE, MOST_JOBS)
        return self._demand(constraint, _NAMES, -1, projection=_NAMES)

    def _demand(
        self, constraint: str, alike: Sequence[str], limit: int, projection: Sequence[str] = ()
    ) -> list[Demand]:
        answer = self._pool.at_schedd(
            "demand", constraint=constraint, alike=list(alike), limit=limit, projection=list(projection)
        )
        return [Demand(FullAd.from_data(each["job"]), int(each["count"])) for each in answer]

    def slots(self) -> list[FullAd]:
        """This user's slots that can take a job as a whole: no dynamic ones, no signs of pilots that failed."""
        identity = self._pool.identity()
        found: dict[str, FullAd] = {}
        for pool in self._pool.collectors():
            for each in self._pool.ask("slot_ads", pool=pool, constraint=ads.slots_constraint(identity, None)):
                ad = FullAd.from_data(each)
                slot = ads.slot_from_ad(ad.values)
                if slot.slot_type != "Dynamic" and not slot.failed_code and slot.owner == identity:
                    found[f"{slot.annex_id} {slot.name}"] = ad
        return list(found.values())

    def read(self, texts: Sequence[str]) -> list[FullAd]:
        """Ads written here, read by HTCondor."""
        return [FullAd.from_data(each) for each in self._pool.ask("parse", ads=list(texts))] if texts else []

    def match(self, job: FullAd, candidates: Sequence[Candidate]) -> list[Match]:
        """Ask HTCondor about every condition of the job and of each slot."""
        asked = cases(job, candidates)
        answers = self._pool.ask("evaluate", job=job.text, cases=asked) if asked else []
        return matches(job, candidates, answers)

    def ap_words(self) -> frozenset[str]:
        """Attributes that the AP's own submit rules mention: what it adds to jobs that users did not write."""
        listed = self._params(["JOB_TRANSFORM_NAMES", "APPEND_REQUIREMENTS", "APPEND_REQ_VANILLA"])
        transforms = [f"JOB_TRANSFORM_{name}" for name in listed.pop("JOB_TRANSFORM_NAMES").replace(",", " ").split()]
        texts = [*listed.values(), *(self._params(transforms).values() if transforms else ())]
        return frozenset().union(*map(names, texts)) if texts else frozenset()

    def negotiates(self) -> bool | None:
        """Whether a negotiator serves the configured pool; None when that cannot be told."""
        try:
            return bool(self._pool.daemons("Negotiator"))
        except AnnexError:
            return None

    def _params(self, wanted: list[str]) -> dict[str, str]:
        answer = self._pool.ask("config", names=wanted)
        return {name: str(answer["params"].get(name, "")) for name in wanted}

    def _jobs(self, constraint: str) -> list[FullAd]:
        found = self._pool.at_schedd("job_ads", constraint=constraint, limit=MOST_JOBS)
        return [FullAd.from_data(each) for each in found]
