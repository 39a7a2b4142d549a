"""The user's settings (`$XDG_CONFIG_HOME/siteannex/config.yaml`) and where site files are looked for.

sites:
  lab: {user: alice, account: abc123}
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from siteannex.errors import Evidence
from siteannex.failures import fail


@dataclass(frozen=True, slots=True)
class SiteSettings:
    """What a user says about one site."""

    user: str | None = None
    account: str | None = None
    budget: float | None = None
    """The most that annexes there may cost in all, in the site's unit."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything in the user's file; a missing file is an empty one."""

    sites: Mapping[str, SiteSettings]

    def of(self, site: str) -> SiteSettings:
        """A site's settings, empty when there are none."""
        return self.sites.get(site, SiteSettings())


def config_dir() -> Path:
    """`$XDG_CONFIG_HOME/siteannex`."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".config") / "siteannex"


def site_directories() -> tuple[Path, ...]:
    """Where site files are looked for, first wins: the user's, the admin's, siteannex's own, those of site packs."""
    from siteannex.site.packs import packs

    brought = [pack.directory for pack in packs() if pack.directory is not None]
    return (config_dir() / "sites", Path("/etc/siteannex/sites"), *brought)


def _site_settings(entry: Mapping[str, object]) -> SiteSettings:
    for key, value in entry.items():
        if key == "budget":
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
                raise ValueError(f"budget: {value!r} is not a number of the site's units")
        elif not isinstance(value, str | None):
            raise ValueError(f"{key}: {value!r} is not text; write it in quotes")
    return SiteSettings(**entry)  # type: ignore[arg-type]  # a key we do not know is a TypeError, told as such


def read_settings(path: Path | None = None) -> Settings:
    """Read the settings. AnnexError(site-invalid) says what is wrong in the file."""
    file = path or config_dir() / "config.yaml"
    if not file.is_file():
        return Settings({})
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        data = YAML(typ="safe").load(file.read_text(encoding="utf-8")) or {}
        sites = {str(name): _site_settings(entry) for name, entry in (data.pop("sites", None) or {}).items()}
        if data:
            raise ValueError(f"unknown key {next(iter(data))!r}; known: sites")
    except (OSError, YAMLError, TypeError, ValueError, AttributeError) as problem:
        raise fail(
            "site-invalid", "settings", f"{file} cannot be read", evidence=[Evidence(str(file), str(problem))]
        ) from problem
    return Settings(sites)
