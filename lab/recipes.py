"""What each image is made of. The hash of a recipe names its archive in the cache."""

import hashlib
import json
import os
import tomllib
from dataclasses import asdict, dataclass

from lab.errors import LabError
from lab.paths import FILES, REPO

# How every image is made; part of the hash.
MMDEBSTRAP_OPTIONS = (
    "--variant=apt",
    # A mirror that lags behind serves an expired Release file for sid.
    '--aptopt=Acquire::Check-Valid-Until "false"',
    '--aptopt=APT::Install-Recommends "false"',
    "--dpkgopt=path-exclude=/usr/share/man/*",
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
)
_FALLBACK_DEPENDENCIES = ["paramiko", "htcondor", "jinja2", "keyring", "typer", "rich", "pydantic", "ruamel.yaml"]
_TEST_DEPENDENCIES = ("pytest", "pexpect")


@dataclass(frozen=True, slots=True)
class Recipe:
    """A Debian image: packages from ``suites`` and hooks run by mmdebstrap (``{files}`` is filled in).

    With an ``artefact``, the image is thrown away and only that file, from its /tmp, is kept.
    """

    name: str
    suites: tuple[str, ...]
    packages: tuple[str, ...]
    preferences: str = ""
    hooks: tuple[str, ...] = ()
    artefact: str = ""
    sources: tuple[str, ...] = ()
    fallback: "Recipe | None" = None

    @property
    def key(self) -> str:
        """Hash of all that decides the image's content (the day of the build does not)."""
        text = json.dumps([MMDEBSTRAP_OPTIONS, asdict(self)], sort_keys=True)
        for source in self.sources:
            text += (FILES / source).read_text()
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def archive(self) -> str:
        """File name in the cache."""
        return f"{self.key}-{self.artefact}" if self.artefact else f"{self.name}-{self.key}.tar.zst"


def _packages(*lists: str) -> tuple[str, ...]:
    return tuple(name for each in lists for name in (FILES / "packages" / each).read_text().split())


def ap() -> Recipe:
    """The access point: trixie with HTCondor 25.x from sid, or trixie's own 23.9.x when sid does not fit.

    ``SITEANNEX_LAB_AP=trixie`` asks for the older one outright.
    """
    packages = _packages("common", "ap")
    plain = Recipe("ap-trixie", ("trixie",), packages)
    wanted = os.environ.get("SITEANNEX_LAB_AP", "sid")
    if wanted == "trixie":
        return plain
    if wanted != "sid":
        raise LabError(f"SITEANNEX_LAB_AP={wanted}: must be sid or trixie")
    preferences = (FILES / "ap" / "apt-preferences").read_text()
    return Recipe("ap-sid", ("trixie", "sid"), packages, preferences=preferences, fallback=plain)


def site() -> Recipe:
    """The login and compute nodes, one image. The empty database is made now so that `up` need not."""
    make_database = (
        "rm -rf /var/lib/mysql; install -d -o mysql -g mysql -m 700 /var/lib/mysql; "
        "mariadb-install-db --user=mysql --skip-test-db >/dev/null"
    )
    return Recipe(
        "site",
        ("trixie",),
        _packages("common", "site"),
        hooks=(
            "copy-in {files}/site/mariadb.cnf /etc/mysql/mariadb.conf.d",
            f'chroot "$1" sh -ec "cd /etc/mysql/mariadb.conf.d; mv mariadb.cnf 90-lab.cnf; {make_database}"',
        ),
        sources=("site/mariadb.cnf",),
    )


def menu_module() -> Recipe:
    """The PAM menu module, compiled in a throw-away image; only the .so is kept."""
    compile_it = "gcc -Wall -Wextra -Werror -O2 -fPIC -shared -o /tmp/pam_lab_menu.so /tmp/pam_lab_menu.c -lpam"
    return Recipe(
        "menu",
        ("trixie",),
        _packages("menu"),
        hooks=("copy-in {files}/site/pam_lab_menu.c /tmp", f'chroot "$1" {compile_it}'),
        artefact="pam_lab_menu.so",
        sources=("site/pam_lab_menu.c",),
    )


def venv_requirements() -> tuple[str, ...]:
    """What the AP's virtualenv holds: the project's dependencies and what tests on the AP need."""
    pyproject = REPO / "pyproject.toml"
    wanted = _FALLBACK_DEPENDENCIES
    if pyproject.exists():
        try:
            project = tomllib.loads(pyproject.read_text())
        except tomllib.TOMLDecodeError as error:
            raise LabError(f"{pyproject}: {error}") from error
        wanted = project.get("project", {}).get("dependencies") or wanted
    return (*wanted, *_TEST_DEPENDENCIES)


def venv_key(ap_archive: str) -> str:
    """Hash of the image the virtualenv is made in, its requirements and the script that makes it."""
    script = (FILES / "ap" / "make-venv.sh").read_text()
    text = json.dumps([ap_archive, venv_requirements(), script])
    return hashlib.sha256(text.encode()).hexdigest()[:16]
