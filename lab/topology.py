"""The hosts of the lab and the wires between them."""

from dataclasses import dataclass

ROUTER = "router"
COLLECTOR_PORT = 9618
NET_MODES = ("open", "nat", "blocked", "rejected")


@dataclass(frozen=True, slots=True)
class Host:
    """One host: a set of namespaces over an image, with one wire to the router."""

    name: str
    fqdn: str
    address: str
    gateway: str
    image: str
    boot: str
    logs: tuple[str, ...]
    gpus: int = 0
    site: int = 0
    """The number of the site it belongs to; 0: none."""


_NODE_LOGS = ("/var/log/boot.log", "/var/log/slurmd.log")

HOSTS: tuple[Host, ...] = (
    Host(
        name="ap",
        fqdn="ap.lab",
        address="10.77.1.10",
        gateway="10.77.1.1",
        image="ap",
        boot="ap/boot.sh",
        logs=(
            "/var/log/boot.log",
            "/var/log/condor/MasterLog",
            "/var/log/condor/CollectorLog",
            "/var/log/condor/NegotiatorLog",
            "/var/log/condor/SchedLog",
            "/var/log/condor/SharedPortLog",
        ),
    ),
    Host(
        name="login1",
        fqdn="login.lab",
        address="10.77.2.10",
        gateway="10.77.2.1",
        image="site",
        boot="site/login-boot.sh",
        logs=(
            "/var/log/boot.log",
            "/var/log/sshd.log",
            "/var/log/slurmctld.log",
            "/var/log/slurmdbd.log",
            "/var/log/mariadbd.log",
        ),
        site=1,
    ),
    Host("c1", "c1.lab", "10.77.3.11", "10.77.3.1", "site", "site/node-boot.sh", _NODE_LOGS, gpus=4, site=1),
    Host("c2", "c2.lab", "10.77.3.12", "10.77.3.1", "site", "site/node-boot.sh", _NODE_LOGS, gpus=4, site=1),
    Host(
        name="login2",
        fqdn="login2.lab",
        address="10.77.4.10",
        gateway="10.77.4.1",
        image="site",
        boot="site2/login-boot.sh",
        logs=("/var/log/boot.log", "/var/log/sshd.log", "/var/log/slurmctld.log"),
        site=2,
    ),
    Host("d1", "d1.lab", "10.77.5.11", "10.77.5.1", "site", "site2/node-boot.sh", _NODE_LOGS, gpus=4, site=2),
)


def nodes(site: int) -> frozenset[str]:
    """The compute nodes of a site."""
    return frozenset(place.name for place in HOSTS if place.site == site and place.gpus)


def host(name: str) -> Host:
    """The host called ``name`` (short or full); KeyError if there is none."""
    for candidate in HOSTS:
        if name in (candidate.name, candidate.fqdn, candidate.fqdn.removesuffix(".lab")):
            return candidate
    raise KeyError(name)
