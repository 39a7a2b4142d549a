"""The packer: an HTCondor reduced to what an execution point needs, able to run on any Linux of its architecture.

The result is content-addressed: the same HTCondor gives the same bytes, named by their sha256, so a site that
has them never gets them twice. Programs run through the loader and the libraries they were packed with (a site's
glibc is often older than the access point's); only the node's GPU driver libraries come from the site.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from siteannex.annex.packing.archive import Member, tar_gz
from siteannex.annex.packing.closure import Closure, Finder, close, with_glibc
from siteannex.annex.packing.elf import Elf, read_elf
from siteannex.annex.packing.recipe import OPTIONAL, REQUIRED, SANDBOX_TEST, VERSION_TEXT, recipe_hash, wrapper
from siteannex.annex.packing.source import (
    Runner,
    Source,
    installed,
    system_library_dirs,
    unpacked_release,
)
from siteannex.annex.packing.versions import check_versions
from siteannex.errors import Evidence
from siteannex.failures import fail
from siteannex.model import EpSoftware
from siteannex.ports import CommandResult
from siteannex.private import private_dir

__all__ = ["Runner", "check_versions", "choose", "chosen", "pack_installed", "pack_release", "run_local"]

_OPTIONAL_PLACES = frozenset(f"{kind}/{name}" for kind, names in OPTIONAL.items() for name in names)
_REQUIRED_PLACES = frozenset(f"{kind}/{name}" for kind, names in REQUIRED.items() for name in names)
_GLIBC_RELEASE = re.compile(rb"GNU C Library [^\n\0]*release version (\d+)\.(\d+)")


def run_local(argv: Sequence[str], *, timeout_s: float = 60.0) -> CommandResult:
    """The real Runner: a program of this machine, no shell, its output as text."""
    try:
        done = subprocess.run(
            list(argv), capture_output=True, text=True, errors="replace", timeout=timeout_s, check=False
        )
    except FileNotFoundError as problem:
        return CommandResult(127, "", str(problem))
    except subprocess.TimeoutExpired:
        return CommandResult(124, "", f"{argv[0]} gave no answer within {timeout_s:g} s")
    return CommandResult(done.returncode, done.stdout, done.stderr)


def pack_installed(cache_dir: Path, *, runner: Runner = run_local, root: Path = Path("/")) -> EpSoftware:
    """Pack the HTCondor installed on this machine (or in the file system tree `root`).

    A second call with nothing changed is answered from `cache_dir` in milliseconds.
    Raises AnnexError: ep-source-missing, ep-not-selfcontained.
    """
    where = f"{root}:{shutil.which('condor_master')}"
    name = f"installed-{hashlib.sha256(where.encode()).hexdigest()[:16]}"
    cached = _cached(cache_dir, name)
    return cached or _pack(installed(runner, root), cache_dir, name, runner)


def pack_release(
    source: str, sha256: str, cache_dir: Path, *, runner: Runner = run_local, root: Path = Path("/")
) -> EpSoftware:
    """Pack an HTCondor release tarball: a file, or an http(s) address, whose sha256 must be the one given.

    Libraries it does not carry come from the system at `root`, when that has the tarball's architecture.
    Raises AnnexError: ep-source-missing, ep-source-corrupt, ep-not-selfcontained.
    """
    wanted = sha256.strip().lower()
    if re.fullmatch(r"[0-9a-f]{64}", wanted) is None:
        raise fail("ep-source-corrupt", "", f"{sha256!r} is not a sha256: 64 hexadecimal digits")
    cached = _cached(cache_dir, f"release-{wanted[:32]}")
    if cached is not None:
        return cached
    with tempfile.TemporaryDirectory(prefix="siteannex-pack-") as scratch:
        archive = _fetched(source, Path(scratch) / "release")
        with archive.open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
        if found != wanted:
            raise fail(
                "ep-source-corrupt",
                "",
                f"{source} is not what its checksum says",
                evidence=[Evidence(f"sha256 of {source}", f"expected {wanted}, found {found}")],
            )
        into = Path(scratch) / "tree"
        release = unpacked_release(archive, into, source)
        elf = read_elf(release.anchor.read_bytes())
        system = system_library_dirs(root, elf.arch if elf else None)
        release = Source(release.name, release.programs, release.libraries, system, release.root)
        return _pack(release, cache_dir, f"release-{wanted[:32]}", runner)


def choose(software: EpSoftware | None, arch: str, cache_dir: Path) -> None:
    """Make `up` use this EP software for sites of that architecture; None: the AP's own HTCondor again."""
    choice = cache_dir / f"chosen-{arch}.json"
    if software is None:
        choice.unlink(missing_ok=True)
    else:
        private_dir(cache_dir)
        _write(choice, json.dumps(asdict(software), indent=1, sort_keys=True).encode())


