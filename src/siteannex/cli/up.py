"""`siteannex up SITE`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from siteannex.model import Request

MIN_LIFETIME_S, MIN_MEMORY_MIB = 120, 256
EXAMPLES = """\b
Examples:
  siteannex up expanse --gpus 4 --lifetime 4h
  siteannex up lab --gpus 2 --mem 16GB --name sweep1 --idle 10m
"""


def up(
    site: Annotated[str, typer.Argument(help="Where: a site's name (siteannex sites list).")],
    name: Annotated[
        str | None, typer.Option(help="The annex's name; jobs target it. Default: the site's name.")
    ] = None,
    gpus: Annotated[int, typer.Option(min=0, help="GPUs of the whole annex.")] = 0,
    nodes: Annotated[int | None, typer.Option(min=1, help="Number of pilots, each on a node.")] = None,
    cpus: Annotated[int | None, typer.Option(min=1, help="CPUs of each pilot.")] = None,
    mem: Annotated[str | None, typer.Option(help="Memory of each pilot, e.g. 16GB.")] = None,
    partition: Annotated[str | None, typer.Option(help="Partition; default: the cheapest that fits.")] = None,
    account: Annotated[str | None, typer.Option(help="Allocation to charge.")] = None,
    lifetime: Annotated[str, typer.Option(help="Walltime of the pilots, e.g. 4h.")] = "1h",
    idle: Annotated[str, typer.Option(help="End after this long without a job, e.g. 10m.")] = "10m",
    join: Annotated[str, typer.Option(help="How EPs join: auto, pool or direct.")] = "auto",
    login: Annotated[str | None, typer.Option(help="Your user name at the site.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show plan and sbatch options; do nothing.")] = False,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Return once the pilots are submitted.")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Bring execution points up at a site.

    Waits until they are ready; run again after an interruption, it goes on where it was.
    """
    from siteannex.cli.screen import make_screen
    from siteannex.cli.wiring import Wiring

    wiring = Wiring(make_screen(json_output=json_output), user=login)
    facts = wiring.site(site)
    request = _request(
        name=name or site,
        site=site,
        gpus=gpus,
        nodes=nodes,
        cpus=cpus,
        mem=mem,
        partition=partition,
        account=account or wiring.settings.of(site).account,
        lifetime=lifetime,
        idle=idle,
        join=join,
    )
    if dry_run:
        _show_dry_run(request, wiring.screen, site=facts, json_output=json_output)
        return
    from siteannex.annex.up import up as bring_up

    annex, verdict = bring_up(request, facts, wiring.tools(), wait=not no_wait)
    if json_output:
        import json

        from siteannex.annex.status import as_data, take_status

        [row] = take_status([annex], wiring.store, wiring.pool, wiring.clock.now(), lambda _: None)
        print(json.dumps(as_data(row), indent=1))
    elif verdict is None:
        wiring.screen.line("queue", f"submitted; siteannex status {annex.name} shows it")


def _request(
    *,
    name: str,
    site: str,
    gpus: int,
    nodes: int | None,
    cpus: int | None,
    mem: str | None,
    partition: str | None,
    account: str | None,
    lifetime: str,
    idle: str,
    join: str,
) -> Request:
    import re

    from siteannex.model import Join, Request
    from siteannex.units import parse_duration_s, parse_memory_mib

    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]{0,62}", name):
        raise typer.BadParameter("a name is a letter, then letters, digits, '_', '.' or '-'", param_hint="--name")
    if join not in set(Join):
        raise typer.BadParameter("auto, pool or direct", param_hint="--join")
    try:
        request = Request(
            name=name,
            site=site,
            gpus=gpus,
            nodes=nodes,
            cpus=cpus,
            memory_mib=parse_memory_mib(mem) if mem else None,
            partition=partition,
            account=account,
            lifetime_s=parse_duration_s(lifetime),
            idle_s=parse_duration_s(idle),
            join=Join(join),
        )
    except ValueError as problem:
        raise typer.BadParameter(str(problem)) from problem
    if request.lifetime_s < MIN_LIFETIME_S:
        raise typer.BadParameter("an EP needs two minutes at least", param_hint="--lifetime")
    if request.memory_mib is not None and request.memory_mib < MIN_MEMORY_MIB:
        raise typer.BadParameter("an EP needs 256MB at least", param_hint="--mem")
    return request


def _show_dry_run(request: Request, screen: object, *, site: object, json_output: bool) -> None:
    import json
    from dataclasses import asdict
    from datetime import UTC, datetime

    from siteannex.annex.texts import ceiling_text, plan_text
    from siteannex.annex.up import dry_run
    from siteannex.cli.screen import Screen
    from siteannex.site.schema import Site

    assert isinstance(screen, Screen)
    assert isinstance(site, Site)
    plan, options = dry_run(request, site, datetime.now(UTC).date())
    if json_output:
        print(json.dumps({"plan": asdict(plan), "sbatch": list(options)}, indent=1))
        return
    screen.line("plan", plan_text(plan))
    screen.line("", f"ceiling {ceiling_text(plan)}; {'; '.join(plan.notes)}")
    for option in options:
        screen.line("sbatch", option)
    screen.line("", "nothing was done (--dry-run)")
