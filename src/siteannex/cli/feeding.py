"""What waits for annexes: the AP's queue, what DAGs have asked for, and experiment files; and which annexes stand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from siteannex.annex.planning.demand import Need, Wanted, judged, need_of, standing, wanted
from siteannex.annex.planning.ledger import account_of, price
from siteannex.annex.planning.sizing import Bounds, Sized, sized
from siteannex.annex.planning.suiting import try_everywhere
from siteannex.annex.status import Row, take_status
from siteannex.cli.wiring import Wiring
from siteannex.errors import AnnexError
from siteannex.pool.matching import Says
from siteannex.site.loader import site_files
from siteannex.site.schema import Site


def _in_queue(wiring: Wiring, *, whole: bool) -> list[Need]:
    """`whole`: with their sizes."""
    return [need for each in wiring.queue().waiting(whole=whole) if (need := need_of(each)) is not None]


def pending_needs(wiring: Wiring, *, whole: bool) -> list[Need]:
    """What idle jobs ask for, and DAGs that run. AnnexError(ap-unreachable)."""
    return [*_in_queue(wiring, whole=whole), *(need for _, need in _announced(wiring))]


def forget_requests(wiring: Wiring, standing: Iterable[str]) -> None:
    """Remove the requests of DAGs that are gone, and those for annexes (in lower case) that stand."""
    from siteannex.training.experiment.requests import read_requests

    there = set(standing)
    live = {path for path, need in _announced(wiring) if need.annexes[0].lower() not in there}
    for each in read_requests(wiring.places.state / "requests"):
        if each.path not in live:
            each.path.unlink(missing_ok=True)


def _announced(wiring: Wiring) -> list[tuple[Path, Need]]:
    """What DAGs that are still in the queue (or do not say which they are) have asked for."""
    from siteannex.training.experiment.requests import read_requests

    found = read_requests(wiring.places.state / "requests")
    runs = {dag: bool(wiring.queue().by_id(dag, None)) for dag in {each.asked.dag for each in found} if dag}
    return [
        (each.path, _need(each.asked.annex, asdict(each.asked.need)))
        for each in found
        if runs.get(each.asked.dag, True)
    ]


def _need(annex: str, data: Mapping[str, Any]) -> Need:
    """What an experiment's jobs want of an annex (`matrix.AnnexNeed` as JSON, of this version or an older one)."""
    return Need(
        annexes=(annex,),
        jobs=max(1, int(data.get("at_once") or 1)),
        waiting=False,
        site=site if (site := data.get("site")) in _known_sites() else None,
        gpus=int(data.get("gpus") or 0),
        cpus=int(data.get("cpus") or 1),
        memory_mib=int(data.get("memory_mib") or 0),
        gpu_memory_mib=data.get("gpu_memory_mib"),
        gpu_capability=data.get("gpu_capability"),
        longest_s=data.get("walltime_s"),
    )


def experiment_needs(file: Path) -> list[Need]:
    """What an experiment will ask for, from its file. AnnexErrors of reading it."""
    from siteannex.cli.experiments import read_experiment
    from siteannex.training.experiment.matrix import matrix

    loaded = read_experiment(file)
    found = matrix(loaded.experiment, loaded.targets)
    return [_need(annex, asdict(need)) for annex, need in found.annexes.items()]


def site_names(wiring: Wiring) -> dict[str, str]:
    """Annex name in lower case -> the site file it goes with: its own name's, what an experiment said, its last one."""
    from siteannex.training.experiment.submission import Records

    files = _known_sites()
    known = {name.lower(): name for name in files}
    for record in Records(wiring.places.state, wiring.clock).all():
        said = {annex.lower(): str(need.get("site")) for annex, need in record.annexes.items()}
        known |= {annex: site for annex, site in said.items() if site in files}
    return known | {annex.name.lower(): annex.plan.request.site for annex in wiring.store.annexes()}


def _known_sites() -> frozenset[str]:
    from siteannex.cli.settings import site_directories

    return frozenset(site_files(site_directories()))


def annexes_standing(names: Sequence[str]) -> dict[str, str]:
    """Those of these annexes that are up or coming, or must be looked after, and how they stand. AnnexErrors."""
    from siteannex.cli.screen import make_screen

    stand = standing(rows_of(Wiring(make_screen(json_output=True))))
    return {name: stand[name.lower()] for name in names if name.lower() in stand}


def rows_of(wiring: Wiring) -> list[Row]:
    """The newest annex of each name, without a connection."""
    newest = {annex.name.lower(): annex for annex in wiring.store.annexes()}
    return take_status(list(newest.values()), wiring.store, wiring.pool, wiring.clock.now(), lambda _: None)


def wanted_beside(rows: Sequence[Row], wiring: Wiring) -> tuple[Wanted, ...]:
    """The annexes that something waits for and that are not among these, without the sizes of jobs. AnnexErrors."""
    needs = pending_needs(wiring, whole=False)
    return wanted(needs, standing(rows), site_names(wiring)) if needs else ()


def sizes(
    found: Iterable[Wanted], bounds: Bounds, budget: float | None, wiring: Wiring
) -> list[tuple[Sized, Site | None]]:
    """A plan for each; those at one site share what its budget and this command's `budget` leave there."""
    left: dict[str, dict[str, float]] = {}
    answers: list[tuple[Sized, Site | None]] = []
    for each in found:
        try:
            site = wiring.site(each.site) if each.site is not None else None
        except AnnexError as problem:
            answers.append((Sized(each, None, reason=problem.failure.summary), None))
            continue
        if site is None:
            answers.append((Sized(each, None), None))
            continue
        there = left.setdefault(site.name, _left(site, budget, wiring))
        own = replace(bounds, left=there, account=bounds.account or wiring.settings.of(site.name).account)
        answer = sized(_matched(each, site, wiring), site, own, wiring.clock.now().date())
        if answer.plan is not None:
            amount, unit = price(answer.plan)
            there.update({unit: there[unit] - amount} if unit in there else {})
        answers.append((answer, site))
    return answers


def _left(site: Site, budget: float | None, wiring: Wiring) -> dict[str, float]:
    """By unit, what may still be reserved at a site; only where there is a limit."""
    own = wiring.settings.of(site.name).budget
    cap = own if own is not None else site.defaults.budget
    charged = {facts.charge.unit for facts in site.partitions.values() if facts.charge is not None}
    records, now = wiring.store.records(), wiring.clock.now()
    found = {}
    for unit in {*charged, "GPU-h", "core-h"}:
        limits = (account_of(site.name, unit, records, now, cap).left, budget)
        if known := [limit for limit in limits if limit is not None]:
            found[unit] = min(known)
    return found


def _matched(each: Wanted, site: Site, wiring: Wiring) -> Wanted:
    """The same, each need with the partitions whose slots HTCondor would match."""
    return replace(each, needs=tuple(_match(need, site, wiring) for need in each.needs))


def _match(need: Need, site: Site, wiring: Wiring) -> Need:
    if need.job is None:
        return need
    with suppress(AnnexError):
        tried = try_everywhere(
            need.job,
            wiring.queue(),
            [site],
            wiring.clock.now().date(),
            gpu_memory_mib=need.gpu_memory_mib,
            gpu_capability=need.gpu_capability,
        )
        # Nothing with room at all is told by the planner, with the fact that forbids it.
        return (
            judged(need, [each.plan.partition for each in tried if each.match.says is not Says.NO]) if tried else need
        )
    return need
