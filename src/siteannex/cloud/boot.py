"""What an instance boots with: user data that holds no secret, and whose first act is the instance's end. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from siteannex.cloud.plan import CloudPlan
from siteannex.failures import fail
from siteannex.resources import render_template

USER_DATA_LIMIT_BYTES = 16384
"""EC2's, before base64."""
END_MARGIN_S = 60
"""The pilot ends this long before the hard end, so that what it saved gets out."""

_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_URL = re.compile(r"https://[A-Za-z0-9._~:/?#@!$&()*+,;=%\[\]-]+")
_PATH = re.compile(r"(?:/[A-Za-z0-9_.-]+)*")


@dataclass(frozen=True, slots=True)
class Download:
    """One file that the instance fetches: pinned by its sha256, wherever it lies."""

    url: str
    """https only; a presigned address is readable by everyone who may describe the instance."""
    sha256: str


SHOWN = Download("https://set-at-launch.invalid/", "0" * 64)
"""In place of downloads in a script that is only shown."""


def user_data(plan: CloudPlan, annex_id: str, *, gpus: int, scratch: str, software: Download, bundle: Download) -> str:
    """The boot script. `gpus`: of this instance type; `scratch`: where the image mounts local disks, or "".

    ValueError for a value that does not belong in a script; AnnexError(user-data-too-large).
    """
    for what, pattern, value in (
        ("annex id", _WORD, annex_id),
        ("site", _WORD, plan.request.site),
        ("region", _WORD, plan.region),
        ("scratch", _PATH, scratch),
        ("software's address", _URL, software.url),
        ("software's sha256", _SHA256, software.sha256),
        ("bundle's address", _URL, bundle.url),
        ("bundle's sha256", _SHA256, bundle.sha256),
    ):
        if pattern.fullmatch(value) is None:
            raise ValueError(f"{what} {value!r} cannot be written into a boot script")
    text = render_template(
        "aws-boot.sh.j2",
        {
            "annex_id": annex_id,
            "site": plan.request.site,
            "region": plan.region,
            "lifetime_s": plan.request.lifetime_s,
            "margin_s": END_MARGIN_S,
            "gpus": gpus,
            "scratch": scratch,
            "software": software,
            "bundle": bundle,
        },
    )
    if (size := len(text.encode())) > USER_DATA_LIMIT_BYTES:
        raise fail(
            "user-data-too-large",
            plan.request.site,
            f"the boot script has {size} bytes; EC2 takes {USER_DATA_LIMIT_BYTES}",
        )
    return text
