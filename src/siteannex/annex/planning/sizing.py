"""How large an annex that is wanted should be: what waits, bounded by the site's caps and the budget. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import partial

from siteannex.annex.planning.demand import Need, Wanted
from siteannex.annex.planning.layout import Layout
from siteannex.annex.planning.plan import choose, plan_annex
from siteannex.errors import AnnexError
from siteannex.model import Plan, Request
from siteannex.pool.ads import count_of
from siteannex.site.schema import Site
from siteannex.units import format_duration

USUAL_LIFETIME_S, USUAL_IDLE_S = 3600, 600
_STEP_MIB = 1024
_MOST_JOBS_A_PILOT = 64


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the user and the site allow for one annex."""

    lifetime_s: int | None = None
    """Asked; None: as long as two of the jobs take, else the site's default."""
    pilots: int | None = None
    left: Mapping[str, float] = field(default_factory=dict)
    """What may still be reserved at the site, by unit (`ledger.price`); a unit that is not there has no limit."""
    account: str | None = None


@dataclass(frozen=True, slots=True)
class Sized:
    """What would be brought up for one wanted annex; without a plan, why nothing can be."""

    wanted: Wanted
    plan: Plan | None
    jobs: int = 0
    """How many would run at once."""
    reason: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Job:
    """The size that every job to be served fits in."""

    gpus: int
    cpus: int
    memory_mib: int
    gpu_memory_mib: int | None
    gpu_capability: float | None


@dataclass(frozen=True, slots=True)
class _Try:
    """A request, where it fits, and how many jobs run there at once."""

    request: Request
    layout: Layout
    jobs: int


def sized(wanted: Wanted, site: Site, bounds: Bounds, today: date) -> Sized:
    """The plan for one annex: the cheapest partition for one job, and as many jobs at once as may be there."""
    needs = [need for need in wanted.needs if need.partitions != frozenset()]
    never = [need for need in wanted.needs if need.partitions == frozenset()]
    notes = tuple(_never_text(need, site) for need in never)
    if not needs:
        return Sized(wanted, None, reason=f"none of its jobs can ever run there: {_why(never)}")
    allowed = _partitions(needs, site)
    narrowed = site.model_copy(update={"partitions": {name: site.partitions[name] for name in allowed}})
    job, count = _job(needs), Wanted(wanted.annex, wanted.site, tuple(needs)).jobs
    first = _first_fit(wanted, job, narrowed, needs, bounds)
    if first is None:
        return Sized(wanted, None, reason=_refusal(wanted, job, narrowed, needs, bounds), notes=notes)
    best = _largest(wanted, job, count, narrowed, first, bounds)
    if best is None:
        return Sized(wanted, None, reason=_too_dear(first.layout, bounds), notes=notes)
    try:
        plan = plan_annex(best.request, site, annex_id=f"{wanted.annex}-plan", today=today)
    except AnnexError as problem:
        return Sized(
            wanted, None, reason=f"{problem.failure.summary}. {problem.failure.hint or ''}".strip(), notes=notes
        )
    return Sized(wanted, plan, best.jobs, notes=notes)


def _job(needs: Sequence[Need]) -> _Job:
    memories = [need.gpu_memory_mib for need in needs if need.gpu_memory_mib is not None]
    capabilities = [need.gpu_capability for need in needs if need.gpu_capability is not None]
    return _Job(
        gpus=max(need.gpus for need in needs),
        cpus=max(need.cpus for need in needs),
        memory_mib=max(need.memory_mib for need in needs),
        gpu_memory_mib=max(memories, default=None),
        gpu_capability=max(capabilities, default=None),
    )


def _partitions(needs: Sequence[Need], site: Site) -> list[str]:
    """Those all the jobs can run in, else those that most of them can; never ones that must be asked for by name."""
    usual = [name for name, facts in site.partitions.items() if facts.restricted is None and facts.preemption is None]
    judged = [need for need in needs if need.partitions is not None]
    served = {name: sum(need.jobs for need in judged if name in (need.partitions or ())) for name in usual}
    most = max(served.values(), default=0)
    return [name for name in usual if served[name] == most]


def _first_fit(wanted: Wanted, job: _Job, site: Site, needs: Sequence[Need], bounds: Bounds) -> _Try | None:
    """One job's pilot where it costs least, for as long as wished, else as long as the site allows."""
    for lifetime_s in _lifetimes(site, needs, bounds):
        tries = []
        for exact in (False, True):
            request = _request(wanted, job, site, bounds, lifetime_s, pilots=1, each=1, exact=exact)
            fits = (each for each in choose(request, site).fits if _room(each, job) >= 1)
            tries += [_Try(request, layout, 1) for layout in fits][:1]
        if tries:
            return min(tries, key=lambda each: _price(each.layout)[0])
    return None


def _price(layout: Layout) -> tuple[float, str]:
    """As `ledger.price` of its plan."""
    bill = layout.bill
    if bill.charge is not None:
        return bill.charge, bill.unit
    return (bill.gpu_hours, "GPU-h") if layout.shape.gpus else (bill.core_hours, "core-h")


