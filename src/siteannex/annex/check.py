"""A site file against the live site: two round trips, nothing is changed there."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date

from siteannex.annex.bundle import drain_notice_s
from siteannex.annex.planning.plan import choose, plan_of
from siteannex.errors import Evidence
from siteannex.failures import fail
from siteannex.model import Request
from siteannex.ports import Command, Transport
from siteannex.scheduler.cluster import Cluster, cluster_script, read_cluster
from siteannex.scheduler.draft import Seen
from siteannex.scheduler.drift import Drift, drifts
from siteannex.scheduler.slurm import submit_options
from siteannex.scheduler.starts import Trial, read_outlook, starts_script
from siteannex.site.schema import Partition, Site

_TRIAL_S = 600
_MOST_TRIALS = 40


def look_at(transport: Transport, site: str) -> Cluster:
    """What the cluster says of itself. AnnexError(site-not-understood) when that is no Slurm, or an answer cut off."""
    answer = transport.run([Command(cluster_script())])[0]
    cluster = read_cluster(answer.stdout)
    if cluster is None:
        seen = Evidence.tail(
            f"scontrol and sinfo at {site}, exit status {answer.status}", answer.stdout + answer.stderr
        )
        raise fail("site-not-understood", site, f"{site} does not describe its partitions", evidence=[seen])
    return cluster


def check_site(
    site: Site, transport: Transport, *, account: str | None, today: date
) -> tuple[Cluster, tuple[Drift, ...]]:
    """The live site, and every difference from its file. AnnexErrors of `look_at` and of the connection."""
    cluster = look_at(transport, site.name)
    trials = _try_gpu_requests(site, cluster, transport, account, today)
    seen = Seen(today, f"siteannex sites check {site.name}, {today.isoformat()}")
    return cluster, drifts(site, cluster, seen, account=account, trials=trials)


def _try_gpu_requests(
    site: Site, cluster: Cluster, transport: Transport, account: str | None, today: date
) -> Mapping[str, Trial]:
    """Whether each GPU partition takes the file's spelling of a GPU request, by `sbatch --test-only`."""
    charged = account or site.account
    if cluster.accounts and charged not in cluster.accounts:
        charged = cluster.accounts[0]  # an account that is gone is told by itself
    tries = {
        name: options
        for name, facts in site.partitions.items()
        if name in cluster.partitions
        and facts.max_gpus_per_node
        and (options := _options(site, name, facts, charged, today)) is not None
    }
    if not tries:
        return {}
    few = dict(list(tries.items())[:_MOST_TRIALS])
    return read_outlook(transport.run([Command(starts_script([], next(iter(few)), few))])[0].stdout).trials


def _options(site: Site, name: str, facts: Partition, account: str | None, today: date) -> tuple[str, ...] | None:
    longest = min(facts.max_walltime or _TRIAL_S, _TRIAL_S)
    request = Request("check", site.name, gpus=1, partition=name, account=account, lifetime_s=longest)
    choice = choose(request, site)
    if not choice.fits:
        return None
    plan = plan_of(request, site, choice, annex_id="siteannex-check", today=today)
    return submit_options(plan, facts, drain_notice_s=drain_notice_s(plan))
