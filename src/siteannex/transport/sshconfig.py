"""From a site's login facts and the user's SSH configuration to one frozen `LoginTarget`.

The words are OpenSSH's (ssh_config(5)); paramiko's parser does the matching, `Include` is done here.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from siteannex.errors import Evidence
from siteannex.failures import fail
from siteannex.site.schema import Login
from siteannex.transport.places import Places

if TYPE_CHECKING:
    from paramiko.config import SSHConfig, SSHConfigDict

_DEFAULT_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")
_INCLUDE = re.compile(r"\s*include[\s=]+(.+?)\s*$", re.IGNORECASE)
_HEADER = re.compile(r"\s*(host|match)[\s=]", re.IGNORECASE)
_KEY_FILE = re.compile(r"(\s*identityfile[\s=]+\"?)(?:~(?=/)|%d)", re.IGNORECASE)
_PROXY = re.compile(r"\s*proxycommand[\s=]", re.IGNORECASE)
_LATER = "\x01"
"""Stands for % in a ProxyCommand until the port and user, which the parser does not know, are known."""
_DEPTH_LIMIT = 16


@dataclass(frozen=True, slots=True)
class LoginTarget:
    """One host to log in to, everything resolved."""

    alias: str
    """The name the site file or a ProxyJump gave."""
    host: str
    port: int
    user: str
    host_key_name: str
    """The name known_hosts has for it (HostKeyAlias, else the host)."""
    identity_files: tuple[Path, ...] = ()
    identities_named: bool = False
    """True when `~/.ssh/config` names the keys; False when they are OpenSSH's default names."""
    certificate_files: tuple[Path, ...] = ()
    identities_only: bool = False
    agent_socket: Path | None = None
    known_hosts: tuple[Path, ...] = ()
    """The user's files, the first is the one that new keys are written to."""
    system_known_hosts: tuple[Path, ...] = ()
    connect_timeout_s: float | None = None
    """`ConnectTimeout`; None: siteannex's own."""
    proxy_command: str | None = None
    published_keys: Mapping[str, str] = field(default_factory=dict)
    """Fingerprints that the site file has, by the beginning of a key's type: `ed25519`."""
    jumps: tuple[LoginTarget, ...] = ()
    """Hosts to go through, in order."""

    @property
    def login(self) -> str:
        """`user@host`, with the port when it is not 22."""
        return f"{self.user}@{self.host}" + (f":{self.port}" if self.port != 22 else "")


def resolve(site: str, login: Login, places: Places, *, user: str | None = None) -> LoginTarget:
    """Where to log in. An explicit `user` wins over the configuration, the configuration over the local user name.

    Raises AnnexError(ssh-config-invalid) when `~/.ssh/config` cannot be understood.
    """
    resolver = _Resolver(site, _load(site, places), places)
    target = replace(resolver.target(login.host, login.port, user, seen=()), published_keys=login.fingerprints)
    return resolver.through(target, login.jump) if login.jump else target


