"""What a job's conditions add up to: one sentence, what follows from it, and what to do. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from siteannex.annex.planning.plan import OPTIONS
from siteannex.errors import Evidence
from siteannex.model import Request
from siteannex.pool.ads import count_of, gpu_kind, text_of
from siteannex.pool.hold_codes import hold_meaning
from siteannex.pool.matching import Match, Says
from siteannex.pool.words import AP, SUBMIT, Cell, Row
from siteannex.units import format_duration, format_memory, format_when, seconds_between, write_duration, write_memory

Ad = Mapping[str, object]

_NEGOTIATION_S = 120
"""A matching job that waits longer than this waits for something else than the next negotiation cycle."""


@dataclass(frozen=True, slots=True)
class Conclusion:
    """`verdict` is one word for scripts; the rest is for people."""

    verdict: str
    head: str
    so: tuple[str, ...] = ()
    do: tuple[str, ...] = ()
    seen: tuple[Evidence, ...] = ()

    def with_note(self, text: str) -> Conclusion:
        """The same, with one more sentence to its `so`."""
        return replace(self, so=(*self.so, text))

    def lost(self, stranded: tuple[str, Evidence] | None, job_id: str) -> Conclusion:
        """The same of a job that only seems to run."""
        if stranded is None:
            return self
        do = f"condor_hold {job_id} && sleep 5 && condor_release {job_id}   sends it back to the queue at once"
        head = f"{self.head}; HTCondor has lost it"
        return replace(self, verdict="lost", head=head, so=(stranded[0],), do=(do,), seen=(stranded[1],))

    def after(self, stopped: tuple[str, Evidence] | None) -> Conclusion:
        """The same, told after what stopped the job's last run, if something did."""
        return replace(self, so=(stopped[0], *self.so), seen=(stopped[1], *self.seen)) if stopped else self


@dataclass(frozen=True, slots=True)
class Offer:
    """A partition that could bring a slot for the job."""

    site: str
    partition: str
    request: Request
    says: Says

    @property
    def command(self) -> str:
        """What to type."""
        return up_command(self.request)


def up_command(asked: Request) -> str:
    """The `up` that asks for this, defaults left out."""
    standard = Request(name=asked.site, site=asked.site)
    name = f" --name {asked.name}" if asked.name != asked.site else ""
    given = [
        f" --{option}{_value(field, getattr(asked, field))}"
        for field, option in OPTIONS.items()
        if field != "site" and getattr(asked, field) != getattr(standard, field)
    ]
    return f"siteannex up {asked.site}{name}{''.join(given)}"


def _value(field: str, value: object) -> str:
    if value is True:
        return ""
    if field.endswith("_mib"):
        return f" {write_memory(int(str(value)))}"
    return f" {write_duration(int(str(value)))}" if field.endswith("_s") else f" {value}"


def conclude(
    job: Ad,
    job_id: str,
    found: Sequence[Match],
    table: Sequence[Row],
    offers: Sequence[Offer],
    owner: str,
    now: datetime,
) -> Conclusion:
    """Put the answer together. `found` and the cells of `table` go by annex, in the same order."""
    title = f"job {job_id}{_name(job)}"
    if text_of(job, "Owner") != owner:
        return _not_yours(job, title, owner)
    status = count_of(job, "JobStatus")
    if status in _OTHER_STATES:
        return _OTHER_STATES[status](job, job_id, title, now)
    if count_of(job, "JobUniverse") in _ON_THE_AP:
        return Conclusion(
            "local",
            f"{title} runs on this access point itself, not on an annex, and has not started yet",
            so=("the AP starts such jobs (DAGMan, local universe) by its own limits, usually within seconds.",),
            do=("condor_q -better-analyze " + job_id,),
        )
    waited = f"{title}, idle {format_duration(_since(job, now, 'EnteredCurrentStatus', 'QDate'))}"
    target = text_of(job, "TargetAnnexName")
    column = next((at for at, match in enumerate(found) if match.candidate.annex.lower() == target.lower()), None)
    elsewhere = _retarget(job_id, found, table, column)
    if column is None:
        return _no_annex(job_id, waited, target, found, offers, elsewhere)
    match = found[column]
    if match.says is Says.NO:
        return _never(job, job_id, waited, match, table, column, offers, elsewhere)
    return _possible(job, waited, match, table, column, now)


_ON_THE_AP = frozenset({7, 12})
"""JobUniverse of scheduler and local universe."""


