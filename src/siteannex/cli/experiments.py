"""What the `dag` verbs need from around them: site files by name, the epoch runner's file, DAGMan in the queue."""

from __future__ import annotations

from pathlib import Path

from siteannex.cli.settings import site_directories
from siteannex.pool.condor import CondorPool
from siteannex.pool.job_queue import JobQueue
from siteannex.site.loader import load_any, site_files
from siteannex.site.other_kinds import TargetSite
from siteannex.training.places import KnownSite
from siteannex.training.reading import Loaded
from siteannex.training.reading import read_experiment as read_with


def read_experiment(file: Path) -> Loaded:
    """Read and check an experiment file against the site files known here. AnnexError."""
    return read_with(file, known_site, list(site_files(site_directories())))


def known_site(name: str) -> KnownSite | None:
    """What the site file of that name says that binds jobs, None without one. AnnexError(site-invalid)."""
    if name not in site_files(site_directories()):
        return None
    site = load_any(name, site_directories())
    if isinstance(site, TargetSite):
        return KnownSite(annexes=False, requirements=site.requirements, job_lines=site.job_lines)
    return KnownSite(annexes=True)


def dag_lives(cluster: int) -> bool:
    """Whether a DAGMan job is still in the queue. AnnexError(ap-unreachable)."""
    return bool(JobQueue(CondorPool()).by_id(cluster, None))


def annexes_up(names: list[str]) -> list[str]:
    """Those of these annexes that have a slot now. AnnexError(ap-unreachable)."""
    slots = {slot.annex_name.lower() for slot in CondorPool().slots()} if names else set()
    return [name for name in names if name.lower() in slots]
