"""Every refusal of AWS that is known has its code, its stage, its words and a next step; any other passes whole."""

from __future__ import annotations

import pytest

from siteannex.cloud.plan import QuotaNeed
from siteannex.cloud.refusals import MEANINGS, Act, Refused, judge_refusal
from siteannex.errors import Stage
from siteannex.failures import FAILURES

NEED = QuotaNeed("Running On-Demand G and VT instances", "L-DB2E81BA", "on-demand", 16)


def refused(code: str, message: str = "no", **changes: object) -> Refused:
    facts: dict[str, object] = {"region": "us-east-1", "instance_type": "g6e.xlarge", "zone": "us-east-1b"}
    return Refused("RunInstances", code, message, **{**facts, **changes})  # type: ignore[arg-type]


ROWS = {
    "InsufficientInstanceCapacity": ("cloud-no-capacity", Act.NEXT_ZONE),
    "UnfulfillableCapacity": ("cloud-no-capacity", Act.NEXT_ZONE),
    "ReservationCapacityExceeded": ("cloud-no-capacity", Act.NEXT_ZONE),
    "Server.InsufficientInstanceCapacity": ("cloud-no-capacity", Act.NEXT_ZONE),
    "Unsupported": ("type-not-offered", Act.NEXT_ZONE),
    "InvalidInstanceType": ("type-not-offered", Act.NEXT_ZONE),
    "InsufficientFreeAddressesInSubnet": ("subnet-full", Act.NEXT_ZONE),
    "VcpuLimitExceeded": ("vcpu-quota-exceeded", Act.NEXT_FAMILY),
    "InstanceLimitExceeded": ("vcpu-quota-exceeded", Act.NEXT_FAMILY),
    "MaxSpotInstanceCountExceeded": ("spot-quota-exceeded", Act.NEXT_MARKET),
    "MaxFleetCountExceeded": ("cloud-limit-exceeded", Act.STOP),
    "VolumeLimitExceeded": ("cloud-limit-exceeded", Act.STOP),
    "MaxIOPSLimitExceeded": ("cloud-limit-exceeded", Act.STOP),
    "SpotMaxPriceTooLow": ("spot-price-too-low", Act.NEXT_ZONE),
    "AuthFailure.ServiceLinkedRoleCreationNotPermitted": ("spot-role-missing", Act.STOP),
    "UnauthorizedOperation": ("cloud-permission-missing", Act.STOP),
    "AccessDenied": ("cloud-permission-missing", Act.STOP),
    "AccessDeniedException": ("cloud-permission-missing", Act.STOP),
    "ExpiredToken": ("cloud-session-expired", Act.STOP),
    "ExpiredTokenException": ("cloud-session-expired", Act.STOP),
    "RequestExpired": ("cloud-session-expired", Act.STOP),
    "EndpointConnectionError": ("cloud-unreachable", Act.STOP),
    "ConnectTimeoutError": ("cloud-unreachable", Act.STOP),
    "ReadTimeoutError": ("launch-uncertain", Act.RETRY),
    "ConnectionClosedError": ("launch-uncertain", Act.RETRY),
    "TokenRetrievalError": ("cloud-login-needed", Act.STOP),
    "UnauthorizedSSOTokenError": ("cloud-login-needed", Act.STOP),
    "SSOTokenLoadError": ("cloud-login-needed", Act.STOP),
    "NoCredentialsError": ("cloud-login-needed", Act.STOP),
    "CredentialRetrievalError": ("cloud-login-needed", Act.STOP),
    "PartialCredentialsError": ("cloud-login-needed", Act.STOP),
    "ProfileNotFound": ("cloud-login-needed", Act.STOP),
    "AuthFailure": ("cloud-credentials-refused", Act.STOP),
    "InvalidClientTokenId": ("cloud-credentials-refused", Act.STOP),
    "SignatureDoesNotMatch": ("cloud-credentials-refused", Act.STOP),
    "OptInRequired": ("cloud-account-not-ready", Act.STOP),
    "Blocked": ("cloud-account-not-ready", Act.STOP),
    "PendingVerification": ("cloud-account-not-ready", Act.STOP),
    "InvalidAMIID.NotFound": ("image-missing", Act.RESOLVE_AGAIN),
    "InvalidAMIID.Malformed": ("image-missing", Act.RESOLVE_AGAIN),
    "InvalidAMIID.Unavailable": ("image-missing", Act.RESOLVE_AGAIN),
    "ParameterNotFound": ("image-missing", Act.RESOLVE_AGAIN),
    "InvalidSubnetID.NotFound": ("cloud-request-invalid", Act.STOP),
    "InvalidGroup.NotFound": ("cloud-request-invalid", Act.STOP),
    "InvalidKeyPair.NotFound": ("cloud-request-invalid", Act.STOP),
    "InvalidParameterValue": ("cloud-request-invalid", Act.STOP),
    "InvalidParameterCombination": ("cloud-request-invalid", Act.STOP),
    "InvalidBlockDeviceMapping": ("cloud-request-invalid", Act.STOP),
    "RequestLimitExceeded": ("cloud-busy", Act.RETRY),
    "EC2ThrottledException": ("cloud-busy", Act.RETRY),
    "ThrottlingException": ("cloud-busy", Act.RETRY),
    "InternalError": ("cloud-busy", Act.RETRY),
    "Unavailable": ("cloud-busy", Act.RETRY),
    "IdempotentParameterMismatch": ("launch-token-reused", Act.STOP),
    "InvalidInstanceID.NotFound": ("instance-unknown", Act.RETRY),
    "Client.InternalError": ("instance-launch-failed", Act.STOP),
    "Client.InvalidSnapshot.NotFound": ("instance-launch-failed", Act.STOP),
    "Client.VolumeLimitExceeded": ("instance-launch-failed", Act.STOP),
    "Server.SpotInstanceTermination": ("instance-interrupted", Act.REPORT),
    "Client.InstanceInitiatedShutdown": ("instance-ended", Act.REPORT),
}


