"""Old checkpoints of one training run go, on the AP, after an epoch came back whole. Side-cars stay, for lineage.

What stays is enough to go on from (`Keep`), and room for the next checkpoint: where the disk or quota has none, fewer
are kept, down to the newest alone. Nothing is removed unless what stays is, byte for byte, what its side-car says.
"""

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from siteannex.training.epoch.checkpoints import Checkpoint, fault, ranked, scan

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True, slots=True)
class Keep:
    """Which checkpoints stay: the `last` newest of finished epochs, and the best by a metric."""

    last: int = 2
    best: bool = True
    metric: str = "val_loss"
    mode: str = "min"

    def fewer(self) -> tuple["Keep", ...]:
        """This policy, then what is kept when there is no room."""
        frugal = Keep(1, self.best, self.metric, self.mode)
        return self, frugal, Keep(1, False, self.metric, self.mode)


@dataclass(frozen=True, slots=True)
class Pruned:
    """What was done. Sizes in bytes."""

    kept: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    freed_bytes: int = 0
    needed_bytes: int = 0
    """Of the next checkpoint, taken to be as large as the newest."""
    has_room: bool = True
    note: str = ""


def to_keep(checkpoints: Sequence[Checkpoint], keep: Keep) -> frozenset[Path]:
    """The files that stay: by policy, and whatever was saved in the middle of an epoch that is not finished yet."""
    finished = sorted((one for one in checkpoints if one.complete), key=lambda one: one.progress)
    best = ranked(finished, keep.metric, keep.mode)[:1] if keep.best else []
    done = finished[-1].progress if finished else (-1, -1, False, 0)
    midway = [one for one in checkpoints if not one.complete and one.progress > done]
    return frozenset(one.path for one in (*finished[-keep.last :], *best, *midway))


def prune(run: Path, keep: Keep) -> Pruned:
    """Remove what `keep` does not need from `run`/checkpoints, and let `run`/last.ckpt be the newest (a hard link)."""
    present = [one for one in scan(run / "checkpoints") if one.path.exists()]
    finished = sorted((one for one in present if one.complete), key=lambda one: one.progress)
    if not finished:
        return Pruned(note="no finished epoch yet")
    newest = finished[-1]
    if wrong := fault(newest):
        return Pruned(note=f"nothing removed: {newest.path.name} is not whole ({wrong})")
    sound = [one for one in present if one in (newest,) or not one.complete or not fault(one)]
    needed = int(newest.sidecar["checkpoint"]["bytes"])
    removed: list[str] = []
    freed, roomy = 0, False
    staying: frozenset[Path] = frozenset()
    for policy in keep.fewer():
        staying = to_keep(sound, policy)
        for one in present:
            if one.path not in staying and one.path.exists():
                freed += one.path.stat().st_size
                one.path.unlink()
                removed.append(one.path.name)
        if roomy := has_room(run, needed):
            break
    point_at(run / "last.ckpt", newest.path)
    names = tuple(sorted(path.name for path in staying))
    return Pruned(names, tuple(removed), freed, needed, roomy)


def has_room(folder: Path, size: int) -> bool:
    """Whether a file of `size` bytes could be written in `folder` now, by disk and by quota: tried, not computed."""
    probe = folder / f".room-{os.getpid()}"
    try:
        with probe.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(size, 1))
    except OSError as error:
        if error.errno in FULL:
            return False
        raise
    finally:
        probe.unlink(missing_ok=True)
    return True


def point_at(link: Path, target: Path) -> None:
    """Let `link` be another name of `target`. It takes no room, so it works on a full disk."""
    fresh = link.with_name(f".{link.name}-{os.getpid()}")
    fresh.unlink(missing_ok=True)
    fresh.hardlink_to(target)
    fresh.replace(link)
    # Where both names were one file already, rename does nothing and leaves the new name.
    fresh.unlink(missing_ok=True)
