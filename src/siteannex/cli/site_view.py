"""A site's facts as text for people. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from siteannex.cli.tables import table
from siteannex.site.fields import Sourced
from siteannex.site.kinds import AnySite
from siteannex.site.other_kinds import AwsSite, Instance, OpenStackSite, TargetSite
from siteannex.site.schema import Caps, Gpus, Login, NodeKind, Partition, Site
from siteannex.units import format_duration, format_memory

_CAP_WORDS = {
    "min_nodes_per_job": "at least {} nodes a job",
    "nodes_per_job": "{} nodes a job",
    "nodes_per_user": "{} nodes a user",
    "gpus_per_job": "{} GPUs a job",
    "gpus_per_user": "{} GPUs a user",
    "gpus_per_account": "{} GPUs an account",
    "cores_per_job": "{} cores a job",
    "cores_per_user": "{} cores a user",
    "running_per_user": "{} running",
    "submitted_per_user": "{} queued",
}
_CHARGED = {"gpu_hour": "GPU-h", "core_hour": "core-h", "node_hour": "node-h"}


def show(site: AnySite) -> str:
    """Everything a person asks of a site, without a line break at the end."""
    parts = [
        f"{site.name}: {site.title}",
        *_body(site),
        *_points("doubts", _doubts(site)),
        *_points("notes", site.notes),
        f"verified {site.verified}, {site.confidence or 'confidence not said'}: {site.source}",
    ]
    return "\n".join(parts)


def hints(site: AnySite) -> list[str]:
    """What the author of a valid file may want to look at."""
    unknown = sorted({gpus.model for gpus in _all_gpus(site) if gpus.known is None and gpus.capability is None})
    return [
        *(f"GPU model {model!r} is not in the catalogue: give capability: and bf16:" for model in unknown),
        *(f"doubt: {text}" for text in _doubts(site)),
    ]


def _body(site: AnySite) -> Iterator[str]:
    if isinstance(site, Site):
        return _slurm(site)
    return _target(site) if isinstance(site, TargetSite) else _cloud(site)


def _slurm(site: Site) -> Iterator[str]:
    login = site.login
    port = f":{login.port}" if login.port != 22 else ""
    yield f"login    {login.host}{port}, {_steps(login)}"
    version = f" {site.scheduler.version}" if site.scheduler.version else ""
    yield f"batch    {site.scheduler.kind}{version}, {site.arch}"
    if site.container:
        yield f"images   {site.container.runtime}" + (f" ({site.container.load})" if site.container.load else "")
    yield ""
    rows = [_row(name, facts, kind) for name, facts in site.partitions.items() for kind in facts.nodes]
    heads = ("PARTITION", "SHARING", "NODES", "GPUS/NODE", "GPU MEMORY", "CORES", "MEMORY", "WALLTIME", "CHARGE")
    yield table((*heads, "VERIFIED"), rows)
    yield ""
    yield from _points(
        "limits", [f"{name}: {said}" for name, facts in site.partitions.items() if (said := _caps(facts.caps))]
    )
    yield from _points(
        "for some", [f"{name}: {facts.restricted}" for name, facts in site.partitions.items() if facts.restricted]
    )


def _row(name: str, facts: Partition, kind: NodeKind) -> tuple[str, ...]:
    return (
        name,
        facts.sharing,
        _known(kind.count),
        f"{kind.gpus.per_node} x {kind.gpus.type}" if kind.gpus else "-",
        _size(kind.gpus.memory or kind.gpus.memory_nominal) if kind.gpus else "-",
        _known(kind.cores),
        _size(kind.memory or kind.memory_nominal),
        format_duration(facts.max_walltime) if facts.max_walltime else "?",
        _charge(facts, kind),
        str(facts.verified) + ("?" if facts.confidence == "doubtful" else ""),
    )


def _charge(facts: Partition, kind: NodeKind) -> str:
    charge = facts.charge
    if charge is None:
        return "?"
    factor = kind.charge_factor if kind.charge_factor is not None else charge.factor
    return f"? {charge.unit}" if factor is None else f"{factor:g} {charge.unit}/{_CHARGED[charge.per]}"


def _caps(caps: Caps) -> str:
    said = [
        words.format(value).replace("s a", " a") if value == 1 else words.format(value)
        for key, words in _CAP_WORDS.items()
        if (value := getattr(caps, key)) is not None
    ]
    return ", ".join([*said, *([f"{format_memory(caps.memory_per_job)} a job"] if caps.memory_per_job else [])])


def _steps(login: Login) -> str:
    steps = [" or ".join(step.by) + (" (some users)" if step.optional else "") for step in login.auth]
    return ", then ".join(steps) + f"; keys {login.keys}" if steps else f"keys {login.keys}"


def _target(site: TargetSite) -> Iterator[str]:
    yield "jobs     reach it by what they ask for; there is no annex to bring up"
    yield f"requires {site.requirements or 'nothing'}"
    yield from (f"submit   {line}" for line in site.job_lines)
    yield from (f"GPU jobs {line}" for line in site.gpu_job_lines)
    yield from (f"walltime {name}: {format_duration(limit)}" for name, limit in site.walltimes.items())
    yield f"place    the slot's {site.site_attribute} names it" if site.site_attribute else "place    not known"


def _cloud(site: AwsSite | OpenStackSite) -> Iterator[str]:
    prices = site.prices
    where = f" in {prices.region}" if prices.region else ""
    yield f"prices   {prices.unit} an hour{where}, {prices.confidence or '?'}, of {prices.verified}: {prices.source}"
    yield ""
    yield table(
        ("TYPE", "GPUS", "GPU MEMORY", "VCPUS", "MEMORY", "PRICE"),
        [
            (
                name + (" *" if each.on_request else ""),
                f"{each.gpus.share or each.gpus.count:g} x {each.gpus.model}" if each.gpus else "-",
                _size(each.gpus.memory or each.gpus.memory_nominal) if each.gpus else "-",
                str(each.vcpus),
                format_memory(each.memory),
                "?" if each.price is None else f"{each.price:g}",
            )
            for name, each in site.instances.items()
        ],
    )
    if any(each.on_request for each in site.instances.values()):
        yield "* on request"
    yield ""


def _doubts(site: AnySite) -> list[str]:
    parts: dict[str, Sourced | Instance] = {"": site}
    if isinstance(site, Site):
        parts |= site.partitions
    elif isinstance(site, AwsSite | OpenStackSite):
        parts |= {"prices": site.prices, **site.instances}
    told: dict[str, list[str]] = {}
    for name, facts in parts.items():
        for doubt in facts.doubts:
            told.setdefault(doubt, []).append(name)
    return [(f"{', '.join(names)}: " if any(names) else "") + doubt for doubt, names in told.items()]


def _all_gpus(site: AnySite) -> list[Gpus]:
    return [kind.gpus for kind in site.nodes.values() if kind.gpus] if isinstance(site, Site) else []


def _points(title: str, texts: Sequence[str]) -> Iterator[str]:
    for index, text in enumerate(texts):
        yield f"{title if index == 0 else '':<8} {text}"
    if texts:
        yield ""


def _known(count: int | None) -> str:
    return "?" if count is None else str(count)


def _size(mib: int | None) -> str:
    return "?" if mib is None else format_memory(mib)
