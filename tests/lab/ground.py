"""The ground as it is: the site and the pool seen with their own tools, never through siteannex."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from lab import Lab

T = TypeVar("T")
NODES = ("c1", "c2")


@dataclass(frozen=True, slots=True)
class Ground:
    """Looks at every host as root."""

    lab: Lab

    def at(self, host: str, script: str, user: str = "root") -> str:
        """A shell script's output on a host; fails when it fails."""
        done = self.lab.exec(host, ["sh", "-c", script], user=user)
        assert done.returncode == 0, f"{host}: {script}\n{done.stdout}\n{done.stderr}"
        return done.stdout.strip()

    def batch_jobs(self, account: str = "alice") -> list[str]:
        """Slurm jobs of an account that wait, run or end."""
        return self.at("login1", f"squeue -h -u {account} -o '%A %T'").splitlines()

    def processes(self, account: str = "alice") -> list[str]:
        """Processes of an account on the compute nodes."""
        return [line for node in NODES for line in self.at(node, f"ps -u {account} -o pid=,args= || true").splitlines()]

    def files(self, account: str = "alice") -> list[str]:
        """Files of siteannex at the site that are neither a log archive nor the EP tarball."""
        home = f"find ~{account}/.siteannex -type f -not -path '*/logs/*' -not -path '*/ep/*' 2>/dev/null || true"
        scratch = f"find /scratch /tmp -user {account} -type f 2>/dev/null || true"
        found = self.at("login1", home).splitlines()
        return found + [f"{node}:{line}" for node in NODES for line in self.at(node, scratch).splitlines()]

    def ads(self) -> list[str]:
        """Names of siteannex's startd and master ads in either collector of the AP."""
        query = "condor_status -any -const 'SiteannexRequestId =!= undefined' -af MyType Name"
        direct = query.replace("condor_status", "condor_status -pool 'ap.lab:9618?sock=ap_collector'")
        return self.at("ap", f"{query}; {direct}").splitlines()

    def nothing_left(self, account: str = "alice", *, within_s: float = 30) -> None:
        """No job, process, file or ad of an annex is left, or an assertion that names it."""
        looks: dict[str, Callable[[], list[str]]] = {
            "batch jobs": lambda: self.batch_jobs(account),
            "processes": lambda: self.processes(account),
            "files": lambda: self.files(account),
            "ads": self.ads,
        }
        for what, look in looks.items():
            left = self.wait_for(look, lambda found: not found, within_s=within_s)
            assert not left, f"{what} left behind: {left}"

    def wait_for(self, look: Callable[[], T], enough: Callable[[T], bool], *, within_s: float) -> T:
        """Look until it is enough or time is over; the last look."""
        until = time.monotonic() + within_s
        while not enough(seen := look()) and time.monotonic() < until:
            time.sleep(0.3)
        return seen

    def logins(self, account: str = "alice") -> int:
        """Authentications sshd has accepted for an account since the lab started."""
        return int(self.at("login1", f"grep -c 'Accepted .* for {account} ' /var/log/sshd.log || true"))