@dataclass(frozen=True, slots=True)
class _Resolver:
    site: str
    config: SSHConfig
    places: Places

    def target(self, alias: str, port: int, user: str | None, seen: tuple[str, ...]) -> LoginTarget:
        if alias in seen:
            raise fail("ssh-config-invalid", self.site, f"ProxyJump goes in circles: {' -> '.join((*seen, alias))}")
        options = self._lookup(alias)
        host = str(options["hostname"])
        known, system = self._known_hosts(options)
        target = LoginTarget(
            alias=alias,
            host=host,
            port=int(options.get("port", port)),
            user=user or str(options.get("user", self.places.user)),
            host_key_name=str(options.get("hostkeyalias", host)).lower(),
            identities_only=_yes(options, "identitiesonly"),
            connect_timeout_s=_seconds(options.get("connecttimeout")),
            agent_socket=self._agent(options),
            known_hosts=known,
            system_known_hosts=system,
        )
        target = replace(
            target,
            identity_files=self._identities(options),
            identities_named="identityfile" in options,
            certificate_files=self._paths(options.get("certificatefile"), target),
        )
        return self._with_proxy(target, options, (*seen, alias))

    def through(self, target: LoginTarget, jump: str) -> LoginTarget:
        """The target by the site file's way, with its own user unless the way names one; the configuration's wins."""
        options = self._lookup(target.alias)
        if "proxyjump" in options or "proxycommand" in options:
            return target
        hop = jump if "@" in jump else f"{target.user}@{jump}"
        return replace(target, jumps=self._jumps(hop, (target.alias,)))

    def _lookup(self, alias: str) -> SSHConfigDict:
        try:
            return self.config.lookup(alias)
        except Exception as problem:
            raise fail(
                "ssh-config-invalid",
                self.site,
                f"~/.ssh/config has something for {alias} that siteannex does not follow",
                evidence=[Evidence.tail("~/.ssh/config", str(problem) or type(problem).__name__)],
            ) from problem

    def _with_proxy(self, target: LoginTarget, options: SSHConfigDict, seen: tuple[str, ...]) -> LoginTarget:
        jump = str(options.get("proxyjump") or "none")
        if jump.lower() != "none":
            return replace(target, jumps=self._jumps(jump, seen))
        command = options.get("proxycommand")
        if command and str(command).lower() != "none":
            return replace(target, proxy_command=_filled(str(command).replace(_LATER, "%"), target))
        return target

    def _jumps(self, text: str, seen: tuple[str, ...]) -> tuple[LoginTarget, ...]:
        jumps: list[LoginTarget] = []
        for index, hop in enumerate(part.strip() for part in text.split(",")):
            user, host, port = parse_jump(hop)
            jump = self.target(host, port or 22, user, seen)
            if port:
                jump = replace(jump, port=port)
            if index == 0:
                jumps += jump.jumps
            jumps.append(replace(jump, jumps=(), proxy_command=jump.proxy_command if index == 0 else None))
        return tuple(jumps)

    def _identities(self, options: SSHConfigDict) -> tuple[Path, ...]:
        named = options.get("identityfile")
        if not named:
            return tuple(self.places.home / ".ssh" / name for name in _DEFAULT_KEYS)
        return tuple(self._home(str(name)) for name in named if str(name).lower() != "none")

    def _agent(self, options: SSHConfigDict) -> Path | None:
        value = str(options.get("identityagent", "SSH_AUTH_SOCK"))
        if value == "none":
            return None
        if value == "SSH_AUTH_SOCK":
            return self.places.agent_socket
        return self._home(os.path.expandvars(value))

    def _known_hosts(self, options: SSHConfigDict) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
        user = options.get("userknownhostsfile")
        system = options.get("globalknownhostsfile")
        ssh, etc = self.places.home / ".ssh", self.places.system_ssh
        return (
            self._paths(user, None) if user else (ssh / "known_hosts", ssh / "known_hosts2"),
            self._paths(system, None) if system else (etc / "ssh_known_hosts", etc / "ssh_known_hosts2"),
        )

    def _paths(self, value: object, target: LoginTarget | None) -> tuple[Path, ...]:
        if not value:
            return ()
        text = str(value)
        if target is not None:
            return (self._home(_filled(text, target)),)
        return tuple(self._home(word.strip('"')) for word in text.split())

    def _home(self, text: str) -> Path:
        home = str(self.places.home)
        text = re.sub(r"^~(?=/|$)|%d|\$\{HOME\}", lambda _: home, text)
        return Path(text) if text.startswith("/") else self.places.home / text


def parse_jump(text: str) -> tuple[str | None, str, int | None]:
    """Read one hop of ProxyJump: `[user@]host[:port]`, `ssh://` before it, `[v6]:port`."""
    text = text.removeprefix("ssh://").rstrip("/")
    user, at, rest = text.rpartition("@")
    match = re.fullmatch(r"\[(.+)\](?::(\d+))?|([^:]+)(?::(\d+))?|(.+)", rest)
    assert match is not None
    host = match[1] or match[3] or match[5]
    port = match[2] or match[4]
    return (user if at else None), host, int(port) if port else None


def _filled(text: str, target: LoginTarget) -> str:
    known = {"%h": target.host, "%p": str(target.port), "%r": target.user, "%n": target.alias, "%%": "%"}
    return re.sub(r"%[hprn%]", lambda match: known[match[0]], text)


def _yes(options: SSHConfigDict, key: str) -> bool:
    return str(options.get(key, "no")).lower() in {"yes", "true"}


def _load(site: str, places: Places) -> SSHConfig:
    from paramiko.config import SSHConfig
    from paramiko.ssh_exception import ConfigParseError

    user_dir = places.home / ".ssh"
    text = _read(user_dir / "config", user_dir, places.home, 0)
    text += "Host *\n" + _read(places.system_ssh / "ssh_config", places.system_ssh, places.home, 0)
    try:
        return SSHConfig.from_text(text)
    except (ConfigParseError, ValueError) as problem:
        raise fail(
            "ssh-config-invalid",
            site,
            "the SSH configuration cannot be read",
            evidence=[Evidence.tail(f"{user_dir}/config", str(problem))],
        ) from problem


def _read(path: Path, base: Path, home: Path, depth: int) -> str:
    """A configuration file with its Includes in place; a missing or unreadable file is empty."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    lines: list[str] = []
    header = "Host *"
    for line in text.splitlines():
        line = _KEY_FILE.sub(lambda match: match[1] + str(home), line)  # paramiko would ask the process
        if _PROXY.match(line):
            line = line.replace("%", _LATER)
        if _HEADER.match(line):
            header = line
        if not (match := _INCLUDE.match(line)):
            lines.append(line)
            continue
        if depth < _DEPTH_LIMIT:
            for word in match[1].split():
                lines += _included(word.strip('"'), base, home, depth)
        lines.append(header)  # what follows belongs to the block around the Include again
    return "\n".join(lines) + "\n"


def _included(pattern: str, base: Path, home: Path, depth: int) -> list[str]:
    pattern = re.sub(r"^~(?=/)", lambda _: str(home), pattern)
    if not pattern.startswith("/"):
        pattern = str(base / pattern)
    return [_read(Path(found), base, home, depth + 1) for found in sorted(glob.glob(pattern))]  # noqa: PTH207


def _seconds(value: object) -> float | None:
    text = str(value or "")
    return float(text) if text.isdigit() and int(text) > 0 else None
