"""Every refusal, as botocore really raises it: its stage, code, words and next step; permissions decoded; logins."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from botocore.stub import Stubber
from moto import mock_aws

from siteannex.cloud.account import Account, RefusedError
from siteannex.cloud.credentials import expiry_warning, open_account
from siteannex.cloud.refusals import MEANINGS, denied
from siteannex.errors import AnnexError, Secret
from siteannex.failures import FAILURES, fail
from siteannex.ports import Prompt
from tests.unit.doubles import FakeClock
from tests.unit.samples import NOW
from tests.unit.test_cloud_refusals import ROWS

DENIED = json.dumps(
    {
        "allowed": False,
        "explicitDeny": False,
        "context": {
            "principal": {"arn": "arn:aws:iam::123456789012:user/alice"},
            "action": "iam:PassRole",
            "resource": "arn:aws:iam::123456789012:role/siteannex-ep",
        },
    }
)
REQUEST: dict[str, Any] = {"MinCount": 1, "MaxCount": 1, "ImageId": "ami-1"}


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    """Clients of it never leave: what they ask is answered by a stub."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_CONFIG_FILE", "/dev/null")
        environment.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
        environment.delenv("AWS_PROFILE", raising=False)
        yield boto3.Session("key", "secret", region_name="us-east-1")


@dataclass
class Stubbed:
    account: Account
    clock: FakeClock
    ec2: Stubber
    sts: Stubber


@pytest.fixture(scope="module")
def only_account(session: Any) -> Account:
    return Account(session, "aws", "us-east-1", FakeClock(), "lab")


@pytest.fixture
def stubbed(only_account: Account) -> Iterator[Stubbed]:
    clock = only_account.clock = FakeClock()
    with Stubber(only_account.client("ec2")) as ec2, Stubber(only_account.client("sts")) as sts:
        yield Stubbed(only_account, clock, ec2, sts)


# Codes that are answers of AWS, not StateReasons of instances nor names of botocore's exceptions.
ANSWERED = sorted(code for code in ROWS if not code.endswith("Error") and not code.startswith(("Server.", "Client.")))


@pytest.mark.parametrize("aws_code", [*ANSWERED, "InternalError"])
def test_each_answer_of_aws_has_its_stage_code_words_and_next_step(stubbed: Stubbed, aws_code: str) -> None:
    code, act = ROWS[aws_code]
    for _ in range(1 + MEANINGS[aws_code].retry_s // 5):
        stubbed.ec2.add_client_error("run_instances", aws_code, "as AWS says it", 400, expected_params=REQUEST)
    with pytest.raises(RefusedError) as raised:
        stubbed.account.ask("ec2", "RunInstances", REQUEST)
    said = raised.value.failure
    assert (said.code, raised.value.judged.act) == (code, act)
    assert said.stage is FAILURES[code].stage
    assert said.summary
    assert said.hint
    assert said.evidence[0].text == f"{aws_code}: as AWS says it"
    assert sum(stubbed.clock.slept) == MEANINGS[aws_code].retry_s
    stubbed.ec2.assert_no_pending_responses()


def test_an_answer_that_nobody_knows_passes_through_whole(stubbed: Stubbed) -> None:
    stubbed.ec2.add_client_error("run_instances", "BrandNew", "words never seen", expected_params=REQUEST)
    with pytest.raises(RefusedError) as raised:
        stubbed.account.ask("ec2", "RunInstances", REQUEST)
    assert raised.value.failure.code == "launch-refused"
    assert raised.value.failure.evidence[0].text == "BrandNew: words never seen"
    assert raised.value.aws_code == "BrandNew"


def refuse_permission(stubbed: Stubbed) -> RefusedError:
    words = "You are not authorized to perform this operation. Encoded authorization failure message: aBc-123"
    stubbed.ec2.add_client_error("run_instances", "UnauthorizedOperation", words, 403)
    with pytest.raises(RefusedError) as raised:
        stubbed.account.ask("ec2", "RunInstances", REQUEST)
    return raised.value


def test_a_permission_that_lacks_is_decoded_where_that_is_allowed(stubbed: Stubbed) -> None:
    answer = {"DecodedMessage": DENIED}
    stubbed.sts.add_response("decode_authorization_message", answer, {"EncodedMessage": "aBc-123"})
    said = refuse_permission(stubbed).failure
    assert said.summary == (
        "arn:aws:iam::123456789012:user/alice may not iam:PassRole on "
        "arn:aws:iam::123456789012:role/siteannex-ep: no rule of the account allows it"
    )
    assert said.evidence[-1].text == DENIED
    assert "decode" not in said.hint


def test_where_decoding_is_not_allowed_the_text_goes_to_an_administrator(stubbed: Stubbed) -> None:
    stubbed.sts.add_client_error("decode_authorization_message", "AccessDenied", "not you", 403)
    said = refuse_permission(stubbed).failure
    assert said.summary == "you may not RunInstances in us-east-1"
    assert said.hint.endswith("--encoded-message aBc-123")


@pytest.mark.parametrize("text", ["", "no json", "[]", "{}", '{"context": []}'])
def test_a_decoded_message_of_another_shape_is_left_as_it_is(text: str) -> None:
    assert denied(text) == ""


def test_an_explicit_denial_is_told_apart() -> None:
    assert denied(DENIED.replace('"explicitDeny": false', '"explicitDeny": true')).endswith("denies it")


# Logging in


@dataclass
class Typist:
    """A Prompter that types codes from a list and keeps what it saw."""

    codes: list[str]
    seen: list[Prompt] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def ask(self, prompt: Prompt) -> Secret:
        self.seen.append(prompt)
        if not self.codes:
            raise fail("no-terminal", "aws", "nobody is there")
        return Secret(self.codes.pop(0))

    def confirm_host_key(self, host: str, key_type: str, fingerprint: str) -> bool:
        raise AssertionError

    def tell(self, text: str) -> None:
        self.told.append(text)


@pytest.fixture
def mfa_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    config, keys = tmp_path / "config", tmp_path / "keys"
    config.write_text(
        "[profile lab]\nrole_arn = arn:aws:iam::123456789012:role/gpu\nsource_profile = base\n"
        "mfa_serial = arn:aws:iam::123456789012:mfa/alice\n",
        encoding="utf-8",
    )
    keys.write_text("[base]\naws_access_key_id = testing\naws_secret_access_key = testing\n", encoding="utf-8")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(keys))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with mock_aws(config={"core": {"mock_credentials": False}}):
        yield


