"""Ask a site's scheduler when a plan's pilots would start; nothing is submitted."""

from __future__ import annotations

from siteannex.annex.bundle import drain_notice_s
from siteannex.model import Plan
from siteannex.ports import Command, Transport
from siteannex.scheduler.slurm import submit_options
from siteannex.scheduler.starts import Trial, read_outlook, starts_script
from siteannex.site.schema import Site


def try_start(plan: Plan, site: Site, transport: Transport) -> Trial | None:
    """`sbatch --test-only` with the options of one pilot; None when the site says nothing of it. One round trip."""
    options = submit_options(plan, site.partitions[plan.partition], drain_notice_s=drain_notice_s(plan))
    answer = transport.run([Command(starts_script([], plan.partition, {plan.partition: options}))])[0]
    return read_outlook(answer.stdout).trials.get(plan.partition)
