"""`up`: plan -> pack -> connect -> ship -> submit -> watch. One straight line, safe to run again at any point."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import partial

from siteannex.annex.bundle import batch_script, bundle_archive, drain_notice_s, render_bundle
from siteannex.annex.ending import Target, end_now, ran_s
from siteannex.annex.events import What
from siteannex.annex.explaining.waiting import explain_waiting, queue_hint
from siteannex.annex.explaining.why_annex import ask_outlook
from siteannex.annex.judging.judge import judge
from siteannex.annex.judging.verdict import Verdict
from siteannex.annex.leasing import check_join, check_lease, keeper_of, lease_files, lease_text, unheard_after_s
from siteannex.annex.packing import check_versions
from siteannex.annex.planning.ledger import Account, account_of, price, within_budget
from siteannex.annex.planning.plan import choose, differences, passed_over, plan_annex
from siteannex.annex.slurm_site import SlurmSite
from siteannex.annex.store import Annex, Store
from siteannex.annex.texts import budget_text, ceiling_text, passed_over_text, plan_text, ready_text, spent_text
from siteannex.annex.watch import Watcher, adopt, gather
from siteannex.errors import AnnexError, Evidence, Secret, Stage, StageFailure
from siteannex.failures import fail, failure
from siteannex.model import BatchState, EpSoftware, Join, Plan, PoolFacts, Request
from siteannex.ports import Clock, Pool, Transport, View
from siteannex.scheduler import slurm
from siteannex.site.schema import Site
from siteannex.units import format_bytes, format_duration, seconds_between

TOKEN_MARGIN_S = 3600
"""How much longer than the walltime a token lives; the time in the queue comes on top."""
QUEUE_S = {Join.POOL: 7 * 86400, Join.DIRECT: 86400}
"""How long a pilot may wait in the queue and still join; shorter where the token can also submit jobs."""


LOOKS, LOOK_AGAIN_S = 3, 2.0
"""How often, and how far apart, a pilot is looked for whose submission got no answer."""


@dataclass(frozen=True, slots=True)
class Tools:
    """The effects `up` needs, built in the command line."""

    store: Store
    clock: Clock
    view: View
    pool: Pool
    pack: Callable[[Site], EpSoftware]
    connect: Callable[[Site, str | None], Transport]
    """A connection as a user (None: the usual one): held, or by logging in."""
    held: Callable[[Site, str | None], Transport | None]
    """The connection of a held session, or None; never asks anybody."""
    new_id: Callable[[str], str]
    foresee: Callable[[Plan, Site, PoolFacts], Sequence[str]] = lambda *_: ()
    """What speaks against the plan, for the jobs that already wait for it."""
    user: str | None = None
    """The user name at the site that was asked for, if one was."""
    caps: Mapping[str, float] = field(default_factory=dict)
    """By site, the user's cap on what annexes may cost, in the site's unit."""
    budget: float | None = None
    """The most this command may reserve."""

    def account(self, plan: Plan, site: Site) -> Account:
        """What the site's budget bears, in the unit of the plan."""
        cap = self.caps.get(site.name, site.defaults.budget)
        return account_of(site.name, price(plan)[1], self.store.records(), self.clock.now(), cap)


def up(request: Request, site: Site, tools: Tools, *, wait: bool = True) -> tuple[Annex, Verdict | None]:
    """Bring an annex up, or go on with the one of that name. Returns it with the last verdict (None without wait)."""
    with tools.store.lock(request.name, site.name):
        annex, access = _living(request, site, tools)
        if annex is not None and _leased(annex, site, tools):
            tools.view.line("plan", f"{annex.name} has a lease: its keeper brings pilots back while jobs wait")
            return annex, None
        if annex is None or len(annex.state().job_ids) < annex.plan.pilots or _lacks_keeper(annex):
            facts = tools.pool.facts(request.join)
            if request.lease is not None:
                check_join(site, facts.join)
            annex = annex or _plan(request, site, tools)
            _tell_plan(annex.plan, site, facts, tools)
            for text in tools.foresee(annex.plan, site, facts):
                tools.view.line("", text)
            access = _deliver(annex, site, facts, tools)
        else:
            living = f"{annex.name} lives already (annex {annex.plan.annex_id}); nothing is submitted twice"
            tools.view.line("plan", living)
    return annex, _watch(annex, access, tools) if wait else None


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
    if _leased(annex, site, tools):
        _same_or_refuse(request, annex, site, tools)
        return annex, None
    if annex.state().job_ids and not (verdict := _look(annex, None, tools)).ready:
        access = _connect(annex, site, tools)
        verdict = _look(annex, access, tools)
        if verdict.stage is Stage.RELEASED:
            jobs = end_now(Target.of(annex), access, tools.clock, tools.view)
            annex.record(Stage.RELEASED, What.DONE, text=verdict.text, ran=ran_s(jobs))
            tools.view.line("plan", f"the last {annex.name} has ended: {verdict.text}")
            return None, None
        if verdict.stage is Stage.DRAIN:
            raise fail("annex-draining", site.name, f"{annex.name} is on its way out: {verdict.text}")
    _same_or_refuse(request, annex, site, tools)
    return annex, access


