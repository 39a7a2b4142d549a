"""A site that no file knows yet: where to log in, and what the login asked."""

from __future__ import annotations

import re
from datetime import date
from typing import Any

from siteannex.errors import Secret
from siteannex.ports import Prompt, Prompter
from siteannex.site.schema import Login, NodeKind, Partition, Site

_MENU = re.compile(r"duo|passcode or option|push", re.IGNORECASE)


def site_name(host: str) -> str:
    """A name for a site at a host: `login.mycluster.edu` is `mycluster`."""
    words = [word for word in host.lower().split(".") if not re.fullmatch(r"(login|hpc|ssh|cluster)[0-9-]*", word)]
    return re.sub(r"[^a-z0-9-]", "-", words[0] if words else host.lower()).strip("-")[:32] or "site"


def stand_in(name: str, host: str, today: date) -> Site:
    """Enough of a site to log in."""
    kind = NodeKind(name="unknown", cores=None, memory=None)
    nothing = Partition(sharing="shared", nodes=(kind,), max_walltime=None, verified=today, source="not looked at yet")
    return Site(
        name=name,
        title=host,
        login=Login(host=host),
        partitions={"unknown": nothing},
        verified=today,
        source="not looked at yet",
    )


class ListeningPrompter:
    """Passes every question on and remembers what it was; never what was answered."""

    def __init__(self, inner: Prompter) -> None:
        self._inner = inner
        self._met: list[Prompt] = []

    def ask(self, prompt: Prompt) -> Secret:
        """Ask the person."""
        if prompt.kind != "passphrase":  # of a key on this side: no step of the site's
            self._met.append(prompt)
        return self._inner.ask(prompt)

    def confirm_host_key(self, host: str, key_type: str, fingerprint: str) -> bool:
        """Ask the person."""
        return self._inner.confirm_host_key(host, key_type, fingerprint)

    def tell(self, text: str) -> None:
        """Show it."""
        self._inner.tell(text)

    def steps(self) -> tuple[dict[str, Any], ...]:
        """The questions as steps of `login.auth`; a key that was welcome without one leaves none."""
        found = {_tail(prompt.text, prompt.login.partition("@")[0]): _factor(prompt) for prompt in self._met}
        return tuple({"by": [factor], "prompt": tail} for tail, factor in found.items())


def _factor(prompt: Prompt) -> str:
    if prompt.kind == "password":
        return "password"
    return "duo" if _MENU.search(prompt.text) else "totp"


def _tail(text: str, user: str) -> str:
    """A pattern for the end of a question: names before it, numbers and the user's name in it vary."""
    last = next((line for line in reversed(text.splitlines()) if line.strip()), "").strip()
    words = re.sub(r"^\(\S+@\S+\)\s*", "", last)
    parts = re.split(rf"\b{re.escape(user)}\b", words[-40:]) if user else [words[-40:]]
    escaped = (re.sub(r"\d+", r"\\d+", re.escape(part).replace(r"\ ", " ")) for part in parts)
    return r"\S+".join(escaped) + r"\s*$"
