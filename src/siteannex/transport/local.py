"""This machine as a site: the framed shell over a child process. For an AP that is a login node, and tests."""

from __future__ import annotations

import getpass

from siteannex.failures import fail
from siteannex.transport.channels import ByteChannel, PipeChannel
from siteannex.transport.remote import ShellTransport


class LocalTransport(ShellTransport):
    """Runs commands on this machine by `/bin/sh`. `home` is the directory they start in (default: ours)."""

    def __init__(self, site: str, *, home: str | None = None) -> None:
        self.login = f"{getpass.getuser()}@localhost"
        super().__init__(site, lambda command_line: _start(site, command_line, home))


def _start(site: str, command_line: str, home: str | None) -> ByteChannel:
    try:
        return PipeChannel.start(["/bin/sh", "-c", command_line], cwd=home)
    except OSError as problem:
        raise fail("link-broken", site, f"/bin/sh does not start on this machine: {problem}") from problem
