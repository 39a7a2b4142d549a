"""A person's own copy of the lab's site file, changed for one test. Whoever cleans up after the person removes it."""

from __future__ import annotations

import base64

from siteannex.resources import data_dir
from tests.lab.person import Person


def own_site(person: Person, *changes: tuple[str, str], add: str = "") -> None:
    """Write ~/.config/siteannex/sites/lab.yaml: each change is (text there, text instead), `add` goes to the end."""
    text = (data_dir("sites") / "lab.yaml").read_text(encoding="utf-8")
    for there, instead in changes:
        assert there in text, there
        text = text.replace(there, instead)
    coded = base64.b64encode((text + add).encode()).decode()
    place = "~/.config/siteannex/sites"
    person.shell(f"mkdir -p {place} && echo {coded} | base64 -d >{place}/lab.yaml")


DEBUG = "  debug:\n"
SLOW_START = ("ep:\n", "ep:\n  environment: ['sleep 120']\n")
"""The batch job runs for two minutes before its pilot does anything."""
