"""Starting, ending and using a lab from outside (or from a process run on its router)."""

import fcntl
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from lab import accounts, images, machine, router, state
from lab.errors import LabError
from lab.images import Say
from lab.paths import REPO, state_dir, unpacked_dir
from lab.topology import HOSTS, NET_MODES, ROUTER, host

UP_SECONDS = 180.0


class Lab:
    """A running lab. Get one with :meth:`attach` or :meth:`up`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def attach(cls, folder: Path | None = None) -> "Lab":
        """The running lab in ``folder`` (default: the usual state directory); LabError if none is ready."""
        lab = cls(folder or state_dir())
        state.processes(lab.folder)
        if not state.read_inside(lab.folder).get("ready"):
            raise LabError(f"the lab in {lab.folder} is not ready yet")
        return lab

    @classmethod
    def up(cls, folder: Path | None = None, say: Say = print) -> "Lab":
        """Start a lab and return when every service answers; a running one is returned as it is."""
        lab = cls(folder or state_dir())
        lab.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if lab.folder.stat().st_uid != os.getuid():
            raise LabError(f"{lab.folder} belongs to someone else; set SITEANNEX_LAB_STATE")
        with _locked(lab.folder):
            if lab.running():
                # An `up` that was killed may have left it on its way.
                lab._wait_until_ready()
                say(f"the lab already runs in {lab.folder}")
                return cls.attach(lab.folder)
            machine.require_tools(build=False)
            machine.require_namespaces()
            found = images.find() or images.build(say)
            if note := images.fallback_note(found):
                say(note)
            began = time.monotonic()
            lab._start(found)
            say(f"the lab is up ({time.monotonic() - began:.1f} s), state in {lab.folder}")
        return lab

    def running(self) -> bool:
        """Whether the lab's processes are there (ready or not)."""
        try:
            state.processes(self.folder)
        except LabError:
            return state.outer_pid(self.folder) is not None
        return True

    def _start(self, found: images.Images) -> None:
        state.clear(self.folder)
        names = {name: str(getattr(found, name)) for name in ("ap", "site", "venv", "menu")}
        state.write_config(self.folder, {**names, "unpacked": str(unpacked_dir())})
        spaces = machine.unshare(
            "--mount", "--net", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc"
        )
        environment = {**machine.environment(), "PYTHONPATH": str(REPO), "PYTHONDONTWRITEBYTECODE": "1"}
        with (self.folder / "supervisor.log").open("wb") as log:
            process = subprocess.Popen(
                [*spaces, sys.executable, "-P", "-m", "lab.supervisor", str(self.folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=environment,
                start_new_session=True,
            )
        state.write_outer(self.folder, process.pid)
        # It outlives us on purpose; without this, Python would warn that nobody waited for it.
        process.returncode = 0
        try:
            self._wait_until_ready()
        except BaseException:
            self._end()
            raise

    def _wait_until_ready(self) -> None:
        until = time.monotonic() + UP_SECONDS
        while not state.read_inside(self.folder).get("ready"):
            if not self.running():
                said = state.read_failure(self.folder) or ""
                log = (self.folder / "supervisor.log").read_text(errors="replace")[-3000:]
                raise LabError(f"the lab did not come up:\n{said}\n{log}".rstrip())
            if time.monotonic() > until:
                raise LabError(f"the lab did not come up within {UP_SECONDS:.0f} s; see {self.folder}/supervisor.log")
            time.sleep(0.05)

    def down(self) -> bool:
        """End the lab and everything in it; False if none ran."""
        if not self.folder.is_dir():
            return False
        if state.is_inside(self.folder):
            raise LabError("this is the lab's own router; take the lab down from outside")
        with _locked(self.folder):
            ended = self._end()
            state.clear(self.folder)
        return ended

    def _end(self) -> bool:
        outer = state.outer_pid(self.folder)
        if outer is None:
            return False
        heads = state.children(outer)
        os.kill(outer, signal.SIGKILL)
        until = time.monotonic() + 30
        while any(_alive(pid) for pid in (outer, *heads)):
            if time.monotonic() > until:
                raise LabError(f"the lab's processes {outer} {heads} do not end")
            time.sleep(0.02)
        # Collected by whoever adopted them, usually at once; a caller should find nothing left.
        until = time.monotonic() + 5
        while any(Path(f"/proc/{pid}").exists() for pid in (outer, *heads)) and time.monotonic() < until:
            with suppress(ChildProcessError):
                os.waitpid(outer, os.WNOHANG)
            time.sleep(0.02)
        return True

    def argv(
        self,
        where: str,
        command: Sequence[str],
        *,
        user: str = "root",
        tty: bool = False,
        env: Mapping[str, str] | None = None,
    ) -> list[str]:
        """The full command line that runs ``command`` on a host as ``user``, with a fresh login's environment.

        ``tty`` gives it a terminal of the host's own, also when there is none here. ``where`` may be ``router``:
        then it runs in the outer namespace on this machine's files, as root of that namespace.
        """
        found = state.processes(self.folder)
        with_user = not found.inside and not machine.is_root()
        if where == ROUTER:
            entered = state.enter_router(found.supervisor, with_user=with_user)
            return [*entered, "sh", "-c", 'cd "$0" 2>/dev/null || cd /; exec "$@"', str(Path.cwd()), *command]
        try:
            name = host(where).name
        except KeyError:
            raise LabError(f"no host '{where}' (one of {', '.join(h.name for h in HOSTS)}, {ROUTER})") from None
        if name not in found.hosts:
            raise LabError(f"host {name} is not running")
        words = [*command]
        if env:
            words = ["env", *(f"{key}={value}" for key, value in env.items()), *words]
        if tty:
            words = ["script", "--quiet", "--return", "--command", shlex.join(words), "/dev/null"]
        return [*state.enter(found.hosts[name], with_user=with_user), "/usr/local/bin/lab-as", user, *words]

    def exec(
        self,
        where: str,
        command: Sequence[str],
        *,
        user: str = "root",
        tty: bool = False,
        env: Mapping[str, str] | None = None,
        input: str | None = None,
        timeout: float | None = 120,
        check: bool = False,
    ) -> "subprocess.CompletedProcess[str]":
        """Run ``command`` on a host and return its status and output."""
        return subprocess.run(
            self.argv(where, command, user=user, tty=tty, env=env),
            env=machine.environment(),
            text=True,
            stdin=subprocess.DEVNULL if input is None else None,
            input=input,
            capture_output=True,
            timeout=timeout,
            check=check,
        )

    def net(self, mode: str | None = None) -> str:
        """Set the router's rules to ``mode``, if given; returns the mode in force."""
        memory = self.folder / "net"
        if mode is not None:
            if mode not in NET_MODES:
                raise LabError(f"no such network mode: {mode} (one of {', '.join(NET_MODES)})")
            router.apply(mode, self.argv(ROUTER, []))
            memory.write_text(mode + "\n")
        return memory.read_text().strip() if memory.exists() else "nat"

    def password(self, user: str) -> str:
        """The site password of ``user``."""
        return _account(user).password

    def code(self, user: str, *, fresh: bool = True) -> str:
        """A one-time code for ``user``.

        The site takes each code once. ``fresh`` gives one that was neither used there nor given out here before,
        from the steps the site accepts around now (it waits only when all are spent); otherwise the current one.
        """
        account = _account(user)
        if not fresh:
            return accounts.totp(account.totp, int(time.time()) // accounts.STEP_SECONDS)
        while True:
            step = self._fresh_step(account.name)
            if step is not None:
                return accounts.totp(account.totp, step)
            time.sleep(accounts.STEP_SECONDS - time.time() % accounts.STEP_SECONDS)

    def _fresh_step(self, user: str) -> int | None:
        memory = self.folder / "codes.json"
        with _locked(self.folder, ".codes"):
            given: dict[str, list[int]] = json.loads(memory.read_text()) if memory.exists() else {}
            secret = self.exec("login1", ["cat", f"/home/{user}/.google_authenticator"]).stdout
            used = {int(word) for line in secret.splitlines() if "DISALLOW_REUSE" in line for word in line.split()[2:]}
            spent = used | set(given.get(user, []))
            for step in accounts.steps_by_nearness(time.time()):
                if step not in spent:
                    given[user] = [*given.get(user, [])[-100:], step]
                    memory.write_text(json.dumps(given))
                    return step
        return None

    def root(self, where: str) -> Path:
        """A host's root file system as seen from here (readable with the lab owner's rights)."""
        return Path(f"/proc/{state.processes(self.folder).hosts[host(where).name]}/root")

    def address(self, where: str) -> str:
        """A host's IPv4 address."""
        return host(where).address

    def known_hosts(self, login: str = "login1") -> str:
        """A login node's known_hosts lines, as a person would have after trusting it."""
        keys = self.exec(login, ["sh", "-c", "cat /etc/ssh/ssh_host_*_key.pub"], check=True).stdout
        place = host(login)
        return "".join(f"{place.fqdn},{place.address} {' '.join(line.split()[:2])}\n" for line in keys.splitlines())


def _account(user: str) -> accounts.Account:
    try:
        return accounts.find(user)
    except KeyError:
        names = ", ".join(account.name for account in accounts.load())
        raise LabError(f"no account '{user}' (one of {names})") from None


def _alive(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] not in "ZX"


@contextmanager
def _locked(folder: Path, name: str = ".lock") -> Iterator[None]:
    with (folder / name).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
