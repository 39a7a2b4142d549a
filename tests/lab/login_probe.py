"""Runs on the access point: one login to the lab's site with the answers given, then some commands; prints JSON.

The argument is one JSON object: user, answers ([part of the prompt, answer] pairs), do (list of steps), keys,
transport, host, port, persist, slow_s (seconds before each answer), trusts (unknown host keys).
Steps: run, run:SCRIPT, put:BYTES:TARGET.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from siteannex.annex.events import failure_to_data
from siteannex.errors import AnnexError, Secret
from siteannex.failures import fail
from siteannex.ports import Command, Prompt, Transport
from siteannex.site.schema import Login, NodeKind, Partition, SessionPolicy, Site
from siteannex.transport.places import Places
from siteannex.transport.sessions import close_session, open_transport


@dataclass
class Script:
    """The person, as a list of answers."""

    answers: list[tuple[str, str]]
    slow_s: float = 0.0
    trusts: bool = True
    asked: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def ask(self, prompt: Prompt) -> Secret:
        """Answer by the first part of a prompt that fits."""
        self.asked.append(prompt.text)
        time.sleep(self.slow_s)
        for part, answer in self.answers:
            if part in prompt.text:
                return Secret(answer)
        raise fail("no-terminal", prompt.site, f"nobody answers {prompt.text!r}")

    def confirm_host_key(self, host: str, key_type: str, fingerprint: str) -> bool:
        """Accept, or not."""
        self.asked.append(f"key of {host}")
        return self.trusts

    def tell(self, text: str) -> None:
        """Remember."""
        self.told.append(text)


def _site(words: dict[str, Any]) -> Site:
    day = date(2026, 1, 1)
    login = Login(
        host=words.get("host", "login.lab"),
        port=words.get("port", 22),
        keys=words.get("keys", "allowed"),
        transport=words.get("transport", "paramiko"),
    )
    debug = Partition(
        sharing="shared", nodes=(NodeKind(cores=1, memory=1024),), max_walltime=60, verified=day, source="a test"
    )
    return Site(
        name="lab",
        title="Lab",
        login=login,
        session=SessionPolicy(persist=words.get("persist", False)),
        partitions={"debug": debug},
        verified=day,
        source="a test",
    )


def _step(transport: Transport, step: str) -> object:
    verb, _, rest = step.partition(":")
    if verb == "run":
        return [asdict(answer) for answer in transport.run([Command(rest or "id -un; hostname")])]
    assert verb == "put"
    size, _, target = rest.partition(":")
    with tempfile.NamedTemporaryFile() as source:
        source.write(os.urandom(int(size)))
        source.flush()
        return transport.put(Path(source.name), target)


def main() -> None:
    """Log in, do the steps, print what happened."""
    words = json.loads(sys.argv[1])
    places = Places.from_environment()
    person = Script(
        [(part, answer) for part, answer in words["answers"]], words.get("slow_s", 0.0), words.get("trusts", True)
    )
    result: dict[str, object] = {"asked": person.asked, "told": person.told, "code": "ok", "did": []}
    did: list[object] = []
    began = time.monotonic()
    try:
        transport = open_transport(_site(words), user=words["user"], prompter=person, places=places)
        try:
            did += [_step(transport, step) for step in words.get("do", ["run"])]
        finally:
            transport.close()
            close_session(None, places=places)
    except AnnexError as error:
        evidence = "\n".join(f"{piece.source}: {piece.text}" for piece in error.failure.evidence)
        result |= {"code": error.failure.code, "summary": error.failure.summary, "evidence": evidence}
        result["failure"] = failure_to_data(error.failure)
    print(json.dumps(result | {"did": did, "seconds": time.monotonic() - began}))


if __name__ == "__main__":
    main()
