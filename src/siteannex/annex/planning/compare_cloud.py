"""A cloud's row beside the sites of `siteannex plan`: the same columns, from the instance table. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from siteannex.cloud.plan import CloudPlan, plan_cloud
from siteannex.errors import AnnexError
from siteannex.model import Request
from siteannex.site.other_kinds import AwsSite
from siteannex.units import format_memory

Row = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class CloudOffer:
    """What one cloud would bring; without a plan, the reason."""

    site: AwsSite
    plan: CloudPlan | None
    reason: str = ""


def cloud_offer(request: Request, site: AwsSite, *, budget: float | None = None) -> CloudOffer:
    """The cheapest instances that fit."""
    try:
        return CloudOffer(site, plan_cloud(request, site, budget=budget))
    except AnnexError as problem:
        return CloudOffer(site, None, problem.failure.summary.removeprefix("no instance type fits: "))


def cloud_row(each: CloudOffer) -> Row:
    """Under compare.HEADER; nobody can say when a cloud has instances free."""
    if each.plan is None:
        return (each.site.name, f"no: {each.reason}", "-", "-")
    return (each.site.name, _choice_text(each.plan), cloud_ceiling_text(each.plan), "-")


def cloud_ceiling_text(plan: CloudPlan) -> str:
    """`24 GPU-h = 62.96 USD`, of the dearest type that would be tried."""
    return f"{plan.ceiling_gpu_hours:g} GPU-h = {plan.ceiling:g} {plan.unit}"


def _choice_text(plan: CloudPlan) -> str:
    first = plan.choices[0]
    size = format_memory(first.gpu_memory_mib)
    return f"{first.instance_type}: {first.count} x {first.gpus} {first.gpu_model} ({size})"


def with_cloud_rows(rows: list[Row], offers: Sequence[CloudOffer]) -> list[Row]:
    """The table of compare.py with the clouds' rows: those that fit behind the sites that fit, the others last."""
    fitting = [cloud_row(each) for each in offers if each.plan is not None]
    others = [cloud_row(each) for each in offers if each.plan is None]
    first_no = next((index for index, row in enumerate(rows) if row[1].startswith("no: ")), len(rows))
    return [*rows[:first_no], *fitting, *rows[first_no:], *others]


def cloud_data(each: CloudOffer) -> dict[str, Any]:
    """As JSON values, with the keys of a Slurm site's."""
    return {
        "site": each.site.name,
        "fits": each.plan is not None,
        "plan": plan_data(each.plan) if each.plan else None,
        "reason": each.reason,
        "nearest": [],
        "start": None,
        "refused": "",
    }


def plan_data(plan: CloudPlan) -> dict[str, Any]:
    """A plan as JSON values."""
    data = asdict(plan)
    for choice, made in zip(plan.choices, data["choices"], strict=True):
        made["image"] = choice.image.parameter
    for need, made in zip(plan.quotas, data["quotas"], strict=True):
        made["page"] = need.page(plan.region)
    return data
