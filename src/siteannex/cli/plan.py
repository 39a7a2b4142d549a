"""`siteannex plan`: the same request at every site."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from siteannex.cli import asking
from siteannex.cli.asking import Asked

if TYPE_CHECKING:
    from siteannex.annex.planning.compare import Offer
    from siteannex.annex.planning.compare_cloud import CloudOffer
    from siteannex.cli.wiring import Wiring
    from siteannex.site.other_kinds import AwsSite
    from siteannex.site.schema import Site

EXAMPLES = """\b
Examples:
  siteannex plan --gpus 4 --gpu-memory 60GB --lifetime 12h
  siteannex plan --for 4711.0
"""


def plan(
    sites: Annotated[list[str] | None, typer.Argument(metavar="[SITE]...", help="Only these sites.")] = None,
    gpus: asking.Gpus = 0,
    gpus_per_pilot: asking.GpusPerPilot = None,
    gpu_type: asking.GpuType = None,
    gpu_memory: asking.GpuMemory = None,
    gpu_capability: asking.GpuCapability = None,
    bf16: asking.Bf16 = False,
    nodes: asking.Nodes = None,
    cpus: asking.Cpus = None,
    mem: asking.Mem = None,
    preemptible: asking.Preemptible = False,
    lifetime: asking.Lifetime = None,
    job: Annotated[str | None, typer.Option("--for", help="A job in your queue instead of sizes: 4711.0.")] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Compare sites: where a request fits, what it costs at most, when it would start. Nothing is submitted.

    Sites with an open session are asked when it would start (sbatch --test-only).
    """
    import json

    from siteannex.annex.planning.compare import HEADER, as_data, table
    from siteannex.annex.planning.compare_cloud import cloud_data, with_cloud_rows
    from siteannex.cli.screen import make_screen
    from siteannex.cli.tables import print_table
    from siteannex.cli.wiring import Wiring

    wiring = Wiring(make_screen(json_output=json_output))
    asked = Asked(
        gpus=gpus,
        gpus_per_pilot=gpus_per_pilot,
        gpu_type=gpu_type,
        gpu_memory=gpu_memory,
        gpu_capability=gpu_capability,
        bf16=bf16,
        nodes=nodes,
        cpus=cpus,
        mem=mem,
        preemptible=preemptible,
        lifetime=lifetime,
    )
    known, clouds = _named(sites, wiring) if sites else (wiring.sites(), wiring.clouds())
    if job and asked != Asked():
        raise typer.BadParameter("the job says what it needs; leave sizes and --lifetime out", param_hint="--for")
    known = [_with_account(site, wiring) for site in known]
    offers = _for_job(job, known, wiring) if job else _for_sizes(asked, known, wiring)
    offers = [_asked_there(each, wiring) for each in offers]
    cloud_offers = [] if job else _in_clouds(asked, clouds, wiring)
    if json_output:
        print(json.dumps([*map(as_data, offers), *map(cloud_data, cloud_offers)], indent=1))
        return
    print_table(HEADER, with_cloud_rows(table(offers, wiring.clock.now()), cloud_offers))
    if any(each.plan is not None and each.trial is None for each in offers):
        wiring.screen.line("", "- under STARTS: no session is open there; siteannex login SITE, then plan again, asks")


def _with_account(site: Site, wiring: Wiring) -> Site:
    """The site with the account that `up` would charge there: without one, sbatch --test-only may refuse anything."""
    account = wiring.settings.of(site.name).account
    return site if account is None else site.model_copy(update={"account": account})


def _named(names: Sequence[str], wiring: Wiring) -> tuple[list[Site], list[AwsSite]]:
    from siteannex.site.loader import with_pilots
    from siteannex.site.other_kinds import AwsSite

    known = [wiring.any_site(name) for name in dict.fromkeys(names)]
    clouds = [each for each in known if isinstance(each, AwsSite)]
    return [with_pilots(each) for each in known if not isinstance(each, AwsSite)], clouds


def _in_clouds(asked: Asked, clouds: Sequence[AwsSite], wiring: Wiring) -> list[CloudOffer]:
    from siteannex.annex.planning.compare_cloud import cloud_offer

    return [
        cloud_offer(asked.request("plan", site), site, budget=wiring.settings.of(site.name).budget) for site in clouds
    ]


def _for_sizes(asked: Asked, sites: Sequence[Site], wiring: Wiring) -> list[Offer]:
    from siteannex.annex.planning.compare import offer

    today = wiring.clock.now().date()
    return [offer(asked.request("plan", site), site, today) for site in sites]


def _for_job(job: str, sites: Sequence[Site], wiring: Wiring) -> list[Offer]:
    from siteannex.annex.explaining.why_job import job_of
    from siteannex.annex.planning.compare import offers_for_job
    from siteannex.pool.job_queue import JobQueue

    queue = JobQueue(wiring.pool)
    return offers_for_job(job_of(job, queue), queue, sites, wiring.clock.now().date())


def _asked_there(offer: Offer, wiring: Wiring) -> Offer:
    """With the scheduler's own word, where a session is open; a site that does not answer is not asked twice."""
    from siteannex.annex.planning.compare import with_trial
    from siteannex.annex.planning.trials import try_start
    from siteannex.errors import AnnexError

    held = wiring.held(offer.site) if offer.plan is not None else None
    if held is None or offer.plan is None:
        return offer
    try:
        return with_trial(offer, try_start(offer.plan, offer.site, held))
    except AnnexError as problem:
        wiring.screen.line(offer.site.name, f"not asked: {problem.failure.summary}")
        return offer
    finally:
        held.close()
