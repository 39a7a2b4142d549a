"""The few effects siteannex has, each a small Protocol. Concrete ones are built in the command line and passed in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from siteannex.errors import Secret
from siteannex.model import JobCounts, Join, KeeperAd, MarkedAd, PoolFacts, Slot

Progress = Callable[[int, int], None]
"""Called with (bytes done, bytes in all)."""


@dataclass(frozen=True, slots=True)
class Command:
    """A POSIX shell script to run at a site by `/bin/sh`, whatever the login shell; `stdin` is text fed to it."""

    script: str
    stdin: str = ""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What the remote side said: an answer, even when `status` is not 0. A broken link is an AnnexError instead."""

    status: int
    stdout: str
    stderr: str

    @property
    def ok(self) -> bool:
        """True when the exit status is 0."""
        return self.status == 0


class Transport(Protocol):
    """A connection to one login host, already authenticated."""

    site: str
    login: str
    """Who is logged in where: `alice@login.expanse.sdsc.edu`."""

    def run(self, commands: Sequence[Command], *, timeout_s: float = 60.0) -> list[CommandResult]:
        """Run the commands in order in one round trip, one result each. AnnexError when the link breaks."""

    def put(self, source: Path, target: str, *, progress: Progress | None = None, sha256: str = "") -> int:
        """Upload a file, verified by sha256 and moved into place atomically, mode 0600; returns bytes sent.

        Given the sum that its content must have, an upload that was cut goes on where it ended.
        """

    def get(self, path: str, *, limit_bytes: int) -> bytes | None:
        """The last `limit_bytes` of a remote file, or None when it does not exist."""

    def close(self) -> None:
        """End this use of the connection (a held session stays open for the next command)."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One question of a site's login: the server's own text, whether it may be echoed, who asks."""

    site: str
    login: str
    text: str
    echo: bool
    kind: str
    """`password` (may come from a keyring), `otp` or `other` (always typed); `passphrase`: of a key, asked by us."""
    instructions: str = ""


class Prompter(Protocol):
    """The person at the terminal."""

    def ask(self, prompt: Prompt) -> Secret:
        """Show the prompt and return what was typed. AnnexError(no-terminal) when nobody can answer."""

    def confirm_host_key(self, host: str, key_type: str, fingerprint: str) -> bool:
        """Show an unknown host's fingerprint; True when the person accepts it."""

    def tell(self, text: str) -> None:
        """Show text the server sent outside a question (a banner, a notice)."""


class Clock(Protocol):
    """Time, injected so that tests can move it."""

    def now(self) -> datetime:
        """The current moment, with time zone UTC."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class View(Protocol):
    """The screen. `label` is one short word per stage (`plan`, `queue`, `join`), the same in every verb."""

    def line(self, label: str, text: str) -> None:
        """News that stays: what happened."""

    def live(self, label: str, text: str) -> None:
        """What is being waited for now; replaced by the next call on a terminal, printed on change elsewhere."""

    def progress(self, label: str, text: str, done: int, total: int) -> None:
        """Bytes on their way."""


class Pool(Protocol):
    """The access point's HTCondor, as this user. Every call is bounded in time; AnnexError(ap-unreachable)."""

    def facts(self, join: Join) -> PoolFacts:
        """Who the user is to HTCondor, where EPs must connect, and how they will join."""

    def slots(self, annex_id: str | None = None) -> list[Slot]:
        """Slots of this user's annexes (or of one) as the collector shows them now."""

    def keepers(self) -> list[KeeperAd]:
        """What the keepers of this user's leased annexes last told the collector."""

    def job_counts(self, names: Sequence[str]) -> dict[str, JobCounts]:
        """This user's jobs by the annex name they target."""

    def issue_token(self, join: Join, lifetime_s: int) -> Secret:
        """An IDTOKEN that lets an EP join, and little more."""

    def withdraw_ads(self, annex_id: str) -> None:
        """Ask the collectors to forget this user's ads of one annex."""


class AdBoard(Protocol):
    """The collectors of the access point, as far as ads that annexes left there go. AnnexError(ap-unreachable)."""

    def schedd_name(self) -> str:
        """The name of this access point's schedd."""

    def marked_ads(self) -> list[MarkedAd]:
        """This user's ads that bear an annex's mark."""

    def withdraw_ads(self, annex_id: str) -> None:
        """Ask the collectors to forget this user's ads of one annex."""
