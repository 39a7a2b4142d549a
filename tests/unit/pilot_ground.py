"""A site with nothing but a shell: the real pilot.sh with stub HTCondor programs, as real processes.

`sleep` is shortened so that retries take no time. What the stubs do is set by files in `knobs`; squeue prints the one
of its name and fails while there is none.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tarfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from siteannex.annex.bundle import bundle_archive, render_bundle
from siteannex.annex.packing.archive import Member, tar_gz
from siteannex.errors import Secret
from siteannex.model import EpSoftware, Join
from siteannex.site.schema import Directories
from tests.unit.samples import POOL_FACTS, plan, site

TOKEN = Secret("eyJhbGciOiJIUzI1NiJ9.eyJpYXQiOjF9.dGhlLXNpZ25hdHVyZQ")

STUBS = {
    "bin/condor_config_val": """
case "$*" in
-version) if [ -e "$KNOBS/broken" ]; then cat "$KNOBS/broken" >&2; exit 127; fi ;;
-dump) if [ -e "$KNOBS/bad-config" ]; then echo "Configuration Error Line 14: no such knob" >&2; exit 1; fi ;;
*)
    [ -e "$KNOBS/configured-$1" ] && exec cat "$KNOBS/configured-$1"
    sed -n "s/^$1 = //p" "$CONDOR_CONFIG" | tail -n 1
    ;;
esac
""",
    "bin/condor_ping": """
echo "$*" >>"$KNOBS/pings"
case "$*" in
-version) exit 0 ;;
*ALLOW*)
    [ -e "$KNOBS/mute" ] && exit 1
    echo "Session ID:                  ap:133:$(($(/bin/date +%s) + $(cat "$KNOBS/ap-ahead" 2>/dev/null || echo 0))):7"
    exit 0 ;;
esac
if [ -e "$KNOBS/refuse" ]; then cat "$KNOBS/refuse"; exit 1; fi
echo "Remote Mapping:              $(cat "$KNOBS/mapping" 2>/dev/null || echo alice@ap.lab)"
""",
    "bin/condor_status": """
[ "$1" = -version ] && exit 0
if [ "$1" = -ads ]; then echo "$4" >"$KNOBS/start"; cat "$KNOBS/start-is" 2>/dev/null || echo true; exit 0; fi
if [ ! -e "$KNOBS/unseen" ]; then cat "$KNOBS/slot"; fi
""",
    "sbin/condor_advertise": """
[ "$1" = -version ] && exit 0
cp "$CONDOR_CONFIG" "$KNOBS/tools.conf"
cat "$4" >>"$KNOBS/ads"
echo "$3" >>"$KNOBS/ads"
""",
    "sbin/condor_startd": "exit 0\n# STARTD_DIRECT_ATTACH_SCHEDD_NAME\n",
    "libexec/condor_gpu_discovery": """
if [ -e "$KNOBS/gpus" ]; then cat "$KNOBS/gpus"; exit 0; fi
cat <<GPUS
DetectedGPUs="GPU-c2223334, GPU-d3223334"
Common=[ Capability=8.0; DeviceName="NVIDIA A100-SXM4-40GB"; GlobalMemoryMb=40536; ]
GPU_c2223334=[ id="GPU-c2223334"; DeviceUuid="c2223334"; ]
GPUS
""",
    "sbin/condor_master": """