def chosen(arch: str, cache_dir: Path) -> EpSoftware | None:
    """What `choose` was told, if it is still there whole."""
    try:
        software = EpSoftware(**json.loads((cache_dir / f"chosen-{arch}.json").read_text()))
        return software if Path(software.path).stat().st_size == software.size_bytes else None
    except (OSError, ValueError, TypeError):
        return None


def _fetched(source: str, target: Path) -> Path:
    if not source.startswith(("http://", "https://")):
        path = Path(source).expanduser()
        if not path.is_file():
            raise fail("ep-source-missing", "", f"there is no file {path}")
        return path
    try:
        with urllib.request.urlopen(source, timeout=60) as answer, target.open("wb") as file:  # noqa: S310
            shutil.copyfileobj(answer, file)
    except (urllib.error.URLError, OSError) as problem:
        raise fail(
            "ep-source-missing",
            "",
            f"{source} could not be downloaded",
            evidence=[Evidence(source, str(problem))],
        ) from problem
    return target


@dataclass(frozen=True, slots=True)
class _Contents:
    members: dict[str, Member]
    inputs: dict[str, Path]


def _pack(source: Source, cache_dir: Path, name: str, runner: Runner) -> EpSoftware:
    anchor = read_elf(source.anchor.read_bytes())
    if anchor is None:
        raise fail("ep-source-corrupt", "", f"{source.anchor} is not a 64-bit Linux program")
    finder = Finder(source, anchor.arch)
    programs, dropped = _usable(source, finder)
    closure = close(programs.values(), finder)
    if closure.missing:
        raise _not_selfcontained(source, closure)
    libraries = with_glibc(closure.libraries, finder)
    _check_glibc(source, closure, _bundled_glibc(libraries))
    version = _version(source, libraries)
    contents = _contents(programs, libraries, anchor, finder, _stripper(runner))
    manifest = {
        "format": 1,
        "htcondor": version,
        "arch": anchor.arch,
        "glibc_bundled": _dotted(_bundled_glibc(libraries)),
        "glibc_needed": _dotted(closure.glibc_needed),
        "recipe": recipe_hash(),
        "left_out": dropped,
        "files": {path: hashlib.sha256(member.data).hexdigest() for path, member in sorted(contents.members.items())},
    }
    contents.members["MANIFEST.json"] = Member((json.dumps(manifest, indent=1, sort_keys=True) + "\n").encode())
    if anchor.arch == platform.machine():
        _tried(source, contents, runner)
    return _stored(cache_dir, name, tar_gz(contents.members), version, anchor.arch, contents.inputs)


def _tried(source: Source, contents: _Contents, runner: Runner) -> None:
    """Run one of the packed programs, every symbol bound at once: what does not run here will not run there."""
    with tempfile.TemporaryDirectory(prefix="siteannex-try-") as scratch:
        for place, member in contents.members.items():
            path = Path(scratch) / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(member.data)
            path.chmod(member.mode)
        argv = ["env", "LD_BIND_NOW=1", f"{scratch}/bin/condor_config_val", "-version"]
        answer = runner(argv, timeout_s=30)
    if not answer.ok:
        raise fail(
            "ep-not-selfcontained",
            "",
            f"{source.name} was packed with this machine's libraries and does not run with them",
            evidence=[Evidence.tail(f"condor_config_val -version, status {answer.status}", answer.stderr)],
        )


def _check_glibc(source: Source, closure: Closure, bundled: tuple[int, int]) -> None:
    if (0, 0) < bundled < closure.glibc_needed:
        raise fail(
            "ep-not-selfcontained",
            "",
            f"{source.name} needs glibc {_dotted(closure.glibc_needed)}, this machine has {_dotted(bundled)}",
            hint="Give a release tarball built for this machine's Linux, or pack on a newer one.",
        )


def _usable(source: Source, finder: Finder) -> tuple[dict[str, Path], list[str]]:
    """Programs to pack; optional ones whose libraries are not all there are left out and named."""
    programs: dict[str, Path] = {}
    dropped = sorted(_OPTIONAL_PLACES - set(source.programs))
    for place, path in source.programs.items():
        if place in _OPTIONAL_PLACES and close([path], finder).missing:
            dropped.append(place)
        else:
            programs[place] = path
    return programs, sorted(dropped)


