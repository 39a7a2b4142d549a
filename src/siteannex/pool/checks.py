"""The doctor's judgement: from what was seen of an AP to one line for each thing an annex needs. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum

from siteannex.errors import StageFailure
from siteannex.model import Join
from siteannex.pool import ads, tokens
from siteannex.pool.address import ip, parse_address
from siteannex.pool.settings import ApSettings
from siteannex.units import format_duration

PROBE_TOKEN_S = 60
"""Lifetime of the token that the doctor asks for and throws away."""
_SLOW_LOOKUP_S = 2.0
_SKEW_LIMIT_S = 60
_ASK_ADMIN = "see whether HTCondor runs here (condor_status -schedd), or ask your admin"
_EARLIEST = datetime(2025, 1, 1, tzinfo=UTC)
"""Before this program was written: a clock that shows less is wrong."""


class Verdict(StrEnum):
    """A note is something to know; only a problem keeps annexes from working."""

    OK = "ok"
    NOTE = "note"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the doctor's report. `todo` is empty unless there is something to do."""

    name: str
    verdict: Verdict
    text: str
    todo: str = ""


@dataclass(frozen=True, slots=True)
class Lookup:
    """How a host name resolved here."""

    name: str
    addresses: tuple[str, ...] = ()
    seconds: float = 0.0
    timed_out: bool = False


@dataclass(frozen=True, slots=True)
class Door:
    """One way for an EP to join."""

    join: Join
    obstacle: str
    """Why EPs cannot join here; "" when they can."""
    address: str = ""
    """Of the collector, as an EP elsewhere would be told."""
    lookup: Lookup | None = None
    token: tokens.TokenClaims | StageFailure | None = None


@dataclass(frozen=True, slots=True)
class ApView:
    """All that was seen of the AP. A StageFailure stands where a question failed, None where it was not put."""

    now: datetime
    hostname: Lookup
    keyring: str
    """The keyring's kind, "" when there is none."""
    settings: ApSettings | StageFailure
    schedd: ads.Ad | StageFailure | None = None
    identity: str | StageFailure | None = None
    collector: ads.Ad | StageFailure | None = None
    negotiators: int | StageFailure | None = None
    schedd_in_collector: ads.Ad | StageFailure | None = None
    doors: tuple[Door, ...] = ()
    waiting_jobs: int | None = None


def judge_ap(view: ApView) -> list[Check]:
    """Every line of the report, in the order in which one thing rests on another."""
    checks = [_hostname(view.hostname), _clock(view)]
    if isinstance(view.settings, StageFailure):
        broken = _failed("HTCondor", view.settings)
        if checks[0].verdict is Verdict.PROBLEM:
            broken = replace(broken, todo="mend the host name first; HTCondor looks it up before anything else")
        return [*checks, broken, _keyring(view.keyring)]
    checks.append(_condor(view.settings))
    checks += _daemons(view)
    checks += [check for door in view.doors for check in _door(door)]
    checks += [_offered(view.doors)] if view.doors else []
    checks += [_network(view.settings), *_annex_identity(view), *_jobs(view), _keyring(view.keyring)]
    return checks


def _failed(name: str, failure: StageFailure) -> Check:
    seen = "; ".join(line for piece in failure.evidence for line in piece.text.splitlines()[-2:])
    todo = _ASK_ADMIN if "siteannex doctor" in failure.hint else failure.hint
    return Check(name, Verdict.PROBLEM, failure.summary + (f" ({seen})" if seen else ""), todo)


def _hostname(lookup: Lookup) -> Check:
    name = "host name"
    if lookup.timed_out:
        return Check(
            name,
            Verdict.PROBLEM,
            f"looking up {lookup.name} gave no answer in {lookup.seconds:.0f} s; "
            "HTCondor's programs and daemons hang on that",
            f"ask your admin to put {lookup.name} into /etc/hosts, or to mend /etc/resolv.conf",
        )
    if not lookup.addresses:
        return Check(
            name,
            Verdict.PROBLEM,
            f"{lookup.name} does not resolve on this machine; HTCondor may hang or advertise a wrong address",
            f"ask your admin to put {lookup.name} into /etc/hosts or the DNS",
        )
    text = f"{lookup.name} resolves to {', '.join(lookup.addresses)}"
    if lookup.seconds >= _SLOW_LOOKUP_S:
        return Check(
            name,
            Verdict.PROBLEM,
            f"{text}, but only after {lookup.seconds:.1f} s",
            "ask your admin about the name servers in /etc/resolv.conf: one of them does not answer",
        )
    return Check(name, Verdict.OK, text)


