"""`status`: every annex of this user as the witnesses have it, as values for the screen and for `--json`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from siteannex.annex.events import AnnexState, QueueSeen, What, failure_to_data
from siteannex.annex.judging.judge import judge
from siteannex.annex.judging.verdict import Confidence, Verdict, confidence_text
from siteannex.annex.leasing import as_data as keeper_data
from siteannex.annex.leasing import keeper_of, keeper_text
from siteannex.annex.slurm_site import SlurmSite
from siteannex.annex.store import Annex, Store
from siteannex.annex.watch import adopt, gather, remember_ends
from siteannex.errors import AnnexError, Stage
from siteannex.model import BatchJob, BatchState, JobCounts, KeeperAd, Slot, Witnesses
from siteannex.ports import Pool
from siteannex.units import format_duration, format_memory, format_when


@dataclass(frozen=True, slots=True)
class Row:
    """One annex at one moment."""

    annex: Annex
    verdict: Verdict
    counts: JobCounts
    ends_at: datetime | None
    keeper: KeeperAd | None = None
    """What the keeper of a leased annex last told."""
    trouble: str = ""
    """A witness that could not be asked, in words."""

    @property
    def slots(self) -> list[Slot]:
        """Every slot of the annex, partitionable and dynamic."""
        return [slot for pilot in self.verdict.pilots for slot in pilot.slots]

    @property
    def stage_text(self) -> str:
        """The stage as the table shows it: QUEUE while pending (or when last heard of), FAILED when it failed."""
        if self.verdict.failure is not None:
            return "FAILED"
        if self.resting:
            return "RESTING"
        return "QUEUE" if self.pending or self.remembered else str(self.verdict.stage)

    @property
    def kept(self) -> bool:
        """True while a keeper is heard that has not ended."""
        return self.keeper is not None and not self.keeper.code

    @property
    def resting(self) -> bool:
        """True when no pilot lives and a keeper brings one back once work waits."""
        return self.keeper is not None and self.kept and not self.keeper.pilots and not self.slots

    @property
    def jobs(self) -> list[BatchJob]:
        """The pilots as Slurm has them; empty when it was not asked."""
        return [pilot.job for pilot in self.verdict.pilots if pilot.job is not None]

    @property
    def pending(self) -> bool:
        """True when Slurm was asked and every living pilot waits."""
        living = [job for job in self.jobs if job.state.living]
        return bool(living) and all(job.state is BatchState.PENDING for job in living)

    @property
    def remembered(self) -> list[QueueSeen]:
        """What the queue said of the living pilots when it was last asked; empty when one of them is known better."""
        living = [pilot for pilot in self.verdict.pilots if not pilot.over]
        seen = [pilot.remembered for pilot in living if pilot.remembered is not None and pilot.remembered.waits]
        return seen if len(seen) == len(living) else []


def take_status(
    annexes: Sequence[Annex],
    store: Store,
    pool: Pool,
    now: datetime,
    access_of: Callable[[Annex], SlurmSite | None],
) -> list[Row]:
    """Look at each annex once. `access_of` gives a connection where the site may be asked, else None."""
    counts, keepers = _counts(annexes, pool), _keepers(annexes, pool)
    rows = [_row(annex, store, pool, now, access_of, counts.get(annex.name, JobCounts())) for annex in annexes]
    return [replace(row, keeper=keeper_of(row.annex.plan.annex_id, keepers)) for row in rows]


def _keepers(annexes: Sequence[Annex], pool: Pool) -> list[KeeperAd]:
    leased = any(annex.plan.request.lease is not None for annex in annexes)
    try:
        return pool.keepers() if leased else []
    except AnnexError:
        return []


def _counts(annexes: Sequence[Annex], pool: Pool) -> dict[str, JobCounts]:
    try:
        return pool.job_counts(sorted({annex.name for annex in annexes})) if annexes else {}
    except AnnexError:
        return {}


def _row(
    annex: Annex,
    store: Store,
    pool: Pool,
    now: datetime,
    access_of: Callable[[Annex], SlurmSite | None],
    counts: JobCounts,
) -> Row:
    trouble = ""
    try:
        witnesses = gather(annex, access_of(annex) if not annex.state().ended else None, pool)
    except AnnexError as problem:
        trouble = f"{annex.plan.request.site} was not asked: {problem.failure.summary}"
        witnesses = gather(annex, None, pool)
    if not annex.state().ended:
        trouble = _recorded(lambda: adopt(annex, witnesses)) or trouble
    state = annex.state()
    verdict = judge(annex.plan, state, witnesses, now)
    ready = [pilot.job_id for pilot in verdict.pilots if pilot.ready]
    if not state.ended and not set(ready) <= set(state.ready_ids):
        seen = verdict.text
        trouble = _recorded(lambda: annex.record(Stage.READY, What.SEEN, text=seen, ready=ready)) or trouble
    if not verdict.pilots and state.begun is not None and not state.ended and store.busy(annex.name):
        verdict = replace(verdict, text="a siteannex command is at work on it")
    if witnesses.batch is None and not verdict.ready and _still_believed(state) and not store.busy(annex.name):
        assert state.failure is not None
        verdict = replace(verdict, stage=state.failure.stage, text=state.failure.summary, failure=state.failure)
    if state.ended:
        stage = state.failure.stage if state.failure else Stage.RELEASED
        text = state.failure.summary if state.failure else state.end_text
        verdict = Verdict(stage, text, (), state.failure)
    if witnesses.slots is None:
        trouble = trouble or "the collector was not asked: it does not answer"
    if witnesses.batch is not None and not state.ended:
        told = verdict
        trouble = _recorded(lambda: _remember(annex, told)) or trouble
    return Row(annex, verdict, counts, _ends_at(annex, witnesses), trouble=trouble)


def _recorded(record: Callable[[], None]) -> str:
    """Record; on a full disk what is seen is shown all the same, and this says that it was not kept."""
    try:
        record()
    except AnnexError as problem:
        return f"what is seen now is not recorded: {problem.failure.summary}"
    return ""


def _still_believed(state: AnnexState) -> bool:
    """A failure last seen at the site stands until something else is seen; a refused login says nothing of a pilot."""
    return state.failure is not None and state.failure.stage.order >= Stage.SUBMIT.order


def _remember(annex: Annex, verdict: Verdict) -> None:
    """What Slurm said of an end or a failure is kept: the next look may be without a connection."""
    remember_ends(annex, verdict)
    if verdict.failure is not None and verdict.failure != annex.state().failure:
        annex.record_failure(verdict.failure, ended=False)


def _ends_at(annex: Annex, witnesses: Witnesses) -> datetime | None:
    """The earliest end: by Slurm, else by the pilots' ads, else counted from READY."""
    known = [job.end for job in witnesses.batch or () if job.end is not None and job.state.living]
    known = known or [slot.ends_at for slot in witnesses.slots or () if slot.ends_at is not None]
    return min(known) if known else _ends_by_events(annex)


