"""Where a daemon can be reached from outside: HTCondor's address strings, as pure text.

Three kinds of text name a collector: the configured `COLLECTOR_HOST` (`cm.example.org`, `ap.lab:9618`,
`ap.lab:9618?sock=ap_collector`, several with commas), the address string ("sinful") a daemon advertises
(`<10.0.0.1:9618?addrs=...&alias=ap.lab&sock=collector>`), and a bare host.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import unquote

DEFAULT_PORT = 9618

_ADDRESS = re.compile(
    r"<?(?P<host>\[[0-9a-fA-F:.%]+\]|[^:?<>\[\]\s]+)(?::(?P<port>\d{1,5}))?(?:\?(?P<rest>[^>\s]*))?>?"
)


@dataclass(frozen=True, slots=True)
class Address:
    """A host (IPv6 without brackets), a port and, behind a shared port, the socket's name."""

    host: str
    port: int
    sock: str = ""
    alias: str = ""
    """The host name a daemon advertises beside its numeric address."""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}" + (f"?sock={self.sock}" if self.sock else "")


def parse_address(text: str) -> Address | None:
    """Read an address of any kind; of several, the first. None for what is none."""
    words = re.split(r"[,\s]+", text.strip())
    match = _ADDRESS.fullmatch(words[0])
    if match is None:
        return None
    options = dict(part.partition("=")[::2] for part in (match["rest"] or "").split("&"))
    port = int(match["port"]) if match["port"] else DEFAULT_PORT
    if port > 65535:
        return None
    return Address(match["host"].strip("[]"), port, unquote(options.get("sock", "")), unquote(options.get("alias", "")))


def outside_address(configured: str, advertised: str) -> str:
    """The address an EP elsewhere should use for a collector, "" when nothing is known.

    The configured name is taken when it can mean something elsewhere. A loopback address or a name without a domain
    cannot; then the name or number that the collector itself advertises is taken (HTCondor puts TCP_FORWARDING_HOST
    there when one is set). The shared-port socket stays the configured one: `collector` is found without a name.
    """
    said, shown = parse_address(configured), parse_address(advertised)
    if said is None:
        return str(Address(_outside_host(shown), shown.port)) if shown else ""
    if shown is None:
        return str(said)
    host = said.host if _travels(said.host) else _outside_host(shown)
    return str(Address(host, said.port or shown.port, said.sock))


def _outside_host(shown: Address) -> str:
    return shown.alias if _travels(shown.alias) else shown.host


def _travels(host: str) -> bool:
    """True when a host name or number can mean the same machine elsewhere."""
    number = ip(host)
    if number is not None:
        return not (number.is_loopback or number.is_unspecified)
    return "." in host.strip(".") and not host.lower().rstrip(".").endswith(("localhost", ".localdomain"))


def ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The number a host string is, or None for a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