def _lifetimes(site: Site, needs: Sequence[Need], bounds: Bounds) -> list[int]:
    if bounds.lifetime_s is not None:
        return [bounds.lifetime_s]
    longest = max((need.longest_s or 0 for need in needs), default=0)
    wished = max(2 * longest, site.defaults.lifetime or USUAL_LIFETIME_S)
    limits = {facts.max_walltime for facts in site.partitions.values() if facts.max_walltime is not None}
    return [wished, *sorted((limit for limit in limits if max(longest, 1) <= limit < wished), reverse=True)]


def _request(
    wanted: Wanted,
    job: _Job,
    site: Site,
    bounds: Bounds,
    lifetime_s: int,
    *,
    pilots: int,
    each: int,
    exact: bool,
    partition: str | None = None,
) -> Request:
    """`pilots` pilots with room for `each` jobs. `exact`: their cores and memory, not the GPUs' share of a node."""
    memory = -(-job.memory_mib * each // _STEP_MIB) * _STEP_MIB
    by_jobs = exact or not job.gpus
    return Request(
        name=wanted.annex,
        site=site.name,
        gpus=job.gpus * each * pilots,
        gpus_per_pilot=job.gpus * each or None,
        nodes=None if job.gpus else pilots,
        gpu_memory_mib=job.gpu_memory_mib if job.gpus else None,
        gpu_capability=job.gpu_capability if job.gpus else None,
        cpus=job.cpus * each if by_jobs else None,
        memory_mib=memory or None if by_jobs else None,
        partition=partition,
        account=bounds.account,
        lifetime_s=lifetime_s,
        idle_s=site.defaults.idle or USUAL_IDLE_S,
    )


def _room(layout: Layout, job: _Job) -> int:
    """How many jobs one pilot of this layout runs at once."""
    shape = layout.shape
    parts = [shape.cpus // job.cpus]
    parts += [shape.memory_mib // job.memory_mib] if job.memory_mib else []
    parts += [shape.gpus // job.gpus] if job.gpus else []
    return min(parts)


def _largest(wanted: Wanted, job: _Job, count: int, site: Site, first: _Try, bounds: Bounds) -> _Try | None:
    """The most jobs at once in the first one's partition, as cheap as can be; of equals small pilots with GPUs (they
    start sooner), few without."""
    name, exact = first.layout.partition, first.request.cpus is not None

    def attempt(each: int, pilots: int) -> _Try | None:
        lifetime_s = first.request.lifetime_s
        asked = _request(
            wanted, job, site, bounds, lifetime_s, pilots=pilots, each=each, exact=exact, partition=name
        )  # fmt: skip
        best = next((layout for layout in choose(asked, site).fits if _room(layout, job) >= 1), None)
        if best is None or not _within(best, bounds):
            return None
        return _Try(asked, best, min(count, best.pilots * _room(best, job)))

    found = (_most_pilots(partial(attempt, each), -(-count // each)) for each in _steps(count))
    tries = [each for each in found if each is not None]
    small_first = 1 if job.gpus else -1

    def rank(each: _Try) -> tuple[float, ...]:
        return (each.jobs, -_price(each.layout)[0], small_first * each.layout.pilots)

    return max(tries, key=rank, default=None)


def _most_pilots(attempt: Callable[[int], _Try | None], most: int) -> _Try | None:
    """The attempt with the most pilots, by bisection: caps and budgets only ever forbid more."""
    if (whole := attempt(most)) is not None:
        return whole
    best, low, high = attempt(1), 1, most
    while best is not None and high - low > 1:
        middle = (low + high) // 2
        found = attempt(middle)
        if found is None:
            high = middle
        else:
            best, low = found, middle
    return best


def _steps(count: int) -> list[int]:
    """Jobs a pilot to try: 1, 2, 4, ... and the even shares of all of them."""
    powers = [2**step for step in range(_MOST_JOBS_A_PILOT.bit_length())]
    most = min(count, _MOST_JOBS_A_PILOT)
    return sorted({each for power in powers for each in (power, -(-count // power)) if each <= most})


def _within(layout: Layout, bounds: Bounds) -> bool:
    amount, unit = _price(layout)
    return amount <= bounds.left.get(unit, amount) and (bounds.pilots is None or layout.pilots <= bounds.pilots)


def _too_dear(layout: Layout, bounds: Bounds) -> str:
    amount, unit = _price(layout)
    return f"over budget: room for one job reserves {amount:g} {unit}, and {bounds.left.get(unit, 0):g} are left there"


def _refusal(wanted: Wanted, job: _Job, site: Site, needs: Sequence[Need], bounds: Bounds) -> str:
    longest = max((need.longest_s or 0 for need in needs), default=0)
    lifetime_s = bounds.lifetime_s or longest or USUAL_LIFETIME_S
    asked = _request(wanted, job, site, bounds, lifetime_s, pilots=1, each=1, exact=True)
    refusals = sorted(choose(asked, site).refusals, key=lambda each: each.distance)
    if not refusals:
        return f"no partition there has room for one such job for {format_duration(lifetime_s)}"
    return f"one such job fits nowhere there; {refusals[0].partition}: {refusals[0].text}"


def _never_text(need: Need, site: Site) -> str:
    return f"{need.jobs} of its jobs can never run at {site.name}: {_why([need])}"


def _why(needs: Sequence[Need]) -> str:
    job = next((need.job for need in needs if need.job is not None), None)
    if job is None:
        return "siteannex plan"
    return f"siteannex why {count_of(job.values, 'ClusterId')}.{count_of(job.values, 'ProcId')} says why"