def _ends_by_events(annex: Annex) -> datetime | None:
    """Without Slurm's word the walltime counts from READY: never later than the real end by more than the start-up."""
    ready_at = annex.state().ready_at
    return ready_at + timedelta(seconds=annex.plan.walltime_s) if ready_at else None


def table(rows: Sequence[Row], now: datetime) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Header and cells of the status table."""
    header = ("ANNEX", "SITE", "STAGE", "PILOTS", "GPUS busy/all", "LEFT", "JOBS run/wait", "NEXT")
    return header, [_cells(row, now) for row in rows]


def _cells(row: Row, now: datetime) -> tuple[str, ...]:
    left = format_duration((row.ends_at - now).total_seconds()) if row.ends_at and row.slots else "-"
    return (
        row.annex.name,
        row.annex.plan.request.site,
        row.stage_text,
        _pilots_text(row),
        _gpus_text(row),
        left,
        f"{row.counts.running}/{row.counts.waiting}" + (f" ({row.counts.held} held)" if row.counts.held else ""),
        _next_text(row, now),
    )


def _pilots_text(row: Row) -> str:
    if not row.verdict.pilots or row.resting:
        return "-"
    words: dict[str, int] = {}
    for pilot in row.verdict.pilots:
        if pilot.failure is not None:
            word = "failed"
        elif pilot.over:
            word = "ended"
        elif pilot.job is not None:
            word = pilot.job.state.lower()
        else:
            waited = pilot.remembered is not None and pilot.remembered.waits
            word = "running" if pilot.slots else "pending" if waited else "submitted"
        words[word] = words.get(word, 0) + 1
    return ", ".join(f"{count} {word}" for word, count in words.items())


def _gpus_text(row: Row) -> str:
    whole = [slot for slot in row.slots if slot.slot_type != "Dynamic"]
    total = sum(slot.total_gpus for slot in whole)
    if not total:
        return "-"
    busy = sum(slot.gpus for slot in row.slots if slot.slot_type == "Dynamic")
    return f"{busy}/{total} {whole[0].gpu_model}".rstrip()


def _next_text(row: Row, now: datetime) -> str:
    if row.verdict.failure is not None:
        return row.verdict.failure.code
    if row.resting:
        return "a pilot comes when jobs wait"
    starts = [job.start for job in row.jobs if job.state is BatchState.PENDING and job.start is not None]
    reasons = ", ".join(dict.fromkeys(job.reason for job in row.jobs if job.reason))
    if starts:
        return f"starts about {format_when(min(starts), now)}" + (f", {reasons}" if reasons else "")
    if row.pending:
        return f"waits, {reasons or 'no reason given yet'}"
    if row.remembered:
        return _remembered_text(row.remembered[0], now)
    if row.verdict.stage is Stage.READY and row.ends_at:
        return f"until {row.ends_at.astimezone():%H:%M}"
    return row.verdict.text if row.verdict.stage in (Stage.DRAIN, Stage.RELEASED) else "not ready yet"


def _remembered_text(seen: QueueSeen, now: datetime) -> str:
    ago = f"seen {format_duration((now - seen.at).total_seconds())} ago"
    if seen.start is not None and seen.start > now:
        return f"starts about {format_when(seen.start, now)}; {seen.text} ({ago})"
    return f"{seen.text} ({ago})"


def advice(rows: Sequence[Row], now: datetime) -> list[str]:
    """Below the table: what to do about each annex that needs something."""
    lines = []
    for row in rows:
        if row.verdict.failure is not None:
            lines.append(f"{row.annex.name}: {row.verdict.failure.summary}. siteannex why {row.annex.name}")
        elif row.resting:
            pass
        elif row.verdict.stage not in (Stage.READY, Stage.RELEASED) and not row.remembered:  # NEXT says that
            lines.append(f"{row.annex.name}: {row.verdict.text}")
        if row.keeper is not None:
            lines.append(f"{row.annex.name}: {keeper_text(row.keeper, now)}")
        if row.verdict.confidence is Confidence.DISPUTED:
            lines.append(f"{row.annex.name}: {confidence_text(row.verdict.confidence, row.verdict.doubt)}")
        if row.trouble:
            lines.append(f"{row.annex.name}: {row.trouble}")
        if row.counts.held:
            lines.append(f"{row.annex.name}: {row.counts.held} held: condor_q -hold says why")
    return lines


def as_data(row: Row) -> dict[str, Any]:
    """Everything the screen has, as JSON values."""
    plan = row.annex.plan
    return {
        "annex": row.annex.name,
        "annex_id": plan.annex_id,
        "site": plan.request.site,
        "stage": str(row.verdict.stage),
        "text": row.verdict.text,
        "confidence": str(row.verdict.confidence),
        "doubt": row.verdict.doubt,
        "failure": failure_to_data(row.verdict.failure) if row.verdict.failure else None,
        "partition": plan.partition,
        "ends_at": row.ends_at.isoformat() if row.ends_at else None,
        "jobs": {"waiting": row.counts.waiting, "running": row.counts.running, "held": row.counts.held},
        "pilots": [
            {
                "job_id": pilot.job_id,
                "stage": str(pilot.stage),
                "text": pilot.text,
                "confidence": str(pilot.confidence),
                "doubt": pilot.doubt,
                "failure": failure_to_data(pilot.failure) if pilot.failure else None,
                "state": str(pilot.job.state) if pilot.job else None,
                "reason": pilot.job.reason if pilot.job else None,
                "node": pilot.job.node if pilot.job else None,
                "start": pilot.job.start.isoformat() if pilot.job and pilot.job.start else None,
                "cancelled_by": pilot.job.cancelled_by if pilot.job else None,
                "queue_seen": _queue_data(pilot.remembered) if pilot.remembered else None,
                "slots": [_slot_data(slot) for slot in pilot.slots],
            }
            for pilot in row.verdict.pilots
        ],
        "keeper": keeper_data(row.keeper) if row.keeper is not None else None,
        "trouble": row.trouble,
    }


def _queue_data(seen: QueueSeen) -> dict[str, Any]:
    return {
        "text": seen.text,
        "at": seen.at.isoformat(),
        "start": seen.start.isoformat() if seen.start else None,
    }


def _slot_data(slot: Slot) -> dict[str, Any]:
    return {
        "name": slot.name,
        "type": slot.slot_type,
        "machine": slot.machine,
        "state": slot.state,
        "activity": slot.activity,
        "cpus": slot.cpus,
        "memory_mib": slot.memory_mib,
        "gpus": slot.gpus,
        "gpu_model": slot.gpu_model,
        "gpu_memory_mib": slot.gpu_memory_mib,
        "total_cpus": slot.total_cpus,
        "total_memory_mib": slot.total_memory_mib,
        "total_gpus": slot.total_gpus,
        "job": slot.job,
    }


def detail_lines(row: Row, now: datetime) -> list[str]:
    """More about one annex: its pilots, then its slots."""
    lines = [""]
    for pilot in row.verdict.pilots:
        job = pilot.job
        slurm = f"{job.state_text or job.state}{f' ({job.reason})' if job.reason else ''}" if job else "not asked"
        times = f", ends {format_when(job.end, now)}" if job and job.end and job.state is BatchState.RUNNING else ""
        lines.append(
            f"job {pilot.job_id} in {row.annex.plan.partition}: {pilot.stage}, {pilot.text}; Slurm: {slurm}{times}"
        )
        if pilot.confidence is not Confidence.DISPUTED or pilot.doubt != row.verdict.doubt:  # told above already
            lines.append(f"  {confidence_text(pilot.confidence, pilot.doubt)}")
    for slot in row.slots:
        gpus = f", {slot.gpus} GPU {slot.gpu_model}".rstrip() if slot.gpus else ""
        job_text = f", job {slot.job}" if slot.job else ""
        size = f"{slot.cpus} CPU, {format_memory(slot.memory_mib)}{gpus}"
        has = "has" if slot.slot_type == "Dynamic" else "free"
        lines.append(f"  {slot.name}: {slot.state}/{slot.activity}, {has} {size}{job_text}")
    return lines
