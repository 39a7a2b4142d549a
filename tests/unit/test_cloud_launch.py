"""Launching over moto: every request is looked at as it leaves (moto keeps little of it); faults come in between."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ReadTimeoutError
from moto import mock_aws

from siteannex.cloud.ec2 import Ec2, open_ec2
from siteannex.cloud.launch import Ground, Launch, our_instances, run_instances
from siteannex.cloud.plan import attempts, plan_cloud
from siteannex.errors import AnnexError
from tests.unit.doubles import FakeClock
from tests.unit.samples import NOW
from tests.unit.test_cloud_plan import ASKED, AWS

ZONES = ("us-east-1a", "us-east-1b")
PLAN = plan_cloud(replace(ASKED, gpus=2), AWS)
ORDER = list(attempts(PLAN, {choice.instance_type: ZONES for choice in PLAN.choices}))
SPOT = plan_cloud(replace(ASKED, gpus=2, preemptible=True), AWS)
SPOT_ORDER = list(attempts(SPOT, {choice.instance_type: ZONES for choice in SPOT.choices}))


def launches(order: list[Any] = ORDER, annex_id: str = "aws-00000001") -> list[Launch]:
    expires = NOW + timedelta(hours=6)
    return [
        Launch(annex_id, "aws", "alice@ap.lab", "ap.lab", expires, number, attempt, "#!/bin/sh\nexit 0\n")
        for number, attempt in enumerate(order)
    ]


@dataclass
class Diary:
    """A LaunchLog that knows how many requests had left when each line was written."""

    requests: list[dict[str, str]]
    lines: list[tuple[str, str, int]] = field(default_factory=list)

    def intend(self, launch: Launch) -> None:
        self.lines.append(("intend", launch.token, len(self.requests)))

    def launched(self, launch: Launch, instance_ids: tuple[str, ...]) -> None:
        self.lines.append(("launched", launch.token, len(self.requests)))

    def refused(self, launch: Launch, code: str) -> None:
        self.lines.append((code, launch.token, len(self.requests)))

    @property
    def words(self) -> list[str]:
        return [line[0] for line in self.lines]


class KilledError(BaseException):
    """No `except Exception` and no clean-up of ours hears of it."""


class Region:
    """moto's us-east-1 with a network, every request seen on its way, and a fault where `breaks` says so."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        ec2 = boto3.client("ec2", region_name="us-east-1")
        subnets = {each["AvailabilityZone"]: each["SubnetId"] for each in ec2.describe_subnets()["Subnets"]}
        group = ec2.create_security_group(GroupName="siteannex", Description="no way in")["GroupId"]
        image = ec2.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
        boto3.client("iam").create_instance_profile(InstanceProfileName="siteannex-ep")
        self.ground = Ground(image, "/dev/sda1", subnets, group, "siteannex-ep", True)
        self.admin = ec2
        self.ec2 = open_ec2("aws", "us-east-1", "alice@ap.lab", self.clock)
        assert isinstance(self.ec2, Ec2)
        self.ec2._client.meta.events.register_first("before-send.ec2", self._on_its_way)
        self.ec2._client.meta.events.register("response-received.ec2", self._answered)
        self.fresh()

    def fresh(self) -> None:
        """Nothing runs, nothing was asked, nothing is broken."""
        self.requests: list[dict[str, str]] = []
        self.diary = Diary(self.requests)
        self.breaks: Callable[[Mapping[str, str], int], str | BaseException | None] = lambda asked, nth: None
        self.dies_after: Callable[[int], bool] = lambda nth: False
        self.clock.slept.clear()
        living = [{"Name": "instance-state-name", "Values": ["running"]}]
        found = self.admin.describe_instances(Filters=living)["Reservations"]
        if ids := [each["InstanceId"] for group in found for each in group["Instances"]]:
            self.admin.terminate_instances(InstanceIds=ids)

    def _on_its_way(self, request: Any, **_: Any) -> AWSResponse | None:
        body = request.body.decode() if isinstance(request.body, bytes) else request.body
        asked = {key: value[0] for key, value in parse_qs(body).items()}
        self.requests.append(asked)
        answer = self.breaks(asked, len([each for each in self.requests if each["Action"] == asked["Action"]]))
        if isinstance(answer, BaseException):
            raise answer
        if answer is None:
            return None
        request.url = "https://nowhere.invalid/"  # else moto, which hears of every request, would carry it out
        return refusal(request.url, answer)

    def _answered(self, **_: Any) -> None:
        """What was asked for is done; whoever asked may die before it reads so."""
        if self.dies_after(len(self.requests)):
            raise KilledError

    def asked(self, action: str = "RunInstances") -> list[dict[str, str]]:
        return [each for each in self.requests if each["Action"] == action]

    def running(self) -> int:
        found = self.admin.describe_instances()["Reservations"]
        return sum(each["State"]["Name"] == "running" for group in found for each in group["Instances"])

    def bring(self, order: list[Launch]) -> tuple[Launch, tuple[str, ...]]:
        return self.ec2.launch_first(order, self.ground, self.diary)


