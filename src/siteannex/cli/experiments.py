"""What the `dag` verbs need from around them: site files by name, the epoch runner's file, DAGMan in the queue."""

from __future__ import annotations

import socket
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from siteannex.annex.planning.plan import choose, plan_of
from siteannex.cli.settings import site_directories
from siteannex.model import Request
from siteannex.pool.condor import CondorPool
from siteannex.pool.job_queue import JobQueue
from siteannex.site.loader import load_any, site_files
from siteannex.site.other_kinds import TargetSite
from siteannex.site.schema import Site
from siteannex.staging.record import Record
from siteannex.training.experiment.places import KnownSite
from siteannex.training.experiment.reading import Loaded
from siteannex.training.experiment.reading import read_experiment as read_with
from siteannex.training.experiment.staged import FindCopy, staged_names, with_copies
from siteannex.transport.places import Places

ANSWER_S = 3.0


def read_experiment(file: Path) -> Loaded:
    """Read and check an experiment file against the site files known here. AnnexError."""
    loaded = read_with(file, known_site, list(site_files(site_directories())))
    if not staged_names(loaded.experiment):
        return loaded
    record = Record.under(Places.from_environment().state)
    find: FindCopy = lambda site, path: record.staged(site, file.parent / path)  # noqa: E731
    return replace(loaded, targets=with_copies(loaded.experiment, loaded.targets, find))


def requests_folder() -> Path:
    """Where DAGs ask for annexes that are not up."""
    return Places.from_environment().state / "requests"


def known_site(name: str) -> KnownSite | None:
    """What the site file of that name says that binds jobs, None without one. AnnexError(site-invalid)."""
    if name not in site_files(site_directories()):
        return None
    site = load_any(name, site_directories())
    if isinstance(site, TargetSite):
        return KnownSite(annexes=False, requirements=site.requirements, job_lines=site.job_lines)
    return KnownSite(annexes=True)


def charge_an_hour(site: str, gpus: int, cpus: int | None, memory_mib: int | None) -> tuple[float, str] | None:
    """What one job of this size costs an hour at a site at most, and the unit; None where that is not known."""
    if site not in site_files(site_directories()) or not isinstance(facts := load_any(site, site_directories()), Site):
        return None
    asked = Request(site, site, gpus=gpus, nodes=1, cpus=cpus, memory_mib=memory_mib, lifetime_s=3600)
    choice = choose(asked, facts)
    if not choice.fits:
        return None
    plan = plan_of(asked, facts, choice, annex_id="", today=datetime.now(UTC).date())
    return None if plan.charge is None else (plan.charge, plan.charge_unit)


def answers(url: str) -> bool:
    """Whether something listens where a URL points, as seen from here."""
    parts = urlsplit(url)
    try:
        port = parts.port or {"http": 80}.get(parts.scheme, 443)
        with socket.create_connection((parts.hostname or "", port), timeout=ANSWER_S):
            return True
    except (OSError, ValueError):
        return False


def dag_lives(cluster: int) -> bool:
    """Whether a DAGMan job, or a job of its, is still in the queue. AnnexError(ap-unreachable)."""
    return bool(JobQueue(CondorPool()).of_dag(cluster))


def annexes_up(names: list[str]) -> list[str]:
    """Those of these annexes that have a slot now. AnnexError(ap-unreachable)."""
    slots = {slot.annex_name.lower() for slot in CondorPool().slots()} if names else set()
    return [name for name in names if name.lower() in slots]
