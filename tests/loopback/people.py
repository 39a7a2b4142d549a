"""Stand-ins for the person at the terminal, and the facts of a site on the loopback."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date

from siteannex.errors import Secret
from siteannex.failures import fail
from siteannex.ports import Prompt
from siteannex.site.schema import Login, NodeKind, Partition, SessionPolicy, Site


@dataclass
class Person:
    """Answers prompts from a list of (part of the text, answer); says what was shown."""

    answers: Sequence[tuple[str, str]] = (("Password", "right password"), ("code", "123456"))
    accepts_keys: bool = True
    before: Callable[[Prompt], None] | None = None
    asked: list[Prompt] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    shown_keys: list[tuple[str, str, str]] = field(default_factory=list)

    def ask(self, prompt: Prompt) -> Secret:
        self.asked.append(prompt)
        if self.before is not None:
            self.before(prompt)
        for part, answer in self.answers:
            if part in prompt.text:
                return Secret(answer)
        raise fail("no-terminal", prompt.site, f"nobody answers {prompt.text!r}")

    def confirm_host_key(self, host: str, key_type: str, fingerprint: str) -> bool:
        self.shown_keys.append((host, key_type, fingerprint))
        return self.accepts_keys

    def tell(self, text: str) -> None:
        self.told.append(text)


def loopback_site(
    port: int,
    *,
    host: str = "127.0.0.1",
    keys: str = "allowed",
    idle_s: int = 3600,
    persist: bool = True,
    **login: object,
) -> Site:
    """A site whose login host is a port of this machine; more facts of its login by name."""
    day = date(2026, 1, 1)
    partition = Partition(
        sharing="shared", nodes=(NodeKind(cores=1, memory=1024),), max_walltime=60, verified=day, source="a test"
    )
    return Site(
        name="loop",
        title="Loopback",
        login=Login.model_validate({"host": host, "port": port, "keys": keys, **login}),
        session=SessionPolicy(idle=idle_s, persist=persist),
        partitions={"debug": partition},
        verified=day,
        source="a test",
    )
