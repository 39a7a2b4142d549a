"""What leaves the access point has no secrets: values that look like one are replaced by words that say so. Pure."""

from __future__ import annotations

import re
from typing import Any

from siteannex.training.experiment.secrets import secret_in

_NAME = re.compile(r"(?i)(?:api_?key|access_?key|token|secret|password|passwd|passphrase|credentials?)$")


def scrubbed(value: Any, name: str = "") -> Any:
    """`value` without secrets. A string under a secret's name goes whatever it is; others by their looks."""
    if isinstance(value, dict):
        return {key: scrubbed(item, str(key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [scrubbed(item, name) for item in value]
    if not isinstance(value, str):
        return value
    what = f"the value of {name}" if value and _NAME.search(name) else secret_in(f"{name}={value}") or secret_in(value)
    return f"removed: {what}" if what else value


def scrubbed_text(text: str) -> str:
    """A file's text; whole lines go, as nobody knows how far the secret reaches."""
    lines = [f"# removed: {what}" if (what := secret_in(line)) else line for line in text.splitlines()]
    return "\n".join(lines) + "\n"