def refusal(url: str, code: str) -> AWSResponse:
    text = f"<Response><Errors><Error><Code>{code}</Code><Message>said AWS</Message></Error></Errors></Response>"
    status = 500 if code in ("InsufficientInstanceCapacity", "InternalError") else 400
    response = AWSResponse(url, status, {"content-type": "text/xml"}, None)
    response._content = text.encode()
    return response


@pytest.fixture(scope="module")
def only_region() -> Iterator[Region]:
    """Made once: clients of boto3 are slow to make."""
    with pytest.MonkeyPatch.context() as environment, mock_aws():
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
            environment.setenv(name, "testing")
        for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
            environment.setenv(name, "/dev/null")
        environment.delenv("AWS_PROFILE", raising=False)
        yield Region()


@pytest.fixture
def region(only_region: Region) -> Region:
    only_region.fresh()
    return only_region


def lost() -> Exception:
    timeout: Exception = ReadTimeoutError(endpoint_url="https://ec2.us-east-1.amazonaws.com")
    return timeout


def test_what_leaves_has_every_safety_in_it(region: Region) -> None:
    launch, ids = region.bring(launches())
    [asked] = region.asked()
    assert len(ids) == 2
    assert asked["MinCount"] == asked["MaxCount"] == "2"
    assert asked["ClientToken"] == launch.token
    assert len(launch.token) == 64
    assert asked["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert asked["MetadataOptions.HttpTokens"] == "required"
    assert asked["MetadataOptions.HttpPutResponseHopLimit"] == "1"
    disk = "BlockDeviceMapping.1.Ebs."
    assert asked[f"{disk}Encrypted"] == asked[f"{disk}DeleteOnTermination"] == "true"
    assert asked[f"{disk}VolumeType"] == "gp3"
    assert asked["NetworkInterface.1.SecurityGroupId.1"] == region.ground.security_group
    assert asked["NetworkInterface.1.DeleteOnTermination"] == "true"
    assert asked["NetworkInterface.1.SubnetId"] == region.ground.subnets["us-east-1a"]
    assert asked["IamInstanceProfile.Name"] == "siteannex-ep"
    assert base64.b64decode(asked["UserData"]).decode() == launch.user_data
    assert "InstanceMarketOptions.MarketType" not in asked
    tagged = {asked[f"TagSpecification.{n}.ResourceType"] for n in (1, 2, 3)}
    assert tagged == {"instance", "volume", "network-interface"}
    tags = {asked[f"TagSpecification.1.Tag.{n}.Key"]: asked[f"TagSpecification.1.Tag.{n}.Value"] for n in range(1, 7)}
    assert tags == launch.tags
    assert tags["siteannex:expires"] == "2026-11-29T18:00:00Z"


def test_spot_is_asked_for_once_and_not_kept(region: Region) -> None:
    region.bring(launches(SPOT_ORDER))
    [asked] = region.asked()
    assert asked["InstanceMarketOptions.MarketType"] == "spot"
    assert asked["InstanceMarketOptions.SpotOptions.SpotInstanceType"] == "one-time"
    assert asked["InstanceMarketOptions.SpotOptions.InstanceInterruptionBehavior"] == "terminate"


def test_the_intent_is_written_down_before_anything_leaves(region: Region) -> None:
    region.bring(launches())
    assert [(word, left) for word, _, left in region.diary.lines] == [("intend", 0), ("launched", 1)]


def test_no_capacity_is_told_after_one_request_and_the_next_zone_is_tried_under_another_mark(region: Region) -> None:
    region.breaks = lambda asked, nth: "InsufficientInstanceCapacity" if nth == 1 else None
    launch, _ = region.bring(launches())
    first, second = region.asked()
    assert launch.attempt.zone == "us-east-1b"
    assert first["ClientToken"] != second["ClientToken"]
    assert region.clock.slept == []
    assert region.diary.words == ["intend", "cloud-no-capacity", "intend", "launched"]


def test_a_quota_ends_the_tries_of_that_family(region: Region) -> None:
    region.breaks = lambda asked, nth: "VcpuLimitExceeded"
    with pytest.raises(AnnexError) as raised:
        region.bring(launches())
    families = [each["InstanceType"].partition(".")[0] for each in region.asked()]
    assert len(families) == len(set(families))
    assert raised.value.failure.code == "vcpu-quota-exceeded"
    assert re.match(r"\d+ vCPUs of Running On-Demand G and VT instances \(L-DB2E81BA\)", raised.value.failure.hint)
    assert raised.value.failure.evidence[-1].source == "tried, in order"
    assert region.running() == 0


def test_a_spot_quota_turns_to_on_demand(region: Region) -> None:
    region.breaks = lambda asked, nth: "MaxSpotInstanceCountExceeded" if nth == 1 else None
    launch, _ = region.bring(launches(SPOT_ORDER))
    assert launch.attempt.market == "on-demand"
    assert len(region.asked()) == 2


def test_what_trying_on_cannot_mend_stops_at_once(region: Region) -> None:
    region.breaks = lambda asked, nth: "UnauthorizedOperation"
    with pytest.raises(AnnexError) as raised:
        region.bring(launches())
    assert raised.value.failure.code == "cloud-permission-missing"
    assert len(region.asked()) == 1
    assert region.running() == 0


def test_a_lost_answer_is_asked_for_again_letter_by_letter(region: Region) -> None:
    region.breaks = lambda asked, nth: lost() if nth < 3 else None
    region.bring(launches())
    first, second, third = region.asked()
    assert first == second == third
    assert region.diary.words == ["intend", "launched"]


@pytest.mark.parametrize("then", ["InsufficientInstanceCapacity", "ExpiredToken", None])
def test_what_may_have_been_launched_is_neither_called_refused_nor_launched_elsewhere(
    region: Region, then: str | None
) -> None:
    region.breaks = lambda asked, nth: lost() if nth == 1 or then is None else then
    with pytest.raises(AnnexError) as raised:
        region.bring(launches())
    assert region.diary.words == ["intend"]
    assert len({each["ClientToken"] for each in region.asked()}) == 1
    assert then is not None or raised.value.failure.code == "launch-uncertain"


def test_a_busy_aws_is_asked_again_in_bounded_time(region: Region) -> None:
    region.breaks = lambda asked, nth: "RequestLimitExceeded"
    with pytest.raises(AnnexError) as raised:
        region.bring(launches())
    assert raised.value.failure.code == "cloud-busy"
    assert sum(region.clock.slept) == 120
    assert region.diary.words == ["intend", "cloud-busy"]


def test_only_our_own_annexs_instances_are_ended(region: Region) -> None:
    region.admin.run_instances(ImageId=region.ground.image_id, MinCount=1, MaxCount=1)
    region.bring(launches())
    region.bring(launches(annex_id="aws-00000002"))
    assert region.running() == 5
    ended = region.ec2.terminate("aws-00000001")
    assert {each.annex_id for each in ended} == {"aws-00000001"}
    assert region.running() == 3
    assert {each.annex_id for each in region.ec2.instances()} == {"aws-00000002"}


def test_an_annex_without_instances_ends_nothing_and_sends_no_empty_list(region: Region) -> None:
    region.admin.run_instances(ImageId=region.ground.image_id, MinCount=1, MaxCount=1)
    assert region.ec2.terminate("aws-00000009") == []
    assert region.asked("TerminateInstances") == []
    assert region.running() == 1


def test_instances_that_do_not_end_are_named(region: Region, monkeypatch: pytest.MonkeyPatch) -> None:
    _, ids = region.bring(launches())
    monkeypatch.setattr(region.ec2._client, "terminate_instances", lambda **_: {})
    with pytest.raises(AnnexError) as raised:
        region.ec2.terminate("aws-00000001")
    assert raised.value.failure.code == "release-incomplete"
    assert ids[0] in raised.value.failure.summary


def test_what_lacks_our_tags_is_not_ours_whatever_aws_answers() -> None:
    foreign: dict[str, Any] = {"InstanceId": "i-1", "State": {"Name": "running"}}
    other_site = {
        **foreign,
        "Tags": [{"Key": "siteannex:site", "Value": "x"}, {"Key": "siteannex:request", "Value": "y"}],
    }
    assert our_instances([{"Instances": [foreign, other_site]}, {}], "aws") == []


def test_a_profile_that_is_not_there_is_named(region: Region) -> None:
    with pytest.raises(AnnexError) as raised:
        open_ec2("aws", "us-east-1", "alice@ap.lab", region.clock, profile="nobody")
    assert raised.value.failure.code == "cloud-login-needed"
    assert "nobody" in raised.value.failure.evidence[0].text
    assert "aws sso login --profile nobody" in raised.value.failure.hint


def test_every_launch_has_a_mark_of_its_own_and_the_same_launch_the_same() -> None:
    order = launches(SPOT_ORDER)
    assert len({each.token for each in order}) == len(order)
    assert [each.token for each in launches(SPOT_ORDER)] == [each.token for each in order]
    assert launches(annex_id="foo")[0].token != launches(annex_id="foo2")[0].token


def test_a_zone_without_a_subnet_of_ours_cannot_be_asked_for() -> None:
    with pytest.raises(KeyError):
        run_instances(launches()[0], Ground("ami-1", "/dev/sda1", {}, "sg-1", "p", True))
