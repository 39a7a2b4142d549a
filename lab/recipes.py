"""What each image is made of. The hash of a recipe names its archive in the cache."""

import hashlib
import json
import tomllib
from dataclasses import asdict, dataclass

from lab.paths import FILES, REPO

_COMMON = (
    "procps iproute2 passwd mount util-linux hostname netcat-openbsd libfaketime zstd less ca-certificates"
).split()
_AP = "condor munge python3 python3-venv openssh-client binutils".split()
_SITE = (
    "slurm-wlm slurm-wlm-basic-plugins slurmdbd slurm-wlm-mysql-plugin mariadb-server munge openssh-server "
    "libpam-google-authenticator rsync python3 python3-numpy tcsh xz-utils bzip2"
).split()
_FALLBACK_DEPENDENCIES = "paramiko htcondor jinja2 keyring typer rich pydantic ruamel.yaml".split()
_TEST_DEPENDENCIES = ("pytest", "pexpect")


@dataclass(frozen=True, slots=True)
class Recipe:
    """A Debian image: packages from ``suites``, and hooks run by mmdebstrap (``{files}`` is filled in); an
    ``artefact`` is a file taken out of /tmp of a throw-away image."""

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
        text = json.dumps(asdict(self), sort_keys=True)
        for source in self.sources:
            text += (FILES / source).read_text()
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def archive(self) -> str:
        """File name in the cache."""
        return f"{self.key}-{self.artefact}" if self.artefact else f"{self.name}-{self.key}.tar.zst"


def ap() -> Recipe:
    """The access point: trixie with HTCondor 25.x from sid, or trixie's own 23.9.x when sid does not fit."""
    packages = tuple(_COMMON + _AP)
    plain = Recipe("ap-trixie", ("trixie",), packages)
    preferences = (FILES / "ap" / "apt-preferences").read_text()
    return Recipe("ap", ("trixie", "sid"), packages, preferences=preferences, fallback=plain)


def site() -> Recipe:
    """The login and compute nodes. The empty database is made now so that `up` need not."""
    make_database = (
        'chroot "$1" sh -c "test -d /var/lib/mysql/mysql || '
        'mariadb-install-db --user=mysql --skip-test-db >/dev/null"'
    )
    return Recipe("site", ("trixie",), tuple(_COMMON + _SITE), hooks=(make_database,))


def menu_module() -> Recipe:
    """The PAM menu module, compiled in a throw-away image; only the .so is kept."""
    return Recipe(
        "menu",
        ("trixie",),
        ("gcc", "libc6-dev", "libpam0g-dev"),
        hooks=(
            "copy-in {files}/site/pam_lab_menu.c /tmp",
            'chroot "$1" gcc -Wall -Wextra -Werror -O2 -fPIC -shared -o /tmp/pam_lab_menu.so /tmp/pam_lab_menu.c -lpam',
        ),
        artefact="pam_lab_menu.so",
        sources=("site/pam_lab_menu.c",),
    )


def venv_requirements() -> tuple[str, ...]:
    """What the AP's virtualenv holds: the project's dependencies and what tests on the AP need."""
    pyproject = REPO / "pyproject.toml"
    wanted = _FALLBACK_DEPENDENCIES
    if pyproject.exists():
        wanted = tomllib.loads(pyproject.read_text()).get("project", {}).get("dependencies") or wanted
    return (*wanted, *_TEST_DEPENDENCIES)


def venv_key(ap_archive: str) -> str:
    """Hash of the image the virtualenv is made in, its requirements and the script that makes it."""
    script = (FILES / "ap" / "make-venv.sh").read_text()
    text = json.dumps([ap_archive, venv_requirements(), script])
    return hashlib.sha256(text.encode()).hexdigest()[:16]