def _leased(annex: Annex, site: Site, tools: Tools) -> bool:
    """Whether a keeper is there that can bring pilots back: heard and not ended, or just left and about to wake."""
    state, now = annex.state(), tools.clock.now()
    if not state.keeper or state.leased_until is None or state.leased_until <= now:
        return False
    told = keeper_of(annex.plan.annex_id, tools.pool.keepers())
    if told is None:
        new_s = seconds_between(state.submitted_at, now) if state.submitted_at else 0.0
        return new_s < unheard_after_s(site)
    return not told.code


def _lacks_keeper(annex: Annex) -> bool:
    return annex.plan.request.lease is not None and not annex.state().keeper


def _same_or_refuse(request: Request, annex: Annex, site: Site, tools: Tools) -> None:
    words = differences(request, annex.plan.request)
    user, _, _ = annex.state().login.rpartition("@")
    if tools.user and user and tools.user != user:
        words = (*words, f"login {tools.user} asked, {user} living")
    if words:
        seen = Evidence(f"annex {annex.plan.annex_id}", "\n".join(words))
        raise fail("request-differs", site.name, f"{request.name} lives and was asked for differently", evidence=[seen])


def _look(annex: Annex, access: SlurmSite | None, tools: Tools) -> Verdict:
    witnesses = gather(annex, access, tools.pool)
    adopt(annex, witnesses)
    return judge(annex.plan, annex.state(), witnesses, tools.clock.now())


def _plan(request: Request, site: Site, tools: Tools) -> Annex:
    """Plan, and record the plan if the budget bears it; no other command can spend the same rest meanwhile."""
    plan = plan_annex(request, site, annex_id=tools.new_id(request.name), today=tools.clock.now().date())
    check_lease(plan, site)
    with tools.store.lock(f"budget of {site.name}", site.name):
        within_budget(plan, tools.account(plan, site), command_cap=tools.budget)
        return tools.store.create(plan)


@dataclass(frozen=True, slots=True)
class DryRun:
    """What `up` would do, without any effect."""

    plan: Plan
    script: str
    """What sbatch would be given, once for each pilot."""
    passed_over: tuple[str, ...]
    """Every partition that was not chosen, with the reason."""


def dry_run(request: Request, site: Site, today: date) -> DryRun:
    """The plan and the batch script it would submit. AnnexErrors as of `plan_annex`."""
    plan = plan_annex(request, site, annex_id=f"{request.name}-dryrun", today=today)
    check_lease(plan, site)
    script = batch_script(plan, site, _options(plan, site))
    return DryRun(plan, script, tuple(passed_over(choose(request, site), whole=True)))


def _options(plan: Plan, site: Site, origin: str = "") -> tuple[str, ...]:
    partition = site.partitions[plan.partition]
    return slurm.submit_options(plan, partition, drain_notice_s=drain_notice_s(plan), origin=origin)


def _tell_plan(plan: Plan, site: Site, facts: PoolFacts, tools: Tools) -> None:
    tools.view.line("plan", plan_text(plan))
    tools.view.line("", f"ceiling {ceiling_text(plan)}; {'; '.join(plan.notes)}")
    if budget := budget_text(tools.account(plan, site)):
        tools.view.line("", budget)
    if over := passed_over_text(plan):
        tools.view.line("", over)
    if plan.request.lease is not None:
        tools.view.line("", lease_text(plan.request.lease, site))
    if facts.join == "direct":
        longest = format_duration(plan.walltime_s + TOKEN_MARGIN_S + QUEUE_S[facts.join])
        tools.view.line("", f"joins by direct attach: its token could also submit jobs as you, for {longest} at most")


def _deliver(annex: Annex, site: Site, facts: PoolFacts, tools: Tools) -> SlurmSite:
    """Pack, connect, ship, submit. A failure is recorded; before SUBMIT nothing of the annex is left behind it."""
    access = None
    try:
        software = _pack(annex, site, facts, tools)
        access = _connect(annex, site, tools)
        if not (annex.state().submit_begun and _adopted(annex, access, tools)):
            _ship(annex, access, software, tools)
            _submit(annex, access, software, facts, tools)
        if _lacks_keeper(annex):
            _start_keeper(annex, access, tools)
    except AnnexError as problem:
        _close(annex, problem.failure, access, tools)
        raise
    return access


