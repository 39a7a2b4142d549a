"""EC2 through boto3: launch, look, end. Fails fast: what is tried next is decided here, not by the library."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from siteannex.cloud.launch import (
    OWNER_TAG,
    REQUEST_TAG,
    SITE_TAG,
    Ground,
    Launch,
    LaunchLog,
    OurInstance,
    our_instances,
    run_instances,
)
from siteannex.cloud.plan import family
from siteannex.cloud.refusals import Act, Judged, Refused, judge_refusal
from siteannex.errors import AnnexError, Evidence
from siteannex.failures import fail
from siteannex.ports import Clock

PAUSE_S = 5
"""Between two tries of the same request, and between two looks."""
END_WITHIN_S = 120
"""How long terminated instances are looked at until they are seen to end."""
_NO_ANSWER = ("ReadTimeoutError", "ConnectionClosedError", "InternalError", "Unavailable")
"""After these nobody knows whether the request was carried out."""
_LIVING = ("pending", "running", "stopping", "stopped")


class RefusedError(AnnexError):
    """EC2 said no; `judged` says what to try next. `uncertain`: one of the tries had no clear answer, so that what was
    asked for may have been done all the same."""

    def __init__(self, judged: Judged, *, uncertain: bool = False) -> None:
        super().__init__(judged.failure)
        self.judged, self.uncertain = judged, uncertain


def open_ec2(site: str, region: str, owner: str, clock: Clock, *, profile: str | None = None) -> Ec2:
    """A client for one region with botocore's own chain of credentials. AnnexErrors as `judge_refusal` has them."""
    import boto3  # here: only those who use it wait for it
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError

    once = Config(retries={"total_max_attempts": 1, "mode": "standard"}, connect_timeout=10, read_timeout=60)
    try:
        client = boto3.Session(profile_name=profile).client("ec2", region_name=region, config=once)
    except BotoCoreError as problem:
        refused = Refused("open a session", type(problem).__name__, str(problem), region, profile=profile or "")
        raise RefusedError(judge_refusal(refused, site)) from problem
    return Ec2(client, site, region, owner, clock, profile or "")


class Ec2:
    """One region of one account, for one owner's annexes at one site."""

    def __init__(self, client: Any, site: str, region: str, owner: str, clock: Clock, profile: str = "") -> None:
        self._client = client
        self._site, self._region, self._owner, self._profile = site, region, owner, profile
        self._clock = clock

    def launch_first(
        self, launches: Iterable[Launch], ground: Ground, log: LaunchLog
    ) -> tuple[Launch, tuple[str, ...]]:
        """The first launch that EC2 takes, and its instances' ids. AnnexError of the last refusal, naming them all."""
        refusals: list[RefusedError] = []
        futile: set[tuple[str, str]] = set()
        for launch in launches:
            market, kind = launch.attempt.market, family(launch.attempt.choice.instance_type)
            if (market, kind) in futile or (market, "") in futile:
                continue
            try:
                return launch, self.launch(launch, ground, log)
            except RefusedError as no:
                refusals.append(no)
                if no.judged.act is Act.NEXT_FAMILY:
                    futile.add((market, kind))
                elif no.judged.act is Act.NEXT_MARKET:
                    futile.add((market, ""))
                elif no.judged.act is not Act.NEXT_ZONE:
                    break
                if no.uncertain:
                    break  # it may be there: another zone would launch it twice
        if not refusals:
            raise fail("type-not-offered", self._site, f"no zone of {self._region} offers any of the types")
        last = refusals[-1].failure
        tried = "\n".join(f"{no.failure.code}: {no.failure.summary}" for no in refusals)
        raise AnnexError(replace(last, evidence=(*last.evidence, Evidence("tried, in order", tried)))) from refusals[-1]

    def launch(self, launch: Launch, ground: Ground, log: LaunchLog) -> tuple[str, ...]:
        """Write the intent down, then ask; a lost answer is asked for again, letter by letter. RefusedError.

        Nothing is recorded as refused while it may have been launched.
        """
        request = run_instances(launch, ground)
        log.intend(launch)
        try:
            answer = self._insist("RunInstances", lambda: self._client.run_instances(**request), launch)
        except RefusedError as no:
            if not no.uncertain:
                log.refused(launch, no.failure.code)
            raise
        ids = tuple(instance["InstanceId"] for instance in answer["Instances"])
        log.launched(launch, ids)
        return ids

    def instances(self, annex_id: str | None = None) -> list[OurInstance]:
        """This owner's instances at this site (of one annex) that are not yet gone. By tag, never by a list of ids."""
        filters = [
            {"Name": f"tag:{SITE_TAG}", "Values": [self._site]},
            {"Name": f"tag:{OWNER_TAG}", "Values": [self._owner]},
            {"Name": "instance-state-name", "Values": list(_LIVING)},
        ]
        if annex_id is not None:
            filters.append({"Name": f"tag:{REQUEST_TAG}", "Values": [annex_id]})
        pages = self._client.get_paginator("describe_instances").paginate(Filters=filters)
        reservations = self._insist(
            "DescribeInstances", lambda: [each for page in pages for each in page["Reservations"]]
        )
        return our_instances(reservations, self._site)

    def terminate(self, annex_id: str) -> list[OurInstance]:
        """End every instance of an annex and see it end. AnnexError(release-incomplete) when some do not."""
        found = self.instances(annex_id)
        if not found:
            return []  # an empty list of ids would mean every instance of the account to some calls
        ids = [each.instance_id for each in found]
        self._insist("TerminateInstances", lambda: self._client.terminate_instances(InstanceIds=ids))
        for _ in range(END_WITHIN_S // PAUSE_S):
            left = self.instances(annex_id)
            if not left:
                return found
            self._clock.sleep(PAUSE_S)
        raise fail("release-incomplete", self._site, f"not yet ended: {_listed(left)}")

    def _insist(self, operation: str, call: Callable[[], Any], launch: Launch | None = None) -> Any:
        """The answer; the same request again while its refusal says so, within that refusal's time."""
        from botocore.exceptions import BotoCoreError, ClientError

        waited, uncertain = 0, False
        while True:
            try:
                return call()
            except ClientError as problem:
                error = problem.response.get("Error", {})
                code, message = error.get("Code", ""), error.get("Message", "")
                cause: Exception = problem
            except BotoCoreError as problem:
                code, message, cause = type(problem).__name__, str(problem), problem
            uncertain = uncertain or code in _NO_ANSWER
            judged = self._judged(operation, code, message, launch)
            if judged.act is not Act.RETRY or waited >= judged.retry_s:
                raise RefusedError(judged, uncertain=uncertain) from cause
            self._clock.sleep(PAUSE_S)
            waited += PAUSE_S

    def _judged(self, operation: str, code: str, message: str, launch: Launch | None) -> Judged:
        refused = Refused(operation, code, message, self._region, profile=self._profile)
        if launch is not None:
            attempt = launch.attempt
            kind = attempt.choice.instance_type
            refused = replace(refused, instance_type=kind, zone=attempt.zone, market=attempt.market)
        return judge_refusal(refused, self._site)


def _listed(instances: Sequence[OurInstance]) -> str:
    return ", ".join(f"{each.instance_id} ({each.state})" for each in instances)
