"""`siteannex up SITE...`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from siteannex.cli import asking
from siteannex.cli.asking import Asked

if TYPE_CHECKING:
    from siteannex.cli.screen import Screen
    from siteannex.cli.wiring import Wiring
    from siteannex.model import Request
    from siteannex.site.schema import Site

EXAMPLES = """\b
Examples:
  siteannex up expanse --gpus 4 --lifetime 4h
  siteannex up expanse anvil delta --gpus 4 --gpu-memory 40GB
  siteannex up lab --gpus 2 --mem 16GB --name sweep1 --idle 10m
  siteannex up expanse --gpus 4 --lease 14d --max-gpu-hours 200 --max-pilots 2
  siteannex up --pending
  siteannex up --for experiment.yaml --lifetime 8h --budget 100
  siteannex up aws --gpus 4 --gpu-memory 40GB --lifetime 6h --dry-run
"""


def up(
    sites: Annotated[
        list[str] | None, typer.Argument(metavar="[SITE]...", help="Where: sites (siteannex sites list).")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="The annex's name; jobs target it. Default: the site's name.")
    ] = None,
    gpus: asking.Gpus = 0,
    gpus_per_pilot: asking.GpusPerPilot = None,
    gpu_type: asking.GpuType = None,
    gpu_memory: asking.GpuMemory = None,
    gpu_capability: asking.GpuCapability = None,
    bf16: asking.Bf16 = False,
    nodes: asking.Nodes = None,
    cpus: asking.Cpus = None,
    mem: asking.Mem = None,
    partition: asking.PartitionName = None,
    preemptible: asking.Preemptible = False,
    account: asking.Account = None,
    lifetime: asking.Lifetime = None,
    idle: asking.Idle = None,
    lease: asking.LeaseLength = None,
    max_gpu_hours: asking.MaxGpuHours = None,
    max_pilots: asking.MaxPilots = None,
    budget: Annotated[
        float | None, typer.Option(min=0, help="Refuse a plan that could cost more, in the site's unit (SU, GPU-h).")
    ] = None,
    join: Annotated[str, typer.Option(help="How EPs join: auto, pool or direct.")] = "auto",
    login: Annotated[str | None, typer.Option(help="Your user name at the site.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and its batch script; do nothing.")] = False,
    pending: Annotated[
        bool, typer.Option("--pending", help="Every annex that your waiting jobs name and that is not up.")
    ] = False,
    experiment: Annotated[
        Path | None, typer.Option("--for", metavar="FILE", help="Every annex an experiment file needs that is not up.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="With --pending, --for: do not ask.")] = False,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Return once the pilots are submitted.")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Bring execution points up at one site or several.

    Waits until they are ready; run again after an interruption, it goes on where it was. --pending and --for size
    annexes by the jobs that want them, show the plans with their ceilings and ask once; with them --nodes is the most
    pilots of one annex.
    """
    from siteannex.cli.screen import make_screen
    from siteannex.cli.wiring import Wiring

    wiring = Wiring(make_screen(json_output=json_output), user=login)
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
        partition=partition,
        preemptible=preemptible,
        account=account,
        lifetime=lifetime,
        idle=idle,
        join=join,
        lease=lease,
        max_gpu_hours=max_gpu_hours,
        max_pilots=max_pilots,
    )
    if pending or experiment is not None:
        _no_sites_or_sizes(sites, name, asked)
        _up_wanted(
            experiment if not pending else None,
            asked,
            budget,
            wiring,
            user=login,
            yes=yes,
            dry_run=dry_run,
            wait=not no_wait,
            json_output=json_output,
        )
        return
    if not sites:
        raise typer.BadParameter("say which, or --pending for every annex that jobs wait for", param_hint="SITE...")
    names = _each_once(sites, name)
    if dry_run:
        _dry_runs(names, wiring, asked, name, budget=budget, json_output=json_output)
        return
    requests = [_request(wiring, asked, site, name) for site in names]
    if len(requests) == 1:
        _bring_up(*requests[0], wiring, budget=budget, wait=not no_wait, json_output=json_output)
    else:
        from siteannex.cli.up_many import up_many

        up_many(requests, wiring, user=login, budget=budget, wait=not no_wait, json_output=json_output)


def _no_sites_or_sizes(sites: list[str] | None, name: str | None, asked: Asked) -> None:
    from dataclasses import replace

    rest = replace(asked, nodes=None, account=None, lifetime=None)
    if sites or name is not None or rest != Asked():
        raise typer.BadParameter(
            "the jobs say where and how large; beside it only --lifetime, --nodes, --budget, --account",
            param_hint="--pending, --for",
        )


