"""What a login's questions mean, with the words real sites use."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siteannex.site.schema import PromptRule
from siteannex.transport.prompts import account_trouble, classify, closing_words, wants_new_password

DUO = (
    "Duo two-factor login for alice\n\nEnter a passcode or select one of the following options:\n\n"
    " 1. Duo Push to XXX-XXX-0000\n\nPasscode or option (1-1): "
)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Password: ", "password"),
        ("(alice@login.example.org) Password:", "password"),
        ("alice@login's password: ", "password"),
        ("Verification code: ", "otp"),
        ("TOTP code for alice: ", "otp"),
        ("TACC Token Code:", "otp"),
        (DUO, "otp"),
        ("Passcode or option (1-4): ", "otp"),
        ("One-time password (OATH) for `alice': ", "otp"),
        ("Password + OTP: ", "otp"),
        ("Type 'Enter' when you authenticate.", "other"),
        ("", "other"),
    ],
)
def test_prompts_of_real_sites(text: str, kind: str) -> None:
    assert classify(text) == kind


def test_the_sites_own_rule_wins() -> None:
    rule = PromptRule(match=r"^password:\s*$", kind="otp")  # ALCF: PIN and code in one field
    assert classify("Password: ", (rule,)) == "otp"


def test_rules_are_tried_in_order_without_regard_to_case() -> None:
    rules = (PromptRule(match="CODE", kind="otp"), PromptRule(match="code", kind="other"))
    assert classify("Enter code", rules) == "otp"


@given(st.text())
def test_any_text_has_a_kind(text: str) -> None:
    assert classify(text) in {"password", "otp", "other"}
    account_trouble(text)
    wants_new_password(text)


@pytest.mark.parametrize(
    "text", ["New password: ", "Retype new password:", "(current) UNIX password: ", "Current password: "]
)
def test_questions_of_a_password_change(text: str) -> None:
    assert wants_new_password(text)


@pytest.mark.parametrize("text", ["Password: ", "Verification code: ", DUO])
def test_ordinary_questions_are_no_password_change(text: str) -> None:
    assert not wants_new_password(text)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("The account is locked due to 3 failed logins.", "account-locked"),
        ("Your account has expired; please contact your system administrator.", "account-locked"),
        ("You are required to change your password immediately (password expired).", "password-expired"),
        ("WARNING: Your password has expired.", "password-expired"),
        ("Password change required but no TTY available.", "password-expired"),
        ("This account is currently not available.", "account-locked"),
    ],
)
def test_words_of_trouble_with_the_account(text: str, code: str) -> None:
    trouble = account_trouble(text)
    assert trouble is not None
    assert trouble.code == code


@pytest.mark.parametrize(
    "text",
    [
        "*** Down for maintenance until Friday. ***",
        "Logins are currently disabled.",
        "The system is currently unavailable.",
        "Scheduled downtime 9:00-17:00",
    ],
)
def test_words_of_a_closed_site(text: str) -> None:
    assert closing_words(f"Welcome\n{text}\nBye") == text.strip("* ")


@pytest.mark.parametrize("text", ["", "Use is monitored.", "System load is 0.3", "Verification code: "])
def test_words_of_an_open_site(text: str) -> None:
    assert closing_words(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "Success. Logging you in...",
        "Use is monitored. By logging in you agree to it.",
        "Received disconnect: Too many authentication failures",
        "Your password will expire in 5 days",
    ],
)
def test_words_that_are_no_trouble(text: str) -> None:
    assert account_trouble(text) is None
