"""The router's rules: what may pass between the site and the access point."""

import subprocess
from collections.abc import Sequence

from lab import machine
from lab.errors import LabError
from lab.paths import FILES
from lab.topology import NET_MODES


def rules(mode: str) -> str:
    """The nft script for ``mode``; it replaces whatever is loaded, in one transaction."""
    if mode not in NET_MODES:
        raise LabError(f"no such network mode: {mode} (one of {', '.join(NET_MODES)})")
    folder = FILES / "router"
    return (folder / "head.nft").read_text() + (folder / f"{mode}.nft").read_text()


def apply(mode: str, prefix: Sequence[str] = ()) -> None:
    """Load the rules for ``mode``; ``prefix`` is a command that enters the router's namespaces."""
    done = subprocess.run(
        [*prefix, "nft", "-f", "-"],
        env=machine.environment(),
        input=rules(mode),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise LabError(f"nft refused the rules for '{mode}': {done.stderr.strip()}")
