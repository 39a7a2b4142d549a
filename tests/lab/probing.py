"""Logins from the access point by `login_probe.py`, and changes at the site for the length of a block."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from lab import Lab

PROBE = "/opt/siteannex-src/tests/lab/login_probe.py"
PYTHON = "/opt/siteannex/bin/python"
RELOAD = "kill -HUP $(cat /run/sshd.pid); sleep 0.5"
AtSite = Callable[[str, str], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Probe:
    """Log in as an account of the site and do some steps; the answers default to right ones."""

    lab: Lab
    home: str

    def __call__(
        self, account: str, *, code: str | None = None, password: str | None = None, **words: Any
    ) -> dict[str, Any]:
        lab = self.lab
        answers = [
            ("assword", password or lab.password(account)),
            ("erification code", code or lab.code(account)),
            ("option", words.pop("option", "1")),
        ]
        words = {"user": account, "answers": answers, "keys": "forbidden", **words}
        environment = {"HOME": self.home, "PYTHONPATH": "/opt/siteannex-src/src"}
        ended = lab.exec("ap", [PYTHON, PROBE, json.dumps(words)], user="bob", env=environment)
        assert ended.returncode == 0, ended.stderr
        assert ended.stderr == ""
        result: dict[str, Any] = json.loads(ended.stdout)
        assert lab.password(account) not in ended.stdout
        return result


@contextmanager
def changed(lab: Lab, host: str, do: str, undo: str) -> Iterator[None]:
    """Change something on a host as root for the length of a block."""
    lab.exec(host, ["sh", "-c", do], check=True)
    try:
        yield
    finally:
        lab.exec(host, ["sh", "-c", undo], check=True)


def program(name: str, script: str) -> tuple[str, str]:
    """What puts a program before a host's own one of that name, and what takes it away."""
    path = f"/usr/local/bin/{name}"
    return f"cat >{path} <<'EOF'\n#!/bin/sh\n{script}\nEOF\nchmod 755 {path}", f"rm {path}"
