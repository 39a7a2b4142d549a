"""Which EP software may go where."""

from __future__ import annotations

import re

from siteannex.failures import fail
from siteannex.model import EpSoftware


def check_versions(software: EpSoftware, cm_version: str, site_arch: str, *, site: str = "") -> None:
    """Refuse EP software that would register and never match, or that cannot run at the site.

    Raises AnnexError: ep-newer-than-cm, ep-arch-mismatch, each naming both sides.
    """
    if software.arch != site_arch:
        raise fail(
            "ep-arch-mismatch",
            site,
            f"the EP software is for {software.arch}, the site's nodes are {site_arch}",
        )
    if version_tuple(software.version) > version_tuple(cm_version):
        raise fail(
            "ep-newer-than-cm",
            site,
            f"the EP software is HTCondor {software.version}, the pool's central manager is {cm_version}",
        )


def version_tuple(text: str) -> tuple[int, ...]:
    """`25.14.1` as (25, 14, 1), also out of `$CondorVersion: 25.14.1 2026-10-16 ... $`; () when there is none."""
    found = re.search(r"(\d+)\.(\d+)\.(\d+)", text)
    return tuple(int(part) for part in found.groups()) if found else ()