@pytest.mark.parametrize("aws_code", sorted(ROWS))
def test_each_refusal_has_its_code_stage_words_and_next_step(aws_code: str) -> None:
    code, act = ROWS[aws_code]
    judged = judge_refusal(refused(aws_code, "what AWS said"), "aws")
    assert (judged.failure.code, judged.act) == (code, act)
    assert judged.failure.stage is FAILURES[code].stage
    assert judged.failure.hint
    assert "{" not in judged.failure.summary
    assert judged.failure.evidence[0].text == f"{aws_code}: what AWS said"
    assert (judged.retry_s > 0) is (act is Act.RETRY)


def test_no_known_refusal_is_without_a_test() -> None:
    assert set(ROWS) == set(MEANINGS)


def test_an_unknown_refusal_passes_through_whole() -> None:
    long = "something new " * 400
    judged = judge_refusal(refused("BrandNewProblem", long), "aws")
    assert (judged.failure.code, judged.act, judged.failure.stage) == ("launch-refused", Act.STOP, Stage.SUBMIT)
    assert judged.failure.evidence[0].text == f"BrandNewProblem: {long}".strip()


@pytest.mark.parametrize(
    ("aws_code", "message", "code", "act"),
    [
        ("InvalidParameterValue", "User data is limited to 16384 bytes", "user-data-too-large", Act.STOP),
        ("InvalidParameterValue", "Value (x) for parameter iamInstanceProfile.name is invalid", "cloud-request-invalid",
         Act.RETRY),
        ("AccessDenied", "MultiFactorAuthentication failed with invalid MFA one time pass code", "cloud-mfa-refused",
         Act.ASK_AGAIN),
        ("CredentialRetrievalError", "from custom-process: the session has expired", "cloud-session-expired", Act.STOP),
    ],
)  # fmt: skip
def test_one_code_with_several_meanings_is_told_apart_by_its_words(
    aws_code: str, message: str, code: str, act: Act
) -> None:
    judged = judge_refusal(refused(aws_code, message), "aws")
    assert (judged.failure.code, judged.act) == (code, act)


def test_a_question_without_an_answer_is_no_launch_in_doubt() -> None:
    judged = judge_refusal(Refused("DescribeInstances", "ReadTimeoutError", "timed out", "us-east-1"), "aws")
    assert (judged.failure.code, judged.act) == ("cloud-unreachable", Act.RETRY)


def test_a_quota_names_what_is_needed_and_the_page_where_it_is_raised() -> None:
    judged = judge_refusal(refused("VcpuLimitExceeded", quota=NEED), "aws")
    assert "16 vCPUs of Running On-Demand G and VT instances (L-DB2E81BA)" in judged.failure.hint
    assert "https://us-east-1.console.aws.amazon.com/servicequotas/home/services/ec2/quotas/L-DB2E81BA" in (
        judged.failure.hint
    )
    assert "--preemptible" in judged.failure.hint


def test_an_ended_session_names_the_login_command_with_the_profile() -> None:
    assert "aws sso login --profile lab" in judge_refusal(refused("ExpiredToken", profile="lab"), "aws").failure.hint


def test_a_missing_permission_gives_the_administrator_the_whole_encoded_text() -> None:
    encoded = "A1b2" * 900
    message = f"You are not authorized. Encoded authorization failure message: {encoded}"
    judged = judge_refusal(refused("UnauthorizedOperation", message), "aws")
    assert judged.failure.hint.endswith(f"--encoded-message {encoded}")
    decoded = judge_refusal(refused("UnauthorizedOperation", message, decoded='{"explicitDeny": true}'), "aws")
    assert decoded.failure.evidence[1].text == '{"explicitDeny": true}'
    assert encoded not in decoded.failure.hint


def test_an_instance_that_switched_itself_off_says_what_it_reported_last() -> None:
    judged = judge_refusal(refused("Client.InstanceInitiatedShutdown", last_report="EP_START gpus-none"), "aws")
    assert judged.failure.summary.endswith("after: EP_START gpus-none")
