"""What this machine remembers of staged inputs: sums of local files, and where copies lie. Both can be made anew.

Below the state directory, `staged/sums.json` (a file's sum while its size and time of change stay as they are) and
`staged/<site>.json`, which `siteannex stage SITE --list` rewrites from what is there.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from siteannex.errors import AnnexError, Evidence
from siteannex.failures import fail
from siteannex.locks import Taken, exclusive
from siteannex.model import StagedCopy
from siteannex.ports import Progress
from siteannex.private import private_dir, write_private

_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Record:
    """The directory `staged` below the state directory."""

    folder: Path

    @classmethod
    def under(cls, state: Path) -> Record:
        """The usual one."""
        return cls(state / "staged")

    def copies(self, site: str) -> list[StagedCopy]:
        """Copies at a site, as far as is remembered."""
        found = []
        for each in _read(self.folder / f"{site}.json").get("copies", []):
            try:
                found.append(StagedCopy(**each))
            except TypeError:
                continue
        return found

    def replace(self, site: str, copies: Iterable[StagedCopy]) -> None:
        """Remember that these copies are at the site and no others."""
        with self._changing(f"{site}.json") as data:
            data["copies"] = [asdict(copy) for copy in copies]

    def add(self, site: str, copy: StagedCopy) -> None:
        """Remember one more."""
        self.replace(site, [*(each for each in self.copies(site) if each.sha256 != copy.sha256), copy])

    def known_sum(self, file: Path) -> str | None:
        """A file's sum, None when it is not known or the file has changed since."""
        try:
            shape = _shape(file)
        except OSError:
            return None
        entry = _read(self.folder / "sums.json").get(str(file.resolve()), {})
        return str(entry["sha256"]) if isinstance(entry, dict) and entry.get("shape") == shape else None

    def sum_of(self, file: Path, progress: Progress | None = None) -> str:
        """A file's sum, taken now unless it is known. Raises OSError; AnnexError(state-unwritable)."""
        if (known := self.known_sum(file)) is not None:
            return known
        shape, total, done = _shape(file), file.stat().st_size, 0
        digest = hashlib.sha256()
        with file.open("rb") as stream:
            while block := stream.read(_BLOCK):
                digest.update(block)
                done += len(block)
                if progress is not None:
                    progress(done, total)
        with self._changing("sums.json") as data:
            data[str(file.resolve())] = {"shape": shape, "sha256": digest.hexdigest()}
        return digest.hexdigest()

    def staged(self, site: str, file: Path) -> StagedCopy | None:
        """The copy of this very content at a site; None when there is none or the file has changed."""
        known = self.known_sum(file)
        return next((copy for copy in self.copies(site) if copy.sha256 == known), None)

    @contextmanager
    def lock(self, site: str, when_taken: Callable[[], None]) -> Iterator[None]:
        """One command at a time stages at a site. `when_taken` is told before it waits."""
        path = self.folder / f"{site}.lock"
        with ExitStack() as held:
            try:
                private_dir(self.folder)
                held.enter_context(exclusive(path))
            except Taken:
                when_taken()
                held.enter_context(exclusive(path, wait=True))
            except OSError as problem:
                raise _unwritable(path, problem) from problem
            yield

    @contextmanager
    def _changing(self, name: str) -> Iterator[dict[str, Any]]:
        path = self.folder / name
        try:
            private_dir(self.folder)
            with exclusive(self.folder / "lock", wait=True):
                data = {"v": 1, **_read(path)}
                yield data
                fresh = path.with_suffix(f".{os.getpid()}")
                write_private(fresh, json.dumps(data, indent=1))
                fresh.replace(path)
        except OSError as problem:
            raise _unwritable(path, problem) from problem


def _unwritable(path: Path, problem: OSError) -> AnnexError:
    seen = Evidence(str(path), f"{problem.strerror} (errno {problem.errno})")
    return fail("state-unwritable", "", f"cannot write {path}", evidence=[seen])


def _shape(file: Path) -> list[int]:
    found = file.stat()
    return [found.st_size, found.st_mtime_ns, found.st_ino]


def _read(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}
