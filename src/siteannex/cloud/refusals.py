"""What EC2 and its neighbours say when they refuse: the code it means, the words for it, and what to try next. Pure.

The codes are AWS's (https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html), those of botocore's
own exceptions, and the StateReasons of instances that died. A code that is not listed passes through whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from siteannex.cloud.plan import Market, QuotaNeed
from siteannex.errors import Evidence, StageFailure
from siteannex.failures import failure


class Act(StrEnum):
    """What to do after a refusal, from trying on to giving up."""

    RETRY = "the same again"
    """With the same token, after a pause: the answer was lost, or AWS is busy."""
    ASK_AGAIN = "ask the person once more"
    RESOLVE_AGAIN = "look the image up again, once"
    NEXT_ZONE = "next zone or type"
    NEXT_FAMILY = "next family of types"
    """Other zones and other sizes of the family are futile in this region."""
    NEXT_MARKET = "on demand instead of spot"
    STOP = "stop"
    REPORT = "nothing failed"


@dataclass(frozen=True, slots=True)
class Refused:
    """One refusal: AWS's code (or botocore's exception's name, or a StateReason's) and words, and what was tried."""

    operation: str
    code: str
    message: str
    region: str
    instance_type: str = ""
    zone: str = ""
    market: Market = "on-demand"
    quota: QuotaNeed | None = None
    profile: str = ""
    decoded: str = ""
    """What sts:DecodeAuthorizationMessage made of it, where it could be asked."""
    last_report: str = ""
    """The last stage an instance reported before it went."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """Our failure code for AWS's codes, the next step, and a sentence with `{type} {zone} {region} {code}`."""

    code: str
    act: Act
    text: str
    retry_s: int = 0
    """How long to go on repeating, for RETRY."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A refusal understood."""

    failure: StageFailure
    act: Act
    retry_s: int = 0


_CAPACITY = Meaning("cloud-no-capacity", Act.NEXT_ZONE, "AWS has no {type} free in {zone} now; it is not your quota")
_TYPE = Meaning("type-not-offered", Act.NEXT_ZONE, "{type} is not to be had in {zone}")
_SUBNET = Meaning("subnet-full", Act.NEXT_ZONE, "the subnet in {zone} has no free address")
_QUOTA = Meaning("vcpu-quota-exceeded", Act.NEXT_FAMILY, "your on-demand quota in {region} does not allow {type}")
_SPOT_QUOTA = Meaning("spot-quota-exceeded", Act.NEXT_MARKET, "your spot quota in {region} does not allow {type}")
_LIMIT = Meaning("cloud-limit-exceeded", Act.STOP, "a limit of your account in {region} is reached: {code}")
_SPOT_PRICE = Meaning("spot-price-too-low", Act.NEXT_ZONE, "the price bid for spot {type} in {zone} is too low")
_SPOT_ROLE = Meaning("spot-role-missing", Act.STOP, "your account lacks the service-linked role of spot instances")
_PERMISSION = Meaning("cloud-permission-missing", Act.STOP, "you may not {operation} in {region}")
_EXPIRED = Meaning("cloud-session-expired", Act.STOP, "your AWS session has ended")
_SKEW = Meaning("cloud-session-expired", Act.STOP, "AWS calls the request expired: the session, or this clock")
_UNREACHABLE = Meaning("cloud-unreachable", Act.STOP, "AWS does not answer from here in {region}")
_LOST = Meaning("launch-uncertain", Act.RETRY, "AWS did not answer the request to {operation}", retry_s=60)
_SILENT = Meaning("cloud-unreachable", Act.RETRY, "AWS did not answer the request to {operation}", retry_s=60)
_LOGIN = Meaning("cloud-login-needed", Act.STOP, "there are no usable AWS credentials here")
_KEYS = Meaning("cloud-credentials-refused", Act.STOP, "AWS does not accept your credentials in {region}")
_MFA = Meaning("cloud-mfa-refused", Act.ASK_AGAIN, "AWS refused the one-time code")
_ACCOUNT = Meaning("cloud-account-not-ready", Act.STOP, "your AWS account may not do this: {code}")
_PENDING = Meaning("cloud-account-not-ready", Act.STOP, "AWS is still verifying your account; try again later")
_IMAGE = Meaning("image-missing", Act.RESOLVE_AGAIN, "the image is not in {region}")
_INVALID = Meaning("cloud-request-invalid", Act.STOP, "AWS does not accept what was asked: {code}")
_PROFILE = Meaning("cloud-request-invalid", Act.RETRY, "AWS does not know the instance profile (yet)", retry_s=30)
_USER_DATA = Meaning("user-data-too-large", Act.STOP, "the boot script is larger than 16 KB")
_BUSY = Meaning("cloud-busy", Act.RETRY, "AWS is busy in {region}: {code}", retry_s=120)
_MISMATCH = Meaning("launch-token-reused", Act.STOP, "a launch was repeated with other parameters")
_UNSEEN = Meaning("instance-unknown", Act.RETRY, "AWS does not show the instance (yet)", retry_s=60)
_DIED = Meaning("instance-launch-failed", Act.STOP, "the {type} died at launch: {code}")
_TAKEN_BACK = Meaning("instance-interrupted", Act.REPORT, "AWS took the spot {type} back")
_SWITCHED_OFF = Meaning("instance-ended", Act.REPORT, "the {type} switched itself off")
_UNKNOWN = Meaning("launch-refused", Act.STOP, "AWS refused to {operation}: {code}")

