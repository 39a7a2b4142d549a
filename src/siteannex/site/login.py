"""Where and how a site lets its users in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from siteannex.site.fields import DurationS, Facts

Factor = Literal["publickey", "password", "totp", "duo", "token"]
"""totp: a code from an app. duo: a push, or a code typed where Duo asks. token: the site's own code, by app or SMS."""


class PromptRule(Facts):
    """How to tell what a login question asks for, by the end of its text."""

    match: str
    """Regular expression, searched without regard to case."""
    kind: Literal["password", "otp", "other"]


class AuthStep(Facts):
    """One step of a login: any of `by` passes it."""

    by: Annotated[tuple[Factor, ...], Field(min_length=1)]
    prompt: str | None = None
    """Regular expression on the END of the question (what stands before it varies); null: not known word for word."""
    optional: bool = False
    """Asked of some users only."""

    @field_validator("prompt")
    @classmethod
    def _compiles(cls, prompt: str | None) -> str | None:
        try:
            re.compile(prompt or "")
        except re.error as problem:
            raise ValueError(f"not a regular expression: {problem}") from problem
        return prompt


class Login(Facts):
    """Where and how to log in. `~/.ssh/config` of the user may refine host, user, port, keys and jumps."""

    host: str
    """The name to use."""
    other_hosts: tuple[str, ...] = ()
    """More names of the same login service, also older ones."""
    transfer_host: str | None = None
    """A host for file transfer only, without a shell."""
    port: Annotated[int, Field(gt=0, lt=65536)] = 22
    user_form: str | None = None
    """What login names look like here: `x-<ACCESS name>`."""
    keys: Literal["required", "allowed", "forbidden"] = "allowed"
    auth: tuple[AuthStep, ...] = ()
    """The steps in order. Without them the server's own words decide."""
    certificate_lifetime: DurationS | None = None
    """Where keys come with a certificate of the site: how long one is good."""
    jump: Annotated[str, Field(pattern=r"^(?:[^@\s]+@)?[A-Za-z0-9.-]+(?::[0-9]+)?$")] | None = None
    """`[user@]host[:port]` on the way, unless `~/.ssh/config` names a way. Only with `transport: paramiko`."""
    retry: Literal["by-person", "never"] = "by-person"
    """never: the site bans hosts that come back quickly; after a failed login wait, then start again by hand."""
    fingerprints: Mapping[str, str] = {}
    """Host keys the site publishes, type -> `SHA256:...`."""
    transport: Literal["paramiko", "openssh"] = "paramiko"

    @property
    def prompts(self) -> tuple[PromptRule, ...]:
        """What the steps say of questions, in order; a question that none matches is judged by its words."""
        return tuple(
            PromptRule(match=step.prompt, kind="password" if "password" in step.by else "otp")
            for step in self.auth
            if step.prompt is not None
        )

    @model_validator(mode="after")
    def _keys_and_steps_agree(self) -> Login:
        offered = any("publickey" in step.by for step in self.auth)
        if self.keys == "forbidden" and offered:
            raise ValueError("keys are forbidden, and auth has a publickey step")
        if self.keys == "required" and self.auth and not offered:
            raise ValueError("keys are required, and auth has no publickey step")
        return self


class SessionPolicy(Facts):
    """Whether an authenticated connection may be kept, and how long without use."""

    persist: bool = True
    idle: DurationS = 8 * 3600
