"""Where the concrete effects are built and put together, once per command."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from siteannex.annex.explaining.foresight import foresee
from siteannex.annex.pack import chosen, pack_installed
from siteannex.annex.slurm_site import SlurmSite
from siteannex.annex.store import Annex, Store
from siteannex.annex.up import Tools
from siteannex.cli.screen import Screen, TerminalPrompter, WallClock
from siteannex.cli.settings import Settings, read_settings, site_directories
from siteannex.errors import AnnexError
from siteannex.model import EpSoftware
from siteannex.pool.condor import CondorPool
from siteannex.pool.job_queue import JobQueue
from siteannex.ports import Prompt, Prompter, Transport
from siteannex.site.kinds import AnySite
from siteannex.site.loader import load_any, load_site, site_files
from siteannex.site.other_kinds import AwsSite
from siteannex.site.schema import Site
from siteannex.transport.passwords import keyring_obstacle, store_password, stored_password
from siteannex.transport.places import Places
from siteannex.transport.sessions import open_transport


class Wiring:
    """One command's effects. `user` overrides the login name of settings and ssh_config; `interactive` is whether a
    person may be asked (None: when standard input is a terminal)."""

    def __init__(self, screen: Screen, *, user: str | None = None, interactive: bool | None = None) -> None:
        self.screen = screen
        self.places = Places.from_environment()
        self.settings: Settings = read_settings()
        self.clock = WallClock()
        self.store = Store(self.places.state, self.clock, _once(lambda text: screen.line("state", text)))
        self.pool = CondorPool()
        self.prompter: Prompter = TerminalPrompter(
            screen, interactive=sys.stdin.isatty() if interactive is None else interactive
        )
        self._user = user

    def site(self, name: str) -> Site:
        """Load a site by name."""
        return load_site(name, site_directories())

    def any_site(self, name: str) -> AnySite:
        """Load a site of any kind by name."""
        return load_any(name, site_directories())

    def clouds(self) -> list[AwsSite]:
        """Every cloud whose file can be read."""
        found, directories = [], site_directories()
        for name in site_files(directories):
            with suppress(AnnexError):
                found.append(load_any(name, directories))
        return [site for site in found if isinstance(site, AwsSite)]

    def sites(self) -> list[Site]:
        """Every site with a batch system whose file can be read; first those this user has had to do with."""
        found, directories = [], site_directories()
        used = {annex.plan.request.site for annex in self.store.annexes()}
        mine = {*self.settings.sites, *used, *site_files(directories[:1])}
        for name in site_files(directories):
            with suppress(AnnexError):
                found.append(load_site(name, directories))
        return sorted(found, key=lambda site: site.name not in mine)

    def queue(self) -> JobQueue:
        """The AP's job queue."""
        return JobQueue(self.pool)

    def login_user(self, site: Site) -> str | None:
        """The login name asked for, if any: the option, then the settings."""
        return self._user or self.settings.of(site.name).user

    def connect(self, site: Site, user: str | None = None) -> Transport:
        """A held session, or a login now: the keyring is only asked when there is no session."""
        user = user or self.login_user(site)
        held = self.held(site, user)
        if held is not None:
            return held
        return open_transport(
            site,
            user=user,
            prompter=self.prompter,
            stored_password=stored_password(site.name, user or self.places.user),
            places=self.places,
        )

    def held(self, site: Site, user: str | None = None) -> Transport | None:
        """A held session, or None; asks nobody."""
        user = user or self.login_user(site)
        try:
            return open_transport(site, user=user, prompter=self.prompter, allow_login=False, places=self.places)
        except AnnexError:
            return None

    def store_password(self, site: Site) -> None:
        """Ask for a site's password and keep it in the keyring; a machine without one says so and goes on."""
        login = self.login_user(site) or self.places.user
        if (obstacle := keyring_obstacle()) is not None:
            self.screen.line("keyring", f"{obstacle}: the password is not kept, the session will be")
            return
        prompt = Prompt(site.name, f"{login}@{site.login.host}", "Password to store: ", echo=False, kind="password")
        answer = store_password(site.name, login, self.prompter.ask(prompt))
        kept = "kept in the keyring" if answer.done else f"not kept: {answer.reason}"
        self.screen.line("password", kept)

    def access(self, annex: Annex) -> SlurmSite:
        """The annex's site under the account that brought it up, logging in when no session is held."""
        site = self.site(annex.plan.request.site)
        return SlurmSite(site, self.connect(site, self._user or annex.state().login.rpartition("@")[0] or None))

    def pack(self, site: Site) -> EpSoftware:
        """The EP software for a site: a release tarball packed for its architecture, else this AP's HTCondor."""
        return chosen(site.arch, self.ep_cache) or pack_installed(self.ep_cache)

    @property
    def ep_cache(self) -> Path:
        """Where packed EP software is kept."""
        return self.places.state / "ep"

    def tools(self, *, budget: float | None = None) -> Tools:
        """What `up` needs. `budget`: the most this command may reserve at a site, in its unit."""
        return Tools(
            caps={name: each.budget for name, each in self.settings.sites.items() if each.budget is not None},
            budget=budget,
            store=self.store,
            clock=self.clock,
            view=self.screen,
            pool=self.pool,
            pack=self.pack,
            connect=self.connect,
            held=self.held,
            user=self._user,
            new_id=lambda name: f"{name}-{secrets.token_hex(4)}",
            foresee=lambda plan, site, facts: foresee(JobQueue(self.pool), plan, site, facts),
        )


def _once(say: Callable[[str], None]) -> Callable[[str], None]:
    """The same, but nothing is said twice."""
    said: set[str] = set()

    def tell(text: str) -> None:
        if text not in said:
            said.add(text)
            say(text)

    return tell