def _name(job: Ad) -> str:
    name = text_of(job, "DAGNodeName", "JobBatchName", "JobDescription")
    return f" ({name})" if name else ""


def _since(job: Ad, now: datetime, *attributes: str) -> float:
    at = count_of(job, *attributes)
    return seconds_between(datetime.fromtimestamp(at, UTC), now) if at else 0.0


def _not_yours(job: Ad, title: str, owner: str) -> Conclusion:
    whose = text_of(job, "Owner")
    return Conclusion(
        "not-yours",
        f"{title} is {whose}'s, not yours ({owner})",
        so=(f"EPs that siteannex brings up take only their owner's jobs: yours never run {whose}'s.",),
        do=(f"ask {whose} to run siteannex why on it",),
    )


def _held(job: Ad, job_id: str, title: str, now: datetime) -> Conclusion:
    code, subcode = count_of(job, "HoldReasonCode"), count_of(job, "HoldReasonSubCode")
    hold = hold_meaning(code, subcode)
    seen = Evidence("HoldReason", text_of(job, "HoldReason") or "(none given)")
    number = f"code {code}" + (f", subcode {subcode}" if subcode else "")
    since = format_duration(_since(job, now, "EnteredCurrentStatus"))
    todo = hold.todo or "Read the reason, mend the cause, then condor_release JOB."
    return Conclusion(
        "held",
        f"{title} is held for {since}: it does not run until it is released",
        so=(f"{hold.meaning} ({number}).",),
        do=(todo.replace("JOB", job_id),),
        seen=(seen,),
    )


def _running(job: Ad, _: str, title: str, now: datetime) -> Conclusion:
    where = text_of(job, "RemoteHost") or "a slot"
    annex = text_of(job, "MachineAttrAnnexName0")
    at = f" (annex {annex})" if annex else ""
    lasted = format_duration(_since(job, now, "JobCurrentStartDate", "EnteredCurrentStatus"))
    return Conclusion("running", f"{title} runs on {where}{at} for {lasted}")


def _transferring(job: Ad, _: str, title: str, now: datetime) -> Conclusion:
    return Conclusion("transferring", f"{title} has run and its output is being transferred back")


def _suspended(job: Ad, _: str, title: str, now: datetime) -> Conclusion:
    return Conclusion("suspended", f"{title} is suspended on {text_of(job, 'RemoteHost') or 'its slot'}")


def _leaving(job: Ad, job_id: str, title: str, now: datetime) -> Conclusion:
    return past_story(job, job_id)


_OTHER_STATES: dict[int, Callable[[Ad, str, str, datetime], Conclusion]] = {
    2: _running,
    3: _leaving,
    4: _leaving,
    5: _held,
    6: _transferring,
    7: _suspended,
}
"""By JobStatus (https://htcondor.readthedocs.io/en/latest/codes-other-values/job-status-codes.html)."""


def past_story(job: Ad, job_id: str) -> Conclusion:
    """A job that has left the queue, or is about to."""
    title = f"job {job_id}{_name(job)}"
    if count_of(job, "JobStatus") == 3:
        reason = text_of(job, "RemoveReason")
        seen = (Evidence("RemoveReason", reason),) if reason else ()
        return Conclusion("removed", f"{title} was removed", so=("it will not run: submit it again",), seen=seen)
    how = f"exit code {count_of(job, 'ExitCode')}"
    if job.get("ExitBySignal") is True:
        how = f"killed by signal {count_of(job, 'ExitSignal')}"
    at = count_of(job, "CompletionDate")
    when = f" at {datetime.fromtimestamp(at, UTC).astimezone():%d %b %H:%M}" if at else ""
    annex = text_of(job, "MachineAttrAnnexName0")
    where = f", last on {text_of(job, 'LastRemoteHost')}" if text_of(job, "LastRemoteHost") else ""
    return Conclusion("completed", f"{title} has completed{when}: {how}{where}{f' (annex {annex})' if annex else ''}")


