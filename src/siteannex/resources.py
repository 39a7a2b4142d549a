"""Where siteannex's own data lies: beside the package in an installed wheel, at the top of a source checkout."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
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


def render_template(name: str, context: Mapping[str, object]) -> str:
    """A template of `tarball/` rendered. A name that the context lacks is an error (jinja2.UndefinedError)."""
    import jinja2  # here and not above: rendering is rare, starting the command line is not

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(data_dir("tarball")),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701  (shell and HTCondor configuration, not HTML; values are checked by the caller)
    )
    environment.filters["sh"] = lambda value: shlex.quote(str(value))
    return environment.get_template(name).render(context)
