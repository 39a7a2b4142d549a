"""Which partitions could bring a slot for one job: planned with the job's own request, judged by HTCondor itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date

from siteannex.annex.planning.plan import choose, for_tests, plan_of
from siteannex.model import Plan, Request
from siteannex.pool.ads import count_of, text_of
from siteannex.pool.job_queue import JobQueue
from siteannex.pool.matching import Candidate, FullAd, Match
from siteannex.pool.predicted import predicted_slot
from siteannex.site.schema import Site

_STEP_MIB = 1024
_USUAL_LIFETIME_S = 3600


@dataclass(frozen=True, slots=True)
class Tried:
    """One partition that has room for the job, and what HTCondor says of the slot it would bring."""

    site: Site
    request: Request
    plan: Plan
    match: Match


@dataclass(frozen=True, slots=True)
class _Planned:
    site: Site
    request: Request
    plan: Plan

    @property
    def rank(self) -> tuple[bool, bool, bool, float, float, bool]:
        """Within one site: no GPU nodes for jobs without, the whole usual lifetime, no preemption, then the price."""
        facts = self.site.partitions[self.plan.partition]
        hours = self.plan.walltime_s / 3600
        return (
            not self.request.gpus and facts.max_gpus_per_node > 0,
            self.plan.walltime_s < _USUAL_LIFETIME_S,
            facts.preemption is not None,
            (self.plan.ceiling_gpu_hours if self.plan.charge is None else self.plan.charge) / hours,
            self.plan.ceiling_core_hours / hours,
            for_tests(facts),
        )


def try_everywhere(
    job: FullAd,
    queue: JobQueue,
    sites: Sequence[Site],
    today: date,
    *,
    gpu_memory_mib: int | None = None,
    gpu_capability: float | None = None,
) -> tuple[Tried, ...]:
    """Every partition of `sites` that has room for the job and is open to all, site by site, the best one first.

    A partition with several kinds of GPUs is tried with the cheapest; `gpu_memory_mib` and `gpu_capability` say the
    least it must have. Empty as well for an annex name that no ad can carry.
    """

    def asked(site: Site, partition: str) -> Request:
        plain = job_request(job, site, partition)
        return replace(plain, gpu_memory_mib=gpu_memory_mib, gpu_capability=gpu_capability)

    planned = [each for site in sites for each in _planned(site, asked, today)]
    if not planned:
        return ()
    try:
        ap = queue.ap()
        ads = queue.read([predicted_slot(each.plan, each.site, ap) for each in planned])
    except ValueError:
        return ()
    slots = [
        Candidate(f"{each.site.name}/{each.plan.partition}", "offer", ad, predicted=True)
        for each, ad in zip(planned, ads, strict=True)
    ]
    return tuple(
        Tried(each.site, each.request, each.plan, match)
        for each, match in zip(planned, queue.match(job, slots), strict=True)
    )


def _planned(site: Site, asked: Callable[[Site, str], Request], today: date) -> list[_Planned]:
    open_to_all = [name for name, facts in site.partitions.items() if facts.restricted is None]
    planned = [_plan(asked(site, name), site, today) for name in open_to_all]
    return sorted((each for each in planned if each is not None), key=lambda each: each.rank)


def job_request(job: FullAd, site: Site, partition: str | None, lifetime_s: int = _USUAL_LIFETIME_S) -> Request:
    """What `up` would be asked for one such job."""
    values = job.values
    gpus = count_of(values, "RequestGPUs")
    longest = site.partitions[partition].max_walltime if partition is not None else None
    return Request(
        name=text_of(values, "TargetAnnexName") or "annex",
        site=site.name,
        gpus=gpus,
        cpus=max(1, count_of(values, "RequestCpus")) if not gpus else None,
        memory_mib=-(-count_of(values, "RequestMemory") // _STEP_MIB) * _STEP_MIB or None,
        partition=partition,
        lifetime_s=min(lifetime_s, longest or lifetime_s),
    )


def _plan(request: Request, site: Site, today: date) -> _Planned | None:
    choice = choose(request, site)
    if not choice.fits:
        return None
    plan = plan_of(request, site, choice, annex_id=f"{request.name}-offer", today=today)
    return _Planned(site, request, plan) if not request.gpus or plan.pilots == 1 else None
