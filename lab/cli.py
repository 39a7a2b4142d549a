"""The command line: ``lab/lab VERB``."""

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from lab import accounts, images, machine, state
from lab.control import Lab
from lab.errors import LabError
from lab.paths import state_dir
from lab.supervisor import log_tail
from lab.topology import HOSTS, NET_MODES, ROUTER, host


def _build(_: argparse.Namespace) -> int:
    machine.require_tools(build=True)
    machine.require_namespaces()
    images.build(_say)
    return 0


def _up(_: argparse.Namespace) -> int:
    Lab.up(say=_say)
    return 0


def _down(_: argparse.Namespace) -> int:
    _say("the lab is down" if Lab(state_dir()).down() else "no lab was running")
    return 0


def _status(_: argparse.Namespace) -> int:
    folder = state_dir()
    found = state.processes(folder)
    word = state.read_inside(folder)
    lab = Lab(folder)
    config = state.read_config(folder)
    age = time.time() - word["started"]
    print(f"state {folder}\nready {'yes' if word['ready'] else 'no'}, started {age:.0f} s ago, network {lab.net()}")
    print(f"ap image {Path(config['ap']).name}, site image {Path(config['site']).name}")
    if word["ready"]:
        versions = lab.exec("ap", ["condor_version"]).stdout.split()[1:2], lab.exec("login1", ["sinfo", "-V"]).stdout
        print(f"HTCondor {' '.join(versions[0])}, {versions[1].strip()}")
    for place in HOSTS:
        running = f"up (pid {found.hosts[place.name]})" if place.name in found.hosts else "down"
        print(f"{place.name:7} {place.fqdn:10} {place.address:11} {running}")
    return 0


def _exec(words: argparse.Namespace) -> int:
    command = words.command
    if not command:
        raise LabError("nothing to run: lab/lab exec HOST [--user U] -- CMD...")
    return _replace(Lab(state_dir()).argv(words.host, command, user=words.user, tty=words.tty))


def _shell(words: argparse.Namespace) -> int:
    command = ["sh", "-c", 'exec "${SHELL:-/bin/bash}" -l']
    return _replace(Lab(state_dir()).argv(words.host, command, user=words.user, tty=sys.stdin.isatty()))


def _run(words: argparse.Namespace) -> int:
    return _replace(Lab(state_dir()).argv(ROUTER, words.command or ["bash"]))


def _replace(argv: list[str]) -> int:
    sys.stdout.flush()
    environment = machine.environment()
    os.execvpe(argv[0], argv, environment)  # noqa: S606 (the command is the user's own)


def _code(words: argparse.Namespace) -> int:
    lab = Lab.attach() if words.fresh else Lab(state_dir())
    print(lab.code(words.user, fresh=words.fresh))
    return 0


def _accounts(_: argparse.Namespace) -> int:
    print(f"{'name':6} {'password':14} {'asked for':14} {'shell':10} Slurm accounts")
    for account in accounts.load():
        slurm = ",".join(account.slurm)
        print(f"{account.name:6} {account.password:14} {account.kind:14} {account.shell:10} {slurm}")
    return 0


def _net(words: argparse.Namespace) -> int:
    print(Lab.attach().net(words.mode))
    return 0


def _logs(words: argparse.Namespace) -> int:
    place = host(words.host)
    print(log_tail(Lab(state_dir()).root(place.name), place, words.lines))
    return 0


def _known_hosts(_: argparse.Namespace) -> int:
    lab = Lab.attach()
    sys.stdout.write(lab.known_hosts())
    shown = lab.exec("login1", ["sh", "-c", "for key in /etc/ssh/ssh_host_*_key.pub; do ssh-keygen -lf $key; done"])
    sys.stderr.write(shown.stdout)
    return 0


def _prune(_: argparse.Namespace) -> int:
    for path in images.prune():
        _say(f"deleted {path}")
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lab", description="A real HTCondor access point and Slurm site on this machine."
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")

    def verb(name: str, action: Callable[[argparse.Namespace], int], about: str) -> argparse.ArgumentParser:
        made = verbs.add_parser(name, help=about, description=about)
        made.set_defaults(action=action)
        return made

    verb("build", _build, "build the images that are not cached")
    verb("up", _up, "start the lab (building what is missing) and wait until everything answers")
    verb("down", _down, "end the lab and everything in it")
    verb("status", _status, "what runs")
    execute = verb("exec", _exec, "run a command (after --) on a host")
    execute.add_argument("host")
    execute.add_argument("--user", default="root")
    execute.add_argument("--tty", action="store_true", help="give it a terminal of the host's own")
    shell = verb("shell", _shell, "a login shell on a host")
    shell.add_argument("host")
    shell.add_argument("--user", default="root")
    code = verb("code", _code, "a person's current one-time code")
    code.add_argument("user")
    code.add_argument("--fresh", action="store_true", help="one that was not used or shown before")
    verb("accounts", _accounts, "who there is, and what the site asks them for")
    net = verb("net", _net, "show or change what passes between compute nodes and the AP")
    net.add_argument("mode", nargs="?", choices=NET_MODES)
    logs = verb("logs", _logs, "the ends of a host's logs")
    logs.add_argument("host", choices=[place.name for place in HOSTS])
    logs.add_argument("--lines", type=int, default=25)
    verb("known-hosts", _known_hosts, "the login node's known_hosts lines (fingerprints on stderr)")
    verb("run", _run, "run a command (after --) in the outer namespace, with this machine's files")
    verb("prune", _prune, "delete unpacked images and archives of old recipes")
    return parser


def main(arguments: list[str]) -> int:
    """Run one verb; a LabError is printed, and its status is 1."""
    ours, command = arguments, []
    if "--" in arguments:
        # Split here: argparse would look for our options in the command.
        cut = arguments.index("--")
        ours, command = arguments[:cut], arguments[cut + 1 :]
    words = _parser().parse_args(ours, argparse.Namespace(command=command))
    try:
        return int(words.action(words))
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
