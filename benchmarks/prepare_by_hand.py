"""What an expert has ready before logging in by hand: the annex's files, its token and the EP software.

Runs on the access point with siteannex's own Python, so that both sides of the comparison ship the same files. None
of this is on the clock of the hand-made side.

usage: prepare_by_hand.py SITE GPUS BUNDLE_DIR
"""

from __future__ import annotations

import secrets
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from siteannex.annex.bundle import drain_notice_s, render_bundle
from siteannex.annex.pack import pack_installed
from siteannex.annex.planning.plan import plan_annex
from siteannex.cli.settings import site_directories
from siteannex.errors import Secret
from siteannex.model import Join, Request
from siteannex.pool.condor import NARROW_SCOPES, CondorPool
from siteannex.private import private_dir, write_private
from siteannex.scheduler.slurm import submit_options
from siteannex.site.loader import load_site
from siteannex.transport.places import Places


def main(site_name: str, gpus: str, target: str) -> None:
    """Write BUNDLE_DIR/{annex/,id,ep}."""
    site = load_site(site_name, site_directories())
    request = Request(name="byhand", site=site_name, gpus=int(gpus), join=Join.POOL)
    now = datetime.now(UTC)
    plan = plan_annex(request, site, annex_id=f"byhand-{secrets.token_hex(4)}", today=now.date())
    software = pack_installed(Places.from_environment().state / "ep")
    options = submit_options(plan, site.partitions[plan.partition], drain_notice_s=drain_notice_s(plan))
    bundle = render_bundle(plan, site, CondorPool().facts(Join.POOL), software, _token(plan.walltime_s), options)
    annex = Path(target) / "annex"
    private_dir(annex)
    for name, text in bundle.files.items():
        write_private(annex / name, text)
    write_private(annex / "token", bundle.token.reveal() + "\n")
    write_private(Path(target) / "id", plan.annex_id + "\n")
    write_private(Path(target) / "ep", software.path + "\n")


def _token(walltime_s: int) -> Secret:
    scopes = [word for scope in NARROW_SCOPES for word in ("-authz", scope)]
    argv = ["condor_token_fetch", "-lifetime", str(walltime_s + 3600), *scopes]
    return Secret(subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip())


if __name__ == "__main__":
    main(*sys.argv[1:])
