"""`siteannex up --pending` and `--for FILE`: every annex that something waits for, in one command."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from siteannex.annex.planning.demand import Need, standing, unknown_text, wanted
from siteannex.annex.planning.sizing import Bounds, Sized
from siteannex.annex.texts import ceiling_text, plan_text
from siteannex.cli.feeding import forget_requests, rows_of, site_names, sizes
from siteannex.cli.up_many import up_many
from siteannex.cli.wiring import Wiring
from siteannex.site.schema import Site


def up_wanted(
    needs: Sequence[Need],
    bounds: Bounds,
    budget: float | None,
    wiring: Wiring,
    *,
    user: str | None,
    yes: bool,
    dry_run: bool,
    wait: bool,
    json_output: bool,
) -> None:
    """Plans first, one question for all of them, then one login after another and all at once.

    Annexes that are up or coming are left alone, so that running it again does nothing twice.
    """
    stand = standing(rows_of(wiring))
    forget_requests(wiring, stand)
    found = sizes(wanted(needs, stand, site_names(wiring)), bounds, budget, wiring)
    named = {annex.lower(): annex for need in needs for annex in need.annexes}
    alone = {named[key]: words for key, words in stand.items() if key in named}
    ready = [(each, site) for each, site in found if each.plan is not None and site is not None]
    _show([each for each, _ in found], alone, wiring)
    if dry_run or not ready or not (yes or _agreed(len(ready), wiring)):
        if json_output:
            print(json.dumps([*map(_as_data, (each for each, _ in found))], indent=1))
        if dry_run and ready:
            wiring.screen.line("", "nothing was done (--dry-run)")
        if not dry_run and (ready or any(each.reason for each, _ in found)):
            sys.exit(1)
        return
    up_many(_requests(ready), wiring, user=user, budget=budget, wait=wait, json_output=json_output)


def _requests(ready: Sequence[tuple[Sized, Site]]) -> list[tuple[Any, Site]]:
    return [(each.plan.request, site) for each, site in ready if each.plan is not None]


def _show(found: Sequence[Sized], alone: dict[str, str], wiring: Wiring) -> None:
    line = wiring.screen.line
    for annex, words in alone.items():
        line("there", f"{annex} is {words}" if words in ("up", "coming") else f"{annex} is left alone, {words}")
    if not found:
        line("pending", "nothing waits for an annex that is not there" if not alone else "nothing else is waited for")
    for each in found:
        plan = each.plan
        if plan is None:
            reason = each.reason or unknown_text(each.wanted)
            line("not", f"{each.wanted.annex}: {_wants(each)}; {reason}")
        else:
            name = "" if plan.request.name == plan.request.site else f"{plan.request.name}: "
            line("plan", f"{name}{plan_text(plan)}")
            line("", f"{_wants(each)}, {each.jobs} at once; ceiling {ceiling_text(plan)}; {'; '.join(plan.notes)}")
        for note in each.notes:
            line("", f"{each.wanted.annex}: {note}")
    plans = [each.plan for each in found if each.plan is not None]
    if len(plans) > 1:
        line("sum", f"{len(plans)} annexes, ceiling {_sum(found)}")


def _wants(each: Sized) -> str:
    count = each.wanted.jobs
    if each.wanted.waiting:
        return f"{count} job{'s wait' if count > 1 else ' waits'}"
    return f"up to {count} job{'s' if count > 1 else ''} at a time will want it"


def _sum(found: Sequence[Sized]) -> str:
    """`12 GPU-h + 3 core-h`."""
    plans = [each.plan for each in found if each.plan is not None]
    gpu = sum(plan.ceiling_gpu_hours for plan in plans if plan.shape.gpus)
    core = sum(plan.ceiling_core_hours for plan in plans if not plan.shape.gpus)
    return " + ".join([*([f"{gpu:g} GPU-h"] if gpu else []), *([f"{core:g} core-h"] if core else [])])


def _agreed(count: int, wiring: Wiring) -> bool:
    if not sys.stdin.isatty():
        wiring.screen.line("", "nothing is brought up: say --yes")
        return False
    question = f"Bring {'it' if count == 1 else f'these {count}'} up? (yes/no) "
    print(" " * 9 + question, end="", file=sys.stderr, flush=True)
    if input().strip().lower() in ("yes", "y"):
        return True
    wiring.screen.line("", "nothing is brought up")
    return False


def _as_data(each: Sized) -> dict[str, Any]:
    return {
        "annex": each.wanted.annex,
        "site": each.wanted.site,
        "waiting": each.wanted.waiting,
        "jobs": each.wanted.jobs,
        "at_once": each.jobs,
        "plan": asdict(each.plan) if each.plan is not None else None,
        "reason": each.reason or ("" if each.wanted.site else unknown_text(each.wanted)),
        "notes": list(each.notes),
    }
