"""The lab's people: who they are on each host, their passwords and one-time codes.

All of it is public test data (``files/accounts.json``).
"""

import base64
import hashlib
import hmac
import json
import shlex
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lab.paths import FILES

STEP_SECONDS = 30
# The site accepts codes up to this many steps early or late. Real sites take one or two; the lab takes more
# so that many logins can follow each other without waiting, each with a code of its own.
WINDOW_STEPS = 20


@dataclass(frozen=True, slots=True)
class Account:
    """One person. ``kind`` says what the site's sshd asks them for."""

    name: str
    uid: int
    kind: str
    shell: str
    password: str
    totp: str
    slurm: tuple[str, ...]
    ap: bool


def load() -> tuple[Account, ...]:
    """Every account, in file order."""
    rows = json.loads((FILES / "accounts.json").read_text())["accounts"]
    return tuple(Account(**{**row, "slurm": tuple(row["slurm"])}) for row in rows)


def find(name: str) -> Account:
    """The account called ``name``; KeyError if there is none."""
    for account in load():
        if account.name == name:
            return account
    raise KeyError(name)


def totp(secret: str, step: int) -> str:
    """The six digits for one 30-second step (RFC 6238, SHA-1)."""
    key = base64.b32decode(secret)
    digest = hmac.new(key, struct.pack(">Q", step), hashlib.sha1).digest()
    offset = digest[-1] & 15
    number = struct.unpack(">I", digest[offset : offset + 4])[0] & 0x7FFFFFFF
    return f"{number % 1_000_000:06d}"


def steps_by_nearness(now: float) -> Iterator[int]:
    """Steps the site would accept now, nearest first; one short of the window so that time may pass."""
    here = int(now) // STEP_SECONDS
    yield here
    for distance in range(1, WINDOW_STEPS - 1):
        yield here + distance
        yield here - distance


def _user_lines(accounts: Iterable[Account]) -> list[str]:
    lines = ["set -eu", "umask 022"]
    for account in accounts:
        entry = f"{account.name}:x:{account.uid}:{account.uid}:{account.name}:/home/{account.name}:{account.shell}"
        lines += [
            f"echo {shlex.quote(entry)} >>/etc/passwd",
            f"echo {account.name}:x:{account.uid}: >>/etc/group",
            f"echo '{account.name}:!:20000:0:99999:7:::' >>/etc/shadow",
        ]
    return lines


def ap_script(accounts: tuple[Account, ...]) -> str:
    """Shell text that makes the AP's users, and their SSH keys for the site to collect."""
    people = [account for account in accounts if account.ap]
    lines = _user_lines(people)
    for account in people:
        home = f"/home/{account.name}"
        lines += [
            f"cp -r /etc/skel {home}; mkdir -p -m 700 {home}/.ssh",
            f"ssh-keygen -q -t ed25519 -N '' -C {account.name}@ap.lab -f {home}/.ssh/id_ed25519",
            f"chown -R {account.name}:{account.name} {home}; chmod 750 {home}",
            f"cp {home}/.ssh/id_ed25519.pub /lab/shared/{account.name}.pub.new",
            f"mv /lab/shared/{account.name}.pub.new /lab/shared/{account.name}.pub",
        ]
    return "\n".join(lines) + "\n"


def site_script(accounts: tuple[Account, ...]) -> str:
    """Shell text that makes the site's users on one host; homes (shared) are filled by the login node only."""
    lines = _user_lines(accounts)
    pairs = "\n".join(f"{account.name}:{account.password}" for account in accounts)
    lines += ["case $LAB_HOST in login*) ;; *) exit 0 ;; esac", f"chpasswd -c SHA256 <<'EOF'\n{pairs}\nEOF"]
    for account in accounts:
        home = f"/home/{account.name}"
        secret = f'{account.totp}\n" WINDOW_SIZE {2 * WINDOW_STEPS + 1}\n" DISALLOW_REUSE\n" TOTP_AUTH\n'
        lines += [
            f"cp -r /etc/skel {home}; mkdir -p -m 700 {home}/.ssh",
            f"cat >{home}/.google_authenticator <<'EOF'\n{secret}EOF",
        ]
        if account.name == "nora":
            lines.append(f"cp /lab/files/site/nora.bashrc {home}/.bashrc")
    keyed = [account.name for account in accounts if account.kind in ("key", "key+code")]
    givers = [account.name for account in accounts if account.ap]
    for giver in givers:
        lines.append(f"until [ -s /lab/shared/{giver}.pub ]; do sleep 0.02; done")
    public = " ".join(f"/lab/shared/{giver}.pub" for giver in givers)
    lines += [f"cat {public} >/home/{name}/.ssh/authorized_keys" for name in keyed]
    for account in accounts:
        home = f"/home/{account.name}"
        lines.append(
            f"chown -R {account.name}:{account.name} {home}; chmod 700 {home}; chmod 400 {home}/.google_authenticator"
        )
    return "\n".join(lines) + "\n"


def slurm_script(accounts: tuple[Account, ...]) -> str:
    """Shell text that fills the accounting database (before slurmctld runs)."""
    lines = ["set -eu", "exec >/dev/null", "sacctmgr -i add qos tiny set MaxWall=00:05:00 Priority=10"]
    for name in sorted({entry for account in accounts for entry in account.slurm}):
        quality = "QOS=normal,tiny DefaultQOS=normal"
        lines.append(f"sacctmgr -i add account {name} Cluster=lab Description={name} Organization=lab {quality}")
        members = [account.name for account in accounts if name in account.slurm]
        lines.append(f"sacctmgr -i add user {','.join(members)} Account={name}")
    return "\n".join(lines) + "\n"
