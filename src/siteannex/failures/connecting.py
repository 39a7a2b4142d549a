"""PACK, CONNECT and SHIP: the EP software, the login, files to the site."""

from __future__ import annotations

from siteannex.errors import Stage
from siteannex.failures.kind import FailureKind

KINDS: dict[str, FailureKind] = {
    # PACK: the EP software
    "ep-source-missing": FailureKind(
        Stage.PACK,
        "There is no HTCondor to pack.",
        "Install HTCondor on the AP, or give a release tarball: siteannex pack --from FILE --sha256 SUM.",
    ),
    "ep-source-corrupt": FailureKind(
        Stage.PACK,
        "The HTCondor tarball is not what its checksum says.",
        "Download it again and check the sha256.",
    ),
    "ep-newer-than-cm": FailureKind(
        Stage.PACK,
        "The EP software is newer than the pool's central manager; its slots would register and never match.",
        "Pack an HTCondor no newer than the central manager's.",
    ),
    "ep-arch-mismatch": FailureKind(
        Stage.PACK,
        "The EP software is for another processor than the site's.",
        "Give a release tarball for the site's architecture: siteannex pack --from FILE --sha256 SUM.",
    ),
    "ep-not-selfcontained": FailureKind(
        Stage.PACK,
        "A library that the EP software needs was not found.",
        "Install the library on the AP, or pack a release tarball.",
    ),
    # CONNECT: SSH and the login
    "ssh-config-invalid": FailureKind(
        Stage.CONNECT,
        "Your SSH configuration says something about this host that siteannex cannot follow.",
        "Mend ~/.ssh/config, or set transport: openssh for this site.",
    ),
    "host-unresolvable": FailureKind(
        Stage.CONNECT, "The login host's name does not resolve.", "Check the name and your network."
    ),
    "host-unreachable": FailureKind(
        Stage.CONNECT,
        "The login host does not answer.",
        "Check the site's status page and your network.",
        retryable=True,
    ),
    "not-ssh": FailureKind(
        Stage.CONNECT, "What answers at the login host is not an SSH server.", "Check host and port."
    ),
    "host-key-unknown": FailureKind(
        Stage.CONNECT,
        "The login host's key is not known and was not accepted.",
        "Compare the fingerprint with the one the site publishes, then accept it.",
    ),
    "host-key-changed": FailureKind(
        Stage.CONNECT,
        "The login host's key differs from the one in known_hosts.",
        "Ask the site whether it changed its keys; only then remove the old line from known_hosts.",
    ),
    "key-refused": FailureKind(
        Stage.CONNECT,
        "The site wants an SSH key and accepted none of yours.",
        "Upload your public key at the site, or name the key in ~/.ssh/config (IdentityFile).",
    ),
    "password-refused": FailureKind(
        Stage.CONNECT,
        "The site refused the password.",
        "Check the password; do not try often, sites lock accounts for that.",
    ),
    "code-refused": FailureKind(
        Stage.CONNECT,
        "The site refused the one-time code.",
        "Wait for the next code and check the phone's clock; a code works once.",
    ),
    "account-locked": FailureKind(
        Stage.CONNECT, "The site says the account is locked or expired.", "Ask the site's help desk."
    ),
    "password-expired": FailureKind(
        Stage.CONNECT,
        "The password at the site has expired; siteannex never changes one.",
        "Change it with plain ssh or on the site's web page, then log in again.",
    ),
    "site-maintenance": FailureKind(
        Stage.CONNECT,
        "The site takes no logins now; nothing is wrong with yours.",
        "Read what the site wrote; log in again when it is open.",
        retryable=True,
    ),
    "login-refused": FailureKind(
        Stage.CONNECT,
        "The site refused the login without saying which step failed.",
        "Read what the site wrote; then try once more.",
    ),
    "login-method-unsupported": FailureKind(
        Stage.CONNECT,
        "The site asks for a login method siteannex does not speak.",
        "Set transport: openssh for this site.",
    ),
    "channel-refused": FailureKind(
        Stage.CONNECT,
        "The site accepted the login and opens no channel for commands.",
        "The site allows few sessions per connection (MaxSessions): siteannex logout SITE, then log in again.",
        retryable=True,
    ),
    "no-terminal": FailureKind(
        Stage.CONNECT,
        "The login asks a question and nobody is at a terminal to answer.",
        "Run siteannex login SITE in a terminal first; the session is kept.",
    ),
    "link-broken": FailureKind(
        Stage.CONNECT,
        "The connection to the site broke.",
        "Run the command again; siteannex finds what was left.",
        retryable=True,
    ),
    "remote-timeout": FailureKind(
        Stage.CONNECT,
        "A command at the site gave no answer in time.",
        "The site may be slow; run the command again.",
        retryable=True,
    ),
    "session-needed": FailureKind(
        Stage.CONNECT, "This needs a login and no session is held.", "Run siteannex login SITE first."
    ),
    "session-holder-lost": FailureKind(
        Stage.CONNECT,
        "The session holder does not answer.",
        "Run siteannex logout, then log in again.",
        retryable=True,
    ),
    "cloud-session-expired": FailureKind(
        Stage.CONNECT,
        "The cloud no longer accepts your session (or this machine's clock is wrong).",
        "Log in again (aws sso login), then run the command again: nothing recorded is lost.",
    ),
    "cloud-unreachable": FailureKind(
        Stage.CONNECT,
        "The cloud's address does not answer from here.",
        "Check your network and the region's name in the site's file.",
        retryable=True,
    ),
    "cloud-login-needed": FailureKind(
        Stage.CONNECT,
        "There are no usable credentials for the cloud on this machine.",
        "Log in: aws sso login, or aws configure for keys.",
    ),
    "cloud-credentials-refused": FailureKind(
        Stage.CONNECT,
        "The cloud does not accept your credentials: wrong keys, a wrong clock, or a region not opted in to.",
        "aws sts get-caller-identity tells which; date -u shows the clock.",
    ),
    "cloud-mfa-refused": FailureKind(
        Stage.CONNECT,
        "The cloud refused the one-time code.",
        "Wait for the next code and check the phone's clock; a code works once.",
    ),
    # SHIP: files to the site
    "ship-failed": FailureKind(
        Stage.SHIP,
        "A file could not be written at the site.",
        "Read the site's words above; siteannex sites show SITE --json names the directory (directories.home).",
    ),
    "quota-exceeded": FailureKind(
        Stage.SHIP,
        "Your quota at the site is used up; the file system itself may have room.",
        "Remove files of yours there, or set directories.home in the site's YAML to a place where you have room.",
    ),
    "site-disk-full": FailureKind(
        Stage.SHIP,
        "The file system at the site is full, whatever your quota.",
        "Tell the site's help desk, or set directories.home in the site's YAML to another file system.",
        retryable=True,
    ),
    "home-unwritable": FailureKind(
        Stage.SHIP,
        "siteannex's directory at the site is read-only or belongs to another.",
        "Mend its permissions, or set directories.home in the site's YAML to a directory that you may write.",
    ),
    "site-arch-differs": FailureKind(
        Stage.SHIP,
        "The login node has another processor than the site's file says, so the EP software would not run there.",
        "Mend arch: in the site's YAML, or log in at the host of the right processor.",
    ),
    "upload-cut": FailureKind(
        Stage.SHIP,
        "The connection broke or stood still while a file was on its way; nothing of it is used.",
        "Run the command again; it sends the file anew.",
        retryable=True,
    ),
    "ship-corrupt": FailureKind(
        Stage.SHIP,
        "What arrived at the site is not what was sent; it was removed.",
        "Run the command again.",
        retryable=True,
    ),
    "file-unreadable": FailureKind(
        Stage.SHIP,
        "A file at the site exists and cannot be read.",
        "Mend its permissions at the site.",
    ),
    "slurm-missing": FailureKind(
        Stage.SHIP,
        "There is no Slurm on the PATH of your account at the login host.",
        "Check that sbatch works there in a login shell; the login host may be a data transfer node.",
    ),
}