def _close(annex: Annex, problem: StageFailure, access: SlurmSite | None, tools: Tools) -> None:
    """Record a failure of delivery; "ended" only when nothing was submitted, or what was is seen to be gone."""
    ended = not annex.state().submit_begun
    if access is not None and problem.code == "slurm-unreachable":  # which cannot be told to end anything either
        ended = _forgotten(annex, access)
        if not ended:
            still = f"pilots that Slurm took before live on: siteannex up again completes {annex.name}"
            tools.view.line("release", f"{still}, siteannex down {annex.name} ends them")
    elif access is not None and problem.stage is Stage.SUBMIT and problem.code != "submit-uncertain":
        ended = _ended(annex, access, tools)
    try:
        annex.record_failure(problem, ended=ended)
    except AnnexError as unwritable:  # the failure itself must still be told
        tools.view.line("state", f"{unwritable.failure.summary}: what follows is not recorded")


def _forgotten(annex: Annex, access: SlurmSite) -> bool:
    """True when no pilot was ever submitted, and the annex's directory at the site is gone."""
    try:
        return access.forget(annex.plan.annex_id)
    except AnnexError:
        return False


def _ended(annex: Annex, access: SlurmSite, tools: Tools) -> bool:
    """End the annex; False, and a line on the screen, when it could not be seen to have ended."""
    try:
        jobs = end_now(Target.of(annex), access, tools.clock, tools.view)
        if ran := ran_s(jobs):
            annex.record(Stage.DRAIN, What.SEEN, text="its pilots have ended", ran=ran)
    except AnnexError as problem:
        tools.view.line("release", f"{problem.failure.summary}: run siteannex down {annex.name}")
        return False
    with suppress(AnnexError):  # the ad in which a pilot told its failure ends by itself in minutes
        tools.pool.withdraw_ads(annex.plan.annex_id)
    return True


def _pack(annex: Annex, site: Site, facts: PoolFacts, tools: Tools) -> EpSoftware:
    software = tools.pack(site)
    check_versions(software, facts.cm_version, site.arch, site=site.name)
    annex.record(Stage.PACK, What.DONE, sha256=software.sha256, version=software.version, size=software.size_bytes)
    size = format_bytes(software.size_bytes)
    tools.view.line("pack", f"EP {software.version} {software.arch}, {size}")
    return software


def _connect(annex: Annex, site: Site, tools: Tools) -> SlurmSite:
    annex.record(Stage.CONNECT, What.BEGIN)
    user = annex.state().login.rpartition("@")[0] or tools.user
    transport = tools.held(site, user)
    if transport is not None:
        tools.view.line("connect", f"{transport.login}: session held, nothing to type")
    else:
        transport = tools.connect(site, user)
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
        raise fail("site-arch-differs", access.site.name, text, evidence=[seen])
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
    lease, now = plan.request.lease, tools.clock.now()
    lives_s = lease.lease_s if lease is not None else plan.walltime_s + TOKEN_MARGIN_S + QUEUE_S[facts.join]
    token = tools.pool.issue_token(facts.join, lives_s)
    keeper = lease_files(plan, site, facts, now)
    archive = _bundle(annex, site, software, facts, token, tools.store.origin(facts.schedd), keeper)
    annex.record(
        Stage.SUBMIT,
        What.BEGIN,
        pilots=plan.pilots,
        bytes_sent=len(archive),
        join=facts.join,
        collector=facts.collector,
        **({"leased_until": (now + timedelta(seconds=lease.lease_s)).isoformat()} if lease is not None else {}),
    )
    job_ids = _accepted(annex, access, archive, tools)
    annex.record(Stage.SUBMIT, What.DONE, job_ids=list(job_ids), bytes_sent=len(archive))
    tools.view.line("submit", f"bundle {format_bytes(len(archive))}; job {', '.join(job_ids)}")


def _start_keeper(annex: Annex, access: SlurmSite, tools: Tools) -> None:
    job_id = access.start_keeper(annex.plan.annex_id)
    annex.record(Stage.SUBMIT, What.DONE, keeper=job_id)
    tools.view.line(
        "keeper", f"job {job_id}: no login is needed while the lease lasts; siteannex down {annex.name} ends it"
    )


