"""The bundle: everything of one annex that goes to its site, rendered. Pure: values in, text out.

At the site it is unpacked into `<home>/annex/<annex_id>/`, beside `<home>/ep/<sha256>.tar.gz` (the EP software,
shared by all annexes) and `<home>/logs/<annex_id>/` (what pilots leave of themselves). `batch.sh` is what sbatch gets;
it hands over to `pilot.sh`, which reads `params.sh`, `ep.conf` and `token`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from siteannex.annex.marks import ORIGIN, ORIGIN_FILE
from siteannex.annex.packing.archive import Member, tar_gz
from siteannex.annex.packing.versions import version_tuple
from siteannex.errors import Secret
from siteannex.model import EpSoftware, Join, Plan, PoolFacts
from siteannex.resources import data_dir, render_template
from siteannex.site.schema import Site

BUNDLE_LIMIT_BYTES = 64 * 1024
"""What one annex may add to the upload of an EP that the site already has."""

_ANNEX_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,62}")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")
_IDENTITY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*@[A-Za-z0-9_.-]+")
_ADDRESS = re.compile(r"[A-Za-z0-9_.:\[\]-]+(?:\?[A-Za-z0-9_.&=%:-]*)?")
_VARIABLE = re.compile(r"\$(?:[A-Za-z_][A-Za-z0-9_]*|\{[A-Za-z_][A-Za-z0-9_]*\})")
_RECOMMENDED_SINCE = (24, 0, 0)
"""The HTCondor that first knew `use security:recommended` (23.9.6 refuses its whole configuration over it)."""


@dataclass(frozen=True, slots=True)
class Endgame:
    """How an EP ends before its walltime, in seconds before the walltime's end (but `vacate_s`: a span)."""

    start_until_s: int
    """No job is started after this."""
    notice_s: int
    """The batch system's USR1: drain. Slurm may send it up to a minute early."""
    evict_s: int
    """Jobs still running are told to end (SIGTERM) ..."""
    vacate_s: int
    """... and have this long to write a checkpoint before they are killed."""
    fast_s: int
    """Whatever is left is killed, so that logs are saved and scratch is removed before the batch system's own kill."""