MEANINGS: Mapping[str, Meaning] = {
    "InsufficientInstanceCapacity": _CAPACITY,
    "UnfulfillableCapacity": _CAPACITY,
    "ReservationCapacityExceeded": _CAPACITY,
    "Server.InsufficientInstanceCapacity": _CAPACITY,
    "Unsupported": _TYPE,
    "InvalidInstanceType": _TYPE,
    "InsufficientFreeAddressesInSubnet": _SUBNET,
    "VcpuLimitExceeded": _QUOTA,
    "InstanceLimitExceeded": _QUOTA,
    "MaxSpotInstanceCountExceeded": _SPOT_QUOTA,
    "MaxFleetCountExceeded": _LIMIT,
    "VolumeLimitExceeded": _LIMIT,
    "MaxIOPSLimitExceeded": _LIMIT,
    "SpotMaxPriceTooLow": _SPOT_PRICE,
    "AuthFailure.ServiceLinkedRoleCreationNotPermitted": _SPOT_ROLE,
    "UnauthorizedOperation": _PERMISSION,
    "AccessDenied": _PERMISSION,
    "AccessDeniedException": _PERMISSION,
    "ExpiredToken": _EXPIRED,
    "ExpiredTokenException": _EXPIRED,
    "RequestExpired": _SKEW,
    "EndpointConnectionError": _UNREACHABLE,
    "ConnectTimeoutError": _UNREACHABLE,
    "ReadTimeoutError": _LOST,
    "ConnectionClosedError": _LOST,
    "TokenRetrievalError": _LOGIN,
    "UnauthorizedSSOTokenError": _LOGIN,
    "SSOTokenLoadError": _LOGIN,
    "NoCredentialsError": _LOGIN,
    "CredentialRetrievalError": _LOGIN,
    "PartialCredentialsError": _LOGIN,
    "ProfileNotFound": _LOGIN,
    "AuthFailure": _KEYS,
    "InvalidClientTokenId": _KEYS,
    "SignatureDoesNotMatch": _KEYS,
    "OptInRequired": _ACCOUNT,
    "Blocked": _ACCOUNT,
    "PendingVerification": _PENDING,
    "InvalidAMIID.NotFound": _IMAGE,
    "InvalidAMIID.Malformed": _IMAGE,
    "InvalidAMIID.Unavailable": _IMAGE,
    "ParameterNotFound": _IMAGE,
    "InvalidSubnetID.NotFound": _INVALID,
    "InvalidGroup.NotFound": _INVALID,
    "InvalidKeyPair.NotFound": _INVALID,
    "InvalidParameterValue": _INVALID,
    "InvalidParameterCombination": _INVALID,
    "InvalidBlockDeviceMapping": _INVALID,
    "RequestLimitExceeded": _BUSY,
    "EC2ThrottledException": _BUSY,
    "ThrottlingException": _BUSY,
    "InternalError": _BUSY,
    "Unavailable": _BUSY,
    "IdempotentParameterMismatch": _MISMATCH,
    "InvalidInstanceID.NotFound": _UNSEEN,
    "Client.InternalError": _DIED,
    "Client.InvalidSnapshot.NotFound": _DIED,
    "Client.VolumeLimitExceeded": _DIED,
    "Server.SpotInstanceTermination": _TAKEN_BACK,
    "Client.InstanceInitiatedShutdown": _SWITCHED_OFF,
}


