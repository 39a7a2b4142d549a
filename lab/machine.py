"""What the machine under the lab must offer, and how namespaces are entered on it."""

import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from lab.errors import LabError

# command -> the Debian package that brings it
_RUN_TOOLS = {
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "mount": "mount",
    "ip": "iproute2",
    "nft": "nftables",
    "tar": "tar",
    "zstd": "zstd",
    "bash": "bash",
}
_BUILD_TOOLS = {"mmdebstrap": "mmdebstrap"}
_USER_TOOLS = {"newuidmap": "uidmap"}
_SBIN = "/usr/local/sbin:/usr/sbin:/sbin"


def is_root() -> bool:
    """Whether the lab runs as root, without a user namespace."""
    return os.geteuid() == 0


def environment() -> dict[str, str]:
    """This process's environment with the sbin folders on PATH, which ordinary users lack."""
    path = os.environ.get("PATH", "/usr/local/bin:/usr/bin:/bin")
    return {**os.environ, "PATH": f"{path}:{_SBIN}"}


def unshare(*namespaces: str) -> list[str]:
    """The ``unshare`` command that starts new namespaces, through a user namespace when not root."""
    user = [] if is_root() else ["--user", "--map-auto", "--map-root-user"]
    return ["unshare", *user, *namespaces]


def require_tools(*, build: bool) -> None:
    """Make sure the host's tools are there: install them as root, else say which packages are missing."""
    wanted = dict(_RUN_TOOLS)
    if build:
        wanted |= _BUILD_TOOLS
    if not is_root():
        wanted |= _USER_TOOLS
    path = environment()["PATH"]
    missing = sorted({package for tool, package in wanted.items() if shutil.which(tool, path=path) is None})
    if not missing:
        return
    if not is_root() or shutil.which("apt-get") is None:
        raise LabError(f"missing on this machine: {' '.join(missing)}\nAs root: apt-get install {' '.join(missing)}")
    install = ["apt-get", "install", "-y", "-q", "--no-install-recommends", *missing]
    quiet = {**environment(), "DEBIAN_FRONTEND": "noninteractive"}
    first = subprocess.run(install, env=quiet, capture_output=True, text=True)
    if first.returncode != 0:
        subprocess.run(["apt-get", "update", "-q"], env=quiet, capture_output=True)
        again = subprocess.run(install, env=quiet, capture_output=True, text=True)
        if again.returncode != 0:
            raise LabError(f"could not install {' '.join(missing)}:\n{again.stderr[-2000:]}")


def require_namespaces() -> None:
    """Prove that the namespaces the lab lives in can be made here; say what is missing otherwise."""
    command = unshare("--mount", "--net", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc")
    trial = subprocess.run(
        [*command, "sh", "-c", "mount -t tmpfs t /mnt && ip link set lo up"],
        env=environment(),
        capture_output=True,
        text=True,
    )
    if trial.returncode == 0:
        return
    said = trial.stderr.strip() or f"exit status {trial.returncode}"
    if is_root():
        raise LabError(f"root may not make namespaces or mounts here (a container without CAP_SYS_ADMIN?): {said}")
    raise LabError("\n".join([f"an ordinary user cannot start the lab on this machine: {said}", *_userns_findings()]))


def _userns_findings() -> list[str]:
    findings = []
    name = _user_name()
    for table in ("/etc/subuid", "/etc/subgid"):
        if _subordinate_ids(Path(table), name) < 65536:
            findings.append(
                f"- {table} gives {name} no range of 65536 ids: as root, echo '{name}:100000:65536' >>{table}"
            )
    for knob, bad in (
        ("/proc/sys/kernel/unprivileged_userns_clone", "0"),
        ("/proc/sys/user/max_user_namespaces", "0"),
        ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"),
    ):
        path = Path(knob)
        if path.exists() and path.read_text().strip() == bad:
            findings.append(f"- {knob} is {bad}: unprivileged user namespaces are switched off")
    return findings or ["- no known cause found; run it as root instead"]


def _user_name() -> str:
    return pwd.getpwuid(os.getuid()).pw_name


def _subordinate_ids(table: Path, name: str) -> int:
    if not table.exists():
        return 0
    rows = [line.split(":") for line in table.read_text().splitlines() if line.count(":") == 2]
    return sum(int(count) for owner, _, count in rows if owner in (name, str(os.getuid())) and count.isdigit())


def debian_mirror() -> str:
    """The Debian mirror this machine uses, else Debian's own."""
    sources = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    for source in sources:
        if source.suffix not in (".list", ".sources") or not source.is_file():
            continue
        for line in source.read_text(errors="replace").splitlines():
            found = re.match(r"\s*(?:deb\s+(?:\[[^]]*\]\s+)?|URIs:\s*)(https?://\S+/debian/?)(?:\s|$)", line)
            if found:
                return found.group(1).rstrip("/")
    return "http://deb.debian.org/debian"


def apt_proxies() -> list[str]:
    """This machine's apt proxy settings as apt options, so that image builds go the same way."""
    if shutil.which("apt-config") is None:
        return []
    dump = subprocess.run(["apt-config", "dump"], capture_output=True, text=True).stdout
    return [line.rstrip(";") for line in dump.splitlines() if re.match(r"Acquire::https?::Proxy ", line)]


def pip_settings() -> tuple[dict[str, str], tuple[str, ...]]:
    """This machine's pip settings as environment variables, and the host paths they name."""
    passed = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "http_proxy", "https_proxy", "no_proxy")
    settings = {name: value for name, value in os.environ.items() if name.startswith("PIP_") or name in passed}
    for name, value in _pip_config():
        settings.setdefault("PIP_" + name.upper().replace("-", "_"), value)
    # pip in the image trusts the image's store, which lacks what this machine's administrator added.
    return settings, _existing_paths([*settings.values(), "/etc/ssl/certs/ca-certificates.crt"])


def _pip_config() -> list[tuple[str, str]]:
    listed = subprocess.run(["python3", "-m", "pip", "config", "list"], capture_output=True, text=True)
    rows = []
    for line in listed.stdout.splitlines():
        found = re.match(r"(?:global|install)\.([\w-]+)='(.*)'$", line)
        if found:
            rows.append((found.group(1), found.group(2).replace("\\n", " ")))
    return rows


def _existing_paths(values: Iterable[str]) -> tuple[str, ...]:
    found = set()
    for word in " ".join(values).split():
        # A file:// index links to packages beside it, so its parent is taken.
        path = Path(word.removeprefix("file://"))
        path = path.parent if word.startswith("file://") else path
        if path.is_absolute() and path != Path("/") and path.exists():
            found.add(path)
    # A folder brings all that is in it.
    return tuple(sorted(str(path) for path in found if not found & set(path.parents)))
