"""The Slurm provider: what siteannex does at one site, as round trips over a Transport.

Everything lies under the site's `directories.home` (`$HOME/.siteannex`): `ep/<sha256>.tar.gz` (shared by all
annexes, shipped once), `annex/<id>/` (one annex: scripts, token, progress) and `logs/<id>/` (what is left of it).
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from siteannex.errors import AnnexError, Evidence
from siteannex.failures import fail
from siteannex.model import EpSoftware, PilotReport
from siteannex.ports import Command, CommandResult, Progress, Transport
from siteannex.scheduler import slurm
from siteannex.scheduler.refusals import advised, inquiry_script, refusal
from siteannex.site.schema import Site
from siteannex.transport.room import with_room, write_failure

LOG_LIMIT_BYTES = 1_000_000
_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


_ASK_FOR_LOGS = r"""
late() {
  for file in "$d"/progress/*.jsonl; do
    pilot=${file##*/}; pilot=${pilot%.jsonl}
    [ -e "$d/pilots/$pilot" ] && continue
    grep -q '"stage":"READY"' "$file" 2>/dev/null || continue
    [ "$d/live/$pilot.tar.gz" -nt "$d/logs.wanted" ] || return 0
  done
  return 1
}
if [ -d "$d" ]; then
  : >"$d/logs.wanted"
  tries=0
  while late && [ "$tries" -lt 8 ]; do sleep 1; tries=$((tries + 1)); done
fi"""


@dataclass(frozen=True, slots=True)
class Survey:
    """What the login node says of itself before anything is shipped."""

    home: str
    """Absolute path of siteannex's directory there."""
    arch: str
    ep_present: frozenset[str]
    """sha256 sums of the EP tarballs already there."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """What the site said about one annex."""

    queue: slurm.QueueAnswer
    reports: tuple[PilotReport, ...]
    directory_left: bool
    """The annex's directory is still there."""


