"""One region of one AWS account: every call goes through `ask`, and every refusal is understood there.

Calls are named as AWS names them, in one place each: the administrators' policy is read from these names
(`scripts/aws_policy.py`). The library tries nothing again by itself: what is tried next is decided here.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime
from typing import Any

from siteannex.cloud.launch import Launch
from siteannex.cloud.refusals import Act, Judged, Refused, judge_refusal
from siteannex.errors import AnnexError
from siteannex.ports import Clock

PAUSE_S = 5
"""Between two tries of the same request, and between two looks."""
_NO_ANSWER = ("ReadTimeoutError", "ConnectionClosedError", "InternalError", "Unavailable")
"""After these nobody knows whether the request was carried out."""
_ENCODED = re.compile(r"Encoded authorization failure message:\s*(\S+)")


class RefusedError(AnnexError):
    """AWS said no; `judged` says what to try next. `uncertain`: one of the tries had no clear answer, so that what was
    asked for may have been done all the same. `aws_code`: AWS's own word."""

    def __init__(self, judged: Judged, aws_code: str = "", *, uncertain: bool = False) -> None:
        super().__init__(judged.failure)
        self.judged, self.aws_code, self.uncertain = judged, aws_code, uncertain


class Account:
    """What one site's calls need to know of the account. Clients are made when they are first asked for."""

    def __init__(
        self,
        session: Any,
        site: str,
        region: str,
        clock: Clock,
        profile: str = "",
        session_ends: datetime | None = None,
    ) -> None:
        self.site, self.region, self.clock, self.profile = site, region, clock, profile
        self.session_ends = session_ends
        """When a person must log in anew; None: not known, or never."""
        self._session = session
        self._clients: dict[str, Any] = {}

    def client(self, service: str) -> Any:
        """The client of a service, the same each time. RefusedError when the profile or region cannot be used."""
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError

        if service not in self._clients:
            once = Config(retries={"total_max_attempts": 1, "mode": "standard"}, connect_timeout=10, read_timeout=60)
            try:
                self._clients[service] = self._session.client(service, region_name=self.region, config=once)
            except BotoCoreError as problem:
                raise self.refused(f"open {service}", problem) from problem
        return self._clients[service]

    def ask(
        self, service: str, operation: str, parameters: dict[str, Any], *, launch: Launch | None = None
    ) -> dict[str, Any]:
        """The answer; the same request again while its refusal says so, within that refusal's time. RefusedError."""
        from botocore import xform_name
        from botocore.exceptions import BotoCoreError, ClientError

        call = getattr(self.client(service), xform_name(operation))
        waited, uncertain = 0, False
        while True:
            try:
                answer: dict[str, Any] = call(**parameters)
            except (BotoCoreError, ClientError) as problem:
                no = self.refused(operation, problem, launch=launch)
                cause = problem
            else:
                return answer
            uncertain = no.uncertain = uncertain or no.uncertain
            if no.judged.act is not Act.RETRY or waited >= no.judged.retry_s:
                raise no from cause
            self.clock.sleep(PAUSE_S)
            waited += PAUSE_S

    def ask_all(self, service: str, operation: str, parameters: dict[str, Any], key: str) -> list[Any]:
        """What all pages of an answer have under `key`. RefusedError."""
        found: list[Any] = []
        more: dict[str, Any] = {}
        while True:
            answer = self.ask(service, operation, {**parameters, **more})
            found += answer.get(key, ())
            if not answer.get("NextToken"):
                return found
            more = {"NextToken": answer["NextToken"]}

    def refused(self, operation: str, problem: Exception, *, launch: Launch | None = None) -> RefusedError:
        """botocore's exception understood; AWS's encoded words about a permission decoded, where that is allowed."""
        code, message = said(problem)
        refused = Refused(operation, code, message, self.region, profile=self.profile)
        if launch is not None:
            attempt = launch.attempt
            kind = attempt.choice.instance_type
            refused = replace(
                refused, instance_type=kind, zone=attempt.zone, market=attempt.market, quota=attempt.quota
            )
        if operation != "DecodeAuthorizationMessage" and (encoded := _ENCODED.search(message)):
            refused = replace(refused, decoded=self._decoded(encoded[1]))
        return RefusedError(judge_refusal(refused, self.site), code, uncertain=code in _NO_ANSWER)

    def _decoded(self, encoded: str) -> str:
        """Empty where the account may not decode: then an administrator gets the text itself."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            # Once and not through `ask`: what decoding fails of must not hide what was refused.
            answer = self.client("sts").decode_authorization_message(EncodedMessage=encoded)
        except (BotoCoreError, ClientError, RefusedError):
            return ""
        return str(answer["DecodedMessage"])


def said(problem: Exception) -> tuple[str, str]:
    """AWS's code and words; of botocore's own exceptions, their name and words."""
    from botocore.exceptions import ClientError

    if not isinstance(problem, ClientError):
        return type(problem).__name__, str(problem)
    error = problem.response.get("Error", {})
    return error.get("Code", ""), error.get("Message", "")
