"""Site packs: installed packages that bring site files, found through the entry point group `siteannex.sites`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path

from siteannex.resources import data_dir

GROUP = "siteannex.sites"


@dataclass(frozen=True, slots=True)
class Pack:
    """One directory of site files that came with an installed package."""

    distribution: str
    """Name and version as pip shows them: `uw-sites 1.2`."""
    directory: Path | None
    problem: str = ""
    """Why there is no directory."""


def packs() -> tuple[Pack, ...]:
    """siteannex's own sites, then those of every pack, by name. An entry point's value is a package with YAML files."""
    own = Pack("siteannex", data_dir("sites"))
    found = sorted(entry_points(group=GROUP), key=lambda each: (each.name, each.value))
    return (own, *(pack for each in found for pack in _packs(each)))


def _packs(each: EntryPoint) -> Iterator[Pack]:
    name = f"{each.dist.name} {each.dist.version}" if each.dist else each.name
    try:
        spec = find_spec(each.value)  # the directory is enough: a pack's own code is not run
    except (ImportError, ValueError, AttributeError) as problem:
        yield Pack(name, None, f"its entry point {each.name} = {each.value} leads nowhere: {problem}")
        return
    places = list(spec.submodule_search_locations or ()) if spec else []
    if not places:
        yield Pack(name, None, f"its entry point {each.name} = {each.value} is not a package with site files")
    yield from (Pack(name, Path(place)) for place in places)
