"""Who we are to AWS: botocore's own chain of credentials, with a one-time code asked of the person where it wants one.

Nothing is stored, and nothing is kept beyond the command.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from siteannex.cloud.account import Account, RefusedError
from siteannex.cloud.refusals import Act
from siteannex.ports import Clock, Prompt, Prompter


def open_account(
    site: str, region: str, clock: Clock, *, profile: str | None = None, prompter: Prompter | None = None
) -> Account:
    """Sign in for one region. A refused one-time code is asked for once more.

    RefusedError as `judge_refusal` has them; AnnexError(no-terminal) of the prompter.
    """
    try:
        return _sign_in(site, region, clock, profile, prompter)
    except RefusedError as no:
        if no.judged.act is not Act.ASK_AGAIN or prompter is None:
            raise
        prompter.tell(no.failure.summary)
        return _sign_in(site, region, clock, profile, prompter)


def expiry_warning(session_ends: datetime | None, until: datetime) -> str:
    """What to say of a session that ends before the annex does; "" when there is nothing to say."""
    if session_ends is None or session_ends >= until:
        return ""
    return (
        f"your AWS session ends at {session_ends:%H:%M} UTC, before the annex ({until:%Y-%m-%d %H:%M} UTC): "
        "down and status need a new login then; the instances end by themselves all the same"
    )


def _sign_in(site: str, region: str, clock: Clock, profile: str | None, prompter: Prompter | None) -> Account:
    import boto3  # here: only those who use it wait for it
    from botocore import session as botocore_session
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

    core = botocore_session.Session()
    named = profile or core.get_config_variable("profile") or ""
    account = Account(None, site, region, clock, named)
    typed: list[str] = []

    def code(text: str) -> str:
        assert prompter is not None
        typed.append(text)
        return prompter.ask(Prompt(site, named or "default", text, echo=True, kind="otp")).reveal()

    try:
        session = boto3.Session(profile_name=profile, botocore_session=core)
        if prompter is not None:
            # botocore would ask with getpass, past our screen; it has no other door for this.
            core.get_component("credential_provider").get_provider("assume-role")._prompter = code
        credentials = session.get_credentials()
        if credentials is None:
            raise NoCredentialsError
        credentials.get_frozen_credentials()
    except (BotoCoreError, ClientError) as problem:
        raise account.refused("sign in", problem) from problem
    return Account(session, site, region, clock, named, _ends(credentials, by_code=bool(typed)))


def _ends(credentials: Any, *, by_code: bool) -> datetime | None:
    """When these stop working for good. Those that botocore renews without a person have no end that is known."""
    if credentials.method != "env" and not by_code:
        return None
    ends = getattr(credentials, "_expiry_time", None)
    return ends if isinstance(ends, datetime) else None