def sign_in(typist: Typist, profile: str | None = "lab") -> Account:
    return open_account("aws", "us-east-1", FakeClock(), profile=profile, prompter=typist)


@pytest.mark.usefixtures("mfa_profile")
def test_a_one_time_code_is_asked_for_on_our_screen_and_the_sessions_end_is_known() -> None:
    typist = Typist(["123456"])
    account = sign_in(typist)
    [prompt] = typist.seen
    assert "arn:aws:iam::123456789012:mfa/alice" in prompt.text
    assert (prompt.kind, prompt.login) == ("otp", "lab")
    assert account.session_ends is not None
    arn = account.ask("sts", "GetCallerIdentity", {})["Arn"]
    assert "assumed-role/gpu" in arn
    assert len(typist.seen) == 1


@pytest.mark.usefixtures("mfa_profile")
def test_a_refused_code_is_asked_for_once_more_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(client: Any, operation: str, parameters: Any) -> Any:
        words = "MultiFactorAuthentication failed with invalid MFA one time pass code."
        raise ClientError({"Error": {"Code": "AccessDenied", "Message": words}}, operation)

    monkeypatch.setattr("botocore.client.BaseClient._make_api_call", refuse)
    typist = Typist(["1", "2", "3"])
    with pytest.raises(RefusedError) as raised:
        sign_in(typist)
    assert raised.value.failure.code == "cloud-mfa-refused"
    assert len(typist.seen) == 2
    assert len(typist.told) == 1


@pytest.mark.usefixtures("mfa_profile")
def test_nobody_at_the_terminal_is_said_so() -> None:
    with pytest.raises(AnnexError) as raised:
        sign_in(Typist([]))
    assert raised.value.failure.code == "no-terminal"


@pytest.mark.usefixtures("mfa_profile")
def test_without_credentials_the_way_to_log_in_is_named() -> None:
    with pytest.raises(AnnexError) as raised:
        sign_in(Typist([]), profile=None)
    assert raised.value.failure.code == "cloud-login-needed"
    assert "aws sso login" in raised.value.failure.hint


@pytest.mark.usefixtures("mfa_profile")
def test_a_session_from_the_environment_tells_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=2)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_CREDENTIAL_EXPIRATION", ends.isoformat())
    assert sign_in(Typist([]), profile=None).session_ends == ends
    monkeypatch.delenv("AWS_CREDENTIAL_EXPIRATION")
    assert sign_in(Typist([]), profile=None).session_ends is None


def test_a_session_that_ends_before_the_annex_is_warned_about() -> None:
    until = NOW + timedelta(hours=6)
    words = expiry_warning(NOW + timedelta(hours=1), until)
    assert words.startswith("your AWS session ends at 13:00 UTC, before the annex (2026-11-29 18:00 UTC)")
    assert expiry_warning(None, until) == expiry_warning(until, until) == ""
