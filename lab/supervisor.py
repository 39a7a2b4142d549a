"""The first process inside the lab's outer namespaces: it stands on the router, starts the hosts, reaps orphans.

Started by :mod:`lab.control` as ``python3 -m lab.supervisor STATE``; everything it starts dies with it.
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from lab import accounts, machine, paths, router, state
from lab.errors import HostFailedError, LabError
from lab.paths import FILES, REPO
from lab.topology import HOSTS, Host, host
from lab.topology import nodes as nodes_of

READY_SECONDS = 90.0


def main(folder: Path) -> int:
    """Bring the lab up, report in ``folder``, then stay for ever; on failure report and end everything."""
    with paths.images_in_use(Path(state.read_config(folder)["unpacked"])):
        return _live(folder)


def _live(folder: Path) -> int:
    hosts: dict[str, subprocess.Popen[bytes]] = {}
    try:
        config = state.read_config(folder)
        ground = _prepare(folder, config)
        for place in HOSTS:
            hosts[place.name] = _start(place, ground, config)
        inside = _inside(hosts)
        state.write_inside(folder, inside)
        _wait_until_ready(ground, hosts)
        state.write_inside(folder, {**inside, "ready": True})
    except HostFailedError as error:
        # Where a host has ended its root is gone, but what it wrote is in its overlay's upper folder.
        tail = log_tail(folder / "ground" / error.host / "upper", host(error.host))
        state.write_failure(folder, f"{error}\n{tail}")
        return 1
    except (LabError, OSError, subprocess.SubprocessError) as error:
        state.write_failure(folder, str(error))
        return 1
    _reap_for_ever()
    return 0


def _inside(hosts: dict[str, subprocess.Popen[bytes]]) -> dict[str, Any]:
    return {
        "pid_namespace": str(Path("/proc/self/ns/pid").readlink()),
        "hosts": {name: process.pid for name, process in hosts.items()},
        "started": time.time(),
        "ready": False,
    }


def _prepare(folder: Path, config: dict[str, str]) -> Path:
    ground = folder / "ground"
    ground.mkdir(exist_ok=True)
    _run("mount", "-t", "tmpfs", "-o", "mode=755", "lab-ground", str(ground))
    shared = ground / "shared"
    shared.mkdir()
    for place in HOSTS:
        if place.site:
            (ground / f"home-{place.site}").mkdir(exist_ok=True)
            (ground / f"scratch-{place.name}").mkdir()
    people = accounts.load()
    (shared / "accounts-ap.sh").write_text(accounts.ap_script(people))
    (shared / "accounts-site.sh").write_text(accounts.site_script(people))
    (shared / "accounts-site2.sh").write_text(accounts.site_script(tuple(one for one in people if one.ap)))
    (shared / "slurm-accounts.sh").write_text(accounts.slurm_script(people))
    (shared / "pam_lab_menu.so").write_bytes(Path(config["menu"]).read_bytes())
    unpacking = [
        subprocess.Popen(["sh", str(FILES / "unpack.sh"), config[name], _tree(config, name)])
        for name in ("ap", "site", "venv")
    ]
    if any(process.wait() != 0 for process in unpacking):
        raise LabError(f"could not unpack the images into {config['unpacked']}")
    _run("ip", "link", "set", "lo", "up")
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1\n")
    # The lab's names, for whatever is run on the router (`lab run`).
    _run("mount", "--bind", str(FILES / "common" / "hosts"), "/etc/hosts")
    router.apply("nat")
    return ground


def _tree(config: dict[str, str], name: str) -> str:
    return str(Path(config["unpacked"]) / Path(config[name]).name.removesuffix(".tar.zst"))


def _start(place: Host, ground: Path, config: dict[str, str]) -> "subprocess.Popen[bytes]":
    upper = ground / place.name
    upper.mkdir()
    extras = []
    if place.site:
        extras += [f"dir={ground}/home-{place.site}:/home", f"dir={ground}/scratch-{place.name}:/scratch"]
    else:
        extras += [f"ro={_tree(config, 'venv')}:/opt/siteannex", f"ro={REPO}:/opt/siteannex-src"]
    extras += [f"dev=/dev/null:/dev/nvidia{number}" for number in range(place.gpus)]
    command = [
        "unshare",
        "--mount",
        "--net",
        "--pid",
        "--uts",
        "--ipc",
        "--fork",
        "--kill-child",
        "bash",
        str(FILES / "host-init.sh"),
        place.name,
        place.address,
        place.gateway,
        _tree(config, place.image),
        str(upper),
        str(ground / "shared"),
        str(FILES),
        place.boot,
        *extras,
    ]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, cwd="/")


def _wait_until_ready(ground: Path, hosts: dict[str, subprocess.Popen[bytes]]) -> None:
    until = time.monotonic() + READY_SECONDS
    ap = host("ap")
    logins = [place for place in map(host, hosts) if place.site and not place.gpus]

    def poll(place: Host, complaint: str, check: Callable[[], bool]) -> None:
        while not check():
            for name, process in hosts.items():
                if process.poll() is not None:
                    raise HostFailedError(name, f"the host ended by itself ({process.returncode})")
            if time.monotonic() > until:
                raise HostFailedError(place.name, f"{complaint} within {READY_SECONDS:.0f} s")
            time.sleep(0.05)

    for name in hosts:
        poll(host(name), "did not finish booting", (ground / "shared" / f"booted-{name}").exists)
    for login in logins:
        poll(login, "sshd does not answer", partial(_ssh_answers, login.address))
    poll(ap, "the collector or the schedd does not answer", partial(_condor_answers, hosts["ap"]))
    for login in logins:
        poll(login, "Slurm's nodes are not idle", partial(_nodes_idle, hosts[login.name], nodes_of(login.site)))


def _ssh_answers(address: str) -> bool:
    try:
        with socket.create_connection((address, 22), timeout=2) as wire:
            return wire.recv(8).startswith(b"SSH-2.0")
    except OSError:
        return False


def _condor_answers(process: "subprocess.Popen[bytes]") -> bool:
    asked = _on(process, "condor_status", "-any", "-af", "MyType")
    return {"Scheduler", "Collector", "Negotiator"} <= set(asked.split())


def _nodes_idle(process: "subprocess.Popen[bytes]", nodes: frozenset[str]) -> bool:
    states = set(_on(process, "sinfo", "-h", "-N", "-o", "%N %T").splitlines())
    return states == {f"{node} idle" for node in nodes}


def _on(process: "subprocess.Popen[bytes]", *command: str) -> str:
    entered = state.enter(process.pid, with_user=False)
    asked = [*entered, "/usr/local/bin/lab-as", "root", *command]
    return subprocess.run(asked, capture_output=True, text=True, timeout=30, check=False).stdout


def log_tail(root: Path, place: Host, lines: int = 15) -> str:
    """The ends of a host's logs, read through its root file system."""
    parts = []
    for log in place.logs:
        path = root / log.lstrip("/")
        try:
            tail = path.read_text(errors="replace").splitlines()[-lines:]
        except OSError:
            continue
        if tail:
            parts.append("\n".join([f"==> {place.name}:{log} <==", *tail]))
    return "\n".join(parts)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise LabError(f"{' '.join(command)}: {done.stderr.strip()}")


def _reap_for_ever() -> None:
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            time.sleep(1)


if __name__ == "__main__":
    os.environ.update(machine.environment())
    sys.exit(main(Path(sys.argv[1])))
