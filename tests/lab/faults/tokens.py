"""Tokens that are wrong on purpose, minted on the access point with its own key and tools, put in a pilot's way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lab import Lab
from tests.lab.faults.pilots import Trial

SCOPES = ("READ", "ADVERTISE_STARTD", "ADVERTISE_MASTER")
FAKETIME = "env LD_PRELOAD=$(ls /usr/lib/*/faketime/libfaketime.so.1) FAKETIME={shift}"


@dataclass(frozen=True, slots=True)
class Mint:
    """Makes tokens as root of the access point."""

    lab: Lab

    def make(
        self, *, identity: str = "alice@ap.lab", scopes: tuple[str, ...] = SCOPES, shift: str = "", before: str = ""
    ) -> str:
        """A token of an hour; `shift` moves the issuing clock (`-2h`), `before` is shell that comes first."""
        words = " ".join(f"-authz {scope}" for scope in scopes)
        clock = FAKETIME.format(shift=shift) if shift else ""
        script = f"{before}\n{clock} condor_token_create -identity {identity} {words} -lifetime 3600"
        return self.lab.exec("ap", ["sh", "-c", script], check=True).stdout.strip()

    def put(self, trial: Trial, **how: Any) -> None:
        """Have alice's pilots use a token made so in place of the one they were shipped with."""
        token = self.make(**how)
        self.lab.exec("login1", ["sh", "-c", "umask 077; cat >~/.odd-token"], user="alice", input=token, check=True)
        trial.site(environment=('mv ~/.odd-token "$ANNEX_DIR/token"',))
