"""Why a HTCondor job is not running: its conditions against the slots that exist and those annexes will bring."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from siteannex.annex.explaining.evicted import evicted, stranded
from siteannex.annex.explaining.why_words import Conclusion, Offer, conclude, past_story
from siteannex.annex.planning.suiting import try_everywhere
from siteannex.annex.store import Annex, Store
from siteannex.errors import Evidence
from siteannex.failures import fail
from siteannex.pool.ads import IDLE, count_of, text_of
from siteannex.pool.job_queue import JobQueue
from siteannex.pool.matching import Candidate, FullAd, Match, Says, best_of_each_annex
from siteannex.pool.predicted import predicted_slot
from siteannex.pool.words import Row, rows
from siteannex.ports import Clock
from siteannex.site.schema import Site

_JOB_ID = re.compile(r"(\d{1,9})(?:\.(\d{1,9}))?")


@dataclass(frozen=True, slots=True)
class Desk:
    """Where `why` looks."""

    queue: JobQueue
    store: Store
    clock: Clock
    sites: Callable[[], Sequence[Site]]
    """Every site whose file can be read."""


@dataclass(frozen=True, slots=True)
class JobStory:
    """The answer about one job."""

    job_id: str
    conclusion: Conclusion
    matches: tuple[Match, ...] = ()
    rows: tuple[Row, ...] = ()
    offers: tuple[Offer, ...] = ()
    others: Mapping[str, int] | None = None
    """Jobs of the same cluster (or DAG node) by JobStatus, when there are several."""


def is_job_id(text: str) -> bool:
    """`4711` or `4711.0`."""
    return _JOB_ID.fullmatch(text) is not None


def why_job(text: str, desk: Desk) -> JobStory:
    """Explain the job of that id, of a cluster the first that waits. AnnexError(job-unknown)."""
    found = _JOB_ID.fullmatch(text)
    assert found is not None
    cluster, process = int(found[1]), int(found[2]) if found[2] else None
    jobs = desk.queue.by_id(cluster, process)
    if jobs:
        return _explain(jobs, desk)
    past = desk.queue.past(cluster, process)
    if past is not None:
        stopped = evicted(past, desk.store.annexes(), desk.clock.now())
        return JobStory(_id_of(past), past_story(past, _id_of(past)).after(stopped))
    seen = Evidence("condor_q and condor_history", f"no job {text}")
    raise fail("job-unknown", "", f"no job {text} is in this AP's queue or history", evidence=[seen])


def job_of(text: str, queue: JobQueue) -> FullAd:
    """The job of that id in the queue. AnnexError(job-unknown)."""
    found = _JOB_ID.fullmatch(text)
    jobs = queue.by_id(int(found[1]), int(found[2]) if found[2] else None) if found else []
    if not jobs:
        raise fail("job-unknown", "", f"no job {text} is in this AP's queue")
    return jobs[0]


def why_node(name: str, desk: Desk) -> JobStory | None:
    """Explain the job in the queue that is the DAG node of that name; None when there is none."""
    jobs = desk.queue.by_node(name)
    return _explain(jobs, desk) if jobs else None


def _explain(jobs: Sequence[FullAd], desk: Desk) -> JobStory:
    job = min(jobs, key=lambda each: (count_of(each.values, "JobStatus") != IDLE, count_of(each.values, "ProcId")))
    statuses = [str(count_of(each.values, "JobStatus")) for each in jobs]
    others = {status: statuses.count(status) for status in sorted(set(statuses))} if len(jobs) > 1 else None
    job_id, now = _id_of(job.values), desk.clock.now()
    if count_of(job.values, "JobStatus") != IDLE or text_of(job.values, "Owner") != desk.queue.owner():
        conclusion = conclude(job.values, job_id, (), (), (), desk.queue.owner(), now)
        if conclusion.verdict == "running":
            conclusion = conclusion.lost(stranded(job.values, desk.store.annexes(), now), job_id)
        return JobStory(job_id, conclusion, others=others)
    found = best_of_each_annex(desk.queue.match(job, candidates(desk)))
    table = rows(job.values, found, desk.queue.ap_words())
    offers = () if _targeted_fits(job, found) else _offers(job, desk)
    stopped = evicted(job.values, desk.store.annexes(), now)
    conclusion = conclude(job.values, job_id, found, table, offers, desk.queue.owner(), now).after(stopped)
    if conclusion.verdict == "fits" and desk.queue.negotiates() is False:
        conclusion = conclusion.with_note("no negotiator serves this pool: only EPs that joined directly get jobs")
    return JobStory(job_id, conclusion, tuple(found), tuple(table), offers, others)


def _targeted_fits(job: FullAd, found: Sequence[Match]) -> bool:
    target = text_of(job.values, "TargetAnnexName").lower()
    return any(match.candidate.annex.lower() == target and match.says is not Says.NO for match in found)


def candidates(desk: Desk) -> list[Candidate]:
    """The slots that exist, then one for each annex on its way."""
    up = [Candidate(text_of(ad.values, "AnnexName"), "up", ad) for ad in desk.queue.slots()]
    there = {each.annex.lower() for each in up}
    coming = [annex for annex in _newest(desk.store) if annex.name.lower() not in there and _coming(annex)]
    return up + _predicted(coming, desk)


def _newest(store: Store) -> list[Annex]:
    return list({annex.name.lower(): annex for annex in store.annexes()}.values())


def _coming(annex: Annex) -> bool:
    state = annex.state()
    return not state.ended and state.ready_at is None and (state.failure is None or bool(state.job_ids))


def _predicted(annexes: Sequence[Annex], desk: Desk) -> list[Candidate]:
    sites = {site.name: site for site in desk.sites()} if annexes else {}
    known = [annex for annex in annexes if annex.plan.request.site in sites]
    ap = desk.queue.ap() if known else None
    texts = [predicted_slot(annex.plan, sites[annex.plan.request.site], ap) for annex in known if ap is not None]
    states = ["pending" if annex.state().job_ids else "planned" for annex in known]
    return [
        Candidate(annex.name, state, ad, predicted=True)
        for annex, state, ad in zip(known, states, desk.queue.read(texts), strict=True)
    ]


def _offers(job: FullAd, desk: Desk) -> tuple[Offer, ...]:
    """What `up` could bring that fits: every site's partitions, tried with the job's own request."""
    tried = try_everywhere(job, desk.queue, desk.sites(), desk.clock.now().date())
    return tuple(
        Offer(each.site.name, each.plan.partition, each.request, each.match.says)
        for each in tried
        if each.match.says in (Says.YES, Says.UNKNOWN)
    )


def _id_of(job: Mapping[str, object]) -> str:
    return f"{count_of(job, 'ClusterId')}.{count_of(job, 'ProcId')}"


def as_data(story: JobStory) -> dict[str, Any]:
    """Everything the screen has and the expressions behind it, as JSON values."""
    end = story.conclusion
    return {
        "job": story.job_id,
        "verdict": end.verdict,
        "head": end.head,
        "so": list(end.so),
        "do": list(end.do),
        "seen": [{"source": each.source, "text": each.text} for each in end.seen],
        "same_cluster": dict(story.others) if story.others else None,
        "annexes": [
            {"annex": match.candidate.annex, "state": match.candidate.state, "says": str(match.says)}
            for match in story.matches
        ],
        "conditions": [
            {
                "kind": row.kind,
                "asks": row.asks,
                "written_by": row.by,
                "expressions": list(row.conditions),
                "says": [None if cell is None else str(cell.says) for cell in row.cells],
                "has": [None if cell is None else cell.has for cell in row.cells],
            }
            for row in story.rows
        ],
        "offers": [
            {"site": each.site, "partition": each.partition, "says": str(each.says), "command": each.command}
            for each in story.offers
        ],
    }
