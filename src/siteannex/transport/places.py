"""Where this user's files are: one frozen value, made at the command line and passed down. No global state."""

from __future__ import annotations

import os
import platform
import pwd
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SOCKET_PATH_LIMIT_BYTES = 107
"""Linux keeps 108 bytes for a Unix socket's path, one of them the final NUL (unix(7))."""
_LONGEST_NAME = "ssh-0123456789abcdef.0123456789abcdef"
"""ssh appends 17 characters to a control socket's name while it binds it."""


@dataclass(frozen=True, slots=True)
class Places:
    """Directories and names of one user on this machine."""

    home: Path
    """Where `.ssh/` is."""
    user: str
    """The local user name, used at a site when nothing else names one."""
    state: Path
    """`$XDG_STATE_HOME/siteannex`: the holder's log."""
    runtime: Path
    """`$XDG_RUNTIME_DIR/siteannex`, else below the state directory or in /tmp: sockets and locks, mode 0700."""
    agent_socket: Path | None = None
    """The user's ssh-agent."""
    system_ssh: Path = Path("/etc/ssh")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Places:
        """Read HOME, XDG_STATE_HOME, XDG_RUNTIME_DIR and SSH_AUTH_SOCK. Creates nothing."""
        env = os.environ if environment is None else environment
        entry = pwd.getpwuid(os.getuid())
        home = Path(env.get("HOME") or entry.pw_dir)
        state = _absolute(env.get("XDG_STATE_HOME"), home / ".local" / "state") / "siteannex"
        agent = env.get("SSH_AUTH_SOCK")
        return cls(
            home=home,
            user=entry.pw_name,
            state=state,
            runtime=_runtime(env.get("XDG_RUNTIME_DIR"), state),
            agent_socket=Path(agent) if agent else None,
        )

    @property
    def holder_socket(self) -> Path:
        """The session holder's Unix socket."""
        return self.runtime / "holder.sock"

    @property
    def holder_lock(self) -> Path:
        """Locked by the one holder that lives."""
        return self.runtime / "holder.lock"

    @property
    def holder_log(self) -> Path:
        """What the holder did, without answers."""
        return self.state / "holder.log"


def _runtime(xdg: str | None, state: Path) -> Path:
    """The first place that exists and is short enough for sockets.

    A state directory may be shared by several machines (NFS), so the host's name is part of that one.
    """
    given = _absolute(xdg or f"/run/user/{os.getuid()}", state)
    own = given / "siteannex" if given != state and given.is_dir() else state / "run" / platform.node()
    if len(os.fsencode(own / _LONGEST_NAME)) <= SOCKET_PATH_LIMIT_BYTES:
        return own
    return Path(tempfile.gettempdir()) / f"siteannex-{os.getuid()}"


def _absolute(value: str | None, default: Path) -> Path:
    # The XDG specification: relative values are to be ignored.
    return Path(value) if value and value.startswith("/") else default
