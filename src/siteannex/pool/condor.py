"""The pool as this user sees it from the AP: facts, slots, job counts and tokens.

Every call is bounded in time. A name server that does not answer makes HTCondor's programs and bindings hang for
minutes without a word (they look up their own host name first), so a call that runs out of time says so.
"""

from __future__ import annotations

import getpass
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from siteannex.errors import AnnexError, Evidence, Secret
from siteannex.failures import fail
from siteannex.model import JobCounts, Join, KeeperAd, MarkedAd, PoolFacts, Slot
from siteannex.pool import ads, tokens
from siteannex.pool.address import outside_address
from siteannex.pool.link import CondorError, CondorLink
from siteannex.pool.settings import SETTINGS, ApSettings, read_settings

AP = "access point"
"""What stands in a failure's `site` when the AP itself failed."""

NARROW_SCOPES = ("READ", "ADVERTISE_STARTD", "ADVERTISE_MASTER")
"""Enough for an EP that joins through collector and negotiator, CCB included."""
DIRECT_SCOPES = (*NARROW_SCOPES, "WRITE")
"""Direct attach is refused without WRITE, which also lets the bearer submit jobs as the owner: keep these short."""

DNS_HINT = (
    "HTCondor looks up its own host name before anything else and hangs when the name server does not answer: "
    "check that `getent hosts $(hostname -f)` answers at once. siteannex doctor tells more."
)
_TOKEN_LIMIT_S = 20.0
_JWT = re.compile(r"eyJ[\w-]+\.[\w-]+\.[\w-]*")
_LAST_PLACES = ("/usr/bin", "/usr/sbin")
_SLOT_ATTRIBUTES = [
    *("Name", "SlotType", "PartitionableSlot", "DynamicSlot", "AnnexName", "SiteannexRequestId", "SiteannexSite"),
    *("EPSlurmJobId", "Machine", "AuthenticatedIdentity", "State", "Activity", "Cpus", "Memory", "GPUs", "GPUs*"),
    *("AvailableGPUs", "CUDA*", "TotalSlot*", "TotalCpus", "TotalMemory", "TotalGPUs", "JobId", "LastHeardFrom"),
    *("CondorVersion", "SiteannexDraining", "SiteannexEndsAt", "SiteannexCode", "SiteannexText", "SiteannexSeen"),
]
_MARKS = ["Name", "SiteannexRequestId", "SiteannexOrigin", "SiteannexSite", "EPSlurmJobId", "LastHeardFrom"]
_KEEPER_ATTRIBUTES = [
    *("SiteannexRequestId", "SiteannexStage", "SiteannexCode", "SiteannexText", "SiteannexUsedGpuS", "LastHeardFrom"),
    *("SiteannexReservedGpuS", "SiteannexCapGpuS", "SiteannexPilots", "SiteannexWaiting", "SiteannexLeaseLeftS"),
    "SiteannexNextWakeS",
]
_DAEMON_ATTRIBUTES = ["Name", "MyAddress", "Machine", "CondorVersion", "MyCurrentTime", "LastHeardFrom"]


