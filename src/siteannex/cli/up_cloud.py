"""`siteannex up aws --dry-run`: what would be launched, for how much, under which quota, with which boot script."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from siteannex.cli.screen import Screen
    from siteannex.cloud.plan import Choice
    from siteannex.model import Request
    from siteannex.site.other_kinds import AwsSite

NOT_YET = "nothing was done (--dry-run); launching instances comes in a later release"


def show_cloud_dry_run(
    request: Request, site: AwsSite, screen: Screen, *, budget: float | None, json_output: bool
) -> None:
    """Plan and show; AWS is not asked and needs no credentials. AnnexError as plan_cloud's."""
    from siteannex.annex.planning.compare_cloud import cloud_ceiling_text, plan_data
    from siteannex.cloud.boot import SHOWN, user_data
    from siteannex.cloud.plan import plan_cloud
    from siteannex.units import format_duration

    plan = plan_cloud(request, site, budget=budget)
    first, *others = plan.choices
    script = user_data(
        plan,
        f"{request.name}-set-at-launch",
        gpus=first.gpus,
        scratch=first.image.scratch or "",
        software=SHOWN,
        bundle=SHOWN,
    )
    if json_output:
        print(json.dumps({"plan": plan_data(plan), "script": script, "not_chosen": list(plan.passed_over)}, indent=1))
        return
    market = " then ".join(plan.markets)
    screen.line("plan", f"{site.name}, {plan.region}, {market}: {_words(first)}, {format_duration(request.lifetime_s)}")
    cost = f"{first.instance_type} {first.ceiling:g} {plan.unit}, the others only where it is not free"
    screen.line("", f"ceiling {cloud_ceiling_text(plan)}{f' ({cost})' if others else ''}")
    for note in plan.notes:
        screen.line("", note)
    for choice in others:
        screen.line("else", f"{_words(choice)}: {choice.ceiling:g} {plan.unit}")
    for need in plan.quotas:
        screen.line("quota", f"{need.vcpus} vCPUs of {need.name} ({need.code}): {need.page(plan.region)}")
        for doubt in need.doubts:
            screen.line("", doubt)
    for image in dict.fromkeys(choice.image.parameter for choice in plan.choices):
        screen.line("image", image)
    screen.line("zones", f"those of {plan.region} that offer the type, one after another; asked at launch")
    for reason in plan.passed_over:
        screen.line("not", reason)
    count = f"{first.count} instances" if first.count > 1 else "the instance"
    screen.line("script", f"user data of {count}, {len(script.encode())} bytes; the token is not in it")
    print(script)
    screen.line("", NOT_YET)


def _words(choice: Choice) -> str:
    """`4 x g6e.xlarge, each 1 x L40S (44.7 GB), 4 vCPUs, 32 GB`."""
    from siteannex.units import format_memory

    gpus = f"{choice.gpus} x {choice.gpu_model} ({format_memory(choice.gpu_memory_mib)})"
    each = "each " if choice.count > 1 else ""
    size = f"{choice.vcpus} vCPUs, {format_memory(choice.memory_mib)}"
    return f"{choice.count} x {choice.instance_type}, {each}{gpus}, {size}"
