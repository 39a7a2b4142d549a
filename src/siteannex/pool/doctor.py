"""Is this access point fit for annexes? Gathers what `checks.py` judges; every question is bounded in time."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TypeVar

from siteannex.errors import AnnexError, StageFailure
from siteannex.model import Join
from siteannex.pool import ads, tokens
from siteannex.pool.address import outside_address, parse_address
from siteannex.pool.checks import PROBE_TOKEN_S, ApView, Check, Door, Lookup, Verdict, judge_ap
from siteannex.pool.condor import CondorPool
from siteannex.pool.settings import ApSettings

__all__ = ["Check", "Verdict", "gather", "look_up_host", "run_doctor"]

_LOOKUP_LIMIT_S = 8.0
_KEYRING_LIMIT_S = 8.0
_KEYRING_PROBE = """
import keyring
found = keyring.get_keyring()
kind = type(found).__module__.removeprefix("keyring.backends.")
print("" if kind in ("fail", "null") or kind == "chainer" and not found.backends else kind)
"""

T = TypeVar("T")


def run_doctor(pool: CondorPool) -> list[Check]:
    """Look at the AP (a few seconds) and say line by line what is fit, what is not, and what to do about it."""
    return judge_ap(gather(pool))


def gather(pool: CondorPool, *, look_up: Callable[[str], Lookup] | None = None) -> ApView:
    """Put every question once. Failures are part of the view, not exceptions."""
    find = look_up or look_up_host
    now, keyring = datetime.now(UTC), keyring_kind()
    settings = _attempt(pool.settings)
    if isinstance(settings, StageFailure):
        return ApView(now, find(socket.gethostname()), keyring, settings)
    hostname = find(settings.full_hostname or socket.gethostname())
    schedd = _attempt(pool.schedd)
    name = "" if isinstance(schedd, StageFailure) else ads.text_of(schedd, "Name")
    collectors = _attempt(lambda: pool.daemons("Collector"))
    if isinstance(collectors, StageFailure):
        return ApView(now, hostname, keyring, settings, schedd, collector=collectors)
    negotiators = _attempt(lambda: pool.daemons("Negotiator"))
    listed = _attempt(lambda: pool.daemons("Schedd", name=name))
    return ApView(
        now=now,
        hostname=hostname,
        keyring=keyring,
        settings=settings,
        schedd=schedd,
        identity=None if isinstance(schedd, StageFailure) else _attempt(pool.identity),
        collector=_first(collectors),
        negotiators=negotiators if isinstance(negotiators, StageFailure) else len(negotiators),
        schedd_in_collector=listed if isinstance(listed, StageFailure) else _first(listed),
        doors=() if isinstance(schedd, StageFailure) else _doors(pool, settings, find),
        waiting_jobs=None if isinstance(schedd, StageFailure) else _waiting(pool),
    )


def _doors(pool: CondorPool, settings: ApSettings, find: Callable[[str], Lookup]) -> tuple[Door, ...]:
    return tuple(_door(pool, settings, join, find) for join in (Join.POOL, Join.DIRECT))


def _door(pool: CondorPool, settings: ApSettings, join: Join, find: Callable[[str], Lookup]) -> Door:
    obstacle = _attempt(lambda: pool.obstacle(join))
    if isinstance(obstacle, StageFailure):
        return Door(join, obstacle.summary)
    if obstacle:
        return Door(join, obstacle)
    where = settings.annex_collector if join is Join.DIRECT else ""
    found = _attempt(lambda: pool.daemons("Collector", pool=where))
    shown = "" if isinstance(found, StageFailure) else ads.text_of(_first(found) or {}, "MyAddress")
    address = outside_address(where or settings.collector_host, shown)
    parsed = parse_address(address)
    return Door(
        join=join,
        obstacle="",
        address=address,
        lookup=find(parsed.host) if parsed else None,
        token=_attempt(lambda: tokens.decode(pool.issue_token(join, PROBE_TOKEN_S))),
    )


def _waiting(pool: CondorPool) -> int | None:
    counted = _attempt(pool.waiting_jobs)
    return None if isinstance(counted, StageFailure) else counted


def _attempt(ask: Callable[[], T]) -> T | StageFailure:
    try:
        return ask()
    except AnnexError as error:
        return error.failure


def _first(found: Sequence[ads.Ad]) -> ads.Ad | None:
    return found[0] if found else None


def look_up_host(name: str) -> Lookup:
    """Resolve a name as this machine does. In a process of its own: a dead name server blocks for minutes."""
    begun = time.monotonic()
    try:
        done = subprocess.run(
            ["getent", "ahosts", name],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LOOKUP_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Lookup(name, seconds=time.monotonic() - begun, timed_out=True)
    except OSError:
        return Lookup(name)
    addresses = dict.fromkeys(line.split()[0] for line in done.stdout.splitlines() if line.split())
    return Lookup(name, tuple(addresses), time.monotonic() - begun)


def keyring_kind() -> str:
    """The keyring that would be used (`SecretService`), "" for none. A process of its own: D-Bus can hang."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _KEYRING_PROBE],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_KEYRING_LIMIT_S,
            check=False,
        )
    except (subprocess.TimeoutExpired, OSError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
