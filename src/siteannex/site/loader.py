"""Find and read site files: the user's own first, then the admin's, then the packaged ones."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from siteannex.errors import AnnexError, Evidence
from siteannex.failures import fail
from siteannex.site.complaints import complaints
from siteannex.site.fields import FROM_YAML
from siteannex.site.kinds import MODELS, AnySite
from siteannex.site.layers import Layer, UnreadableError, merged, read_layers
from siteannex.site.packs import packs
from siteannex.site.schema import Site


def site_files(directories: Sequence[Path]) -> dict[str, Path]:
    """Name -> file, the first directory that has a name wins. A directory that does not exist is no error."""
    found: dict[str, Path] = {}
    for directory in directories:
        for path in sorted(directory.glob("*.yaml")) if directory.is_dir() else ():
            found.setdefault(path.stem, path)
    return found


def load_site(name: str, directories: Sequence[Path]) -> Site:
    """A site that pilots can be sent to, by name. AnnexError no-annex-here for any other kind, else as `load_any`."""
    return with_pilots(load_any(name, directories))


def load_any(name: str, directories: Sequence[Path]) -> AnySite:
    """Read one site by name. AnnexError site-unknown (with the nearest name) or site-invalid (with file and line)."""
    return read_any(_found(name, site_files(directories), directories), directories)


def _found(name: str, files: Mapping[str, Path], directories: Sequence[Path]) -> Path:
    if name in files:
        _only_one_brings(name, files[name], directories)
        return files[name]
    near = difflib.get_close_matches(name, files, n=1)
    hint = f"Did you mean {near[0]}? " if near else ""
    raise fail(
        "site-unknown",
        name,
        f"no site named {name!r}",
        evidence=[Evidence("site files looked for in", "\n".join(map(str, directories)))],
        hint=f"{hint}siteannex sites list shows the names.",
    )


def _only_one_brings(name: str, path: Path, directories: Sequence[Path]) -> None:
    """A user's or an admin's file may hide a packaged one; two packages with one name are a mistake of theirs."""
    holders = [each for each in directories if (each / path.name).is_file()]
    if len(holders) < 2:
        return
    owners = {pack.directory: pack.distribution for pack in packs()}
    rivals = [each for each in holders if each in owners]
    if path.parent in owners and len(rivals) > 1:
        raise fail(
            "site-name-taken",
            name,
            f"{' and '.join(owners[each] for each in rivals)} both bring a site named {name!r}",
            evidence=[Evidence("files of that name", "\n".join(str(each / path.name) for each in rivals))],
        )


def read_site(path: Path, directories: Sequence[Path] = ()) -> Site:
    """As `load_site`, from a file."""
    return with_pilots(read_any(path, directories))


def chosen_files(what: Sequence[str], directories: Sequence[Path]) -> list[Path]:
    """The files behind paths and sites' names; every site's when nothing is named. AnnexError(site-unknown)."""
    files = site_files(directories)
    if not what:
        return [files[name] for name in sorted(files)]
    return [Path(each) if each.endswith((".yaml", ".yml")) else _found(each, files, directories) for each in what]


def with_pilots(site: AnySite) -> Site:
    """The site, if it has a batch system. AnnexError(no-annex-here) says what to do instead."""
    if isinstance(site, Site):
        return site
    hint = f"siteannex sites show {site.name} prints what is known of it."
    if site.kind == "target":
        instead = "jobs reach it by what they ask for, without an annex"
    elif site.kind == "aws":
        instead = "launching instances comes in a later release; what would be launched can be planned and shown"
        hint = f"siteannex up {site.name} --gpus N --dry-run shows instance types, ceiling, quota and boot script."
    else:
        instead = f"annexes at sites of kind {site.kind} cannot be brought up yet; its facts are kept"
    raise fail("no-annex-here", site.name, f"{site.name} is no batch system: {instead}", hint=hint)


def read_any(path: Path, directories: Sequence[Path] = ()) -> AnySite:
    """Read and check one file, and those it extends. AnnexError(site-invalid): file, line, key, what to write."""
    try:
        layers = read_layers(path, directories)
    except UnreadableError as problem:
        raise _invalid(path, [str(problem)]) from problem
    data = merged(layers)
    kind = data.setdefault("kind", "slurm")
    if kind not in MODELS:
        raise _invalid(path, [f"{_where(layers, 'kind')}: kind: is {kind!r}; known: {', '.join(MODELS)}"])
    model = MODELS[kind]
    try:
        site = model.model_validate(data, context=FROM_YAML)
    except ValidationError as problem:
        raise _invalid(path, list(complaints(layers, data, model, problem))) from problem
    if site.name != path.stem:
        raise _invalid(path, [f"{_where(layers, 'name')}: name: is {site.name!r}, the file says {path.stem!r}"])
    return site


def _where(layers: Sequence[Layer], key: str) -> str:
    layer = next((layer for layer in layers if key in layer.data), layers[0])
    return layer.place((key,))


def _invalid(path: Path, complaints: list[str]) -> AnnexError:
    return fail(
        "site-invalid",
        path.stem,
        f"{path.name} is not a valid site file",
        evidence=[Evidence(str(path), "\n".join(complaints))],
    )
