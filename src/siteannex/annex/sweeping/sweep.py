"""`sweep`: take the inventories, say what is debris, remove it, each thing by the way it would have ended itself.

Beside a concurrent `up`: the sites are asked before our own records are read, and an annex is recorded before anything
of it exists at a site, so what `up` is at work on is known here as living. Everything may be repeated.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from siteannex.annex.ending import Target, end_gently, end_now, ran_s
from siteannex.annex.events import What
from siteannex.annex.judging.judge import judge
from siteannex.annex.slurm_site import SlurmSite
from siteannex.annex.store import Annex, Store
from siteannex.annex.sweeping.debris import HERE, Finding, Kind, Record, debris
from siteannex.annex.sweeping.inventory import SiteInventory, inventory_script, read_inventory
from siteannex.annex.watch import adopt, gather
from siteannex.errors import AnnexError, Stage, StageFailure
from siteannex.model import MarkedAd
from siteannex.ports import AdBoard, Clock, Command, Pool, View
from siteannex.transport.leftovers import Leftover


@dataclass(frozen=True, slots=True)
class Ground:
    """The effects a sweep needs. `local` finds what sessions left on this machine."""

    store: Store
    pool: Pool
    board: AdBoard
    clock: Clock
    view: View
    local: Callable[[], Sequence[Leftover]] = list


@dataclass(frozen=True, slots=True)
class Found:
    """What a sweep saw."""

    findings: tuple[Finding, ...]
    living: int
    """Annexes of ours that live, and are left alone."""
    leftovers: tuple[Leftover, ...] = ()
    troubles: tuple[str, ...] = ()
    """Who could not be asked, in words."""

    @property
    def removable(self) -> tuple[Finding, ...]:
        """What would be removed."""
        return tuple(each for each in self.findings if each.removable)


def look(accesses: Sequence[SlurmSite], ground: Ground) -> Found:
    """Take stock. Changes nothing, but for batch jobs of living annexes that are recorded when they are met."""
    sites, troubles = _sites(accesses)
    ads, origin = _ads(ground, troubles)
    records = _records(ground.store)  # after the inventories: see above
    over = [thing for annex in ground.store.annexes() if (thing := _over(annex, accesses, ground, sites)) is not None]
    left = [*_half_made(ground.store), *ground.local()]
    findings = (
        *debris(records, origin, sites, ads, ground.clock.now()),
        *over,
        *(Finding(Kind.LOCAL, HERE, each.what, "", each.why, removable=True) for each in left),
    )
    living = sum(not record.ended for record in records.values()) - len(over)
    return Found(findings, living, tuple(left), tuple(troubles))


def _sites(accesses: Sequence[SlurmSite]) -> tuple[list[SiteInventory], list[str]]:
    sites, troubles = [], []
    for access in accesses:
        name = access.site.name
        try:
            script = inventory_script(access.site.directories.home)
            text = access.transport.run([Command(script)])[0].stdout
        except AnnexError as problem:
            troubles.append(f"{name} was not asked: {problem.failure.summary}")
            continue
        sites.append(read_inventory(text, name, access.transport.login))
        if sites[-1].jobs is None:
            troubles.append(f"{name}: squeue gives no answer: {sites[-1].complaint or 'it said nothing'}")
    return sites, troubles


def _ads(ground: Ground, troubles: list[str]) -> tuple[list[MarkedAd], str | None]:
    try:
        origin = ground.store.origin(ground.board.schedd_name())
        return ground.board.marked_ads(), origin
    except AnnexError as problem:
        troubles.append(f"HTCondor on this access point was not asked: {problem.failure.summary}")
        return [], None


def _records(store: Store) -> dict[str, Record]:
    return {
        annex.plan.annex_id: Record(annex.plan.annex_id, annex.name, annex.state().ended) for annex in store.annexes()
    }


def _over(
    annex: Annex, accesses: Sequence[SlurmSite], ground: Ground, sites: Sequence[SiteInventory]
) -> Finding | None:
    """An annex whose record was never closed although nothing of it can live any more; None when it may live."""
    state = annex.state()
    if state.ended or ground.store.busy(annex.name):
        return None
    found = Finding(Kind.RECORD, HERE, f"record of {annex.name}", annex.plan.annex_id, removable=True)
    if not state.submit_begun:
        return replace(found, why="interrupted before anything was submitted")
    asked = {each.site for each in sites if each.jobs is not None}
    access = next((each for each in accesses if each.site.name == annex.plan.request.site), None)
    if access is None or access.site.name not in asked or not state.job_ids:
        return None
    why = _end_seen(annex, access, ground)
    return replace(found, why=f"it has ended ({why}) and was never closed") if why else None


def _end_seen(annex: Annex, access: SlurmSite, ground: Ground) -> str:
    """How an annex ended, as its site and the collector show it; "" while anything of it may live."""
    try:
        witnesses = gather(annex, access, ground.pool)
    except AnnexError:
        return ""
    if witnesses.batch is None or any(job.state.living for job in witnesses.batch):
        return ""
    adopt(annex, witnesses)
    verdict = judge(annex.plan, annex.state(), witnesses, ground.clock.now())
    if verdict.failure is not None:
        return f"failed: {verdict.failure.code}"
    return verdict.text if verdict.stage is Stage.RELEASED else ""


def _half_made(store: Store) -> list[Leftover]:
    """Annex directories in which nothing was ever recorded, unless a command is at it just now."""
    return [
        Leftover(str(path), "neither a plan nor an event was written", partial(_remove_half_made, path, store))
        for path in store.unbegun()
        if not store.busy(_name_of(path))
    ]


def _name_of(path: Path) -> str:
    return path.name.rpartition("-")[0]


def _remove_half_made(path: Path, store: Store) -> None:
    with store.lock(_name_of(path), ""):
        if path in store.unbegun():
            shutil.rmtree(path)


def remove(found: Found, accesses: Sequence[SlurmSite], ground: Ground) -> list[StageFailure]:
    """Remove what is removable; what could not be is returned, and the rest is removed all the same."""
    troubles: list[StageFailure] = []
    alive = {key for key, record in _records(ground.store).items() if not record.ended}
    doomed = [each for each in found.removable if each.annex_id not in alive or each.kind is Kind.RECORD]
    for access in accesses:
        here = [each.annex_id for each in doomed if each.place == access.site.name]
        for annex_id in dict.fromkeys(here):
            with _noted(troubles):
                target = Target(annex_id, access.site.name, ground.clock.now())
                end_gently(target, access, ground.clock, ground.view)
                ground.view.line("sweep", f"{access.site.name}: nothing is left of {annex_id}")
    for annex_id in dict.fromkeys(each.annex_id for each in doomed if each.kind is Kind.AD):
        with _noted(troubles):
            ground.board.withdraw_ads(annex_id)
            ground.view.line("sweep", f"collector: the ads of {annex_id} are withdrawn")
    for annex in ground.store.annexes():
        if any(each.kind is Kind.RECORD and each.annex_id == annex.plan.annex_id for each in doomed):
            with _noted(troubles):
                _close(annex, accesses, ground)
    for leftover in found.leftovers:
        with _noted(troubles):
            leftover.remove()
            ground.view.line("sweep", f"removed {leftover.what}")
    return troubles


@contextmanager
def _noted(troubles: list[StageFailure]) -> Iterator[None]:
    try:
        yield
    except AnnexError as problem:
        troubles.append(problem.failure)


def _close(annex: Annex, accesses: Sequence[SlurmSite], ground: Ground) -> None:
    """Close a record, under its name's lock and after one more look."""
    with ground.store.lock(annex.name, annex.plan.request.site):
        state = annex.state()
        if state.ended:
            return
        access = next((each for each in accesses if each.site.name == annex.plan.request.site), None)
        ran: dict[str, float] = {}
        if not state.submit_begun:
            text = "interrupted before anything was submitted"
        elif access is None or not (text := _end_seen(annex, access, ground)):
            return
        else:
            ran = ran_s(end_now(Target.of(annex), access, ground.clock, ground.view))
        annex.record(Stage.RELEASED, What.DONE, text=text, ran=ran)
    ground.view.line("sweep", f"the record of {annex.name} is closed: {text}")


def as_data(found: Found) -> dict[str, Any]:
    """Everything the screen has, as JSON values."""
    return {
        "living": found.living,
        "troubles": list(found.troubles),
        "found": [
            {
                "kind": str(each.kind),
                "place": each.place,
                "what": each.what,
                "annex_id": each.annex_id,
                "why": each.why,
                "removable": each.removable,
            }
            for each in found.findings
        ],
    }
