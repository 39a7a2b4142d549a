"""EC2 through boto3: launch, look, end. Fails fast: what is tried next is decided here, not by the library."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from siteannex.cloud.account import PAUSE_S, Account, RefusedError
from siteannex.cloud.credentials import open_account
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
from siteannex.cloud.refusals import Act
from siteannex.errors import AnnexError, Evidence
from siteannex.failures import fail
from siteannex.ports import Clock

END_WITHIN_S = 120
"""How long terminated instances are looked at until they are seen to end."""
_LIVING = ("pending", "running", "stopping", "stopped")


def open_ec2(site: str, region: str, owner: str, clock: Clock, *, profile: str | None = None) -> Ec2:
    """A client for one region with botocore's own chain of credentials. AnnexErrors as `judge_refusal` has them."""
    return Ec2(open_account(site, region, clock, profile=profile), owner)


class Ec2:
    """One region of one account, for one owner's annexes at one site."""

    def __init__(self, account: Account, owner: str) -> None:
        self.account = account
        self._client = account.client("ec2")
        self._site, self._owner, self._clock = account.site, owner, account.clock

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
            raise fail("type-not-offered", self._site, f"no zone of {self.account.region} offers any of the types")
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
            answer = self.account.ask("ec2", "RunInstances", request, launch=launch)
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
        reservations = self.account.ask_all("ec2", "DescribeInstances", {"Filters": filters}, "Reservations")
        return our_instances(reservations, self._site)

    def terminate(self, annex_id: str) -> list[OurInstance]:
        """End every instance of an annex and see it end. AnnexError(release-incomplete) when some do not."""
        found = self.instances(annex_id)
        if not found:
            return []  # an empty list of ids would mean every instance of the account to some calls
        ids = [each.instance_id for each in found]
        self.account.ask("ec2", "TerminateInstances", {"InstanceIds": ids})
        for _ in range(END_WITHIN_S // PAUSE_S):
            left = self.instances(annex_id)
            if not left:
                return found
            self._clock.sleep(PAUSE_S)
        raise fail("release-incomplete", self._site, f"not yet ended: {_listed(left)}")


def _listed(instances: Sequence[OurInstance]) -> str:
    return ", ".join(f"{each.instance_id} ({each.state})" for each in instances)
