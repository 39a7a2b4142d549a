"""What a login's questions and notices mean. Pure; a site's own rules come first."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class PromptPattern(Protocol):
    """A site file's rule: a regular expression and the kind it names."""

    @property
    def match(self) -> str:
        """Regular expression, searched without regard to case."""

    @property
    def kind(self) -> str:
        """`password`, `otp` or `other`."""


_OTP = re.compile(
    r"verification code|passcode|one[- ]time|\botp\b|totp|token|authenticat\w+ code|security code"
    r"|duo|yubikey|second factor|two[- ]factor|\bmfa\b|\b2fa\b|option \(\d",
    re.IGNORECASE,
)
_PASSWORD = re.compile(r"pass(word|phrase)?\b[^\n]*:\s*$", re.IGNORECASE)
_NEW_PASSWORD = re.compile(
    r"\b(new|retype|re-enter|repeat|current|old)\b[^\n]*password|change your password", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Trouble:
    """What a site says of an account: our code, and the meaning in a few words."""

    code: str
    meaning: str


_TROUBLE = (
    (
        re.compile(
            r"password (has )?expired|password is expired|expired password|password change required"
            r"|(required|must|need) to change your password|must change your password",
            re.IGNORECASE,
        ),
        Trouble("password-expired", "the password has expired and must be changed"),
    ),
    (
        re.compile(r"account[^.\n]{0,40}(has )?expired|expired account", re.IGNORECASE),
        Trouble("account-locked", "the account has expired"),
    ),
    (
        re.compile(
            r"account[^.\n]{0,40}(locked|disabled|suspended|deactivated|blocked|not available)"
            r"|temporarily locked|access (is )?suspended",
            re.IGNORECASE,
        ),
        Trouble("account-locked", "the account is locked"),
    ),
)
PASSWORD_EXPIRED = _TROUBLE[0][1]
_CLOSED = re.compile(
    r"maintenance|downtime|outage|log-?ins? (is|are|has been|have been) (currently |temporarily )?(disabled|closed)"
    r"|(system|cluster|machine|node) is (currently |temporarily )?(down|closed|offline|unavailable)",
    re.IGNORECASE,
)


def classify(text: str, rules: Sequence[PromptPattern] = ()) -> str:
    """The kind of a question: `password` (a keyring may answer it), `otp` or `other` (a person answers them).

    The site's rules are tried in order; without a match, words for one-time codes win over `password:` at the end,
    so that "One-time password:" is never answered from a keyring.
    """
    for rule in rules:
        if re.search(rule.match, text, re.IGNORECASE) or re.search(rule.match, text.rstrip(), re.IGNORECASE):
            return rule.kind
    if _OTP.search(text):
        return "otp"
    if _PASSWORD.search(text):
        return "password"
    return "other"


def wants_new_password(text: str) -> bool:
    """True when a question belongs to changing an expired password, which siteannex never answers."""
    return _NEW_PASSWORD.search(text) is not None


def account_trouble(text: str) -> Trouble | None:
    """What a banner, an instruction or a shell's last words say of the account, or None when they say nothing of it."""
    return next((trouble for pattern, trouble in _TROUBLE if pattern.search(text)), None)


def closing_words(text: str) -> str | None:
    """The line that says the site takes no logins now, or None. A banner may only announce it for another day."""
    return next((line.strip(" *#\t") for line in text.splitlines() if _CLOSED.search(line)), None)
