"""One launch of instances as values: its mark, its tags, and the request that goes to EC2. Pure.

Everything that keeps an instance from costing or telling more than it should stands in the request itself: it ends
when it is switched off, its disk is encrypted and goes with it, its metadata want a session (IMDSv2) and stay on it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from siteannex.cloud.plan import Attempt

REQUEST_TAG = "siteannex:request"
SITE_TAG = "siteannex:site"
OWNER_TAG = "siteannex:owner"
POOL_TAG = "siteannex:pool"
EXPIRES_TAG = "siteannex:expires"

ROOT_DISK_GB = 100
"""A Deep Learning AMI needs most of 60."""


@dataclass(frozen=True, slots=True)
class Ground:
    """What launches in one region stand on: looked up once, the same for every attempt."""

    image_id: str
    root_device: str
    subnets: Mapping[str, str]
    """Zone to subnet."""
    security_group: str
    """One without any rule for incoming connections."""
    instance_profile: str
    public_address: bool
    """A subnet without NAT has no other way out."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One attempt, whole: what is asked for in one zone, for whom, until when."""

    annex_id: str
    site: str
    owner: str
    pool: str
    """The access point's trust domain."""
    expires: datetime
    number: int
    """Of the attempt: anything that changes between two requests must change it, since EC2 remembers the token."""
    attempt: Attempt
    user_data: str

    @property
    def token(self) -> str:
        """ClientToken: the same launch asked for twice is launched once."""
        choice = self.attempt.choice
        parts = (self.annex_id, str(self.number), self.attempt.market, choice.instance_type, self.attempt.zone)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    @property
    def tags(self) -> dict[str, str]:
        """On everything that the launch creates."""
        return {
            "Name": self.annex_id,
            REQUEST_TAG: self.annex_id,
            SITE_TAG: self.site,
            OWNER_TAG: self.owner,
            POOL_TAG: self.pool,
            EXPIRES_TAG: self.expires.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }


class LaunchLog(Protocol):
    """What is written down of launches. `intend` must be on disk when it returns: only then is EC2 asked."""

    def intend(self, launch: Launch) -> None:
        """The launch is about to be asked for."""

    def launched(self, launch: Launch, instance_ids: tuple[str, ...]) -> None:
        """It is there."""

    def refused(self, launch: Launch, code: str) -> None:
        """EC2 said no: nothing of it is there."""


def run_instances(launch: Launch, ground: Ground) -> dict[str, Any]:
    """The parameters of RunInstances; all instances or none. KeyError for a zone without a subnet."""
    choice = launch.attempt.choice
    tags = [{"Key": key, "Value": value} for key, value in launch.tags.items()]
    spot = launch.attempt.market == "spot"
    kinds = ("instance", "volume", "network-interface", *(("spot-instances-request",) if spot else ()))
    request: dict[str, Any] = {
        "ClientToken": launch.token,
        "ImageId": ground.image_id,
        "InstanceType": choice.instance_type,
        "MinCount": choice.count,
        "MaxCount": choice.count,
        "UserData": launch.user_data,
        "IamInstanceProfile": {"Name": ground.instance_profile},
        "InstanceInitiatedShutdownBehavior": "terminate",
        "MetadataOptions": {
            "HttpEndpoint": "enabled",
            "HttpTokens": "required",
            "HttpPutResponseHopLimit": 1,
            "InstanceMetadataTags": "disabled",
        },
        "BlockDeviceMappings": [
            {
                "DeviceName": ground.root_device,
                "Ebs": {
                    "VolumeType": "gp3",
                    "VolumeSize": ROOT_DISK_GB,
                    "Encrypted": True,
                    "DeleteOnTermination": True,
                },
            }
        ],
        "NetworkInterfaces": [
            {
                "DeviceIndex": 0,
                "SubnetId": ground.subnets[launch.attempt.zone],
                "Groups": [ground.security_group],
                "AssociatePublicIpAddress": ground.public_address,
                "DeleteOnTermination": True,
            }
        ],
        "TagSpecifications": [{"ResourceType": kind, "Tags": tags} for kind in kinds],
    }
    if spot:
        request["InstanceMarketOptions"] = {
            "MarketType": "spot",
            "SpotOptions": {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"},
        }
    return request


@dataclass(frozen=True, slots=True)
class OurInstance:
    """An instance that bears our tags, as EC2 shows it. Only such values can be terminated."""

    instance_id: str
    annex_id: str
    site: str
    state: str
    state_reason: str
    zone: str
    instance_type: str
    expires: str
    token: str = ""
    """ClientToken of the launch that made it."""


def our_instances(reservations: Iterable[Mapping[str, Any]], site: str) -> list[OurInstance]:
    """Read DescribeInstances; what does not bear the site's tags is left out, whatever was asked."""
    found = []
    for reservation in reservations:
        for instance in reservation.get("Instances", ()):
            tags = {tag["Key"]: tag["Value"] for tag in instance.get("Tags", ())}
            if tags.get(SITE_TAG) != site or not tags.get(REQUEST_TAG):
                continue
            found.append(
                OurInstance(
                    instance_id=instance["InstanceId"],
                    annex_id=tags[REQUEST_TAG],
                    site=site,
                    state=instance["State"]["Name"],
                    state_reason=instance.get("StateReason", {}).get("Code", ""),
                    zone=instance.get("Placement", {}).get("AvailabilityZone", ""),
                    instance_type=instance.get("InstanceType", ""),
                    expires=tags.get(EXPIRES_TAG, ""),
                    token=instance.get("ClientToken", ""),
                )
            )
    return found