def _clock(view: ApView) -> Check:
    """Tokens have an expiry, so clocks must agree: this machine's and the collector's."""
    if view.now < _EARLIEST:
        return Check(
            "clock", Verdict.PROBLEM, f"this machine says it is {view.now:%Y-%m-%d}", "ask your admin to set the clock"
        )
    ad = view.schedd_in_collector
    sent = 0 if ad is None or isinstance(ad, StageFailure) else ads.count_of(ad, "MyCurrentTime")
    heard = 0 if ad is None or isinstance(ad, StageFailure) else ads.count_of(ad, "LastHeardFrom")
    if not sent or not heard:
        return Check("clock", Verdict.OK, f"{view.now:%Y-%m-%d %H:%M:%S} UTC")
    skew = sent - heard
    if abs(skew) <= _SKEW_LIMIT_S:
        return Check("clock", Verdict.OK, f"{view.now:%Y-%m-%d %H:%M:%S} UTC, agrees with the collector's")
    return Check(
        "clock",
        Verdict.PROBLEM,
        f"this AP's clock is {format_duration(abs(skew))} {'ahead of' if skew > 0 else 'behind'} the collector's; "
        "tokens may count as expired or not yet valid",
        "ask your admin to set the clocks (NTP)",
    )


def _condor(settings: ApSettings) -> Check:
    return Check(
        "HTCondor",
        Verdict.OK,
        f"configuration loads (bindings {settings.bindings_version or 'of unknown version'}, "
        f"trust domain {settings.trust_domain or 'not set'})",
    )


def _daemons(view: ApView) -> Iterator[Check]:
    if isinstance(view.schedd, StageFailure):
        yield _failed("schedd", view.schedd)
    elif view.schedd is not None:
        yield Check("schedd", Verdict.OK, f"{_name_and_version(view.schedd)} is here")
    if isinstance(view.identity, StageFailure):
        yield _failed("identity", view.identity)
    elif view.identity is not None:
        yield Check("identity", Verdict.OK, f"the schedd knows you as {view.identity}")
    if isinstance(view.collector, StageFailure):
        yield _failed("collector", view.collector)
    elif view.collector is not None:
        yield Check("collector", Verdict.OK, f"{_name_and_version(view.collector)} answers")
    yield from _negotiator(view.negotiators)


def _negotiator(seen: int | StageFailure | None) -> Iterator[Check]:
    if isinstance(seen, StageFailure):
        yield _failed("negotiator", seen)
    elif seen:
        yield Check("negotiator", Verdict.OK, "present: EPs that join the pool get jobs by negotiation")
    elif seen is not None:
        yield Check("negotiator", Verdict.NOTE, "none in this pool: EPs can only attach directly")


def _name_and_version(ad: ads.Ad) -> str:
    name, version = ads.text_of(ad, "Name"), ads.parse_version(ads.text_of(ad, "CondorVersion"))
    return f"{name or '(no name)'}" + (f" (HTCondor {version})" if version else "")


def _door(door: Door) -> Iterator[Check]:
    """For one way to join: is it open, can its address be reached from elsewhere, are tokens issued for it."""
    name = f"join {door.join}"
    if door.obstacle:
        yield Check(name, Verdict.NOTE, f"not offered: {door.obstacle}")
        return
    how = "collector and negotiator" if door.join is Join.POOL else "direct attach to the schedd"
    yield Check(name, Verdict.OK, f"offered, by {how}")
    yield _address(f"{name}: address", door)
    yield _token(f"{name}: token", door)


