"""A whole small world for `up` and `down`: a state directory, an AP, a login node with real shells, a Slurm."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from siteannex.annex import down as taking_down
from siteannex.annex.judging.verdict import Verdict
from siteannex.annex.slurm_site import SlurmSite
from siteannex.annex.status import Row, take_status
from siteannex.annex.store import Annex, Store
from siteannex.annex.up import Tools, up
from siteannex.errors import AnnexError, StageFailure
from siteannex.model import EpSoftware, PilotReport, Request
from siteannex.ports import Transport
from siteannex.site.schema import Site
from tests.unit.doubles import FakeClock, FakePool, RecordingView, ShellTransport
from tests.unit.samples import request, site, slot, software
from tests.unit.stub_slurm import StubSlurm


class World:
    """What the tests of the straight lines share. `wake` makes every pending pilot an EP at the next wait."""

    def __init__(self, root: Path) -> None:
        self.clock, self.pool, self.view = FakeClock(), FakePool(), RecordingView()
        self.slurm = StubSlurm(root / "slurm")
        self.transport = ShellTransport(root / "home", self.slurm)
        self.store = Store(root / "state", self.clock)
        self.site: Site = site()
        self.logins = 0
        self.jobs: list[str] = []
        """The user's jobs in the AP's queue, as ClassAd text."""
        self.users: list[str | None] = []
        self.on_login: Callable[[], None] = lambda: None
        self.held: Transport | None = None
        self.ids = itertools.count(1)
        archive = root / "ep.tar.gz"
        archive.write_bytes(b"the EP software")
        self.software: EpSoftware = software(str(archive))
        self.clock.on_sleep = self.wake

    def wake(self) -> None:
        """Every pending pilot starts and its EP joins."""
        for job_id, state in self.slurm.states().items():
            if state == "PENDING":
                self.start(job_id)

    def start(self, job_id: str) -> None:
        """One pilot starts and its EP joins."""
        name = (self.slurm.root / "jobs" / job_id).read_text(encoding="utf-8").split("|")[0]
        self.slurm.job(job_id, name, "RUNNING", node="c1")
        heard = self.clock.now()
        self.pool.ads.append(
            slot(job_id, annex_id=name, total_gpus=4, total_cpus=16, total_memory_mib=65536, last_heard=heard)
        )

    def up(
        self, asked: Request | None = None, *, wait: bool = True, user: str | None = None
    ) -> tuple[Annex, Verdict | None]:
        """`siteannex up`; `user` is its --login."""
        return up(asked or request(), self.site, self.tools(user=user), wait=wait)

    def failing_up(self, asked: Request | None = None, *, user: str | None = None) -> StageFailure:
        """`siteannex up` that ends with a failure."""
        with pytest.raises(AnnexError) as raised:
            self.up(asked, user=user)
        return raised.value.failure

    def status(self, *, remote: bool = False) -> list[Row]:
        """`siteannex status --all`."""
        access = SlurmSite(self.site, self.transport) if remote else None
        return take_status(self.store.annexes(), self.store, self.pool, self.clock.now(), lambda _: access)

    def access(self) -> SlurmSite:
        """The site over this world's connection."""
        return SlurmSite(self.site, self.transport)

    def latest(self) -> Annex:
        """The newest annex."""
        return self.store.annexes()[-1]

    def reports(self, *lines: PilotReport, annex: Annex | None = None) -> None:
        """What pilots write into their progress files, whole files at a time."""
        for job_id in {line.job_id for line in lines}:
            mine = [line for line in lines if line.job_id == job_id]
            file = self.directory(annex or self.latest()) / "progress" / f"{job_id}.jsonl"
            file.write_text("".join(_json_line(line) for line in mine), encoding="utf-8")

    def down(self, annex: Annex, *, now: bool = False) -> None:
        """`siteannex down`."""
        access = SlurmSite(self.site, self.transport)
        taking_down.down(annex, access, self.store, self.pool, self.clock, self.view, now=now)

    def tools(self, *, pack: Callable[[Site], EpSoftware] | None = None, user: str | None = None) -> Tools:
        """The effects of a command."""
        return Tools(
            store=self.store,
            clock=self.clock,
            view=self.view,
            pool=self.pool,
            pack=pack or (lambda _: self.software),
            connect=self._login,
            held=self._held,
            user=user,
            new_id=lambda name: f"{name}-{next(self.ids):08d}",
        )

    def directory(self, annex: Annex) -> Path:
        """The annex's directory at the site."""
        return self.transport.home / ".siteannex" / "annex" / annex.plan.annex_id

    def _held(self, _: Site, user: str | None) -> Transport | None:
        if self.held is not None:
            self.users.append(user)
        return self.held

    def _login(self, _: Site, user: str | None) -> Transport:
        self.on_login()
        self.logins += 1
        self.users.append(user)
        if user is not None:
            self.transport.login = f"{user}@login.lab"
        self.held = self.transport
        return self.transport


def _json_line(report: PilotReport) -> str:
    record = {"at": report.at.isoformat(), "job": report.job_id, "node": report.node}
    return json.dumps({**record, "stage": report.stage, "code": report.code, "text": report.text}) + "\n"