def judge_refusal(refused: Refused, site: str) -> Judged:
    """What a refusal means and what to try next. AWS's own words are always the evidence, whole."""
    meaning = _meaning(refused)
    place = {
        "operation": refused.operation,
        "code": refused.code,
        "region": refused.region,
        "type": refused.instance_type or "instance",
        "zone": refused.zone or refused.region,
    }
    text = meaning.text.format(**place)
    if meaning is _PERMISSION:
        text = denied(refused.decoded) or text
    if meaning is _SWITCHED_OFF and refused.last_report:
        text += f" after: {refused.last_report}"
    built = failure(meaning.code, site, text, evidence=_evidence(refused), hint=_hint(meaning, refused))
    return Judged(built, meaning.act, meaning.retry_s)


def _meaning(refused: Refused) -> Meaning:
    """By the code; some codes mean several things, told apart by AWS's words."""
    said = refused.message.lower()
    if "user data is limited to" in said:
        return _USER_DATA
    if refused.code.startswith("InvalidParameter") and "iaminstanceprofile" in said.replace(" ", ""):
        return _PROFILE
    if refused.code == "AccessDenied" and "multifactorauthentication" in said:
        return _MFA
    meaning = MEANINGS.get(refused.code, _UNKNOWN)
    if meaning is _LOST and refused.operation not in ("RunInstances", "CreateFleet"):
        return _SILENT
    if meaning is _LOGIN and refused.code == "CredentialRetrievalError" and "expired" in said:
        return _EXPIRED
    return meaning


def _evidence(refused: Refused) -> list[Evidence]:
    where = f"{refused.operation} in {refused.region}"
    seen = [Evidence(where, f"{refused.code}: {refused.message}".strip())]
    if refused.decoded:
        seen.append(Evidence("sts decode-authorization-message", refused.decoded))
    return seen


def denied(decoded: str) -> str:
    """What was not allowed and by whom, of a decoded authorization message; "" for one that is not understood.

    Its shape: https://docs.aws.amazon.com/STS/latest/APIReference/API_DecodeAuthorizationMessage.html
    """
    try:
        told = json.loads(decoded)
        context = told["context"]
        action, resource = str(context["action"]), str(context["resource"])
        who = str(context.get("principal", {}).get("arn", "you"))
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""
    why = "a rule of the account denies it" if told.get("explicitDeny") else "no rule of the account allows it"
    return f"{who} may not {action} on {resource}: {why}"


def _hint(meaning: Meaning, refused: Refused) -> str | None:
    """A hint that knows the numbers, the page or the command; None: the code's general one."""
    if meaning in (_QUOTA, _SPOT_QUOTA) and refused.quota is not None:
        need = refused.quota
        other = " or leave out --preemptible" if meaning is _SPOT_QUOTA else ", use another region or --preemptible"
        needed = f"{need.vcpus} vCPUs of {need.name} ({need.code}) are needed"
        return f"{needed}: raise it at {need.page(refused.region)}{other}."
    if meaning in (_EXPIRED, _SKEW, _LOGIN) and refused.profile:
        return f"aws sso login --profile {refused.profile}, then run the command again: nothing recorded is lost."
    if meaning is _PERMISSION and not refused.decoded and "encoded" in refused.message.lower():
        encoded = re.search(r"message:\s*(\S+)", refused.message)
        words = encoded[1] if encoded else "TEXT"
        return f"Ask the account's administrator to run: aws sts decode-authorization-message --encoded-message {words}"
    if meaning is _IMAGE:
        return f"Images belong to one region: check images: and default_region: {refused.region} in the site's file."
    return None
