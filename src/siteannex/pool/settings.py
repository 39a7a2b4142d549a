"""What the AP's HTCondor configuration says, as far as siteannex needs it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SETTINGS = (
    "ALLOW_ADVERTISE_STARTD",
    "ANNEX_COLLECTOR",
    "ANNEX_TOKEN_DOMAIN",
    "ANNEX_TOKEN_KEY_NAME",
    "BIN",
    "CCB_ADDRESS",
    "COLLECTOR_HOST",
    "ENABLE_CCB_SERVER",
    "FULL_HOSTNAME",
    "HPC_ANNEX_ENABLED",
    "NETWORK_INTERFACE",
    "SBIN",
    "SEC_ISSUED_TOKEN_EXPIRATION",
    "SHARED_PORT_PORT",
    "TCP_FORWARDING_HOST",
    "TRUST_DOMAIN",
    "UID_DOMAIN",
    "USE_SHARED_PORT",
)
"""The configuration variables read, all of them public."""


@dataclass(frozen=True, slots=True)
class ApSettings:
    """The AP's settings; "" for what is not set."""

    bindings_version: str
    collector_host: str
    annex_collector: str
    """Address of the AP's own annex collector, "" unless `use feature:HPC_ANNEX` is on."""
    annex_key: str
    """Name of the signing key whose tokens the annex collector and the schedd accept."""
    annex_domain: str
    """The AP's job transform expects EPs of the identity `owner@annex_domain`; "" without the feature."""
    trust_domain: str
    uid_domain: str
    full_hostname: str
    network_interface: str
    forwarding_host: str
    shared_port: bool
    ccb_server: bool
    program_dirs: tuple[str, ...]


def read_settings(params: Mapping[str, str], bindings_version: str) -> ApSettings:
    """Sort the raw values out."""
    text = {name: params.get(name, "").strip() for name in SETTINGS}
    annexes = _true(text["HPC_ANNEX_ENABLED"])
    return ApSettings(
        bindings_version=bindings_version,
        collector_host=text["COLLECTOR_HOST"],
        annex_collector=text["ANNEX_COLLECTOR"] if annexes else "",
        annex_key=text["ANNEX_TOKEN_KEY_NAME"] or "AP",
        annex_domain=text["ANNEX_TOKEN_DOMAIN"] if annexes else "",
        trust_domain=_first(text["TRUST_DOMAIN"]),
        uid_domain=text["UID_DOMAIN"],
        full_hostname=text["FULL_HOSTNAME"],
        network_interface=text["NETWORK_INTERFACE"],
        forwarding_host=text["TCP_FORWARDING_HOST"],
        shared_port=_true(text["USE_SHARED_PORT"] or "true"),
        ccb_server=_true(text["ENABLE_CCB_SERVER"] or "true"),
        program_dirs=tuple(path for path in (text["BIN"], text["SBIN"]) if path.startswith("/")),
    )


def _true(text: str) -> bool:
    return text.lower() in ("true", "t", "yes", "1")


def _first(text: str) -> str:
    """TRUST_DOMAIN may be a list; the first entry is the one tokens are issued for."""
    words = text.replace(",", " ").split()
    return words[0] if words else ""
