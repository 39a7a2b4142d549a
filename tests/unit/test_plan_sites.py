"""What six requests become at every site with a batch system: the script's options, or why there is none.

The files in tests/golden/sites were read by a person against the sites' facts; `SITEANNEX_WRITE_GOLDEN=1` writes them
anew after a site file changed, to be read again.
"""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from siteannex.annex.bundle import drain_notice_s
from siteannex.annex.planning.plan import plan_annex
from siteannex.annex.texts import ceiling_text, plan_text
from siteannex.errors import AnnexError
from siteannex.model import Request
from siteannex.scheduler.slurm import submit_options
from siteannex.site.loader import read_any
from siteannex.site.schema import Site

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "sites"
SITES = {
    path.stem: site
    for path in sorted((ROOT / "sites").glob("*.yaml"))
    if isinstance(site := read_any(path, [path.parent]), Site)
}
DAY = date(2026, 11, 29)


def full_node(site: Site) -> int:
    """The GPUs of the largest GPU node that everybody may use."""
    open_to_all = [part for part in site.partitions.values() if part.restricted is None]
    return max(kind.gpus.per_node for part in open_to_all for kind in part.nodes if kind.gpus)


def asked_at(site: Site) -> dict[str, Request]:
    base = Request(name="sweep1", site=site.name, account="abc123", lifetime_s=1800 if site.name == "lab" else 7200)
    return {
        "1 GPU": replace(base, gpus=1),
        "4 GPUs": replace(base, gpus=4),
        "1 full node": replace(base, gpus=full_node(site), nodes=1),
        "too many": replace(base, gpus=10_000),
        "60 GB of GPU memory": replace(base, gpus=1, gpu_memory_mib=60 * 1024),
        "bf16": replace(base, gpus=1, bf16=True),
    }


def told(request: Request, site: Site) -> str:
    try:
        plan = plan_annex(request, site, annex_id="sweep1-00000001", today=DAY)
    except AnnexError as problem:
        failure = problem.failure
        return "\n".join([failure.summary, *(item.text for item in failure.evidence), failure.hint])
    options = submit_options(plan, site.partitions[plan.partition], drain_notice_s=drain_notice_s(plan))
    return "\n".join([plan_text(plan), f"ceiling {ceiling_text(plan)}", *plan.notes, *options])


@pytest.mark.parametrize("name", SITES)
def test_what_a_site_is_asked_for_is_as_it_was_read(name: str) -> None:
    site, golden = SITES[name], GOLDEN / f"{name}.txt"
    text = "\n\n".join(f"== {title}\n{told(request, site)}" for title, request in asked_at(site).items()) + "\n"
    if os.environ.get("SITEANNEX_WRITE_GOLDEN"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text, encoding="utf-8")
    assert golden.read_text(encoding="utf-8") == text


def test_every_golden_file_is_a_sites() -> None:
    assert {path.stem for path in GOLDEN.glob("*.txt")} == set(SITES)