def _no_annex(
    job_id: str, waited: str, target: str, found: Sequence[Match], offers: Sequence[Offer], elsewhere: tuple[str, ...]
) -> Conclusion:
    yours = ", ".join(f"{match.candidate.annex} ({match.candidate.state})" for match in found) or "none"
    if not target:
        return Conclusion(
            "no-target",
            f"{waited}: it names no annex",
            so=(
                "annexes take only jobs that name them in TargetAnnexName; this one waits for other slots of the pool.",
                f"your annexes: {yours}.",
            ),
            do=(f"condor_qedit {job_id} TargetAnnexName '\"NAME\"'", *elsewhere),
        )
    return Conclusion(
        "no-annex",
        f'{waited}: TargetAnnexName = "{target}", but no annex of that name is up or on its way',
        so=(f"only EPs of an annex named {target} take it. Your annexes: {yours}.",),
        do=(*_offered(offers), *elsewhere) or (f"siteannex plan --for {job_id} compares the sites",),
    )


def _offered(offers: Sequence[Offer]) -> tuple[str, ...]:
    fits = {Says.YES: "would fit", Says.UNKNOWN: "may fit: part of it is seen only on the node"}
    return tuple(f"{offer.command}   {fits[offer.says]}" for offer in _one_a_site(offers))


def _one_a_site(offers: Sequence[Offer]) -> list[Offer]:
    """The first offer of each site, sure ones before others, three at most."""
    sure_first = sorted(offers, key=lambda offer: offer.says is not Says.YES)
    return list({offer.site: offer for offer in reversed(sure_first)}.values())[::-1][:3]


def _retarget(job_id: str, found: Sequence[Match], table: Sequence[Row], column: int | None) -> tuple[str, ...]:
    """Annexes that would run the job if it named them."""
    fit = []
    for at, match in enumerate(found):
        other = [cell for row in table if row.kind != "annex" and (cell := row.cells[at]) is not None]
        if at != column and all(cell.says in (Says.YES, Says.BUSY) for cell in other):
            name = match.candidate.annex
            fit.append(f"condor_qedit {job_id} TargetAnnexName '\"{name}\"'   sends it to {name}, which fits")
    return tuple(fit)


_NOT_SIZE = frozenset({"walltime", "draining", "annex", "container", "plug-in"})
"""Refusals that another annex of the same name would not mend."""


def _never(
    job: Ad,
    job_id: str,
    waited: str,
    match: Match,
    table: Sequence[Row],
    column: int,
    offers: Sequence[Offer],
    elsewhere: tuple[str, ...],
) -> Conclusion:
    annex, state = match.candidate.annex, match.candidate.state
    refusals = [(row, cell) for row in table if (cell := row.cells[column]) is not None and cell.says is Says.NO]
    so = tuple(f"{refusal(annex, row, cell, exists=state == 'up')}." for row, cell in refusals)
    do = tuple(
        dict.fromkeys(text for row, cell in refusals if (text := _mend(job, job_id, match, row, cell)) is not None)
    )
    kinds = {row.kind for row, _ in refusals}
    ended = {"walltime", "draining"} & kinds
    own = any(kind.startswith("job ") for kind in kinds)
    head = "nothing that exists or is coming can run it" if not elsewhere else f"{annex} cannot run it"
    return Conclusion(
        "closing" if ended else "never",
        f"{waited}: {f'{annex} takes no new jobs' if ended else head}",
        so=so,
        do=(*do, *elsewhere, *(() if kinds & _NOT_SIZE or own else _replacing(annex, offers))),
    )


def refusal(annex: str, row: Row, cell: Cell, *, exists: bool) -> str:
    """One condition that says no, as half a sentence; `exists`: the slot is there, not only planned."""
    by = {AP: " (your AP adds this)", SUBMIT: " (condor_submit adds this)"}.get(row.by, "")
    if row.kind in ("walltime", "draining", "owner"):
        return f"{annex}: {cell.has}"
    if row.kind == "annex":
        return f"{row.asks} is not {annex}'s name as HTCondor compares it: write it as {cell.has!r}, letter by letter"
    verb = "has" if exists else "will have"
    return f"the job asks {row.asks}{by}; {annex} {verb} {cell.has or 'nothing that meets it'}"


