"""A request laid out on EC2's instance types: which would do, in which order, under which quota, for how much. Pure.

The table is the site file's; nothing here has asked AWS. Every instance becomes one pilot and gives all its GPUs.
Whole requests are tried on one type after another, never mixed, so that the ceiling is that of the dearest type tried.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from siteannex.errors import Evidence
from siteannex.failures import fail
from siteannex.model import Request
from siteannex.site.gpus import find_model
from siteannex.site.other_kinds import AwsSite, Image, Instance, InstanceGpus, Quota
from siteannex.site.partitions import REPORTED_SHARE
from siteannex.units import format_memory

Market = Literal["on-demand", "spot"]
MARKETS: tuple[Market, ...] = ("on-demand", "spot")

MOST_TYPES = 4
"""So many types are tried, the cheapest first."""
DEAREST_SHARE = 1.5
"""No type is tried that costs more than this many times the cheapest: capacity is not worth any price."""
_NAMED = 3
_SIZE, _FEW, _BF16, _CAPABILITY, _MEMORY, _SHARE, _MODEL, _NO_GPUS = range(1, 9)
"""How far a type is from what was asked: from too small an instance to other GPUs altogether."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One instance type that would do, `count` of it."""

    instance_type: str
    count: int
    gpus: int
    """Of one instance."""
    gpu_model: str
    gpu_memory_mib: int
    vcpus: int
    memory_mib: int
    price: float
    """Of one instance for an hour, on demand, in the plan's unit."""
    ceiling: float
    """Of all, for the whole lifetime."""
    image: Image
    quotas: tuple[QuotaNeed, ...] = ()
    """What all of them need, in each market."""


@dataclass(frozen=True, slots=True)
class QuotaNeed:
    """How many vCPUs the account's quota of that code must have room for."""

    name: str
    code: str
    market: Market
    vcpus: int
    doubts: tuple[str, ...] = ()

    def page(self, region: str) -> str:
        """The console's page where it is read and raised."""
        return f"https://{region}.console.aws.amazon.com/servicequotas/home/services/ec2/quotas/{self.code}"


@dataclass(frozen=True, slots=True)
class Passed:
    """A type that was not chosen, and why; `distance` is how far it is from what was asked (0: only too dear)."""

    instance_type: str
    text: str
    distance: int


@dataclass(frozen=True, slots=True)
class CloudPlan:
    """What would be tried: every choice, cheapest first, in each market in turn."""

    request: Request
    region: str
    markets: tuple[Market, ...]
    choices: tuple[Choice, ...]
    quotas: tuple[QuotaNeed, ...]
    ceiling: float
    """Of the dearest choice; spot never costs more than on demand unless a higher maximum is bid, and none is."""
    ceiling_gpu_hours: float
    unit: str
    notes: tuple[str, ...] = ()
    passed_over: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Attempt:
    """One launch to try: the whole request in one market, as one type, in one zone."""

    market: Market
    choice: Choice
    zone: str

    @property
    def quota(self) -> QuotaNeed | None:
        """The one it counts against; None where the site's file knows none."""
        return next((need for need in self.choice.quotas if need.market == self.market), None)


class _DoesNotFitError(Exception):
    def __init__(self, text: str, distance: int) -> None:
        super().__init__(text)
        self.distance = distance


def plan_cloud(request: Request, site: AwsSite, *, budget: float | None = None) -> CloudPlan:
    """Choose among the site's instance types. `budget`: the most it may cost, in the site's price unit.

    AnnexError: request-impossible (no type would do, or the type named is not known), budget-exceeded.
    """
    if request.partition is not None and request.partition not in site.instances:
        raise _unknown_type(request.partition, site)
    if not request.gpus:
        raise fail(
            "request-impossible", site.name, "no GPUs are asked; only GPU instances are planned", hint="Add --gpus N."
        )
    fitting, passed = _sorted_out(request, site)
    if not fitting:
        raise fail(
            "request-impossible",
            site.name,
            f"no instance type fits: {passed[0].instance_type}: {passed[0].text}",
            evidence=[Evidence(f"instances of {site.name}", "\n".join(_words(passed)))],
            hint=f"Ask for less, or name another type (--partition); siteannex sites show {site.name} lists them.",
        )
    affordable = [each for each in fitting if budget is None or each.ceiling <= budget]
    if not affordable:
        cheapest, unit = fitting[0], site.prices.unit
        raise fail(
            "budget-exceeded",
            site.name,
            f"the cheapest, {cheapest.count} x {cheapest.instance_type}, could cost {cheapest.ceiling:g} {unit}: "
            f"{cheapest.ceiling - (budget or 0):.2f} {unit} more than the budget of {budget:g} {unit} allows",
        )
    tried = [each for each in affordable if each.price * each.count <= _rate(affordable[0]) * DEAREST_SHARE]
    choices = tuple(tried[:MOST_TYPES])
    markets: tuple[Market, ...] = ("spot", "on-demand") if request.preemptible else ("on-demand",)
    left_out = [
        *_left_out(fitting, choices, budget, site.prices.unit),
        *(each for each in passed if each.distance <= _FEW),
    ]
    return CloudPlan(
        request=request,
        region=site.default_region,
        markets=markets,
        choices=choices,
        quotas=tuple(_needs(choices, markets)),
        ceiling=max(each.ceiling for each in choices),
        ceiling_gpu_hours=round(max(each.count * each.gpus for each in choices) * request.lifetime_s / 3600, 3),
        unit=site.prices.unit,
        notes=tuple(_notes(request, site, choices, markets)),
        passed_over=tuple(_words(left_out)),
    )


