"""An annex's logs: live files at the site, or what the pilots archived when they ended."""

from __future__ import annotations

import io
import tarfile
import zlib
from collections.abc import Iterator

from siteannex.annex.slurm_site import LOG_LIMIT_BYTES, SlurmSite
from siteannex.annex.store import Annex
from siteannex.ports import Clock

FOLLOW_S = 4.0
_OVERLAP_CHARS = 400


def read_logs(annex: Annex, access: SlurmSite, file: str | None) -> list[tuple[str, str]]:
    """(title, text) of every log of the annex, or of those whose name contains `file`."""
    found: list[tuple[str, str]] = []
    for path in access.log_names(annex.plan.annex_id):
        name = path.rsplit("/", 1)[-1]
        data = access.read(path)
        members = _members(name, data) if name.endswith(".tar.gz") else [(name, data)]
        found += [(title, raw.decode(errors="replace")) for title, raw in members]
    return [(title, text) for title, text in found if file is None or file in title]


def _members(name: str, archive: bytes) -> list[tuple[str, bytes]]:
    """Files of a pilot's log archive; a damaged archive shows as one line, not as an exception."""
    job_id = name.removesuffix(".tar.gz")
    files: list[tuple[str, bytes]] = []
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
            for member in tar:
                content = tar.extractfile(member) if member.isfile() else None
                if content is not None:
                    files.append((f"{member.name.rsplit('/', 1)[-1]} (pilot {job_id})", content.read(LOG_LIMIT_BYTES)))
    except (tarfile.TarError, zlib.error, OSError, EOFError) as problem:
        files.append((name, f"damaged log archive: {problem}".encode()))
    return files


def news(shown: str, text: str) -> str:
    """What `text`, the end of a growing file, has after `shown`, an earlier end of it."""
    if text.startswith(shown):
        return text[len(shown) :]
    mark = shown[-_OVERLAP_CHARS:]
    at = text.rfind(mark)
    return text[at + len(mark) :] if at >= 0 else text


def follow_logs(annex: Annex, access: SlurmSite, clock: Clock, file: str | None) -> Iterator[str]:
    """Text as it is added to the matching live files; ends when the annex's files are gone."""
    shown: dict[str, str] = {}
    while True:
        logs = read_logs(annex, access, file)
        for title, text in logs:
            if title not in shown:
                yield f"==> {title} <==\n"
            yield news(shown.get(title, ""), text)
            shown[title] = text
        if not logs:
            return
        clock.sleep(FOLLOW_S)