class SlurmSite:
    """Slurm behind a Transport. Holds no state of its own."""

    def __init__(self, site: Site, transport: Transport) -> None:
        self.site = site
        self.transport = transport

    def survey(self) -> Survey:
        """Ask where home is, which processor this is, and which EP tarballs are there. One round trip."""
        answer = self._run(
            f"LC_ALL=C; export LC_ALL; {slurm.FIND_SLURM}umask 077\n"
            f'h="{self.site.directories.home}"; mkdir -p "$h/ep" && cd "$h" || exit 73\n'
            "pwd; uname -m; ls ep 2>/dev/null\n"
            'command -v sbatch >/dev/null || { echo "sbatch: not found" >&2; exit 72; }'
        )
        if answer.status == 72:
            raise fail(
                "slurm-missing",
                self.site.name,
                "Slurm is not on the PATH of your account there",
                evidence=[_seen(answer)],
            )
        home, arch, *names = [*answer.stdout.splitlines(), "", ""]
        if not (answer.ok and home.startswith("/") and arch):
            what = f"{self.site.directories.home} cannot be made at {self.site.name}"
            raise self._no_room(write_failure(self.site.name, what, answer.stderr, [_seen(answer)]))
        present = frozenset(name.removesuffix(".tar.gz") for name in names if name.endswith(".tar.gz"))
        return Survey(home=home, arch=arch, ep_present=present)

    def ship_software(self, software: EpSoftware, survey: Survey, progress: Progress | None) -> int:
        """Upload the EP tarball unless it is there; returns bytes sent."""
        if software.sha256 in survey.ep_present:
            return 0
        return self.transport.put(Path(software.path), f"{survey.home}/ep/{software.sha256}.tar.gz", progress=progress)

    def submit(self, annex_id: str, archive: bytes, pilots: int) -> tuple[str, ...]:
        """Unpack the bundle and submit its pilots, in one round trip; returns the new job ids.

        Safe to repeat: a pilot is submitted at most once, ever. AnnexError(SUBMIT) when Slurm refuses: pilots accepted
        before the refusal are left for the caller to end. AnnexError(submit-uncertain) when its answer was lost: only a
        look by name tells what was accepted.
        """
        annex_dir, patience_s = self._annex_dir(annex_id), self.site.deadlines.submit
        unpack = (
            f"LC_ALL=C; export LC_ALL; umask 077; mkdir -p {annex_dir}/progress && cd {annex_dir} && rm -f unpacked && "
            "base64 -d | gzip -dc | tar -xf - && : >unpacked"
        )
        unpacked, submitted = self.transport.run(
            [
                Command(unpack, stdin=base64.encodebytes(archive).decode("ascii")),
                Command(
                    f"[ -f {annex_dir}/unpacked ] || exit 74; "
                    + slurm.submit_script(annex_dir, pilots, patience_s=patience_s)
                ),
            ],
            timeout_s=60 + pilots * patience_s,
        )
        if not unpacked.ok:
            problem = write_failure(
                self.site.name,
                f"the bundle could not be unpacked at {self.site.name}",
                unpacked.stderr,
                [_seen(unpacked)],
                needed_bytes=len(archive),
            )
            raise self._no_room(problem)
        if submitted.status != 0:
            raise self._advised(refusal(submitted, self.site.name))
        if not (job_ids := slurm.read_submitted(submitted.stdout)):
            raise fail("submit-uncertain", self.site.name, "sbatch gave no job id", evidence=[_seen(submitted)])
        return job_ids

    def start_keeper(self, annex_id: str) -> str:
        """Submit a leased annex's keeper unless one is there; its job id. AnnexError(SUBMIT) when Slurm refuses."""
        answer = self._run(slurm.keeper_script(self._annex_dir(annex_id), annex_id))
        if answer.status != 0:
            raise self._advised(refusal(answer, self.site.name))
        return next(iter(slurm.read_submitted(answer.stdout)), "")

    def withdraw_keeper(self, annex_id: str) -> None:
        """End a leased annex's keeper, if it has one. AnnexError(release-incomplete) when it does not go."""
        answer = self.transport.run(
            [Command(slurm.withdraw_script(self._annex_dir(annex_id), annex_id))], timeout_s=120
        )[0]
        if not answer.ok:
            raise fail("release-incomplete", self.site.name, "the keeper did not end", evidence=[_seen(answer)])

    def forget(self, annex_id: str) -> bool:
        """Remove the annex's directory if nothing was ever submitted from it; False, and nothing done, otherwise."""
        return self._run(slurm.forget_script(self._annex_dir(annex_id))).ok

    def observe(self, annex_id: str, since: datetime, known: tuple[str, ...] = ()) -> Sighting:
        """Ask Slurm about the annex's pilots and read their progress files. One round trip."""
        annex_dir, log_dir = self._annex_dir(annex_id), self._log_dir(annex_id)
        queue, progress, left = self.transport.run(
            [
                Command(slurm.query_script(annex_id, since=since, known=known)),
                Command(f"cat {annex_dir}/progress/*.jsonl {log_dir}/*.jsonl 2>/dev/null; true"),
                Command(f"[ -d {annex_dir} ]"),
            ]
        )
        return Sighting(
            queue=slurm.read_query(queue.stdout, annex_id),
            reports=read_reports(progress.stdout),
            directory_left=left.ok,
        )

    def drain(self, job_ids: tuple[str, ...]) -> None:
        """Ask running pilots to end when their jobs are done."""
        self._must(slurm.drain_script(job_ids), "the drain signal could not be sent")

    def stop(self, job_ids: tuple[str, ...]) -> None:
        """Ask running pilots to evict their jobs and end at once."""
        self._must(slurm.stop_script(job_ids), "the stop signal could not be sent")

    def cancel(self, job_ids: tuple[str, ...]) -> None:
        """End pilots now, pending or running."""
        self._must(slurm.cancel_script(job_ids), "the pilots could not be cancelled")

    def cancel_annex(self, annex_id: str, job_ids: tuple[str, ...]) -> None:
        """Tell Slurm to end every pilot of an annex, also unknown ones. Whether it did only `observe` can say."""
        self._run(slurm.cancel_annex_script(annex_id, job_ids))

    def remove(self, annex_id: str) -> None:
        """Remove the annex's directory, token included. Log archives stay."""
        self._must(f"rm -rf {self._annex_dir(annex_id)}", "the annex's directory could not be removed")

    def purge(self, annex_id: str) -> None:
        """Remove what outlives an annex: its log archive and, when no other annex is there, the EP software."""
        home = self.site.directories.home
        last = f'[ -n "$(ls "{home}/annex" 2>/dev/null)" ] || rm -rf "{home}/ep"'
        self._must(f"rm -rf {self._log_dir(annex_id)}; {last}", "logs and EP software could not be removed")

    def log_names(self, annex_id: str) -> tuple[str, ...]:
        """Paths of what can be read of an annex: progress, batch output, EP logs of living pilots, log archives.

        Living EPs log to their nodes' own disks, so their pilots are asked for copies and given a few seconds.
        """
        annex_dir, log_dir = self._annex_dir(annex_id), self._log_dir(annex_id)
        answer = self._run(
            f"d={annex_dir}\n{_ASK_FOR_LOGS}\n"
            f'ls -d "$d"/slurm-*.out "$d"/progress/*.jsonl "$d"/live/*.tar.gz {log_dir}/* 2>/dev/null; true'
        )
        return tuple(answer.stdout.splitlines())

    def read(self, path: str) -> bytes:
        """The end of one of those files; empty when it is gone."""
        return self.transport.get(path, limit_bytes=LOG_LIMIT_BYTES) or b""

    def _advised(self, problem: AnnexError) -> AnnexError:
        script = inquiry_script(problem.failure.code)
        if script is None:
            return problem
        try:
            return advised(problem, self._run(slurm.FIND_SLURM + script).stdout)
        except AnnexError:
            return problem  # the refusal is the news

    def _no_room(self, problem: AnnexError) -> AnnexError:
        return with_room(problem, f'"{self.site.directories.home}"', lambda script: self._run(script).stdout)

    def _annex_dir(self, annex_id: str) -> str:
        return f'"{self.site.directories.home}/annex/{_safe(annex_id)}"'

    def _log_dir(self, annex_id: str) -> str:
        return f'"{self.site.directories.home}/logs/{_safe(annex_id)}"'

    def _run(self, script: str) -> CommandResult:
        return self.transport.run([Command(script)])[0]

    def _must(self, script: str, otherwise: str) -> None:
        answer = self._run(script)
        if not answer.ok and "Invalid job id" not in answer.stderr:
            raise fail("release-incomplete", self.site.name, otherwise, evidence=[_seen(answer)])


def _safe(name: str) -> str:
    if not _SAFE_NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a name siteannex gives")
    return name


def _seen(answer: CommandResult) -> Evidence:
    return Evidence.tail(f"remote command, exit status {answer.status}", answer.stderr or answer.stdout)


def read_reports(text: str) -> tuple[PilotReport, ...]:
    """Read pilots' progress lines; torn and foreign lines are passed over, a line seen twice counts once."""
    reports: dict[PilotReport, None] = {}
    for line in text.split("\n"):
        try:
            record = json.loads(line)
            report = PilotReport(
                job_id=_printable(record["job"]),
                stage=_printable(record["stage"]),
                code=_printable(record["code"]),
                text=_printable(record.get("text", "")),
                at=datetime.fromisoformat(str(record["at"])),
                node=_printable(record.get("node", "")),
                seen=_printable(record.get("seen", "")).replace(" | ", "\n"),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue
        if report.at.tzinfo is not None:
            reports[report] = None
    return tuple(reports)


def _printable(value: object) -> str:
    """JSON may carry half a surrogate pair, which no terminal and no file takes."""
    return str(value).encode("utf-8", "replace").decode("utf-8")
