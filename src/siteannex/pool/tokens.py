"""What an IDTOKEN says of itself. It is read, not verified: only the pool holds the key.

Needed because a collector refuses a bad, an expired and a too narrow token in almost the same words, at the site,
minutes later. So every token is read here before it is shipped.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from siteannex.errors import Secret
from siteannex.units import format_duration

SCOPE_PREFIX = "condor:/"
_CLOCK_SLACK = timedelta(seconds=60)
_LATEST_EPOCH_S = 253_402_300_799


@dataclass(frozen=True, slots=True)
class TokenClaims:
    """The readable part of an IDTOKEN. Holds neither the token nor its signature."""

    key_id: str
    """The signing key's name, `POOL` or `AP`."""
    issuer: str
    """The pool's trust domain."""
    subject: str
    """The identity the bearer gets, `alice@ap.lab`."""
    scopes: tuple[str, ...] | None
    """Authorizations without `condor:/`, as `READ`; None when the token is not limited at all."""
    issued_at: datetime | None
    expires_at: datetime | None
    """None: it never expires."""
    token_id: str


def decode(token: Secret) -> TokenClaims:
    """Read header and claims. ValueError (never quoting the token) when it is not a JWT."""
    parts = token.reveal().strip().split(".")
    if len(parts) != 3:
        raise ValueError("not a token: it should have three parts with dots between them")
    header, claims = _section(parts[0], "header"), _section(parts[1], "claims")
    return TokenClaims(
        key_id=_text(header, "kid"),
        issuer=_text(claims, "iss"),
        subject=_text(claims, "sub"),
        scopes=_scopes(claims.get("scope")),
        issued_at=_moment(claims.get("iat")),
        expires_at=_moment(claims.get("exp")),
        token_id=_text(claims, "jti"),
    )


def _section(part: str, what: str) -> dict[str, object]:
    try:
        read = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        raise ValueError(f"not a token: its {what} cannot be read") from None
    if not isinstance(read, dict):
        raise ValueError(f"not a token: its {what} is not an object")
    return read


def _text(section: dict[str, object], name: str) -> str:
    value = section.get(name)
    return value if isinstance(value, str) else ""


def _moment(value: object) -> datetime | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LATEST_EPOCH_S:
        return None
    return datetime.fromtimestamp(int(value), UTC)


def _scopes(value: object) -> tuple[str, ...] | None:
    if value is None:
        return None
    words = value.split() if isinstance(value, str) else []
    return tuple(word.removeprefix(SCOPE_PREFIX) for word in words)


def shortcomings(
    claims: TokenClaims, *, wanted: Iterable[str], identity: str, lifetime_s: int, now: datetime
) -> list[str]:
    """Why this token must not be shipped, one sentence each; empty when it is exactly what was asked."""
    wanted = tuple(wanted)
    found = [_scope_shortcoming(claims.scopes, wanted), _expiry_shortcoming(claims, lifetime_s, now)]
    if claims.subject != identity:
        found.append(f"it is for {claims.subject or 'nobody'}, not for {identity}")
    return [sentence for sentence in found if sentence]


def _scope_shortcoming(scopes: tuple[str, ...] | None, wanted: tuple[str, ...]) -> str:
    if scopes is None:
        return "it is not limited at all: whoever reads it could do everything you can"
    missing = [scope for scope in wanted if scope not in scopes]
    if missing:
        return f"it lacks the authorization {', '.join(missing)} (it has {', '.join(scopes) or 'none'})"
    extra = [scope for scope in scopes if scope not in wanted]
    return f"it carries authorizations nobody asked for: {', '.join(extra)}" if extra else ""


def _expiry_shortcoming(claims: TokenClaims, lifetime_s: int, now: datetime) -> str:
    if claims.expires_at is None:
        return "it never expires"
    left = claims.expires_at - now
    if left >= timedelta(seconds=lifetime_s) - min(_CLOCK_SLACK, timedelta(seconds=lifetime_s / 2)):
        return ""
    if left <= timedelta(0):
        return f"it expired at {claims.expires_at.isoformat()}"
    return (
        f"it expires in {format_duration(int(left.total_seconds()))}, the annex needs {format_duration(lifetime_s)} "
        "(the AP limits tokens: SEC_ISSUED_TOKEN_EXPIRATION)"
    )
