"""A whole small world for `up` and `down`: a state directory, an AP, a login node with real shells, a Slurm."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

from siteannex.annex import down as taking_down
from siteannex.annex.judge import Verdict
from siteannex.annex.slurm_site import SlurmSite
from siteannex.annex.store import Annex, Store
from siteannex.annex.up import Tools, up
from siteannex.model import EpSoftware, Request
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
        self.pool.ads.append(slot(job_id, annex_id=name, total_gpus=4, total_cpus=16, total_memory_mib=65536))

    def up(self, asked: Request | None = None, *, wait: bool = True) -> tuple[Annex, Verdict | None]:
        """`siteannex up`."""
        return up(asked or request(), self.site, self.tools(), wait=wait)

    def down(self, annex: Annex, *, now: bool = False) -> None:
        """`siteannex down`."""
        access = SlurmSite(self.site, self.transport)
        taking_down.down(annex, access, self.store, self.pool, self.clock, self.view, now=now)

    def tools(self, *, pack: Callable[[Site], EpSoftware] | None = None) -> Tools:
        """The effects of a command."""
        return Tools(
            store=self.store,
            clock=self.clock,
            view=self.view,
            pool=self.pool,
            pack=pack or (lambda _: self.software),
            connect=self._login,
            held=lambda _site, _user: self.held,
            new_id=lambda name: f"{name}-{next(self.ids):08d}",
        )

    def directory(self, annex: Annex) -> Path:
        """The annex's directory at the site."""
        return self.transport.home / ".siteannex" / "annex" / annex.plan.annex_id

    def _login(self, _: Site, user: str | None) -> Transport:
        self.on_login()
        self.logins += 1
        self.held = self.transport
        return self.transport