def _accepted(annex: Annex, access: SlurmSite, archive: bytes, tools: Tools) -> tuple[str, ...]:
    """Submit; when sbatch's answer was lost, look by name for what Slurm took."""
    try:
        return access.submit(annex.plan.annex_id, archive, annex.plan.pilots)
    except AnnexError as problem:
        if problem.failure.code not in ("submit-uncertain", "remote-timeout"):
            raise
        seen = problem.failure.evidence
        tools.view.line("submit", f"{seen[0].text if seen else problem.failure.summary}: looking for the job by name")
        if not _taken(annex, access, tools):
            raise
    tools.view.line("submit", "Slurm had taken it; nothing is submitted twice")
    return annex.state().job_ids


def _taken(annex: Annex, access: SlurmSite, tools: Tools) -> bool:
    """True when Slurm shows every pilot by name; a job just taken may show a moment later."""
    for _ in range(LOOKS):
        adopt(annex, gather(annex, access, tools.pool))
        if len(annex.state().job_ids) >= annex.plan.pilots:
            return True
        tools.clock.sleep(LOOK_AGAIN_S)
    return False


def _bundle(
    annex: Annex,
    site: Site,
    software: EpSoftware,
    facts: PoolFacts,
    token: Secret,
    origin: str,
    keeper: Mapping[str, str],
) -> bytes:
    options = _options(annex.plan, site, origin)
    bundle = render_bundle(annex.plan, site, facts, software, token, options, origin=origin, keeper=keeper)
    annex.keep({name: text for name, text in bundle.files.items() if name in ("batch.sh", "ep.conf")})
    return bundle_archive(bundle)


def _watch(annex: Annex, access: SlurmSite | None, tools: Tools) -> Verdict:
    hint = partial(_queue_hint, annex, access, tools)
    verdict = Watcher(annex, access, tools.pool, tools.clock, tools.view, hint).until(lambda seen: seen.settled)
    if verdict.failure is not None:
        _give_up(annex, access, verdict, verdict.failure, tools)
        raise AnnexError(verdict.failure)
    if verdict.stage is Stage.RELEASED:
        what = failure("batch-job-failed", annex.plan.request.site, f"it ended before it was ready: {verdict.text}")
        _give_up(annex, access, verdict, what, tools)
        raise AnnexError(what)
    _drop_failed(annex, access, verdict, tools)
    if verdict.ready:
        tools.view.line("ready", ready_text(annex, verdict, tools.pool, tools.clock.now()))
        tools.view.line("", f'new jobs reach it with:  MY.TargetAnnexName = "{annex.name}"')
    else:
        tools.view.line(verdict.stage.label, verdict.text)
    return verdict


def _queue_hint(annex: Annex, access: SlurmSite | None, tools: Tools, verdict: Verdict) -> str:
    """What would start sooner than the pilot that waits, or why it waits for long; "" when nothing need be said."""
    pending = [pilot for pilot in verdict.pilots if pilot.job is not None and pilot.job.state is BatchState.PENDING]
    if access is None or not pending:
        return ""
    now = tools.clock.now()
    outlook = ask_outlook(annex.plan, access, pending, now.date())
    return queue_hint(annex.plan, explain_waiting(annex.plan, pending[0], outlook, now), outlook, now)


def _give_up(annex: Annex, access: SlurmSite | None, verdict: Verdict, what: StageFailure, tools: Tools) -> None:
    """An annex that cannot come up is ended, so that it spends no more."""
    try:
        with tools.store.lock(annex.name, annex.plan.request.site):
            ended = access is not None and _ended(annex, access, tools)
            annex.record_failure(what, ended=ended)
    except AnnexError as busy:  # a `down` is at work on it already
        tools.view.line("release", busy.failure.summary)
        return
    if ended:
        ids = ", ".join(annex.state().job_ids)
        spent = spent_text(annex.plan, verdict, tools.clock.now())
        tools.view.line("spent", f"{spent}; job {ids} has ended and spends no more")


def _drop_failed(annex: Annex, access: SlurmSite | None, verdict: Verdict, tools: Tools) -> None:
    """Some pilots are ready and some never will be: say why, and cancel those that still hold an allocation."""
    failed = [pilot for pilot in verdict.pilots if pilot.failure is not None]
    for pilot in failed:
        assert pilot.failure is not None
        tools.view.line(pilot.stage.label, f"job {pilot.job_id} FAILED: {pilot.failure.code}: {pilot.text}")
    costly = tuple(pilot.job_id for pilot in failed if pilot.job is not None and pilot.job.state.living)
    if costly and access is not None:
        try:
            access.cancel(costly)
        except AnnexError as problem:  # the others are ready all the same
            told = f"not cancelled ({problem.failure.summary}): siteannex down {annex.name} ends it with the others"
        else:
            told = "cancelled, so that it spends no more"
        tools.view.line("release", f"job {', '.join(costly)} {told}")
