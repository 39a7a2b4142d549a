"""A Slurm of a few shell scripts in a directory: sbatch, squeue, sacct and scancel that keep their jobs in files.

They speak the options and formats that siteannex uses, so that its scripts are really run, by a real shell. As the
real ones do, they heed a user's SBATCH_*, SQUEUE_*, SCANCEL_* and SLURM_* before what the script or the options say.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from siteannex.ports import CommandResult

_SBATCH = r"""
case " $* " in *" --test-only "*) cat "$STUB/trial" 2>/dev/null; exit 0 ;; esac
for last; do :; done
printf '%s\n' "$*" >>"$STUB/sbatch.log"
n=$(cat "$STUB/next"); echo $((n + 1)) >"$STUB/next"
if [ -f "$STUB/refuse.$n" ]; then cat "$STUB/refuse.$n" >&2; exit 1; fi
[ -n "${SLURM_CLUSTERS-}" ] && { echo "sbatch: error: No cluster of that name known" >&2; exit 1; }
if [ "${SBATCH_ACCOUNT-}" = nosuch ]; then
  echo "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified" >&2
  exit 1
fi
echo "${SBATCH_ACCOUNT-$(sed -n 's/^#SBATCH --account=//p' "$last")} ${SBATCH_TIMELIMIT-$(
  sed -n 's/^#SBATCH --time=//p' "$last")}" >"$STUB/charged.$n"
name=$(sed -n 's/^#SBATCH --job-name=//p' "$last")
printf '%s' "$name|PENDING||N/A|N/A|Resources|" >"$STUB/jobs/$n"
sed -n 's/^#SBATCH --comment=//p' "$last" >"$STUB/comment.$n"
[ -f "$STUB/lost.$n" ] && { cat "$STUB/lost.$n" >&2; exit 1; }
[ -f "$STUB/banner" ] && cat "$STUB/banner"
if [ -f "$STUB/reply" ]; then sed "s/@/$n/" "$STUB/reply"; else echo "$n"; fi
"""
_SQUEUE = r"""
[ -f "$STUB/squeue.down" ] && { cat "$STUB/squeue.down" >&2; exit 1; }
[ -n "${SLURM_CLUSTERS-}" ] && { echo "squeue: error: No cluster of that name known" >&2; exit 1; }
[ -f "$STUB/unseen" ] || [ -n "${SQUEUE_PARTITION-}" ] && exit 0
for option; do case $option in --name=*) wanted=${option#--name=} ;; esac; done
for file in "$STUB"/jobs/*; do
  [ -f "$file" ] || continue
  IFS='|' read -r name state node start end reason exit <"$file"
  case " $* " in *%k*)
    case $state in PENDING | RUNNING) ;; *) continue ;; esac
    echo "${file##*/}|$state|$name|$(cat "$STUB/comment.${file##*/}" 2>/dev/null || echo '(null)')"
    continue ;;
  esac
  [ "$name" = "$wanted" ] || continue
  [ -f "$STUB/purged" ] && case $state in PENDING | RUNNING) ;; *) continue ;; esac
  echo "${file##*/}|$name|$state|$node|$start|$end|$reason"
done
"""
_SACCT = r"""
[ -f "$STUB/sacct.off" ] && { echo "Slurm accounting storage is disabled" >&2; exit 1; }
for option; do case $option in --name=*) wanted=${option#--name=} ;; esac; done
for file in "$STUB"/jobs/*; do
  [ -f "$file" ] || continue
  IFS='|' read -r name state node start end reason exit <"$file"
  [ "$name" = "$wanted" ] && echo "${file##*/}|$name|$state|$node|$start|$end|$exit|$reason"
done
exit 0
"""
_SCANCEL = r"""
printf '%s\n' "$*" >>"$STUB/scancel.log"
[ -f "$STUB/scancel.down" ] && { cat "$STUB/scancel.down" >&2; exit 1; }
[ -f "$STUB/stuck" ] || [ -n "${SCANCEL_PARTITION-}" ] && exit 0
for word; do case $word in --name=*) wanted=${word#--name=} ;; esac; done
for file in "$STUB"/jobs/*; do
  [ -f "$file" ] || continue
  IFS='|' read -r name state node start end reason exit <"$file"
  case " $* " in *" ${file##*/} "*) ;; *) [ "$name" = "${wanted-}" ] || continue ;; esac
  case $state in PENDING | RUNNING) ;; *) continue ;; esac
  case " $* " in
    *=USR1*) [ -f "$STUB/drains" ] || continue; state=COMPLETED ;;
    *=TERM*) [ -f "$STUB/deaf" ] && continue; state=COMPLETED ;;
    *) state="CANCELLED by 1000" ;;
  esac
  printf '%s' "$name|$state|$node|$start|$end||0:0" >"$file"
done
"""


class StubSlurm:
    """The directory, and what a test does to it."""

    def __init__(self, root: Path, *, first_id: int = 71) -> None:
        self.root, self.bin = root, root / "bin"
        (root / "jobs").mkdir(parents=True)
        self.bin.mkdir()
        for name, body in (("sbatch", _SBATCH), ("squeue", _SQUEUE), ("sacct", _SACCT), ("scancel", _SCANCEL)):
            path = self.bin / name
            path.write_text(f"#!/bin/sh\nSTUB={root}\n{body}", encoding="utf-8")
            path.chmod(0o755)
        self.set("next", str(first_id))

    def set(self, name: str, text: str = "") -> None:
        """Write one of the files that steer the stubs (`refuse.71`, `squeue.down`, `sacct.off`, `reply`, ...)."""
        (self.root / name).write_text(text, encoding="utf-8")

    def unset(self, name: str) -> None:
        """Take one of them away."""
        (self.root / name).unlink()

    def job(self, job_id: str, name: str, state: str, *, node: str = "", reason: str = "", exit_code: str = "") -> None:
        """Put a job into a state."""
        self.set(f"jobs/{job_id}", f"{name}|{state}|{node}|N/A|N/A|{reason}|{exit_code}")

    def states(self) -> dict[str, str]:
        """Job id to Slurm's word."""
        return {
            path.name: path.read_text(encoding="utf-8").split("|")[1] for path in sorted((self.root / "jobs").iterdir())
        }

    def submissions(self) -> int:
        """How often sbatch was called."""
        return self._lines("sbatch.log")

    def charged(self, job_id: str) -> str:
        """`account time limit` a job was submitted with."""
        return (self.root / f"charged.{job_id}").read_text(encoding="utf-8").strip()

    def cancels(self) -> list[str]:
        """The arguments of every scancel."""
        log = self.root / "scancel.log"
        return log.read_text(encoding="utf-8").splitlines() if log.exists() else []

    def _lines(self, name: str) -> int:
        log = self.root / name
        return len(log.read_text(encoding="utf-8").splitlines()) if log.exists() else 0


def run_shell(
    shell: str,
    script: str,
    *,
    stub: StubSlurm,
    home: Path,
    stdin: str = "",
    environment: Mapping[str, str] = MappingProxyType({}),
) -> CommandResult:
    """Run a script by a real shell with the stub Slurm first on PATH; `environment` is what the user's login sets."""
    variables = {"PATH": f"{stub.bin}:{os.environ['PATH']}", "HOME": str(home), "LC_ALL": "C.UTF-8", **environment}
    done = subprocess.run(
        [shell, "-c", script],
        input=stdin,
        capture_output=True,
        text=True,
        errors="replace",
        env=variables,
        cwd=home,
        timeout=60,
        check=False,
    )
    return CommandResult(done.returncode, done.stdout, done.stderr)