def _contents(
    programs: Mapping[str, Path],
    libraries: Mapping[str, Path],
    anchor: Elf,
    finder: Finder,
    strip: Callable[[Path, Elf], bytes],
) -> _Contents:
    loader_name = Path(anchor.interpreter or "").name
    loader = finder.find(loader_name)
    if loader is None:
        raise fail("ep-not-selfcontained", "", f"the loader {loader_name} was not found")
    glibc = _bundled_glibc(libraries)
    members: dict[str, Member] = {}
    inputs = {f"lib/{loader_name}": loader}
    members[f"lib/{loader_name}"] = Member(loader.read_bytes(), 0o755)
    for soname, path in libraries.items():
        if soname != loader_name:
            elf = finder.elf(path)
            members[f"lib/{soname}"] = Member(strip(path, elf) if elf else path.read_bytes(), 0o644)
            inputs[f"lib/{soname}"] = path
    for place, path in programs.items():
        program, elf = place.rpartition("/")[2], finder.elf(path)
        inputs[place] = path
        if elf is None or elf.interpreter is None:
            members[place] = Member(path.read_bytes(), 0o755 if os.access(path, os.X_OK) else 0o644)
            continue
        members[f"real/{program}"] = Member(strip(path, elf), 0o755)
        members[place] = Member(wrapper(program, loader_name, glibc).encode(), 0o755)
    if any(place.startswith(SANDBOX_TEST) for place in programs):
        # Containers want to mount there, and a tar of files has no empty directories.
        members |= {f"{SANDBOX_TEST}/{place}/.keep": Member() for place in ("dev", "proc", "tmp")}
    return _Contents(members, inputs)


def _stripper(runner: Runner) -> Callable[[Path, Elf], bytes]:
    """Takes symbol tables away with binutils' strip, where both are there."""

    def strip(path: Path, elf: Elf) -> bytes:
        if not elf.has_symbols or shutil.which("strip") is None:
            return path.read_bytes()
        with tempfile.TemporaryDirectory(prefix="siteannex-strip-") as scratch:
            target = Path(scratch) / "stripped"
            answer = runner(["strip", "--strip-unneeded", "-o", str(target), str(path)])
            return target.read_bytes() if answer.ok and target.exists() else path.read_bytes()

    return strip


def _bundled_glibc(libraries: Mapping[str, Path]) -> tuple[int, int]:
    found = _GLIBC_RELEASE.search(libraries["libc.so.6"].read_bytes())
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _version(source: Source, libraries: Mapping[str, Path]) -> str:
    ours = [path for soname, path in libraries.items() if soname.startswith("libcondor_utils")]
    for path in (*ours, source.anchor):
        found = VERSION_TEXT.search(path.read_bytes())
        if found:
            return found[1].decode()
    raise fail("ep-source-corrupt", "", f"{source.name} does not say which HTCondor version it is")


def _not_selfcontained(source: Source, closure: Closure) -> Exception:
    lines = [f"{needing} needs {soname}: not found" for needing, soname in closure.missing]
    names = ", ".join(sorted({soname for _, soname in closure.missing}))
    return fail(
        "ep-not-selfcontained",
        "",
        f"{source.name} needs libraries that are not here: {names}"
        + (f" (it uses glibc {_dotted(closure.glibc_needed)})" if closure.glibc_needed > (0, 0) else ""),
        evidence=[Evidence("shared libraries", "\n".join(lines))],
    )


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(str(part) for part in version)


def _stored(cache_dir: Path, name: str, data: bytes, version: str, arch: str, inputs: Mapping[str, Path]) -> EpSoftware:
    private_dir(cache_dir)
    sha256 = hashlib.sha256(data).hexdigest()
    path = cache_dir / f"{sha256}.tar.gz"
    _write(path, data)
    stamps = {} if name.startswith("release-") else {str(file): _stamp(file) for file in inputs.values()}
    record = {
        "recipe": recipe_hash(),
        "sha256": sha256,
        "size": len(data),
        "version": version,
        "arch": arch,
        "inputs": stamps,
    }
    _write(cache_dir / f"{name}.json", json.dumps(record, indent=1, sort_keys=True).encode())
    return EpSoftware(str(path), sha256, len(data), version, arch)


def _cached(cache_dir: Path, name: str) -> EpSoftware | None:
    """The earlier result, when its tarball is there whole and nothing it was made from has changed since."""
    try:
        record = json.loads((cache_dir / f"{name}.json").read_text())
        path = cache_dir / f"{record['sha256']}.tar.gz"
        fresh = (
            record["recipe"] == recipe_hash()
            and path.stat().st_size == record["size"]
            and all(_stamp(Path(file)) == stamp for file, stamp in record["inputs"].items())
        )
        found = EpSoftware(str(path), record["sha256"], record["size"], record["version"], record["arch"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return found if fresh else None


def _stamp(path: Path) -> list[int]:
    seen = path.stat()
    return [seen.st_size, seen.st_mtime_ns]


def _write(path: Path, data: bytes) -> None:
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".new-", delete=False) as file:
        file.write(data)
    Path(file.name).replace(path)