def _mend(job: Ad, job_id: str, match: Match, row: Row, cell: Cell) -> str | None:
    values = match.candidate.ad.values
    site = text_of(values, "SiteannexSite")
    annex = match.candidate.annex
    edits = {
        "memory": ("RequestMemory", str(count_of(values, "TotalSlotMemory", "Memory"))),
        "cpus": ("RequestCpus", str(count_of(values, "TotalSlotCpus", "Cpus"))),
        "gpus": ("RequestGPUs", str(count_of(values, "TotalSlotGPUs", "GPUs"))),
    }
    if row.kind == "gpus" and not count_of(values, "TotalSlotGPUs", "GPUs"):
        return None
    if row.kind in edits:
        name, value = edits[row.kind]
        unit = f"   asks {format_memory(int(value))} instead" if row.kind == "memory" else f"   asks {value} instead"
        return f"condor_qedit {job_id} {name} {value}{unit}"
    if row.kind == "gpu-globalmemorymb" and count_of(job, "GPUsMinMemory"):
        return f"condor_qedit {job_id} GPUsMinMemory {gpu_kind(values)[1]}   if that is enough for it"
    if row.kind == "annex":
        return f"condor_qedit {job_id} TargetAnnexName '\"{annex}\"'"
    if row.kind.startswith("job "):
        if row.by == AP:
            return f"{row.asks}: a rule of your AP; its admin knows it"
        return f"{row.asks} is in your submit file's requirements: change it there (condor_qedit {job_id} Requirements)"
    if row.kind == "container":
        return f"what apptainer said there: siteannex logs {annex}; a site that has it: siteannex sites show SITE"
    if row.kind == "plug-in":
        return f"give the file by plain transfer or https://, or put it there once: siteannex stage {site} FILE"
    if row.kind in ("walltime", "draining"):
        return f"when it has ended: siteannex up {site} --name {annex}"
    return None


def _replacing(annex: str, offers: Sequence[Offer]) -> tuple[str, ...]:
    fit = [offer for offer in _one_a_site(offers) if offer.says is Says.YES]
    if not fit:
        return ("no partition of the sites known here would fit (siteannex sites list): ask for less, or add a site",)
    return tuple(f"siteannex down {annex}, then {offer.command}" for offer in fit)


def _possible(job: Ad, waited: str, match: Match, table: Sequence[Row], column: int, now: datetime) -> Conclusion:
    annex, state = match.candidate.annex, match.candidate.state
    if match.candidate.predicted:
        unknown = [row.asks for row in table if (cell := row.cells[column]) is not None and cell.says is Says.UNKNOWN]
        doubt = (f"seen only on the node: {', '.join(unknown)}.",) if unknown else ()
        return Conclusion(
            "coming",
            f"{waited}: it waits for {annex}, which is {state}",
            so=(f"{annex} will have what it asks.", *doubt) if not unknown else doubt,
            do=(f"siteannex why {annex}   says what {annex} waits for",),
        )
    if match.says is Says.BUSY:
        tight = [row.asks for row in table if (cell := row.cells[column]) is not None and cell.says is Says.BUSY]
        return Conclusion(
            "busy",
            f"{waited}: it fits {annex} and waits for room there",
            so=(f"other jobs of yours have what it asks: {', '.join(tight)}.",),
            do=("wait, or bring a second annex up under another name and target that",),
        )
    return _matched(job, waited, annex, now)


def _matched(job: Ad, waited: str, annex: str, now: datetime) -> Conclusion:
    idle_s = _since(job, now, "EnteredCurrentStatus", "QDate")
    seen: tuple[Evidence, ...] = ()
    if reason := text_of(job, "LastRejMatchReason"):
        at = datetime.fromtimestamp(count_of(job, "LastRejMatchTime"), UTC)
        seen = (Evidence(f"the negotiator, {format_when(at, now)}", reason),)
    starts = count_of(job, "NumShadowStarts", "NumJobStarts")
    if starts:
        return Conclusion(
            "restarts",
            f"{waited}: it fits {annex} and was started {starts} time{'s' if starts > 1 else ''} already",
            so=() if count_of(job, "LastVacateTime") else ("it came back to the queue: its start failed on the node.",),
            do=(f"read the job's own event log; siteannex logs {annex} --file StarterLog",),
            seen=seen,
        )
    if idle_s <= _NEGOTIATION_S:
        return Conclusion(
            "fits",
            f"{waited}: {annex} can run it; it is matched in the next negotiation cycle",
            so=("cycles come once a minute on most pools.",),
            do=("wait a moment, then ask again",),
            seen=seen,
        )
    return Conclusion(
        "fits",
        f"{waited}: {annex} can run it and has not got it",
        so=(
            "every condition is met: the negotiator has not offered it, or the AP cannot reach the node.",
            *(() if seen else ("no negotiator has looked at the job yet: it may not serve this AP's users.",)),
        ),
        do=("siteannex doctor; your pool's admin can see the negotiator's log",),
        seen=seen,
    )
