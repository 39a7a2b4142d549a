"""The keeper's wake under dash and bash, with stub HTCondor and Slurm: what it does, and every way it ends."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from siteannex.annex.leasing import lease_files
from siteannex.failures import FAILURES
from siteannex.model import Lease
from siteannex.site.schema import Directories, Keeper
from tests.unit.pilot_ground import SHELLS, TOKEN, Ground, grounds
from tests.unit.samples import POOL_FACTS, plan, request, site

SQUEUE = """#!/bin/sh
case "$*" in
*.keeper*) cat "{knobs}/keepers" 2>/dev/null || true ;;
*) cat "{knobs}/pilots" 2>/dev/null || true ;;
esac
"""
SBATCH = """#!/bin/sh
echo "$*" >>"{knobs}/submitted"
case "$*" in *keep.sh) echo 500; exit 0 ;; esac
[ ! -e "{knobs}/refuses" ] || {{ echo "sbatch: error: Job violates accounting policy" >&2; exit 1; }}
echo 600
"""
CONDOR_Q = (
    '[ -e "$KNOBS/ap-silent" ] && { echo "cannot reach" >&2; exit 1; }\ncat "$KNOBS/waiting" 2>/dev/null\nexit 0\n'
)


@pytest.fixture(params=SHELLS)
def ground(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ground]:
    for made in grounds(request.param, tmp_path):
        made.stubs["bin/condor_q"] = CONDOR_Q
        made.software.unlink()
        subprocess.run(["rm", "-rf", str(made.annex)], check=True)
        made._install()
        lease_it(made, Lease(14 * 86400, 20.0))
        for name, text in (
            ("squeue", SQUEUE),
            ("sbatch", SBATCH),
            ("sacct", "#!/bin/sh\nexit 0\n"),
            ("scancel", "#!/bin/sh\n"),
        ):
            made.tool(name, text.format(knobs=made.knobs) if "{knobs}" in text else text)
        yield made


def lease_it(ground: Ground, lease: Lease, at: float | None = None) -> None:
    """Put the keeper's files there, as of a lease granted at a moment (Unix seconds; None: now)."""
    where = site(
        directories=Directories(home=str(ground.home), scratch=(str(ground.scratch),)),
        keeper=Keeper(kind="batch", partition="debug"),
    )
    leased = plan(request=replace(request(), lease=lease))
    moment = datetime.fromtimestamp(time.time() if at is None else at, UTC)
    for name, text in lease_files(leased, where, POOL_FACTS, moment).items():
        (ground.annex / name).write_text(text)


def wake(ground: Ground, job: str = "500") -> str:
    """One wake; the keeper's last line in its log."""
    script = (ground.annex / "keep.sh").read_text().replace("exec /bin/sh", f"exec {ground.shell}")
    environment = {
        "PATH": f"{ground.path / 'tools'}:{os.environ['PATH']}",
        "HOME": str(ground.path),
        "SLURM_JOB_ID": job,
    }
    done = subprocess.run(
        [ground.shell, "-c", script], cwd=ground.annex, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert list(ground.scratch.iterdir()) == []
    log = ground.logs / "keeper.log"
    assert not log.exists() or TOKEN.reveal() not in log.read_text()
    return log.read_text().splitlines()[-1] if log.exists() else ""


def submitted(ground: Ground) -> list[str]:
    return [line.split()[-1] for line in ground.turned("submitted").splitlines()]


def test_waiting_work_brings_one_pilot_and_its_successor_comes_first(ground: Ground) -> None:
    ground.knob("waiting", "1\n0\n1\n")
    line = wake(ground)
    assert submitted(ground) == ["keep.sh", "batch.sh"]
    assert "--dependency=singleton --begin=now+900" in ground.turned("submitted")
    assert "--deadline=now+1209" in ground.turned("submitted")
    assert "submitted job 600" in line
    ad = ground.turned("ads")
    assert 'SiteannexStage = "working"' in ad
    assert "SiteannexReservedGpuS = 7200" in ad
    assert "SiteannexWaiting = 2" in ad
    ground.knob("keepers", "501\n")
    ground.knob("pilots", "600|sweep1-00000001|PENDING\n")
    wake(ground, "501")
    assert submitted(ground) == ["keep.sh", "batch.sh"], "one keeper waits already, and one pilot is enough"


def test_with_nothing_waiting_it_rests(ground: Ground) -> None:
    assert "resting: nothing waits" in wake(ground)
    assert submitted(ground) == ["keep.sh"]


def test_jobs_that_no_pilot_of_it_could_hold_are_told_and_bring_none(ground: Ground) -> None:
    ground.knob("waiting", "0\n0\n")
    assert "nothing waits; 2 too large for its pilots" in wake(ground)
    assert submitted(ground) == ["keep.sh"]


@pytest.mark.parametrize("code", ["lease-over", "lease-spent", "lease-ap-silent", "lease-refused"])
def test_each_end_tells_its_code_and_leaves_nothing(ground: Ground, code: str) -> None:
    assert code in FAILURES
    ground.knob("waiting", "1\n")
    if code == "lease-over":
        lease_it(ground, Lease(14 * 86400, 20.0), at=time.time() - 15 * 86400)
    elif code == "lease-spent":
        lease_it(ground, Lease(14 * 86400, 1.5))
    elif code == "lease-ap-silent":
        ground.knob("ap-silent")
        (ground.annex / "silent").write_text(".\n" * 95)
    else:
        ground.knob("refuses")
        (ground.annex / "refused").write_text(".\n" * 11)
    line = wake(ground)
    assert f": {code}: " in line
    assert f'SiteannexCode = "{code}"' in ground.turned("ads")
    assert not ground.annex.exists()


def test_at_the_lease_s_end_a_running_pilot_keeps_its_directory_but_the_token_goes(ground: Ground) -> None:
    lease_it(ground, Lease(14 * 86400, 20.0), at=time.time() - 15 * 86400)
    ground.knob("pilots", "600|sweep1-00000001|RUNNING\n")
    assert "lease-over" in wake(ground)
    assert ground.annex.exists()
    assert not (ground.annex / "token").exists()
    assert not (ground.annex / "lease.sh").exists()


def test_a_withdrawn_lease_does_nothing_at_all(ground: Ground) -> None:
    ground.knob("waiting", "1\n")
    (ground.annex / "lease.sh").unlink()
    assert wake(ground) == ""
    assert submitted(ground) == []


def test_two_wakes_at_once_are_one(ground: Ground) -> None:
    ground.knob("waiting", "1\n")
    (ground.annex / "keeper.lock").mkdir()
    (ground.annex / "keeper.lock/job").write_text("499\n")
    ground.knob("keepers", "499\n")
    assert wake(ground) == ""
    assert submitted(ground) == [], "the other one acts"
    ground.knob("keepers", "")
    assert "submitted job 600" in wake(ground), "a lock whose keeper was killed is nobody's"


def test_software_that_is_gone_is_told_in_its_log(ground: Ground) -> None:
    ground.software.unlink()
    assert "ep-software-damaged" in wake(ground)
    assert submitted(ground) == ["keep.sh"], "the next wake may find it again"


def test_the_rendered_batch_script_passes_shellcheck(ground: Ground) -> None:
    checked = subprocess.run(["shellcheck", str(ground.annex / "keep.sh")], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
