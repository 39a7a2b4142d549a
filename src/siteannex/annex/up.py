"""`up`: plan -> pack -> connect -> ship -> submit -> watch. One straight line, safe to run again at any point."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date

from siteannex.annex.bundle import bundle_archive, drain_notice_s, render_bundle
from siteannex.annex.events import AnnexState, What
from siteannex.annex.judge import Verdict, judge
from siteannex.annex.packing import check_versions
from siteannex.annex.plan import differences, plan_annex
from siteannex.annex.slurm_site import SlurmSite
from siteannex.annex.store import Annex, Store
from siteannex.annex.watch import Watcher, adopt, gather
from siteannex.errors import AnnexError, Evidence, Secret, Stage
from siteannex.failures import fail
from siteannex.model import EpSoftware, Plan, PoolFacts, Request
from siteannex.ports import Clock, Pool, Transport, View
from siteannex.scheduler import slurm
from siteannex.site.schema import Site
from siteannex.units import format_bytes, format_duration, format_memory, format_when

TOKEN_MARGIN_S = 3600
"""How much longer than the walltime a token lives; the time in the queue comes on top."""
TOKEN_QUEUE_S = 7 * 86400
"""A pilot may wait this long in the queue and still join; the token is deleted with the annex."""


@dataclass(frozen=True, slots=True)
class Tools:
    """The effects `up` needs, built in the command line."""

    store: Store
    clock: Clock
    view: View
    pool: Pool
    pack: Callable[[Site], EpSoftware]
    connect: Callable[[Site], Transport]
    held: Callable[[Site], Transport | None]
    """The connection of a held session, or None; never asks anybody."""
    new_id: Callable[[str], str]


def up(request: Request, site: Site, tools: Tools, *, wait: bool = True) -> tuple[Annex, Verdict | None]:
    """Bring an annex up, or go on with the one of that name. Returns it with the last verdict (None without wait)."""
    with tools.store.lock(request.name, site.name):
        annex, access = _living(request, site, tools)
        if annex is None or not annex.state().job_ids:
            facts = tools.pool.facts(request.join)
            annex = annex or _plan(request, site, tools)
            _tell_plan(annex.plan, facts, tools)
            access = _deliver(annex, site, facts, tools)
        else:
            living = f"{annex.name} lives already (annex {annex.plan.annex_id}); nothing is submitted twice"
            tools.view.line("plan", living)
        if not wait:
            return annex, None
        return annex, _watch(annex, access, tools)


def _living(request: Request, site: Site, tools: Tools) -> tuple[Annex | None, SlurmSite | None]:
    """The annex of that name that still lives, with the connection if one was needed to know. (None, None) if none.

    One that never reached SUBMIT, or whose pilots have all ended (idle, walltime), is closed and forgotten.
    """
    annex = tools.store.living(request.name)
    if annex is None:
        return None, None
    if not annex.state().submit_begun:
        annex.record(Stage.RELEASED, What.DONE, text="interrupted before anything was submitted")
        return None, None
    access = None
    if annex.state().job_ids and _look(annex, None, tools).stage is not Stage.READY:
        access = _connect(annex, site, tools)
        verdict = _look(annex, access, tools)
        if verdict.stage is Stage.RELEASED:
            access.release(annex.plan.annex_id, ())
            annex.record(Stage.RELEASED, What.DONE, text=verdict.text)
            tools.view.line("plan", f"the last {annex.name} has ended: {verdict.text}")
            return None, None
    if annex.plan.request != request:
        words = differences(request, annex.plan.request)
        seen = Evidence(f"annex {annex.plan.annex_id}", "\n".join(words))
        raise fail("request-differs", site.name, f"{request.name} lives and was asked for differently", evidence=[seen])
    return annex, access


def _look(annex: Annex, access: SlurmSite | None, tools: Tools) -> Verdict:
    return judge(annex.plan, annex.state(), gather(annex, access, tools.pool), tools.clock.now())


def _plan(request: Request, site: Site, tools: Tools) -> Annex:
    plan = plan_annex(request, site, annex_id=tools.new_id(request.name), today=tools.clock.now().date())
    return tools.store.create(plan)


def dry_run(request: Request, site: Site, today: date) -> tuple[Plan, tuple[str, ...]]:
    """The plan and the sbatch options it would use; no effect at all."""
    plan = plan_annex(request, site, annex_id=f"{request.name}-dryrun", today=today)
    return plan, _options(plan, site)


def _options(plan: Plan, site: Site) -> tuple[str, ...]:
    return slurm.submit_options(plan, site.partitions[plan.partition], drain_notice_s=drain_notice_s(plan))


def _tell_plan(plan: Plan, facts: PoolFacts, tools: Tools) -> None:
    tools.view.line("plan", plan_text(plan))
    tools.view.line("", f"ceiling {ceiling_text(plan)}; {'; '.join(plan.notes)}")
    if facts.join == "direct":
        tools.view.line(
            "", "joins by direct attach: its token could also submit jobs as you; it is deleted with the annex"
        )


def plan_text(plan: Plan) -> str:
    """`lab, partition gpu-shared: 1 pilot x 2 a100 (8 cores, 30 GB), 1 h, account abc123`."""
    gpus = f" x {plan.shape.gpus} {plan.shape.gpu_type}" if plan.shape.gpus else ""
    pilots = f"{plan.pilots} pilot{'s' if plan.pilots > 1 else ''}{gpus}"
    size = f"{plan.shape.cpus} cores, {format_memory(plan.shape.memory_mib)}"
    account = f", account {plan.account}" if plan.account else ""
    where = f"{plan.request.site}, partition {plan.partition}"
    return f"{where}: {pilots} ({size}), {format_duration(plan.walltime_s)}{account}"


def ceiling_text(plan: Plan) -> str:
    """The most the plan can cost: `2 GPU-h`, or core-hours without GPUs."""
    return f"{plan.ceiling_gpu_hours:g} GPU-h" if plan.shape.gpus else f"{plan.ceiling_core_hours:g} core-h"


def _deliver(annex: Annex, site: Site, facts: PoolFacts, tools: Tools) -> SlurmSite:
    """Pack, connect, ship, submit. A failure is recorded; before SUBMIT nothing of the annex is left behind it."""
    try:
        software = _pack(annex, site, facts, tools)
        access = _connect(annex, site, tools)
        if annex.state().submit_begun and _adopted(annex, access, tools):
            return access
        _ship(annex, access, software, tools)
        _submit(annex, access, software, facts, tools)
    except AnnexError as problem:
        state = annex.state()
        refused = problem.failure.stage is Stage.SUBMIT and problem.failure.code != "submit-uncertain"
        annex.record_failure(problem.failure, ended=refused or not state.submit_begun)
        raise
    return access


def _pack(annex: Annex, site: Site, facts: PoolFacts, tools: Tools) -> EpSoftware:
    software = tools.pack(site)
    check_versions(software, facts.cm_version, site.arch, site=site.name)
    annex.record(Stage.PACK, What.DONE, sha256=software.sha256, version=software.version, size=software.size_bytes)
    size = format_bytes(software.size_bytes)
    tools.view.line("pack", f"EP {software.version} {software.arch}, {size}")
    return software


def _connect(annex: Annex, site: Site, tools: Tools) -> SlurmSite:
    annex.record(Stage.CONNECT, What.BEGIN)
    transport = tools.held(site)
    if transport is not None:
        tools.view.line("connect", f"{transport.login}: session held, nothing to type")
    else:
        transport = tools.connect(site)
        kept = f"; session kept (siteannex logout {site.name} ends it)" if site.session.persist else ""
        tools.view.line("connect", f"{transport.login}: logged in{kept}")
    annex.record(Stage.CONNECT, What.DONE, login=transport.login)
    return SlurmSite(site, transport)


def _adopted(annex: Annex, access: SlurmSite, tools: Tools) -> bool:
    """True when every pilot of an interrupted submission is found at the site."""
    adopt(annex, gather(annex, access, tools.pool))
    found = annex.state().job_ids
    if found:
        tools.view.line("submit", f"found what an interrupted up had submitted: job {', '.join(found)}")
    return len(found) >= annex.plan.pilots


def _ship(annex: Annex, access: SlurmSite, software: EpSoftware, tools: Tools) -> None:
    started = tools.clock.now()
    survey = access.survey()
    if survey.arch != access.site.arch:
        seen = Evidence(f"uname -m at {access.site.name}", survey.arch)
        text = f"the login node is {survey.arch}, the site's file says {access.site.arch}"
        raise fail("ep-arch-mismatch", access.site.name, text, evidence=[seen])
    annex.record(Stage.SHIP, What.BEGIN, sha256=software.sha256)
    sent = access.ship_software(
        software, survey, lambda done, total: tools.view.progress("ship", "EP software", done, total)
    )
    annex.record(Stage.SHIP, What.DONE, bytes_sent=sent)
    took = format_duration((tools.clock.now() - started).total_seconds())
    where = f"at {access.site.name}"
    tools.view.line("ship", f"EP software {format_bytes(sent)}, {took}" if sent else f"EP software already {where}")


def _submit(annex: Annex, access: SlurmSite, software: EpSoftware, facts: PoolFacts, tools: Tools) -> None:
    plan, site = annex.plan, access.site
    token = tools.pool.issue_token(facts.join, plan.walltime_s + TOKEN_MARGIN_S + TOKEN_QUEUE_S)
    archive = _bundle(annex, site, software, facts, token)
    annex.record(
        Stage.SUBMIT,
        What.BEGIN,
        pilots=plan.pilots,
        bytes_sent=len(archive),
        join=facts.join,
        collector=facts.collector,
    )
    job_ids = _accepted(annex, access, archive, tools)
    annex.record(Stage.SUBMIT, What.DONE, job_ids=list(job_ids), bytes_sent=len(archive))
    tools.view.line("submit", f"bundle {format_bytes(len(archive))}; job {', '.join(job_ids)}")


def _accepted(annex: Annex, access: SlurmSite, archive: bytes, tools: Tools) -> tuple[str, ...]:
    """Submit; when sbatch's answer was lost, look by name for what Slurm took."""
    try:
        return access.submit(annex.plan.annex_id, archive, annex.plan.pilots)
    except AnnexError as problem:
        if problem.failure.code != "submit-uncertain":
            raise
        adopt(annex, gather(annex, access, tools.pool))
        if len(annex.state().job_ids) < annex.plan.pilots:
            raise
        return annex.state().job_ids