class CondorPool:
    """HTCondor on this access point. Nothing is asked before the first call; `close()` ends the helper process."""

    def __init__(
        self, link: CondorLink | None = None, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._link = link or CondorLink()
        self._now = now
        self._settings: ApSettings | None = None
        self._identity: str | None = None

    def close(self) -> None:
        """End the helper process."""
        self._link.close()

    # What the AP is

    def settings(self) -> ApSettings:
        """The AP's configuration. AnnexError(ap-unreachable) when it does not load in time."""
        if self._settings is None:
            answer = self._ask("HTCondor's configuration does not load", "config", names=list(SETTINGS))
            self._settings = read_settings(answer["params"], ads.parse_version(answer["bindings"]))
        return self._settings

    def schedd(self) -> ads.Ad:
        """The location ad of this AP's schedd (a restart changes its address). AnnexError(ap-unreachable)."""
        found: ads.Ad = self._ask("no schedd is found on this access point", "schedd", keep=_DAEMON_ATTRIBUTES)
        return found

    def identity(self) -> str:
        """This user as the schedd authenticates them, `alice@ap.lab`; what tokens and ads will carry."""
        if self._identity is None:
            address = ads.text_of(self.schedd(), "MyAddress")
            answer = self._ask("the schedd does not let you in", "ping", address=address, level="WRITE")
            said = ads.text_of(answer, "MyRemoteUserName")
            self._identity = said if _authenticated(said) else f"{getpass.getuser()}@{self.settings().uid_domain}"
        return self._identity

    def daemons(self, kind: str, *, pool: str = "", name: str | None = None) -> list[ads.Ad]:
        """Daemon ads (`Collector`, `Negotiator`, `Schedd`) in a collector; `pool` "" is the configured one."""
        constraint = "" if name is None else ads.name_constraint(name)
        problem = f"the collector {pool or self.settings().collector_host} does not answer"
        found: list[ads.Ad] = self._ask(
            problem, "query", pool=pool, kind=kind, constraint=constraint, keep=_DAEMON_ATTRIBUTES
        )
        return found

    def obstacle(self, join: Join) -> str:
        """Why an EP cannot join by POOL or DIRECT here; "" when it can."""
        return self._direct_obstacle() if join is Join.DIRECT else self._pool_obstacle()

    def facts(self, join: Join) -> PoolFacts:
        """What a plan needs to know of the AP.

        AUTO takes the pool where a negotiator serves it, else direct attach. AnnexError: ap-unreachable, or
        join-unavailable with the reason for each way.
        """
        chosen = self._choose(join)
        settings, schedd = self.settings(), self.schedd()
        pool = settings.annex_collector if chosen is Join.DIRECT else ""
        collector = _first(self.daemons("Collector", pool=pool))
        # With direct attach the schedd does the matching, so its version is the one an EP must not exceed.
        judge = schedd if chosen is Join.DIRECT else collector
        return PoolFacts(
            identity=self.identity(),
            trust_domain=settings.trust_domain or settings.uid_domain,
            collector=outside_address(pool or settings.collector_host, ads.text_of(collector, "MyAddress")),
            schedd=ads.text_of(schedd, "Name"),
            cm_version=ads.parse_version(ads.text_of(judge, "CondorVersion")),
            join=chosen,
        )

    def _choose(self, join: Join) -> Join:
        wanted = (Join.POOL, Join.DIRECT) if join is Join.AUTO else (join,)
        obstacles = {}
        for way in wanted:
            obstacles[way] = self.obstacle(way)
            if not obstacles[way]:
                return way
        reasons = ", nor ".join(f"by {way} ({reason})" for way, reason in obstacles.items())
        raise fail("join-unavailable", AP, f"an EP cannot join {reasons}")

    def _pool_obstacle(self) -> str:
        host = self.settings().collector_host
        if not host:
            return "COLLECTOR_HOST is not set"
        if not self.daemons("Negotiator"):
            return f"no negotiator serves {host}"
        name = ads.text_of(self.schedd(), "Name")
        if not self.daemons("Schedd", name=name):
            return f"the schedd {name} does not advertise to {host}"
        return ""

    def _direct_obstacle(self) -> str:
        address = self.settings().annex_collector
        if not address:
            return "the annex collector is not configured (use feature:HPC_ANNEX)"
        name = ads.text_of(self.schedd(), "Name")
        try:
            seen = self.daemons("Schedd", pool=address, name=name)
        except AnnexError as error:
            return error.failure.summary
        return "" if seen else f"the schedd {name} does not advertise to {address}"

    # What is there now

    def slots(self, annex_id: str | None = None) -> list[Slot]:
        """This user's siteannex slots, of one annex or all, from every collector an EP of ours can be in.

        A collector that does not answer is AnnexError(ap-unreachable): no answer is not "no slots".
        """
        settings, identity = self.settings(), self.identity()
        constraint = ads.slots_constraint(identity, annex_id)
        found: dict[tuple[str, str], Slot] = {}
        for pool in self.collectors():
            problem = f"the collector {pool or settings.collector_host} does not answer"
            answer = self._ask(problem, "query", pool=pool, kind="Startd", constraint=constraint, keep=_SLOT_ATTRIBUTES)
            for slot in map(ads.slot_from_ad, answer):
                known = found.get((slot.annex_id, slot.name))
                if slot.owner == identity and (known is None or _newer(slot, known)):
                    found[slot.annex_id, slot.name] = slot
        return sorted(found.values(), key=lambda slot: (slot.annex_name, slot.name))

    def keepers(self) -> list[KeeperAd]:
        """What the keepers of this user's leased annexes last told. AnnexError(ap-unreachable)."""
        constraint = ads.keepers_constraint(self.identity())
        found = [
            ad
            for pool in self.collectors()
            for ad in self._ask(
                f"the collector {pool or self.settings().collector_host} does not answer",
                "query",
                pool=pool,
                kind="Startd",
                constraint=constraint,
                keep=_KEEPER_ATTRIBUTES,
            )
        ]
        return [ads.keeper_ad(ad) for ad in found]

    def job_counts(self, names: Sequence[str]) -> dict[str, JobCounts]:
        """This user's waiting, running and held jobs for each annex name."""
        names = list(dict.fromkeys(names))
        if not names:
            return {}
        return ads.count_jobs(self._jobs(ads.jobs_constraint(self._owner(), names)), names)

    def waiting_jobs(self) -> int:
        """How many of this user's idle jobs name any annex."""
        return len(self._jobs(ads.waiting_constraint(self._owner())))

    def schedd_name(self) -> str:
        """The name of this AP's schedd. AnnexError(ap-unreachable)."""
        return ads.text_of(self.schedd(), "Name")

    def marked_ads(self) -> list[MarkedAd]:
        """This user's slot and master ads of any annex, from every collector. AnnexError(ap-unreachable)."""
        constraint = ads.slots_constraint(self.identity(), None)
        return [
            ads.marked_ad(ad)
            for pool in self.collectors()
            for kind in ("Startd", "Master")
            for ad in self._ask(
                f"the collector {pool or self.settings().collector_host} does not answer",
                "query",
                pool=pool,
                kind=kind,
                constraint=constraint,
                keep=_MARKS,
            )
        ]

    def withdraw_ads(self, annex_id: str) -> None:
        """Ask every collector to forget this user's ads of an annex. AnnexError(ap-unreachable)."""
        constraint = ads.marked_constraint(self.identity(), annex_id)
        for pool in self.collectors():
            self._ask("the collector does not forget the ads", "withdraw", pool=pool, constraint=constraint)

    def collectors(self) -> list[str]:
        """Every collector an EP of ours can be in; "" is the configured one."""
        settings = self.settings()
        return [""] * bool(settings.collector_host) + [settings.annex_collector] * bool(settings.annex_collector)

    def owner(self) -> str:
        """This user as the schedd's jobs name them (`Owner`)."""
        return self._owner()

    def at_schedd(self, op: str, **arguments: object) -> Any:
        """Ask this AP's schedd one of the worker's operations. AnnexError(ap-unreachable)."""
        return self._ask("the schedd does not answer", op, schedd=self._place(), **arguments)

    def ask(self, op: str, **arguments: object) -> Any:
        """Ask one of the worker's other operations. AnnexError(ap-unreachable)."""
        return self._ask("HTCondor does not answer", op, **arguments)

    def _owner(self) -> str:
        return self.identity().partition("@")[0]

    def _jobs(self, constraint: str) -> list[ads.Ad]:
        found: list[ads.Ad] = self._ask(
            "the schedd does not answer",
            "jobs",
            schedd=self._place(),
            constraint=constraint,
            projection=["JobStatus", "TargetAnnexName"],
        )
        return found

    def _place(self) -> dict[str, str]:
        schedd = self.schedd()
        return {name: ads.text_of(schedd, name) for name in ("MyAddress", "CondorVersion")}

    # Tokens

    def issue_token(self, join: Join, lifetime_s: int) -> Secret:
        """A token for the EPs of one annex, checked before it is handed out. AnnexError(token-refused, ...).

        With DIRECT it carries WRITE too, and can submit jobs as its owner while it lives.
        """
        if join is Join.AUTO:
            join = self._choose(join)
        scopes = DIRECT_SCOPES if join is Join.DIRECT else NARROW_SCOPES
        key = self.settings().annex_key if join is Join.DIRECT else ""
        problems = []
        # A user whose ~/.condor/tokens.d holds a narrow token is authenticated by it, and what the schedd then issues
        # is as narrow. Asking again as the local user (FS) gets round that.
        for method in ("", "FS"):
            token = self._fetch_token(scopes, key, lifetime_s, method)
            problems = self._token_problems(token, scopes, lifetime_s)
            if not problems:
                return token
        raise fail("token-refused", AP, f"the access point issued a token that will not do: {'; '.join(problems)}")

    def _token_problems(self, token: Secret, scopes: Sequence[str], lifetime_s: int) -> list[str]:
        try:
            claims = tokens.decode(token)
        except ValueError as error:
            return [str(error)]
        return tokens.shortcomings(
            claims, wanted=scopes, identity=self.identity(), lifetime_s=lifetime_s, now=self._now()
        )

    def _fetch_token(self, scopes: Sequence[str], key: str, lifetime_s: int, method: str) -> Secret:
        argv = [self._program("condor_token_fetch"), "-lifetime", str(lifetime_s)]
        argv += [word for scope in scopes for word in ("-authz", scope)]
        argv += ["-key", key] if key else []
        environment = dict(os.environ)
        if method:
            environment["_CONDOR_SEC_CLIENT_AUTHENTICATION_METHODS"] = method
        shown = " ".join(["condor_token_fetch", *argv[1:]])
        try:
            status, token, said = _run_for_secret(argv, environment)
        except subprocess.TimeoutExpired:
            # `from None`: the original exception carries what the program had printed
            raise fail(
                "ap-unreachable", AP, f"condor_token_fetch gave no answer in {_TOKEN_LIMIT_S:.0f} s", hint=DNS_HINT
            ) from None
        except OSError as error:
            raise fail("token-refused", AP, f"condor_token_fetch does not start: {error}") from None
        if status != 0 or not token.reveal():
            raise fail(
                "token-refused",
                AP,
                f"condor_token_fetch ended with status {status}",
                evidence=[Evidence.tail(shown, _JWT.sub("<secret>", said) or "(it said nothing)", (token,))],
            )
        return token

    def _program(self, name: str) -> str:
        """Where a program of HTCondor is: its own BIN and SBIN first (sbin is seldom on a user's PATH)."""
        places = [*self.settings().program_dirs, *os.environ.get("PATH", os.defpath).split(":"), *_LAST_PLACES]
        found = shutil.which(name, path=":".join(places))
        if found is None:
            raise fail("token-refused", AP, f"{name} is not installed here", hint="Install HTCondor on the AP.")
        return found

    def _ask(self, problem: str, op: str, **arguments: object) -> Any:
        try:
            return self._link.ask(op, **arguments)  # type: ignore[arg-type]
        except CondorError as error:
            seen = [Evidence.tail("HTCondor's bindings", text) for text in (error.log,) if text]
            raise fail(
                "ap-unreachable",
                AP,
                f"{problem}: {error.text}",
                evidence=seen,
                hint=DNS_HINT if error.timed_out else None,
            ) from None


def _run_for_secret(argv: list[str], environment: dict[str, str]) -> tuple[int, Secret, str]:
    """Run a program whose stdout is a secret; its stderr is not."""
    done = subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_TOKEN_LIMIT_S,
        env=environment,
        check=False,
    )
    return done.returncode, Secret(done.stdout.strip()), done.stderr


def _authenticated(identity: str) -> bool:
    user, _, domain = identity.partition("@")
    return bool(user and domain) and user != "unauthenticated"


def _first(found: Sequence[ads.Ad]) -> ads.Ad:
    return found[0] if found else {}


def _newer(slot: Slot, known: Slot) -> bool:
    old = datetime.fromtimestamp(0, UTC)
    return (slot.last_heard or old) > (known.last_heard or old)
