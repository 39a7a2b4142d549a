"""Where siteannex's own data lies: beside the package in an installed wheel, at the top of a source checkout."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def data_dir(name: str) -> Path:
    """The directory `name` (`sites`, `tarball`). Raises FileNotFoundError naming both places looked at."""
    installed = _PACKAGE / "data" / name
    checkout = _PACKAGE.parent.parent / name
    for place in (installed, checkout):
        if place.is_dir():
            return place
    raise FileNotFoundError(f"siteannex's {name} directory is neither at {installed} nor at {checkout}")
