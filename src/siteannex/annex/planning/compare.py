"""The same request at many sites: where it fits, what it costs at most, and why not elsewhere. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date, datetime
from typing import Any

from siteannex.annex.explaining.why_words import refusal
from siteannex.annex.planning.layout import Refusal
from siteannex.annex.planning.nearest import nearest_requests
from siteannex.annex.planning.plan import choose, for_tests, plan_of
from siteannex.annex.planning.suiting import Tried, job_request, try_everywhere
from siteannex.annex.texts import ceiling_text
from siteannex.errors import AnnexError
from siteannex.model import Plan, Request
from siteannex.pool.job_queue import JobQueue
from siteannex.pool.matching import FullAd, Says
from siteannex.pool.words import rows
from siteannex.scheduler.starts import Trial
from siteannex.site.schema import Site
from siteannex.units import format_memory, format_when


@dataclass(frozen=True, slots=True)
class Offer:
    """What one site would bring; without a plan, the reason and what would fit there."""

    site: Site
    plan: Plan | None
    reason: str = ""
    nearest: tuple[str, ...] = ()
    trial: Trial | None = None
    """What the site's scheduler said of it, where it could be asked."""


def offer(request: Request, site: Site, today: date) -> Offer:
    """The cheapest way the request fits the site, whether or not an account is known."""
    try:
        choice = choose(request, site)
    except AnnexError as unknown_partition:
        return Offer(site, None, unknown_partition.failure.summary)
    if choice.fits:
        return Offer(site, plan_of(request, site, choice, annex_id=f"{request.name}-plan", today=today))
    near = nearest_requests(request, lambda asked: bool(choose(asked, site).fits), site)
    return Offer(site, None, _reason(choice.refusals, site), near)


def _reason(refusals: Sequence[Refusal], site: Site) -> str:
    """The refusal that came closest; that a partition for tests has a short walltime is the least news."""
    ranked = sorted(refusals, key=lambda each: (each.distance, for_tests(site.partitions[each.partition])))
    return f"{ranked[0].partition}: {ranked[0].text}" if ranked else "it has no partitions"


HEADER = ("SITE", "FITS", "CEILING", "STARTS")


def table(offers: Sequence[Offer], now: datetime) -> list[tuple[str, str, str, str]]:
    """Rows under HEADER: sites that fit first; of those the ones that would start first, then the cheapest."""
    return [_row(each, now) for each in sorted(offers, key=_rank)]


def _rank(each: Offer) -> tuple[bool, bool, float, float, float, str]:
    start = each.trial.start.timestamp() if each.trial and each.trial.start else float("inf")
    refused = each.trial is not None and each.trial.start is None
    hours = (each.plan.ceiling_gpu_hours, each.plan.ceiling_core_hours) if each.plan else (0.0, 0.0)
    return (each.plan is None, refused, start, *hours, each.site.name)


def _row(each: Offer, now: datetime) -> tuple[str, str, str, str]:
    if each.plan is None:
        near = f" ({each.nearest[0]} fits)" if each.nearest else ""
        return (each.site.name, f"no: {each.reason}{near}", "-", "-")
    return (each.site.name, _layout_text(each.plan, each.site), ceiling_text(each.plan), _start_text(each.trial, now))


def _layout_text(plan: Plan, site: Site) -> str:
    """`gpu-shared: 2 x 2 v100 (32 GB)`, or `shared: 1 x 8 cores`."""
    kind = next((kind for kind in site.partitions[plan.partition].nodes if kind.name == plan.node_kind), None)
    if not plan.shape.gpus:
        return f"{plan.partition}: {plan.pilots} x {plan.shape.cpus} core{'s' if plan.shape.cpus > 1 else ''}"
    memory = (kind.gpus.memory_nominal or kind.gpus.memory) if kind and kind.gpus else None
    size = f" ({format_memory(memory)})" if memory else ""
    return f"{plan.partition}: {plan.pilots} x {plan.shape.gpus} {plan.shape.gpu_type}{size}"


def _start_text(trial: Trial | None, now: datetime) -> str:
    if trial is None:
        return "-"
    if trial.start is None:
        return f"refused: {trial.text}"
    return "now" if trial.start <= now else f"about {format_when(trial.start, now)}"


def as_data(each: Offer) -> dict[str, Any]:
    """As JSON values."""
    start = each.trial.start if each.trial else None
    return {
        "site": each.site.name,
        "fits": each.plan is not None,
        "plan": asdict(each.plan) if each.plan else None,
        "reason": each.reason,
        "nearest": list(each.nearest),
        "start": start.isoformat() if start else None,
        "refused": each.trial.text if each.trial else "",
    }


def with_trial(each: Offer, trial: Trial | None) -> Offer:
    """The same, with the scheduler's word."""
    return replace(each, trial=trial)


def offers_for_job(job: FullAd, queue: JobQueue, sites: Sequence[Site], today: date) -> list[Offer]:
    """What each site would bring for a job of the queue: of the partitions with room, the first by `try_everywhere`
    that HTCondor would match (or cannot say no to before the node is seen)."""
    tried = try_everywhere(job, queue, sites, today)
    return [_offer_for_job(job, site, [each for each in tried if each.site.name == site.name], today) for site in sites]


def _offer_for_job(job: FullAd, site: Site, tried: Sequence[Tried], today: date) -> Offer:
    fitting = [each.plan for each in tried if each.match.says is not Says.NO]
    if fitting:
        return Offer(site, fitting[0])
    if not tried:
        return replace(offer(job_request(job, site, None), site, today), plan=None)
    [row, *_] = [
        (row, cell)
        for row in rows(job.values, [tried[0].match])
        if (cell := row.cells[0]) is not None and cell.says is Says.NO
    ]
    return Offer(site, None, refusal(tried[0].plan.partition, *row, exists=False))
