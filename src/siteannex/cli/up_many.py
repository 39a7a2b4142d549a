"""`siteannex up` at several sites: plans first, then one login after another, then all of them at once."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from threading import Lock, Thread
from typing import Any

from siteannex.annex.judging.verdict import Verdict
from siteannex.annex.status import as_data, take_status
from siteannex.annex.store import Annex
from siteannex.annex.up import dry_run
from siteannex.annex.up import up as bring_up
from siteannex.cli.failure_view import exit_code, show
from siteannex.cli.screen import Screen
from siteannex.cli.wiring import Wiring
from siteannex.errors import AnnexError, StageFailure
from siteannex.model import Request
from siteannex.ports import Transport
from siteannex.site.schema import Site

_JOIN_S = 0.2


@dataclass(slots=True)
class _Part:
    """One site's share of the command."""

    request: Request
    site: Site
    transport: Transport | None = None
    annex: Annex | None = None
    verdict: Verdict | None = None
    failure: StageFailure | None = None
    bug: Exception | None = None
    """What no failure code tells: raised again when the other sites are done, never counted as up."""

    @property
    def label(self) -> str:
        """What its lines begin with: the site, and the annex where that has another name."""
        name, site = self.request.name, self.site.name
        return site if name == site else f"{name} at {site}"

    def attempt(self, step: Callable[[_Part], None]) -> None:
        """Take one step, unless an earlier one failed; a failure here is no reason to stop at the other sites."""
        if self.failure is None and self.bug is None:
            try:
                step(self)
            except AnnexError as problem:
                self.failure = problem.failure
            except Exception as bug:  # a thread's would be lost, and the site counted as up
                self.bug = bug


class SiteView:
    """A View whose lines say which site they are about; several write to one screen."""

    def __init__(self, screen: Screen, site: str, lock: Lock) -> None:
        self._screen, self._site, self._lock = screen, site, lock
        self._last = ("", "")

    def line(self, label: str, text: str) -> None:
        """News, with the site before it."""
        with self._lock:
            self._screen.line(label, f"{self._site}: {text}")

    def live(self, label: str, text: str) -> None:
        """Only what is new: one moving line cannot be shared."""
        news = (label, text.rpartition(" [")[0] or text)
        if news != self._last:
            self._last = news
            self.line(*news)

    def progress(self, label: str, text: str, done: int, total: int) -> None:
        """Nothing: the line that follows says the total."""


def up_many(
    requests: Sequence[tuple[Request, Site]],
    wiring: Wiring,
    *,
    user: str | None,
    budget: float | None,
    wait: bool,
    json_output: bool,
) -> None:
    """Bring up each; failures are shown at the end, and the first one's stage is the exit code."""
    parts = [_Part(request, site) for request, site in requests]
    lock, today = Lock(), wiring.clock.now().date()
    for part in parts:
        part.attempt(lambda part: _check_plan(part, wiring, today))
    for part in parts:
        part.attempt(lambda part: _log_in(part, wiring))
    threads = [
        Thread(target=part.attempt, args=(_bring_up(wiring, user, lock, budget=budget, wait=wait),), daemon=True)
        for part in parts
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():  # a wait without end would not hear Ctrl-C
            thread.join(_JOIN_S)
    _tell(parts, wiring, json_output=json_output)


def _check_plan(part: _Part, wiring: Wiring, today: Any) -> None:
    """No phone rings for a request that fits nowhere."""
    if wiring.store.living(part.request.name) is None:
        dry_run(part.request, part.site, today)


def _log_in(part: _Part, wiring: Wiring) -> None:
    annex = wiring.store.living(part.request.name)
    if annex is not None and len(annex.state().job_ids) >= annex.plan.pilots:
        return  # it may need no connection at all
    if wiring.held(part.site) is None:
        wiring.screen.line("connect", f"{part.site.name}: log in")
        part.transport = wiring.connect(part.site)


def _bring_up(
    wiring: Wiring, user: str | None, lock: Lock, *, budget: float | None, wait: bool
) -> Callable[[_Part], None]:
    def run(part: _Part) -> None:
        own = Wiring(wiring.screen, user=user, interactive=False)
        tools = own.tools(budget=budget)

        def held(site: Site, login: str | None) -> Transport | None:
            return part.transport or own.held(site, login)

        view = SiteView(wiring.screen, part.label, lock)
        part.annex, part.verdict = bring_up(part.request, part.site, replace(tools, view=view, held=held), wait=wait)

    return run


def _tell(parts: Sequence[_Part], wiring: Wiring, *, json_output: bool) -> None:
    failed = [part for part in parts if part.failure is not None]
    bugs = [part for part in parts if part.bug is not None]
    if json_output:
        print(json.dumps([_as_data(part, wiring) for part in parts if part.bug is None], indent=1))
    else:
        for part in failed:
            assert part.failure is not None
            show(part.failure, as_json=False)
        up = [part.label for part in parts if part not in failed and part not in bugs]
        wiring.screen.line("up", f"{len(up)} of {len(parts)}: {', '.join(up) or 'none'}; siteannex status shows all")
    if bugs:
        wiring.screen.line(bugs[0].label, "ended by a mistake of siteannex itself:")
        assert bugs[0].bug is not None
        raise bugs[0].bug
    if failed:
        assert failed[0].failure is not None
        sys.exit(exit_code(failed[0].failure.stage))


def _as_data(part: _Part, wiring: Wiring) -> dict[str, Any]:
    if part.annex is None:
        from siteannex.annex.events import failure_to_data

        assert part.failure is not None
        return {"site": part.site.name, "failure": failure_to_data(part.failure)}
    [row] = take_status([part.annex], wiring.store, wiring.pool, wiring.clock.now(), lambda _: None)
    return as_data(row)
