"""Where the HTCondor to pack comes from: one installed on this machine, or a release tarball."""

from __future__ import annotations

import platform
import shutil
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

from siteannex.annex.packing.recipe import OPTIONAL, REQUIRED, SANDBOX_TEST
from siteannex.failures import fail
from siteannex.ports import CommandResult


class Runner(Protocol):
    """Runs a program of this machine: argv in, answer out. A program that is not there answers with status 127."""

    def __call__(self, argv: Sequence[str], *, timeout_s: float = 60.0) -> CommandResult:
        """Run it and wait at most `timeout_s` (then: status 124)."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A directory taken as the root of a file system; absolute symbolic links stay inside it."""

    root: Path

    def find(self, path: str | Path) -> Path | None:
        """The real file behind an absolute path of the tree, symbolic links followed; None when there is none."""
        if self.root == Path("/"):
            return Path(path).resolve() if Path(path).exists() else None
        here, todo = PurePosixPath("/"), [part for part in PurePosixPath(path).parts if part != "/"]
        for _ in range(400):
            if not todo:
                found = self.root / here.relative_to("/")
                return found if found.exists() else None
            part = todo.pop(0)
            if part == "..":
                here = here.parent
                continue
            step = self.root / (here / part).relative_to("/")
            if step.is_symlink():
                target = step.readlink()
                todo = [piece for piece in target.parts if piece != "/"] + todo
                here = PurePosixPath("/") if target.is_absolute() else here
            else:
                here = here / part
        return None


@dataclass(frozen=True, slots=True)
class Source:
    """An HTCondor that can be packed."""

    name: str
    """How to speak of it: a path or an address."""
    programs: Mapping[str, Path]
    """`sbin/condor_master` to the real file."""
    libraries: tuple[Path, ...]
    """HTCondor's own library directories."""
    system: tuple[Path, ...]
    """Library directories of the operating system it was built on; empty when that is not at hand."""
    root: Path
    """The root that `libraries` are shown relative to."""

    @property
    def anchor(self) -> Path:
        """The program that says which HTCondor this is."""
        return self.programs["sbin/condor_master"]


_SANDBOX_NAME = SANDBOX_TEST.rpartition("/")[2]
_DEFAULT_DIRS = {
    "sbin": ("/usr/sbin", "/usr/local/sbin"),
    "bin": ("/usr/bin", "/usr/local/bin"),
    "libexec": ("/usr/libexec/condor", "/usr/lib/condor/libexec"),
    "lib": ("/usr/lib/condor", "/usr/lib64/condor", "/usr/lib", "/usr/lib64"),
}


def installed(runner: Runner, root: Path = Path("/")) -> Source:
    """The HTCondor installed on this machine, as its own configuration describes it.

    `root` packs the one installed in another file system tree (an image), found in the usual places.
    Raises AnnexError (ep-source-missing) naming the programs that are not there.
    """
    tree = Tree(root)
    places = {kind: list(dirs) for kind, dirs in _DEFAULT_DIRS.items()}
    if root == Path("/"):
        for kind, where in _configured(runner).items():
            places[kind].insert(0, where)
        places["sbin"] += _beside("condor_master")
        places["bin"] += _beside("condor_config_val")
    programs = {
        f"{kind}/{name}": found
        for lists in (REQUIRED, OPTIONAL)
        for kind, names in lists.items()
        for name in names
        if (found := _first(tree, places[kind], name)) is not None
    }
    sandbox = _first(tree, places["libexec"], _SANDBOX_NAME)
    programs |= _sandbox(sandbox)
    libraries = tuple(found for where in places["lib"] if (found := tree.find(where)) is not None)
    return _complete(Source("the HTCondor installed here", programs, libraries, system_library_dirs(root), root))


def _sandbox(directory: Path | None) -> dict[str, Path]:
    if directory is None or not directory.is_dir():
        return {}
    files = (path for path in sorted(directory.rglob("*")) if path.is_file() and not path.is_symlink())
    return {f"{SANDBOX_TEST}/{path.relative_to(directory)}": path for path in files}