def attempts(plan: CloudPlan, zones: Mapping[str, Sequence[str]]) -> Iterator[Attempt]:
    """Every launch in the order to try them. `zones`: by type, the zones that offer it (those of our subnets)."""
    for market in plan.markets:
        for choice in plan.choices:
            for zone in zones.get(choice.instance_type, ()):
                yield Attempt(market, choice, zone)


def family(instance_type: str) -> str:
    """`p6-b200.48xlarge` -> `p6-b200`."""
    return instance_type.partition(".")[0]


def quota_of(site: AwsSite, instance_type: str, market: Market) -> Quota | None:
    """The quota that covers a type, by the longest beginning; None where the site's file knows none."""
    covering = [
        (len(start), quota)
        for quota in site.quotas
        if quota.market == market
        for start in quota.families
        if _begins(family(instance_type), start)
    ]
    return max(covering, key=lambda each: each[0])[1] if covering else None


def _begins(name: str, start: str) -> bool:
    """A family belongs to a quota's letters as a whole: `g6e` to `g`, `trn1` not to `t`, `p5en` to `p5`."""
    rest = name.removeprefix(start)
    return rest != name and (start[-1:].isdigit() or not rest[:1].isalpha())


def _sorted_out(request: Request, site: AwsSite) -> tuple[list[Choice], list[Passed]]:
    fitting, passed = [], []
    for name, facts in site.instances.items():
        if request.partition not in (None, name):
            continue
        try:
            fitting.append(_lay_out(request, site, name, facts))
        except _DoesNotFitError as reason:
            passed.append(Passed(name, str(reason), reason.distance))
    fitting.sort(key=lambda each: (each.ceiling, each.count, each.instance_type))
    passed.sort(key=lambda each: (each.distance, -_gpu_memory(site, each.instance_type)))
    return fitting, passed


def _lay_out(request: Request, site: AwsSite, name: str, facts: Instance) -> Choice:
    gpus = facts.gpus
    if gpus is None:
        raise _DoesNotFitError("it has no GPUs", _NO_GPUS)
    _right_gpus(request, gpus)
    count = _count(request, gpus.count)
    if request.cpus is not None and facts.vcpus < request.cpus:
        raise _DoesNotFitError(f"{facts.vcpus} vCPUs, {request.cpus} asked", _SIZE)
    if request.memory_mib is not None and facts.memory < request.memory_mib:
        raise _DoesNotFitError(f"{format_memory(facts.memory)}, {format_memory(request.memory_mib)} asked", _SIZE)
    if facts.price is None:
        raise _DoesNotFitError("its price is not known, so there is no ceiling", _SIZE)
    if facts.on_request and request.partition is None:
        raise _DoesNotFitError("on request only", _SIZE)
    return Choice(
        instance_type=name,
        count=count,
        gpus=gpus.count,
        gpu_model=gpus.model,
        gpu_memory_mib=_reported(gpus) or 0,
        vcpus=facts.vcpus,
        memory_mib=facts.memory,
        price=facts.price,
        ceiling=round(facts.price * count * request.lifetime_s / 3600, 2),
        image=_image(site, name, facts),
        quotas=tuple(_quotas(site, name, facts.vcpus * count)),
    )


def _quotas(site: AwsSite, name: str, vcpus: int) -> Iterator[QuotaNeed]:
    for market in MARKETS:
        if (quota := quota_of(site, name, market)) is not None:
            yield QuotaNeed(quota.name, quota.code, market, vcpus, quota.doubts)


def _right_gpus(request: Request, gpus: InstanceGpus) -> None:
    known = find_model(gpus.model)
    if request.gpu_type is not None and (known is None or find_model(request.gpu_type) is not known):
        raise _DoesNotFitError(f"its GPUs are {gpus.model}, not {request.gpu_type}", _MODEL)
    if gpus.share is not None:
        raise _DoesNotFitError(f"a share of a {gpus.model} only", _SHARE)
    if request.gpu_memory_mib is not None:
        has = _reported(gpus)
        if has is None or has < int(request.gpu_memory_mib * REPORTED_SHARE):
            size = format_memory(has) if has else "an unknown amount of memory"
            raise _DoesNotFitError(
                f"its {gpus.model} have {size}, {format_memory(request.gpu_memory_mib)} asked", _MEMORY
            )
    capability = known.capability if known else None
    if request.gpu_capability is not None and (capability is None or capability < request.gpu_capability):
        text = "an unknown capability" if capability is None else f"capability {capability}"
        raise _DoesNotFitError(f"its {gpus.model} have {text}, {request.gpu_capability} asked", _CAPABILITY)
    if request.bf16 and (known is None or known.bf16 is not True):
        raise _DoesNotFitError(f"its {gpus.model} have no bf16", _BF16)


