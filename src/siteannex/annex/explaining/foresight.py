"""Before spending: can the jobs that wait for an annex ever run on the slots its plan will bring?"""

from __future__ import annotations

from collections import Counter

from siteannex.annex.explaining.why_words import refusal
from siteannex.errors import AnnexError
from siteannex.model import Plan, PoolFacts
from siteannex.pool.ads import count_of
from siteannex.pool.job_queue import Demand, JobQueue
from siteannex.pool.matching import Candidate, Says
from siteannex.pool.predicted import ApWords, predicted_slot
from siteannex.pool.words import rows
from siteannex.site.schema import Site

_MOST_REASONS = 4


def foresee(queue: JobQueue, plan: Plan, site: Site, facts: PoolFacts) -> tuple[str, ...]:
    """Lines of warning, in the words of `why`; empty when nothing speaks against it or nobody waits.

    A queue that cannot be asked is no reason not to bring an annex up.
    """
    name = plan.request.name
    try:
        waiting = queue.waiting_for(name)
        if not waiting:
            return ()
        [ad] = queue.read([predicted_slot(plan, site, ApWords(facts.identity, facts.cm_version))])
        refusals = [_refusals(queue, each, Candidate(name, "planned", ad, predicted=True)) for each in waiting]
    except (AnnexError, ValueError):
        return ()
    total = sum(each.count for each in waiting)
    never = [(each, why) for each, why in zip(waiting, refusals, strict=True) if why]
    count = sum(each.count for each, _ in never)
    if not count:
        return ()
    return (_headline(name, count, total), *_reasons(never), f"siteannex why {_first_id(never[0][0])} says more")


def _headline(name: str, count: int, total: int) -> str:
    if count == total:
        jobs = "the one job of yours that waits" if total == 1 else f"none of your {total} jobs that wait"
        verb = "can never run" if total == 1 else "can ever run"
        return f"warning: {jobs} for {name} {verb} on these slots"
    return f"warning: {count} of your {total} jobs that wait for {name} can never run on these slots"


def _refusals(queue: JobQueue, demand: Demand, candidate: Candidate) -> tuple[str, ...]:
    [match] = queue.match(demand.job, [candidate])
    if match.says is not Says.NO:
        return ()
    return tuple(
        refusal(candidate.annex, row, cell, exists=False)
        for row in rows(demand.job.values, [match])
        if (cell := row.cells[0]) is not None and cell.says is Says.NO
    )


def _reasons(never: list[tuple[Demand, tuple[str, ...]]]) -> list[str]:
    counts: Counter[str] = Counter()
    for demand, texts in never:
        counts.update(dict.fromkeys(texts, demand.count))
    shown = [f"{text} ({count} job{'s' if count > 1 else ''})" for text, count in counts.most_common(_MOST_REASONS)]
    left = len(counts) - len(shown)
    return [*shown, *([f"and {left} reasons more"] if left > 0 else [])]


def _first_id(demand: Demand) -> str:
    return f"{count_of(demand.job.values, 'ClusterId')}.{count_of(demand.job.values, 'ProcId')}"