def _configured(runner: Runner) -> dict[str, str]:
    """SBIN, BIN, LIBEXEC and LIB as condor_config_val prints them, one a line; empty when it cannot be asked."""
    answer = runner(["condor_config_val", "SBIN", "BIN", "LIBEXEC", "LIB"], timeout_s=20)
    lines = answer.stdout.split()
    return (
        dict(zip(("sbin", "bin", "libexec", "lib"), lines, strict=True))
        if answer.status == 0 and len(lines) == 4
        else {}
    )


def _beside(program: str) -> list[str]:
    found = shutil.which(program)
    return [str(Path(found).resolve().parent)] if found else []


def _first(tree: Tree, places: Sequence[str], name: str) -> Path | None:
    return next((found for where in places if (found := tree.find(f"{where}/{name}")) is not None), None)


def system_library_dirs(root: Path = Path("/"), arch: str | None = None) -> tuple[Path, ...]:
    """Where a loader of this system looks for libraries: `/etc/ld.so.conf.d`, then the standard places."""
    tree, triplet = Tree(root), f"{arch or platform.machine()}-linux-gnu"
    named: list[str] = []
    configs = tree.find("/etc/ld.so.conf.d")
    for config in sorted(configs.glob("*.conf")) if configs else []:
        named += [line.strip() for line in config.read_text(errors="replace").splitlines() if line[:1] == "/"]
    standard = [f"/lib/{triplet}", f"/usr/lib/{triplet}", "/lib64", "/usr/lib64", "/lib", "/usr/lib"]
    found = [place for where in [*named, *standard] if (place := tree.find(where)) is not None]
    return tuple(dict.fromkeys(found))


def unpacked_release(archive: Path, into: Path, name: str) -> Source:
    """Take out of a release tarball what may be packed. Raises AnnexError (ep-source-corrupt, ep-source-missing)."""
    try:
        _extract(archive, into)
    except (tarfile.TarError, EOFError, OSError) as problem:
        raise fail("ep-source-corrupt", "", f"{name} cannot be unpacked: {problem}") from problem
    programs: dict[str, Path] = {}
    for lists in (REQUIRED, OPTIONAL):
        for kind, names in lists.items():
            for program in names:
                found = sorted(path for path in into.rglob(program) if path.is_file() and kind in path.parent.parts)
                if found:
                    programs[f"{kind}/{program}"] = found[0].resolve()
    programs |= _sandbox(next(iter(sorted(into.rglob(_SANDBOX_NAME))), None))
    libraries = sorted({path.parent for path in into.rglob("*.so*") if path.is_file()})
    return _complete(Source(name, programs, tuple(libraries), (), into))


def _extract(archive: Path, into: Path) -> None:
    """Only programs and libraries, only regular files and links between them, never outside `into`."""
    wanted = {program for lists in (REQUIRED, OPTIONAL) for names in lists.values() for program in names}
    links: list[tuple[Path, str]] = []
    with tarfile.open(archive, mode="r:*") as tar:
        for member in tar:
            path = PurePosixPath(member.name)
            usable = path.name in wanted or ".so" in path.name or _SANDBOX_NAME in path.parts
            if path.is_absolute() or ".." in path.parts or not usable:
                continue
            target = into / path
            target.parent.mkdir(parents=True, exist_ok=True)
            if member.isreg():
                stream = tar.extractfile(member)
                target.write_bytes(stream.read() if stream else b"")
                target.chmod(0o755)
            elif member.issym():
                links.append((target, member.linkname))
            elif member.islnk():
                links.append((target, str(into / PurePosixPath(member.linkname))))
    for target, link in links:
        pointed = (target.parent / link).resolve()
        if pointed.is_relative_to(into.resolve()) and not target.exists():
            target.symlink_to(pointed)


def _complete(source: Source) -> Source:
    missing = [
        f"{kind}/{name}"
        for kind, names in REQUIRED.items()
        for name in names
        if f"{kind}/{name}" not in source.programs
    ]
    if missing:
        raise fail(
            "ep-source-missing",
            "",
            f"{source.name} lacks what an execution point needs: {', '.join(missing)}",
        )
    return source