def _reported(gpus: InstanceGpus) -> int | None:
    """MiB that one GPU surely reports."""
    return gpus.memory or (int(gpus.memory_nominal * REPORTED_SHARE) if gpus.memory_nominal else None)


def _gpu_memory(site: AwsSite, name: str) -> int:
    gpus = site.instances[name].gpus
    return (_reported(gpus) or 0) if gpus else 0


def _count(request: Request, gpus: int) -> int:
    """Instances needed; with --nodes or --gpus-per-pilot exactly as many as asked, each with enough GPUs."""
    count = request.nodes
    if count is None and request.gpus_per_pilot is not None:
        count = request.gpus // request.gpus_per_pilot
    if count is None:
        return -(-request.gpus // gpus)
    each = -(-request.gpus // count)
    if gpus < each:
        raise _DoesNotFitError(f"{gpus} GPUs, {each} a pilot asked", _FEW)
    return count


def _image(site: AwsSite, name: str, facts: Instance) -> Image:
    """The image whose own list names the family: with any other, nobody has said that its driver knows the GPUs."""
    for image in site.images:
        if image.arch == facts.arch and family(name) in image.families:
            return image
    raise _DoesNotFitError(f"no image is known to carry a driver for {family(name)}", _SIZE)


def _needs(choices: Sequence[Choice], markets: Sequence[Market]) -> Iterator[QuotaNeed]:
    """The most vCPUs of each quota; types are tried one after another, so needs do not add up."""
    for market in markets:
        most: dict[str, QuotaNeed] = {}
        for need in (need for choice in choices for need in choice.quotas if need.market == market):
            if need.name not in most or need.vcpus > most[need.name].vcpus:
                most[need.name] = need
        yield from most.values()


def _notes(request: Request, site: AwsSite, choices: Sequence[Choice], markets: Sequence[Market]) -> Iterator[str]:
    first = choices[0]
    if (come := first.count * first.gpus) > request.gpus:
        yield f"{come} GPUs come, {request.gpus} were asked: an instance is not divided, all of it is billed"
    if first.count > 1 and request.nodes is None and request.gpus_per_pilot is None:
        most = f"{first.gpus} GPU{'s' if first.gpus > 1 else ''}"
        yield f"a job on them has {most} at most; --nodes 1 asks for one instance"
    if "spot" in markets:
        yield "spot first (never above the price on demand), then on demand; AWS takes spot back at 2 minutes' notice"
    if site.default_region != site.prices.region:
        yield f"prices are those of {site.prices.region or 'no region named'}, not of {site.default_region}"
    yield f"prices of {site.prices.verified}; disks and traffic come on top"
    if request.account is not None:
        yield "--account is not used: AWS bills the account of your credentials"
    for choice in choices:
        for market in markets:
            if all(need.market != market for need in choice.quotas):
                yield f"{choice.instance_type}: no {market} quota is known for it"


def _rate(choice: Choice) -> float:
    return choice.price * choice.count


def _left_out(
    fitting: Sequence[Choice], choices: Sequence[Choice], budget: float | None, unit: str
) -> Iterator[Passed]:
    for each in fitting:
        if budget is not None and each.ceiling > budget:
            yield Passed(each.instance_type, f"more than the budget of {budget:g} {unit}", 0)
        elif each not in choices:
            yield Passed(each.instance_type, "dearer", 0)


def _words(passed: Sequence[Passed]) -> list[str]:
    """One line a reason: `g5.xlarge, g5.2xlarge and 6 more: its A10G have 22.4 GB, 40 GB asked`."""
    by_reason: dict[str, list[str]] = {}
    for each in passed:
        by_reason.setdefault(each.text, []).append(each.instance_type)
    return [f"{_some(names)}: {text}" for text, names in by_reason.items()]


def _some(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names) if more <= 1 else f"{', '.join(names[:_NAMED])} and {more} more"


def _unknown_type(name: str, site: AwsSite) -> Exception:
    near = difflib.get_close_matches(name, site.instances, n=1)
    hint = f"Did you mean {near[0]}? " if near else ""
    return fail(
        "request-impossible",
        site.name,
        f"no instance type named {name!r} in the file of {site.name}",
        hint=f"{hint}siteannex sites show {site.name} lists them.",
    )
