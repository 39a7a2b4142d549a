"""Where the lab keeps things. Every place can be moved by an environment variable."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
REPO = PACKAGE.parent
FILES = PACKAGE / "files"


def default_cache_dir() -> Path:
    """This user's own cache, used for what a shared cache cannot hold."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "siteannex-lab"


def cache_dir() -> Path:
    """Where image archives are kept; may be shared between users and read-only for some."""
    chosen = os.environ.get("SITEANNEX_LAB_CACHE")
    return Path(chosen).absolute() if chosen else default_cache_dir()


def unpacked_dir() -> Path:
    """Where images lie unpacked: trees carry their owner's ids, so each user needs their own."""
    cache = cache_dir()
    own = cache if not cache.exists() or os.access(cache, os.W_OK) else default_cache_dir()
    return own / f"unpacked-{os.getuid()}"


@contextmanager
def images_in_use(folder: Path, *, exclusive: bool = False) -> Iterator[None]:
    """Hold the unpacked images in ``folder``: shared while a lab runs on them, exclusive to delete them.

    Raises BlockingIOError where they are in use.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".in-use").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB if exclusive else fcntl.LOCK_SH)
        yield


def state_dir() -> Path:
    """The running lab's state; a second lab is a second state directory."""
    chosen = os.environ.get("SITEANNEX_LAB_STATE")
    if chosen:
        return Path(chosen).absolute()
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.access(runtime, os.W_OK):
        return Path(runtime) / "siteannex-lab"
    return Path(f"/tmp/siteannex-lab-{os.getuid()}")