def _bundle(annex: Annex, site: Site, software: EpSoftware, facts: PoolFacts, token: Secret) -> bytes:
    options = _options(annex.plan, site)
    bundle = render_bundle(annex.plan, site, facts, software, token, options)
    annex.keep({name: text for name, text in bundle.files.items() if name in ("batch.sh", "ep.conf")})
    return bundle_archive(bundle)


def _watch(annex: Annex, access: SlurmSite | None, tools: Tools) -> Verdict:
    verdict = Watcher(annex, access, tools.pool, tools.clock, tools.view).until(lambda seen: seen.settled)
    if verdict.failure is not None:
        _give_up(annex, access, verdict, tools)
        raise AnnexError(verdict.failure)
    if verdict.ready:
        tools.view.line("ready", ready_text(annex, verdict, tools))
        tools.view.line("", f'new jobs reach it with:  MY.TargetAnnexName = "{annex.name}"')
    return verdict


def _give_up(annex: Annex, access: SlurmSite | None, verdict: Verdict, tools: Tools) -> None:
    """A pilot that cannot come up is cancelled, so that it spends no more."""
    assert verdict.failure is not None
    if access is None:
        annex.record_failure(verdict.failure, ended=False)
        return
    living = tuple(pilot.job_id for pilot in verdict.pilots if pilot.job is not None and pilot.job.state.living)
    access.release(annex.plan.annex_id, living)
    annex.record_failure(verdict.failure, ended=True)
    if living:
        tools.view.line("release", f"job {', '.join(living)} cancelled, so that it spends no more")


def ready_text(annex: Annex, verdict: Verdict, tools: Tools) -> str:
    """`lab: 2 GPUs until 18:02 (in 59 m); 1 of your jobs waits for it.`."""
    slots = [slot for pilot in verdict.pilots for slot in pilot.slots if slot.slot_type != "Dynamic"]
    gpus = sum(slot.total_gpus for slot in slots)
    what = f"{gpus} GPU{'s' if gpus != 1 else ''}" if gpus else f"{sum(slot.total_cpus for slot in slots)} cores"
    ends = [pilot.job.end for pilot in verdict.pilots if pilot.job is not None and pilot.job.end is not None]
    until = f" until {format_when(min(ends), tools.clock.now())}" if ends else ""
    waiting = tools.pool.job_counts([annex.name])[annex.name].waiting
    return f"{annex.name}: {what}{until}; {waiting} of your jobs wait{'s' if waiting == 1 else ''} for it"


__all__ = ["AnnexState", "Tools", "ceiling_text", "dry_run", "plan_text", "ready_text", "up"]