def _address(name: str, door: Door) -> Check:
    parsed = parse_address(door.address)
    if parsed is None:
        return Check(name, Verdict.PROBLEM, "the collector's address is not known", "set COLLECTOR_HOST")
    found = (parsed.host,) if ip(parsed.host) else door.lookup.addresses if door.lookup else ()
    numbers = [number for address in found if (number := ip(address)) is not None]
    if not numbers:
        return Check(
            name,
            Verdict.PROBLEM,
            f"EPs would be told {door.address}, and {parsed.host} does not resolve here",
            "set COLLECTOR_HOST (or TCP_FORWARDING_HOST) to a name that resolves everywhere",
        )
    shown = f"{door.address} ({', '.join(map(str, numbers))})"
    if any(number.is_loopback or number.is_unspecified for number in numbers):
        return Check(
            name,
            Verdict.PROBLEM,
            f"EPs would be told {shown}: a loopback address, which no other machine can reach",
            "set NETWORK_INTERFACE (or COLLECTOR_HOST) to this machine's real address, then condor_restart",
        )
    if all(number.is_private or number.is_link_local for number in numbers):
        return Check(
            name,
            Verdict.NOTE,
            f"EPs would be told {shown}: a private address, which only machines in your own network can reach",
            "for sites elsewhere set TCP_FORWARDING_HOST to the public address that forwards the port here "
            "(or NETWORK_INTERFACE to a public one); for sites in your own network nothing is to be done",
        )
    return Check(name, Verdict.OK, f"EPs will be told {shown}")


def _token(name: str, door: Door) -> Check:
    if isinstance(door.token, StageFailure):
        return _failed(name, door.token)
    if door.token is None:
        return Check(name, Verdict.NOTE, "not tried")
    claims = door.token
    carried = f"{claims.subject} by key {claims.key_id}: {', '.join(claims.scopes or ())}"
    if "WRITE" in (claims.scopes or ()):
        return Check(
            name,
            Verdict.NOTE,
            f"issued to {carried}. Direct attach needs WRITE: while it lives, such a token can also submit jobs as you",
        )
    return Check(name, Verdict.OK, f"issued to {carried}")


def _offered(doors: tuple[Door, ...]) -> Check:
    open_doors = [door.join for door in doors if not door.obstacle]
    if not open_doors:
        return Check(
            "joins",
            Verdict.PROBLEM,
            "no way for an EP to join this access point",
            "ask your admin for `use feature:HPC_ANNEX`, or for a pool whose negotiator serves this AP",
        )
    return Check("joins", Verdict.OK, f"{' and '.join(open_doors)}; join: auto takes {open_doors[0]}")


def _network(settings: ApSettings) -> Check:
    """EPs behind a site's NAT or firewall are called back through the collector's CCB; one port has to be open."""
    if not settings.ccb_server:
        return Check(
            "network",
            Verdict.PROBLEM,
            "ENABLE_CCB_SERVER is false: EPs behind a site's firewall cannot be called",
            "ask your admin to remove ENABLE_CCB_SERVER = false",
        )
    if not settings.shared_port:
        return Check(
            "network",
            Verdict.PROBLEM,
            "USE_SHARED_PORT is false: each daemon listens on a port of its own, which firewalls seldom let through",
            "ask your admin to remove USE_SHARED_PORT = false",
        )
    return Check("network", Verdict.OK, "shared port and CCB are on: EPs need one port, outwards only")


def _annex_identity(view: ApView) -> Iterator[Check]:
    """The AP's job transform lets a job that names an annex run only on EPs of `owner@ANNEX_TOKEN_DOMAIN`."""
    if isinstance(view.settings, StageFailure) or not isinstance(view.identity, str):
        return
    expected = view.settings.annex_domain
    user, _, domain = view.identity.partition("@")
    if expected and domain.lower() != expected.lower():
        yield Check(
            "annex jobs",
            Verdict.PROBLEM,
            f"jobs with TargetAnnexName will want EPs of {user}@{expected}, but your EPs will be {view.identity}",
            "ask your admin to set ANNEX_TOKEN_DOMAIN to the domain of your identity",
        )


def _jobs(view: ApView) -> Iterator[Check]:
    if view.waiting_jobs:
        yield Check("jobs", Verdict.NOTE, f"{view.waiting_jobs} of your idle jobs name an annex (TargetAnnexName)")


def _keyring(kind: str) -> Check:
    if kind:
        return Check("keyring", Verdict.OK, f"passwords can be stored ({kind})")
    return Check(
        "keyring",
        Verdict.NOTE,
        "none here (usual without a desktop): passwords are typed; "
        "siteannex login SITE keeps a session for later commands",
    )