def _up_wanted(
    experiment: Path | None,
    asked: Asked,
    budget: float | None,
    wiring: Wiring,
    *,
    user: str | None,
    yes: bool,
    dry_run: bool,
    wait: bool,
    json_output: bool,
) -> None:
    from siteannex.annex.planning.sizing import Bounds
    from siteannex.cli.feeding import experiment_needs, pending_needs
    from siteannex.cli.up_pending import up_wanted
    from siteannex.units import parse_duration_s

    try:
        lifetime_s = parse_duration_s(asked.lifetime) if asked.lifetime else None
    except ValueError as problem:
        raise typer.BadParameter(str(problem), param_hint="--lifetime") from problem
    needs = pending_needs(wiring, whole=True) if experiment is None else experiment_needs(experiment)
    bounds = Bounds(lifetime_s=lifetime_s, pilots=asked.nodes, account=asked.account)
    up_wanted(needs, bounds, budget, wiring, user=user, yes=yes, dry_run=dry_run, wait=wait, json_output=json_output)


def _each_once(sites: list[str], name: str | None) -> list[str]:
    once = list(dict.fromkeys(sites))
    if name is not None and len(once) > 1:
        raise typer.BadParameter("one name for several sites; leave it out, each takes its site's", param_hint="--name")
    return once


def _request(wiring: Wiring, asked: Asked, site: str, name: str | None) -> tuple[Request, Site]:
    from dataclasses import replace

    facts = wiring.site(site)
    account = asked.account or wiring.settings.of(site).account
    return replace(asked, account=account).request(name or site, facts), facts


def _dry_runs(
    sites: list[str], wiring: Wiring, asked: Asked, name: str | None, *, budget: float | None, json_output: bool
) -> None:
    """Each site's plan; where none is possible the others are shown all the same, as `up` goes on there."""
    from siteannex.cli.failure_view import exit_code, show
    from siteannex.errors import AnnexError

    codes = []
    for site in sites:
        try:
            _dry_run(wiring, asked, site, name, budget=budget, json_output=json_output)
        except AnnexError as problem:
            show(problem.failure, as_json=json_output)
            codes.append(exit_code(problem.failure.stage))
    if codes:
        raise typer.Exit(codes[0])


def _dry_run(
    wiring: Wiring, asked: Asked, site: str, name: str | None, *, budget: float | None, json_output: bool
) -> None:
    from siteannex.cli.up_cloud import show_cloud_dry_run
    from siteannex.failures import fail
    from siteannex.site.other_kinds import AwsSite

    facts = wiring.any_site(site)
    if isinstance(facts, AwsSite):
        limits = [each for each in (budget, wiring.settings.of(site).budget) if each is not None]
        request = asked.request(name or site, facts)
        if request.lease is not None:
            raise fail("keeper-unavailable", site, "a cloud has no batch system for a keeper to live in")
        show_cloud_dry_run(request, facts, wiring.screen, budget=min(limits, default=None), json_output=json_output)
    else:
        request, here = _request(wiring, asked, site, name)
        _show_dry_run(request, here, wiring.screen, json_output=json_output)


def _bring_up(
    request: Request, facts: Site, wiring: Wiring, *, budget: float | None, wait: bool, json_output: bool
) -> None:
    from siteannex.annex.up import up as bring_up

    annex, verdict = bring_up(request, facts, wiring.tools(budget=budget), wait=wait)
    if json_output:
        import json

        from siteannex.annex.status import as_data, take_status

        [row] = take_status([annex], wiring.store, wiring.pool, wiring.clock.now(), lambda _: None)
        print(json.dumps(as_data(row), indent=1))
    elif verdict is None and not annex.state().leased_until:
        wiring.screen.line("queue", f"submitted; siteannex status {annex.name} shows it")


def _show_dry_run(request: Request, facts: Site, screen: Screen, *, json_output: bool) -> None:
    import json
    from dataclasses import asdict
    from datetime import UTC, datetime

    from siteannex.annex.leasing import lease_text
    from siteannex.annex.texts import ceiling_text, plan_text
    from siteannex.annex.up import dry_run

    would = dry_run(request, facts, datetime.now(UTC).date())
    if json_output:
        data = {"plan": asdict(would.plan), "script": would.script, "not_chosen": list(would.passed_over)}
        print(json.dumps(data, indent=1))
        return
    screen.line("plan", plan_text(would.plan))
    screen.line("", f"ceiling {ceiling_text(would.plan)}")
    if request.lease is not None:
        screen.line("", lease_text(request.lease, facts))
    for note in would.plan.notes:
        screen.line("", note)
    for reason in would.passed_over:
        screen.line("not", reason)
    screen.line("script", "submitted once" if would.plan.pilots == 1 else f"submitted {would.plan.pilots} times")
    print(would.script)
    screen.line("", "nothing was done (--dry-run)")