[ "$1" = -version ] && exit 0
log=${CONDOR_CONFIG%/*}/log
job=$(sed -n 's/^SITEANNEX_JOB = //p' "$CONDOR_CONFIG")
echo "$CONDOR_CONFIG" >"$KNOBS/config-path"
cp "$CONDOR_CONFIG" "$KNOBS/config"
env | grep -i '^_condor_' >"$KNOBS/environment"
grep SigIgn "/proc/$$/status" >"$KNOBS/signals-ignored"
end() { echo "$1" >>"$KNOBS/signals"; exit "$2"; }
trap 'end TERM 0' TERM
trap 'end QUIT 0' QUIT
hang_up() {
    echo HUP >>"$KNOBS/signals"
    [ -e "${log%/log}/config.d/91-evict.conf" ] && rm -rf "${log%/log}/execute/dir_1"
}
trap hang_up HUP
cp "$CONDOR_CONFIG" "$log/MasterLog"
[ -e "$KNOBS/struck" ] && echo "Got SIGTERM. Performing graceful shutdown." >>"$log/MasterLog"
if [ -e "$KNOBS/dies-at-once" ]; then echo 'ERROR "bad knob" at line 1' >>"$log/MasterLog"; exit 4; fi
if [ -e "$KNOBS/startd-crashes" ]; then
    echo "The STARTD (pid 7) exited with status 44" >>"$log/MasterLog"
    echo "The STARTD (pid 8) died due to signal 11" >>"$log/MasterLog"
fi
echo "slot1: New pSlot" >"$log/StartLog"
if [ -e "$KNOBS/job" ]; then
    mkdir "${log%/log}/execute/dir_1"
    sleep 1000 &
fi
while :; do
    [ -e "$KNOBS/job-ends" ] && rm -rf "${log%/log}/execute/dir_1"
    if [ -e "$KNOBS/idle" ] && grep -qs '"READY"' "$PROGRESS/$job.jsonl"; then
        echo "No resources have been claimed for 600 seconds" >>"$log/StartLog"
        exit 0
    fi
    if [ -e "$KNOBS/status" ]; then exit "$(cat "$KNOBS/status")"; fi
    /bin/sleep 0.02
done
""",
}


@dataclass
class Ground:
    """One annex at one site, its pilots run by `shell`."""

    path: Path
    shell: str
    pilots: int = 1
    environment: dict[str, str] = field(default_factory=dict)
    plan_changes: dict[str, Any] = field(default_factory=dict)
    join: Join = Join.POOL
    stubs: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.home, self.scratch, self.knobs = self.path / "home", self.path / "scratch", self.path / "knobs"
        for place in (self.home / "ep", self.scratch, self.knobs, self.path / "tools"):
            place.mkdir(parents=True, exist_ok=True)
        self.annex_id = "sweep1-00000001"
        self.annex = self.home / "annex" / self.annex_id
        self.logs = self.home / "logs" / self.annex_id
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.knob("slot", "8 32768 2\n")
        self.tool("sleep", "#!/bin/sh\nexec /bin/sleep 0.02\n")
        self.tool("squeue", f'#!/bin/sh\ncat "{self.knobs}/squeue" 2>/dev/null\n')
        self._install()

    def _install(self) -> None:
        members = {
            name: Member(
                f'#!/bin/sh\nKNOBS="{self.knobs}"\nPROGRESS="{self.annex}/progress"\n{text.lstrip()}'.encode(), 0o755
            )
            for name, text in {**STUBS, **self.stubs}.items()
        }
        software = tar_gz({**members, "lib/x": Member(b""), "libexec/singularity_test_sandbox/x": Member(b"")})
        sha256 = hashlib.sha256(software).hexdigest()
        self.software = self.home / "ep" / f"{sha256}.tar.gz"
        self.software.write_bytes(software)
        where = site(directories=Directories(home=str(self.home), scratch=("$NOWHERE", str(self.scratch))))
        port = self.listener.getsockname()[1]
        bundle = render_bundle(
            plan(pilots=self.pilots, **self.plan_changes),
            where,
            replace(POOL_FACTS, collector=f"127.0.0.1:{port}", join=self.join),
            EpSoftware(str(self.software), sha256, len(software), "25.14.1", "x86_64"),
            TOKEN,
            ["--time=1:00:00"],
        )
        self.annex.mkdir(parents=True)
        with tarfile.open(fileobj=io.BytesIO(bundle_archive(bundle))) as tar:
            tar.extractall(self.annex)  # noqa: S202  (our own archive)
        (self.annex / "progress").mkdir()

    def replace_software(self, content: bytes) -> None:
        """Put other content in the software's place, with the right sum."""
        sha256 = hashlib.sha256(content).hexdigest()
        (self.home / "ep" / f"{sha256}.tar.gz").write_bytes(content)
        params = self.annex / "params.sh"
        params.write_text(re.sub(r"P_EP_SHA256=\w+", f"P_EP_SHA256={sha256}", params.read_text()))

    def tool(self, name: str, text: str) -> None:
        """A program that pilots find before the machine's own."""
        (self.path / "tools" / name).write_text(text)
        (self.path / "tools" / name).chmod(0o755)

    def knob(self, name: str, text: str = "") -> None:
        """Set how the stub programs behave."""
        (self.knobs / name).write_text(text)

    def turned(self, name: str) -> str:
        """What the stubs wrote under a name; empty when nothing."""
        place = self.knobs / name
        return place.read_text() if place.exists() else ""

    def start(self, job: str = "71") -> subprocess.Popen[bytes]:
        """Start a pilot as Slurm would: batch.sh, its output into the annex's directory."""
        environment = {
            "PATH": f"{self.path / 'tools'}:{os.environ['PATH']}",
            "HOME": str(self.path),
            "SLURM_JOB_ID": job,
            "SLURMD_NODENAME": "c1",
            "SLURM_CPUS_ON_NODE": "8",
            "SLURM_MEM_PER_NODE": "32768",
            "CUDA_VISIBLE_DEVICES": "2,3",
            "SLURM_JOB_END_TIME": str(int(time.time()) + 3600),
            **self.environment,
        }
        script = (self.annex / "batch.sh").read_text().replace("exec /bin/sh", f"exec {self.shell}")
        with (self.annex / f"slurm-{job}.out").open("ab") as output:
            return subprocess.Popen(
                [self.shell, "-c", script],
                env={name: value for name, value in environment.items() if value},
                stdout=output,
                stderr=output,
                cwd=self.annex,
                start_new_session=True,
            )

    def run(self, job: str = "71", limit_s: float = 20) -> int:
        """A pilot from start to end; its exit status."""
        return self.end(self.start(job), limit_s)

    def end(self, pilot: subprocess.Popen[bytes], limit_s: float = 20) -> int:
        """Wait for the pilot; nothing of it may still run then."""
        try:
            status = pilot.wait(limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(pilot.pid, signal.SIGKILL)
            raise AssertionError(f"the pilot did not end: {self.steps()}") from None
        return status

    def await_step(self, stage: str, limit_s: float = 15, job: str = "71") -> None:
        """Wait until the pilot has reported a stage."""
        until = time.monotonic() + limit_s
        while stage not in [step[0] for step in self.steps(job)]:
            assert time.monotonic() < until, f"no {stage} in {self.steps(job)}"
            time.sleep(0.02)

    def reports(self, job: str = "71") -> list[dict[str, Any]]:
        """The lines a pilot has written, wherever they now lie."""
        for place in (self.annex / "progress" / f"{job}.jsonl", self.logs / f"{job}.jsonl"):
            if place.exists():
                return [json.loads(line) for line in place.read_text().splitlines()]
        return []

    def steps(self, job: str = "71") -> list[tuple[str, str]]:
        """Stage and code of each line."""
        return [(line["stage"], line["code"]) for line in self.reports(job)]

    def text(self, code: str, job: str = "71") -> str:
        """The text of the line with that code."""
        return str(next(line["text"] for line in self.reports(job) if line["code"] == code))

    def seen(self, code: str, job: str = "71") -> str:
        """What the line with that code quotes."""
        return str(next(line.get("seen", "") for line in self.reports(job) if line["code"] == code))

    def processes(self) -> list[str]:
        """Command lines that still run out of this ground's scratch."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if f"{self.scratch}/".encode() in (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes():
                    found.append((entry / "cmdline").read_bytes().decode(errors="replace"))
            except OSError:
                continue
        return found


SHELLS = [shell for shell in ("dash", "bash") if shutil.which(shell)]


def grounds(shell: str, path: Path) -> Iterator[Ground]:
    """For a fixture: a ground whose pilots that shell runs; afterwards nothing of it may run any more."""
    found = shutil.which(shell)
    assert found is not None
    made = Ground(path, found)
    yield made
    made.listener.close()
    assert made.processes() == []


def nothing_is_left(ground: Ground) -> None:
    """Neither in scratch nor of the annex's directory."""
    assert list(ground.scratch.iterdir()) == []
    assert not ground.annex.exists()
