import base64
import contextlib
import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siteannex.errors import Secret
from siteannex.pool.condor import NARROW_SCOPES
from siteannex.pool.tokens import TokenClaims, decode, shortcomings

NOW = datetime(2026, 8, 29, 12, 0, tzinfo=UTC)
SIGNATURE = "c2lnbmF0dXJlLXRoYXQtbXVzdC1ub3QtYmUtc2hvd24"


def token(header: object = None, **claims: object) -> Secret:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    return Secret(f"{part(header or {'alg': 'HS256', 'kid': 'POOL'})}.{part(claims)}.{SIGNATURE}")


def issued(lifetime_s: int = 3600, scope: str | None = None, sub: str = "alice@ap.lab") -> TokenClaims:
    at = int(NOW.timestamp())
    wide = " ".join(f"condor:/{name}" for name in NARROW_SCOPES)
    return decode(
        token(iss="ap.lab", sub=sub, iat=at, exp=at + lifetime_s, jti="1", scope=wide if scope is None else scope)
    )


def why_not(claims: TokenClaims, lifetime_s: int = 3600) -> list[str]:
    return shortcomings(claims, wanted=NARROW_SCOPES, identity="alice@ap.lab", lifetime_s=lifetime_s, now=NOW)


def test_the_claims_are_read() -> None:
    claims = issued()
    assert (claims.key_id, claims.issuer, claims.subject) == ("POOL", "ap.lab", "alice@ap.lab")
    assert claims.scopes == NARROW_SCOPES
    assert claims.issued_at == NOW
    assert claims.expires_at == NOW + timedelta(hours=1)


def test_the_signature_is_not_in_what_is_kept() -> None:
    assert SIGNATURE not in repr(issued())


def test_a_token_that_is_what_was_asked_has_no_shortcomings() -> None:
    assert why_not(issued()) == []


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        (issued(scope="condor:/READ"), "lacks the authorization ADVERTISE_STARTD, ADVERTISE_MASTER (it has READ)"),
        (issued(scope=""), "(it has none)"),
        (issued(lifetime_s=600), "expires in 10 m, the annex needs 1 h"),
        (issued(lifetime_s=-600), "expired at 2026-08-29T11:50:00+00:00"),
        (issued(sub="bob@ap.lab"), "for bob@ap.lab, not for alice@ap.lab"),
        (decode(token(sub="alice@ap.lab")), "not limited at all"),
        (decode(token(sub="alice@ap.lab")), "never expires"),
        (
            issued(scope=" ".join(f"condor:/{name}" for name in (*NARROW_SCOPES, "ADMINISTRATOR"))),
            "nobody asked for: ADMINISTRATOR",
        ),
    ],
)
def test_a_token_that_will_not_do_says_why(claims: TokenClaims, said: str) -> None:
    assert any(said in sentence for sentence in why_not(claims))


@pytest.mark.parametrize("text", ["", "no token", "a.b.c", "e30.W10.x", "e30.bnVsbA.x"])
def test_what_is_no_token_is_refused_without_being_quoted(text: str) -> None:
    with pytest.raises(ValueError, match="not a token") as caught:
        decode(Secret(text))
    assert not text or text not in str(caught.value)


@given(st.text() | st.from_regex(r"[\w-]*\.[\w-]*\.[\w-]*", fullmatch=True))
def test_any_text_is_claims_or_a_value_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert isinstance(decode(Secret(text)), TokenClaims)


json_values = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.lists(st.text())


@given(st.dictionaries(st.sampled_from(["iss", "sub", "exp", "iat", "scope", "jti"]), json_values))
def test_claims_of_any_type_are_judged_without_an_exception(claims: dict[str, object]) -> None:
    assert all(isinstance(sentence, str) for sentence in why_not(decode(token(**claims))))
