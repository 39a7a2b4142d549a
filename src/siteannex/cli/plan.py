"""`siteannex plan`: the same request at every site."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from siteannex.cli import asking
from siteannex.cli.asking import Asked

if TYPE_CHECKING:
    from siteannex.annex.compare import Offer
    from siteannex.cli.wiring import Wiring
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

    from siteannex.annex.compare import HEADER, as_data, table
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
    known = [wiring.site(name) for name in dict.fromkeys(sites)] if sites else wiring.sites()
    offers = _for_job(job, known, wiring) if job else _for_sizes(asked, known, wiring)
    offers = [_asked_there(each, wiring) for each in offers]
    if json_output:
        print(json.dumps([as_data(each) for each in offers], indent=1))
        return
    print_table(HEADER, table(offers, wiring.clock.now()))
    if any(each.plan is not None and each.trial is None for each in offers):
        wiring.screen.line("", "- under STARTS: no session is open there; siteannex login SITE, then plan again, asks")


def _for_sizes(asked: Asked, sites: Sequence[Site], wiring: Wiring) -> list[Offer]:
    from siteannex.annex.compare import offer

    today = wiring.clock.now().date()
    return [offer(asked.request("plan", site), site, today) for site in sites]


def _for_job(job: str, sites: Sequence[Site], wiring: Wiring) -> list[Offer]:
    from siteannex.annex.compare import offers_for_job
    from siteannex.annex.why_job import job_of
    from siteannex.pool.job_queue import JobQueue

    queue = JobQueue(wiring.pool)
    return offers_for_job(job_of(job, queue), queue, sites, wiring.clock.now().date())


def _asked_there(offer: Offer, wiring: Wiring) -> Offer:
    """With the scheduler's own word, where a session is open; a site that does not answer is not asked twice."""
    from siteannex.annex.compare import with_trial
    from siteannex.annex.trials import try_start
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