def endgame(walltime_s: int) -> Endgame:
    """The same for every annex of 20 minutes and more; shorter ones give a tenth of their walltime to the end."""
    notice = min(120, max(24, walltime_s // 10))
    evict, fast = notice * 5 // 8, max(6, notice // 4)
    return Endgame(notice * 3 // 2, notice, evict, max(3, evict - fast - 4), fast)


def drain_notice_s(plan: Plan) -> int:
    """For the batch system's warning signal: `--signal=B:USR1@<this>`."""
    return endgame(plan.walltime_s).notice_s


@dataclass(frozen=True, slots=True)
class Bundle:
    """The files of one annex. `files` has no secret in it; the token is apart and never shown."""

    files: Mapping[str, str]
    """Name to text: `batch.sh`, `pilot*.sh`, `params.sh`, `ep.conf`, `origin`."""
    token: Secret = field(repr=False)


def render_bundle(
    plan: Plan,
    site: Site,
    pool: PoolFacts,
    software: EpSoftware,
    token: Secret,
    options: Sequence[str],
    *,
    origin: str = "",
    keeper: Mapping[str, str] | None = None,
) -> Bundle:
    """Render the annex's files. `options` are the scheduler's `#SBATCH` options, whole (`--time=1:00:00`); `origin`
    says whose annex it is (marks.py); `keeper` are the files of a lease (leasing.py).

    Raises ValueError for a value that does not belong in a script: those are checked long before, and checked
    again here because this is where they would do harm.
    """
    _checked(plan, pool, software, options)
    if origin and ORIGIN.fullmatch(origin) is None:
        raise ValueError(f"origin {origin!r} cannot be written into a pilot's files")
    context = {**_context(plan, site, pool, software, options), "origin": origin}
    files = {
        "batch.sh": batch_script(plan, site, options),
        "ep.conf": render_template("ep.conf.j2", context),
        "params.sh": assignments(_parameters(plan, site, pool, software)),
        ORIGIN_FILE: f"{origin}\n",
        **pilot_files(),
        **(keeper or {}),
    }
    return Bundle(files, token)


def batch_script(plan: Plan, site: Site, options: Sequence[str]) -> str:
    """What sbatch is given. It holds nothing but the plan, so that it can be shown before anything is done."""
    return render_template("batch.sh.j2", _batch_context(plan, site, options))


def pilot_files() -> dict[str, str]:
    """The pilot's shell, the same for every annex: name to text."""
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(data_dir("tarball").glob("pilot*.sh"))}


def bundle_archive(bundle: Bundle) -> bytes:
    """The bundle as a tar.gz, the same bytes for the same bundle, readable by its owner only.

    Raises ValueError above BUNDLE_LIMIT_BYTES.
    """
    members = {
        name: Member(text.encode(), 0o700 if name.endswith(".sh") else 0o600) for name, text in bundle.files.items()
    }
    members["token"] = Member(bundle.token.reveal().strip().encode() + b"\n", 0o600)
    archive = tar_gz(members)
    if len(archive) > BUNDLE_LIMIT_BYTES:
        raise ValueError(f"the bundle has {len(archive)} bytes, more than {BUNDLE_LIMIT_BYTES}")
    return archive


def shell_path(text: str) -> str:
    """A path as one shell word in which `$NAME` and `${NAME}` are expanded at the site and nothing else is."""
    kept, end = [], 0
    for variable in _VARIABLE.finditer(text):
        kept += [_escaped(text[end : variable.start()]), variable.group()]
        end = variable.end()
    return '"' + "".join([*kept, _escaped(text[end:])]) + '"'


def _escaped(text: str) -> str:
    return re.sub(r'([\\"`$])', r"\\\1", text)


def _checked(plan: Plan, pool: PoolFacts, software: EpSoftware, options: Sequence[str]) -> None:
    for what, pattern, value in (
        ("annex name", _ANNEX_NAME, plan.request.name),
        ("annex id", _WORD, plan.annex_id),
        ("identity", _IDENTITY, pool.identity),
        ("trust domain", _WORD, pool.trust_domain),
        ("collector", _ADDRESS, pool.collector),
        ("schedd", re.compile(r"[A-Za-z0-9_.@:-]+"), pool.schedd),
        ("sha256", re.compile(r"[0-9a-f]{64}"), software.sha256),
    ):
        if pattern.fullmatch(value) is None:
            raise ValueError(f"{what} {value!r} cannot be written into a pilot's files")
    if pool.join is Join.AUTO:
        raise ValueError("how to join must be decided before a bundle is rendered")
    for option in options:
        if not option.startswith("-") or re.search(r"[\r\n\0]", option):
            raise ValueError(f"{option!r} is not one sbatch option")


def _context(plan: Plan, site: Site, pool: PoolFacts, software: EpSoftware, options: Sequence[str]) -> dict[str, Any]:
    return {
        **_batch_context(plan, site, options),
        "name": plan.request.name,
        "site": site.name,
        "network_interface": site.ep.network_interface,
        "lines": list(site.ep.config),
        "collector": pool.collector,
        "schedd": pool.schedd,
        "direct": pool.join is Join.DIRECT,
        "security": "recommended" if version_tuple(software.version) >= _RECOMMENDED_SINCE else "recommended_v9_0",
        "version": software.version,
        "trust_domain": pool.trust_domain,
        "identity": pool.identity,
        "identity_domain": pool.identity.partition("@")[2],
        "gpus": plan.shape.gpus,
        "idle_s": max(1, plan.idle_s),
        "vacate_s": endgame(plan.walltime_s).vacate_s,
    }


def _batch_context(plan: Plan, site: Site, options: Sequence[str]) -> dict[str, Any]:
    return {
        # A login shell only where the site's lines need one (`module` is a function of /etc/profile.d).
        "shell": "/bin/bash -l" if site.environment else "/bin/sh",
        "options": list(options),
        "annex_id": plan.annex_id,
        "home": shell_path(site.directories.home),
        "environment": list(site.environment),
    }


def _parameters(plan: Plan, site: Site, pool: PoolFacts, software: EpSoftware) -> dict[str, str | int | list[str]]:
    host, _, rest = pool.collector.rpartition(":")
    model, gpu_memory_mib = promised_gpus(plan, site)
    end = endgame(plan.walltime_s)
    return {
        "P_ANNEX_ID": plan.annex_id,
        "P_NAME": plan.request.name,
        "P_SITE": site.name,
        "P_PILOTS": plan.pilots,
        "P_EP_SHA256": software.sha256,
        "P_EP_VERSION": software.version,
        "P_COLLECTOR": pool.collector,
        "P_COLLECTOR_HOST": host.strip("[]") if host else pool.collector,
        "P_COLLECTOR_PORT": rest.partition("?")[0] if host else "9618",
        "P_SCHEDD": pool.schedd,
        "P_TRUST_DOMAIN": pool.trust_domain,
        "P_IDENTITY": pool.identity,
        "P_JOIN": pool.join.value,
        "P_CPUS": plan.shape.cpus,
        "P_MEMORY_MIB": plan.shape.memory_mib,
        "P_GPUS": plan.shape.gpus,
        "P_GPU_MODEL": model,
        "P_GPU_MEMORY_MIB": gpu_memory_mib,
        "P_SHARING": site.partitions[plan.partition].sharing,
        "P_WALLTIME_S": plan.walltime_s,
        "P_IDLE_S": plan.idle_s,
        "P_START_UNTIL_S": end.start_until_s,
        "P_NOTICE_S": end.notice_s,
        "P_EVICT_S": end.evict_s,
        "P_VACATE_S": end.vacate_s,
        "P_FAST_S": end.fast_s,
        "P_SCRATCH": [shell_path(place) for place in site.directories.scratch],
    }


def promised_gpus(plan: Plan, site: Site) -> tuple[str, int]:
    """Model and least memory (MiB) that a GPU of this plan must have; ("", 0) where the batch system may give any."""
    partition = site.partitions[plan.partition]
    typed = "{type}" in (partition.gpu_request or "")
    kinds = [kind.gpus for kind in partition.nodes if kind.gpus is not None and plan.shape.gpus]
    asked = [gpus for gpus in kinds if not typed or gpus.type == plan.shape.gpu_type]
    if len({gpus.model for gpus in asked}) != 1:
        return "", 0
    return asked[0].model, min(gpus.memory_floor or 0 for gpus in asked)


def assignments(parameters: Mapping[str, str | int | list[str]]) -> str:
    """Shell assignments. A list becomes lines joined by newlines, its words already quoted for the shell."""
    lines = ["# What the plan says to the pilot. Rendered by siteannex; read by pilot.sh."]
    for name, value in parameters.items():
        if isinstance(value, list):
            lines.append(f"{name}=$(printf '%s\\n' {' '.join(value)})")
        else:
            lines.append(f"{name}={shlex.quote(str(value))}")
    return "\n".join(lines) + "\n"
