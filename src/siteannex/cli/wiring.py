"""Where the concrete effects are built and put together, once per command."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path

from siteannex.annex.packing import pack_installed
from siteannex.annex.slurm_site import SlurmSite
from siteannex.annex.store import Annex, Store
from siteannex.annex.up import Tools
from siteannex.cli.screen import Screen, TerminalPrompter, WallClock
from siteannex.cli.settings import Settings, read_settings, site_directories
from siteannex.errors import AnnexError
from siteannex.model import EpSoftware
from siteannex.pool.condor import CondorPool
from siteannex.ports import Transport
from siteannex.site.loader import load_site
from siteannex.site.schema import Site
from siteannex.transport.passwords import stored_password
from siteannex.transport.places import Places
from siteannex.transport.sessions import open_transport


class Wiring:
    """One command's effects. `user` overrides the login name of settings and ssh_config."""

    def __init__(self, screen: Screen, *, user: str | None = None, ep_source: Path | None = None) -> None:
        self.screen = screen
        self.places = Places.from_environment()
        self.settings: Settings = read_settings()
        self.clock = WallClock()
        self.store = Store(self.places.state, self.clock)
        self.pool = CondorPool()
        self.prompter = TerminalPrompter(screen, interactive=sys.stdin.isatty())
        self._user, self._ep_source = user, ep_source

    def site(self, name: str) -> Site:
        """Load a site by name."""
        return load_site(name, site_directories())

    def login_user(self, site: Site) -> str | None:
        """The login name asked for, if any: the option, then the settings."""
        return self._user or self.settings.of(site.name).user

    def connect(self, site: Site) -> Transport:
        """A held session, or a login now."""
        return self._open(site, allow_login=True)

    def held(self, site: Site) -> Transport | None:
        """A held session, or None; asks nobody."""
        try:
            return self._open(site, allow_login=False)
        except AnnexError:
            return None

    def access(self, annex: Annex) -> SlurmSite:
        """The annex's site, logging in when no session is held."""
        site = self.site(annex.plan.request.site)
        return SlurmSite(site, self.connect(site))

    def held_access(self, annex: Annex) -> SlurmSite | None:
        """The annex's site over a held session, or None."""
        site = self.site(annex.plan.request.site)
        transport = self.held(site)
        return SlurmSite(site, transport) if transport is not None else None

    def pack(self, site: Site) -> EpSoftware:
        """The EP software for a site: a release tarball packed for its architecture, else this AP's HTCondor."""
        from siteannex.annex.packing import packed_for

        return packed_for(site.arch, self.ep_cache) or pack_installed(self.ep_cache)

    @property
    def ep_cache(self) -> Path:
        """Where packed EP software is kept."""
        return self.places.state / "ep"

    def tools(self) -> Tools:
        """What `up` needs."""
        return Tools(
            store=self.store,
            clock=self.clock,
            view=self.screen,
            pool=self.pool,
            pack=self.pack,
            connect=self.connect,
            held=self.held,
            new_id=lambda name: f"{name}-{secrets.token_hex(4)}",
        )

    def _open(self, site: Site, *, allow_login: bool) -> Transport:
        user = self.login_user(site)
        password = stored_password(site.name, user or self.places.user) if allow_login else None
        return open_transport(
            site,
            user=user,
            prompter=self.prompter,
            stored_password=password,
            allow_login=allow_login,
            places=self.places,
        )
