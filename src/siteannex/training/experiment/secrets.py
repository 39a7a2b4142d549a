"""Secrets that were written where everybody can read them. Pure; what is found is never repeated."""

from __future__ import annotations

import re

_NAMED = re.compile(
    r"(?i)(?<![A-Za-z0-9])([A-Za-z0-9_.-]*(?:api_?key|access_?key|token|secret|password|passwd|passphrase|credential))"
    r"\s*[=:]\s*[\"']*([^\s\"';,]+)"
)
_SHAPES = {
    "a Hugging Face token": r"\bhf_[A-Za-z0-9]{20,}",
    "a GitHub token": r"\b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,})",
    "an AWS access key": r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    "an API key": r"\bsk-[A-Za-z0-9_-]{20,}",
    "a signed token": r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}",
    "a private key": r"-----BEGIN [A-Z ]*PRIVATE KEY",
    "a password in a URL": r"\b[a-z][a-z0-9+.-]*://[^/\s:@]+:[^@/\s$]+@",
}
_REFERENCE = re.compile(r"^(?:\$\(|\{site\.|/|\./|~|<|None\b|null\b)")
_LEAST = 8


def secret_in(text: str) -> str | None:
    """What a line seems to give away (`WANDB_API_KEY`, `an AWS access key`), or None."""
    for what, shape in _SHAPES.items():
        if re.search(shape, text):
            return what
    for match in _NAMED.finditer(text):
        name, value = match.groups()
        if len(value) >= _LEAST and not value.isdecimal() and not _REFERENCE.match(value):
            return f"the value of {name}"
    return None
