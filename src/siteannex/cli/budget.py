"""`siteannex budget [SITE...]`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from siteannex.annex.planning.ledger import Account
    from siteannex.cli.wiring import Wiring

EXAMPLES = """\b
Examples:
  siteannex budget
  siteannex budget expanse --json
"""


def budget(
    sites: Annotated[list[str] | None, typer.Argument(metavar="[SITE]...", help="Only these sites.")] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """What annexes have used and reserved at each site, and what is left of its budget.

    A cap stands in your config.yaml (sites: {expanse: {budget: 200}}), in the site's own unit; `up` refuses beyond it.
    """
    import json

    from siteannex.annex.planning.ledger import as_data
    from siteannex.cli.screen import make_screen
    from siteannex.cli.tables import print_table
    from siteannex.cli.wiring import Wiring

    accounts = _accounts(Wiring(make_screen(json_output=json_output)), sites)
    if json_output:
        print(json.dumps([as_data(each) for each in accounts], indent=1))
    elif not accounts:
        where = f" to {' or '.join(sites)}" if sites else ""
        print(f"no annex was ever submitted from here{where}, and no budget is set")
    else:
        rows = [
            (each.site, each.unit, _number(each.used), _number(each.reserved), _number(each.left), _number(each.cap))
            for each in accounts
        ]
        print_table(("SITE", "UNIT", "USED", "RESERVED", "LEFT", "CAP"), rows)


def _accounts(wiring: Wiring, sites: list[str] | None) -> list[Account]:
    """One a site and unit that annexes were planned in; capped sites also without any."""
    from siteannex.annex.planning.ledger import account_of, price

    records, now = wiring.store.records(), wiring.clock.now()
    known = {site.name: site for site in wiring.sites()}
    caps = {name: site.defaults.budget for name, site in known.items() if site.defaults.budget is not None}
    caps |= {name: each.budget for name, each in wiring.settings.sites.items() if each.budget is not None}
    for name in sites or ():  # a mistyped name has no budget either, and that would read as an answer
        if name not in caps and name not in {record.plan.request.site for record in records}:
            wiring.any_site(name)
    pairs = {(record.plan.request.site, price(record.plan)[1]) for record in records}
    pairs |= {(name, _unit(known.get(name))) for name in caps if name not in {site for site, _ in pairs}}
    return [
        account_of(site, unit, records, now, caps.get(site))
        for site, unit in sorted(pairs)
        if not sites or site in sites
    ]


def _unit(site: object) -> str:
    """What the site charges in, as far as its file says."""
    from siteannex.site.schema import Site

    charges = [part.charge for part in site.partitions.values() if part.charge] if isinstance(site, Site) else []
    return charges[0].unit if charges else "GPU-h"


def _number(amount: float | None) -> str:
    return "-" if amount is None else f"{amount:g}"
