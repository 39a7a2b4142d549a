"""Host keys as OpenSSH keeps them in known_hosts (sshd(8), SSH_KNOWN_HOSTS FILE FORMAT): look up, compare, add.

Pure but for `read_known` and `remember`. Keys are the base64 text of the wire form; no SSH library needed.
Certificate authorities (`@cert-authority`) are passed over: the plain host key is what is checked.
"""

from __future__ import annotations

import base64
import binascii
import fnmatch
import hashlib
import hmac
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from siteannex.private import private_dir

# Signature algorithms a key type can be used with, best first.
_ALGORITHMS = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}


@dataclass(frozen=True, slots=True)
class KnownKey:
    """One usable line of a known_hosts file."""

    hosts: str
    """The first field as written: names, patterns or one hashed name."""
    key_type: str
    key_base64: str
    revoked: bool
    source: Path
    line: int

    @property
    def where(self) -> str:
        """`file:line`."""
        return f"{self.source}:{self.line}"

    @property
    def fingerprint(self) -> str:
        """As OpenSSH prints it."""
        return fingerprint(base64.b64decode(self.key_base64))


class Trust(StrEnum):
    """What the known_hosts files say of a server's key."""

    KNOWN = "known"
    UNKNOWN = "unknown"
    CHANGED = "changed"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement and the lines it rests on."""

    trust: Trust
    lines: tuple[KnownKey, ...] = ()


def fingerprint(blob: bytes) -> str:
    """`SHA256:` and unpadded base64, as `ssh-keygen -l` and site documentation print it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def host_name(host: str, port: int) -> str:
    """The name a host has in known_hosts: `host`, or `[host]:port` off port 22."""
    return host.lower() if port == 22 else f"[{host.lower()}]:{port}"


def parse_known(text: str, source: Path) -> list[KnownKey]:
    """All usable lines; comments, damaged lines and certificate authorities are passed over."""
    found = (_parse_line(line, source, number) for number, line in enumerate(text.splitlines(), 1))
    return [key for key in found if key is not None]


def _parse_line(line: str, source: Path, number: int) -> KnownKey | None:
    fields = line.split()
    if not fields or fields[0].startswith("#"):
        return None
    marker = fields.pop(0) if fields[0].startswith("@") else ""
    if marker not in {"", "@revoked"} or len(fields) < 3:
        return None
    try:
        base64.b64decode(fields[2], validate=True)
    except (binascii.Error, ValueError):
        return None
    return KnownKey(fields[0], fields[1], fields[2], marker == "@revoked", source, number)


def names_host(hosts: str, name: str) -> bool:
    """Does a first field name this host? Hashed names, `*` and `?` patterns, `!` exclusions."""
    if hosts.startswith("|1|"):
        return _hash_matches(hosts, name)
    hit = False
    for pattern in hosts.lower().split(","):
        wanted = not pattern.startswith("!")
        # fnmatch gives brackets a meaning, known_hosts does not: [host]:port is literal.
        plain = pattern.removeprefix("!").replace("[", "[[]")
        if fnmatch.fnmatchcase(name, plain):
            if not wanted:
                return False
            hit = True
    return hit


def _hash_matches(hashed: str, name: str) -> bool:
    try:
        _, _, salt, digest = hashed.split("|")
        expected = base64.b64decode(digest, validate=True)
        actual = hmac.new(base64.b64decode(salt, validate=True), name.encode(), hashlib.sha1).digest()
    except (ValueError, binascii.Error):
        return False
    return hmac.compare_digest(actual, expected)


def lines_for(known: Iterable[KnownKey], name: str) -> list[KnownKey]:
    """The lines that name this host (`host_name`)."""
    return [key for key in known if names_host(key.hosts, name)]


def judge(known: Iterable[KnownKey], name: str, key_type: str, key_base64: str) -> Verdict:
    """Compare a server's key with what is known. UNKNOWN carries the lines with keys of other types, if any."""
    lines = lines_for(known, name)
    same = tuple(line for line in lines if line.key_base64 == key_base64)
    if revoked := tuple(line for line in same if line.revoked):
        return Verdict(Trust.REVOKED, revoked)
    if same:
        return Verdict(Trust.KNOWN, same)
    trusted = tuple(line for line in lines if not line.revoked)
    differing = tuple(line for line in trusted if line.key_type == key_type)
    return Verdict(Trust.CHANGED, differing) if differing else Verdict(Trust.UNKNOWN, trusted)


def preferred_algorithms(known: Iterable[KnownKey], name: str, offered: Sequence[str]) -> tuple[str, ...]:
    """Our host key algorithms with those of already known keys first, so that a known host is met by its known key."""
    types = [line.key_type for line in lines_for(known, name) if not line.revoked]
    first = [algorithm for kind in types for algorithm in _ALGORITHMS.get(kind, (kind,))]
    return tuple(dict.fromkeys([a for a in first if a in offered] + list(offered)))


def read_known(files: Sequence[Path]) -> list[KnownKey]:
    """Read known_hosts files; one that is missing or unreadable counts as empty."""
    known: list[KnownKey] = []
    for path in files:
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        known += parse_known(text, path)
    return known


def remember(path: Path, name: str, key_type: str, key_base64: str) -> None:
    """Append a key the person accepted. Creates the file 0600 in a directory 0700. Raises OSError."""
    private_dir(path.parent)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "rb+", buffering=0) as stream:
        size = stream.seek(0, os.SEEK_END)
        torn = False
        if size:
            stream.seek(size - 1)
            torn = stream.read(1) != b"\n"
        stream.write((b"\n" if torn else b"") + f"{name} {key_type} {key_base64}\n".encode())
