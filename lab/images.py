"""Building, caching and finding the lab's images. Only this part of the lab uses the machine's network."""

import fcntl
import os
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab import machine, recipes
from lab.errors import LabError
from lab.paths import FILES, cache_dir, default_cache_dir, images_in_use, unpacked_dir
from lab.recipes import Recipe

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Images:
    """Paths of the archives one lab is made of."""

    ap: Path
    site: Path
    venv: Path
    menu: Path


def _cached(name: str) -> Path | None:
    for folder in (cache_dir(), default_cache_dir()):
        if os.access(folder / name, os.R_OK):
            return folder / name
    return None


def _writable_cache() -> Path:
    for folder in (cache_dir(), default_cache_dir()):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return folder
    raise LabError(f"cannot write to the image cache {cache_dir()}; set SITEANNEX_LAB_CACHE")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def find() -> Images | None:
    """The archives, if all are cached; the AP's preferred image first, its fallback second."""
    ap_recipe = recipes.ap()
    ap = _cached(ap_recipe.archive) or (ap_recipe.fallback and _cached(ap_recipe.fallback.archive))
    site, menu = _cached(recipes.site().archive), _cached(recipes.menu_module().archive)
    if not ap or not site or not menu:
        return None
    venv = _cached(venv_archive(ap))
    return Images(ap, site, venv, menu) if venv else None


def fallback_note(found: Images) -> str | None:
    """A sentence for whoever starts a lab whose AP image is not the preferred one."""
    if found.ap.name == recipes.ap().archive:
        return None
    return f"note: the AP runs the fallback image {found.ap.name} (an older HTCondor); `lab/lab build` tries again"


def venv_archive(ap: Path) -> str:
    """The cache's name for the virtualenv that belongs to this AP image."""
    return f"venv-{recipes.venv_key(ap.name)}.tar.zst"


def build(say: Say) -> Images:
    """Build what is not cached, images in parallel; returns where everything is."""
    cache = _writable_cache()
    machine.require_tools(build=True)
    with _locked(cache), ThreadPoolExecutor(3) as pool:
        ap = pool.submit(_ap_image, cache, say)
        site = pool.submit(_image, recipes.site(), cache, say)
        menu = pool.submit(_image, recipes.menu_module(), cache, say)
        venv = _venv(ap.result(), cache, say)
        return Images(ap.result(), site.result(), venv, menu.result())


def _ap_image(cache: Path, say: Say) -> Path:
    recipe = recipes.ap()
    try:
        return _image(recipe, cache, say)
    except LabError as error:
        if recipe.fallback is None:
            raise
        say(f"{error}\n{recipe.name}: falling back to {recipe.fallback.name} (its older HTCondor)")
        return _image(recipe.fallback, cache, say)


def _image(recipe: Recipe, cache: Path, say: Say) -> Path:
    found = _cached(recipe.archive)
    if found:
        say(f"{recipe.name}: cached, {found}")
        return found
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=".building-", dir=cache) as scratch:
        product = Path(scratch) / recipe.archive
        command = _mmdebstrap(recipe, product)
        done = subprocess.run(
            command, env=machine.environment(), capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        if recipe.artefact and done.returncode == 0:
            (Path(scratch) / recipe.artefact).rename(product)
        if done.returncode != 0 or not product.exists():
            raise LabError(f"{recipe.name}: image build failed ({done.returncode}):\n{done.stderr[-3000:]}")
        product.chmod(0o644)
        product.rename(cache / recipe.archive)
    say(f"{recipe.name}: built in {time.monotonic() - began:.0f} s, {cache / recipe.archive}")
    return cache / recipe.archive


def _mmdebstrap(recipe: Recipe, product: Path) -> list[str]:
    command = [
        "mmdebstrap",
        *recipes.MMDEBSTRAP_OPTIONS,
        f"--mode={'root' if machine.is_root() else 'unshare'}",
        f"--include={','.join(recipe.packages)}",
    ]
    command += [f"--aptopt={option}" for option in machine.apt_proxies()]
    if recipe.preferences:
        text = shlex.quote(recipe.preferences)
        command.append(
            f'--setup-hook=mkdir -p "$1/etc/apt/preferences.d"; printf %s {text} >"$1/etc/apt/preferences.d/lab"'
        )
    for hook in recipe.hooks:
        filled = hook.replace("{files}", shlex.quote(str(FILES)))
        command.append(f"--customize-hook={filled}")
    if recipe.artefact:
        command.append(f"--customize-hook=copy-out /tmp/{recipe.artefact} {shlex.quote(str(product.parent))}")
    mirror = machine.debian_mirror()
    target = "/dev/null" if recipe.artefact else str(product)
    return [*command, recipe.suites[0], target, *(f"deb {mirror} {suite} main" for suite in recipe.suites)]


def _venv(ap: Path, cache: Path, say: Say) -> Path:
    name = venv_archive(ap)
    found = _cached(name)
    if found:
        say(f"venv: cached, {found}")
        return found
    began = time.monotonic()
    environment, paths = machine.pip_settings()
    with tempfile.TemporaryDirectory(prefix=".building-", dir=cache) as scratch:
        image = unpacked_dir() / ap.name.removesuffix(".tar.zst")
        inner = [
            "bash",
            "-c",
            'set -eu; sh "$0" "$1" "$2"; shift 2; exec bash "$@"',
            str(FILES / "unpack.sh"),
            str(ap),
            str(image),
            str(FILES / "ap" / "make-venv.sh"),
            str(image),
            scratch,
            str(cache / name),
            *paths,
            "--",
            *recipes.venv_requirements(),
        ]
        done = subprocess.run(
            [*machine.unshare("--mount", "--pid", "--fork", "--kill-child", "--mount-proc"), *inner],
            env={**machine.environment(), **environment},
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
    if done.returncode != 0:
        raise LabError(f"venv: could not be made ({done.returncode}):\n{(done.stdout + done.stderr)[-3000:]}")
    (cache / name).chmod(0o644)
    say(f"venv: built in {time.monotonic() - began:.0f} s, {cache / name}")
    return cache / name


def prune() -> list[str]:
    """Delete archives and unpacked trees of recipes that are no longer current; LabError while a lab runs on them."""
    cache, unpacked, wanted = _writable_cache(), unpacked_dir(), find()
    names = {Path(getattr(wanted, field)).name for field in wanted.__slots__} if wanted else set()
    trees = {name.removesuffix(".tar.zst") for name in names}
    try:
        with _locked(cache), images_in_use(unpacked, exclusive=True):
            old = [tree for tree in unpacked.iterdir() if tree.is_dir() and tree.name not in trees]
            if old:
                # They carry ids that only a user namespace of the same user can remove.
                remove = [*machine.unshare("--mount"), "rm", "-rf", "--one-file-system", *map(str, old)]
                subprocess.run(remove, env=machine.environment(), check=True)
            archives = [path for path in cache.glob("*-*") if path.is_file() and path.name not in names]
            for archive in archives:
                archive.unlink()
    except BlockingIOError:
        raise LabError("a lab is running on these images; take it down first") from None
    return [str(path) for path in (*old, *archives)]
