"""Slurm as pure text: what to run at the login node and how to read what it prints.

Option and format letters are those of the manual pages of sbatch, squeue, sacct and scancel (slurm.schedmd.com);
they have not changed from 20.11 to 26.05. Times are asked for as Unix seconds (SLURM_TIME_FORMAT), because the
site's local time means nothing at the AP.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from siteannex.model import BatchJob, BatchState, Plan
from siteannex.scheduler.refusals import UNCERTAIN
from siteannex.site.schema import Keeper, Partition

_STATES: dict[str, BatchState] = {
    "PENDING": BatchState.PENDING,
    "CONFIGURING": BatchState.PENDING,
    "EXPEDITING": BatchState.PENDING,
    "REQUEUED": BatchState.PENDING,
    "REQUEUE_FED": BatchState.PENDING,
    "REQUEUE_HOLD": BatchState.PENDING,
    "RESV_DEL_HOLD": BatchState.PENDING,
    "SPECIAL_EXIT": BatchState.PENDING,
    "RUNNING": BatchState.RUNNING,
    "RESIZING": BatchState.RUNNING,
    "SIGNALING": BatchState.RUNNING,
    "SUSPENDED": BatchState.RUNNING,
    "STOPPED": BatchState.RUNNING,
    "COMPLETING": BatchState.ENDING,
    "STAGE_OUT": BatchState.ENDING,
    "COMPLETED": BatchState.COMPLETED,
    "FAILED": BatchState.FAILED,
    "LAUNCH_FAILED": BatchState.FAILED,
    "RECONFIG_FAIL": BatchState.FAILED,
    "CANCELLED": BatchState.CANCELLED,
    "REVOKED": BatchState.CANCELLED,
    "TIMEOUT": BatchState.TIMEOUT,
    "DEADLINE": BatchState.TIMEOUT,
    "NODE_FAIL": BatchState.NODE_FAIL,
    "BOOT_FAIL": BatchState.NODE_FAIL,
    "OUT_OF_MEMORY": BatchState.OUT_OF_MEMORY,
    "PREEMPTED": BatchState.PREEMPTED,
}

_SQUEUE_FORMAT = "%A|%j|%T|%N|%S|%e|%r"
_SACCT_FORMAT = "JobIDRaw,JobName,State,NodeList,Start,End,ExitCode,Reason"
_TAG_QUEUE, _TAG_ACCOUNTING, _TAG_NOW, _TAG_USER = "@squeue", "@sacct", "@now", "@user"
_SUBMITTED = re.compile(r"@pilot ([0-9]+) (?:Submitted batch job )?([0-9]{1,18})(?:;[\w.-]+| on cluster [\w.-]+)?\s*")
_JOB_ID = re.compile(r"[0-9]{1,18}")
_USER = re.compile(r"@user ([0-9]{1,10})(?: ([A-Za-z0-9._@-]{0,64}))?")
_CANCELLED_BY = re.compile(r"CANCELLED by ([0-9]{1,10})")


def parse_state(text: str) -> BatchState:
    """Reduce Slurm's word, which may have a tail (`CANCELLED by 1234`, `COMPLETED+`); unknown words are UNKNOWN."""
    match = re.match(r"[A-Z_]+", text.strip().upper())
    return _STATES.get(match.group(0), BatchState.UNKNOWN) if match else BatchState.UNKNOWN


def parse_moment(text: str) -> datetime | None:
    """Read Unix seconds; `N/A`, `Unknown`, `None` and anything else is None."""
    cleaned = text.strip()
    if not cleaned.isascii() or not cleaned.isdigit() or len(cleaned) > 11 or int(cleaned) == 0:
        return None
    return datetime.fromtimestamp(int(cleaned), UTC)


def format_walltime(seconds: int) -> str:
    """Seconds as sbatch reads them without ambiguity: `H:MM:SS`."""
    minutes, secs = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{secs:02d}"


def submit_options(plan: Plan, partition: Partition, *, drain_notice_s: int, origin: str = "") -> tuple[str, ...]:
    """The sbatch options of one pilot, in a stable order, for `#SBATCH` lines. `origin`: annex/marks.py."""
    constraint = next((kind.constraint for kind in partition.nodes if kind.name == plan.node_kind), None)
    options = [
        f"--job-name={plan.annex_id}",
        f"--comment=siteannex:{plan.annex_id}" + (f":{origin}" if origin else ""),
        *([f"--partition={plan.partition}"] if partition.request_by == "partition" else []),
        *([f"--account={plan.account}"] if plan.account else []),
        *([f"--qos={plan.qos}"] if plan.qos else []),
        "--nodes=1",
        "--ntasks=1",
        f"--cpus-per-task={plan.shape.cpus}",
        *([partition.memory_request.format(mib=plan.shape.memory_mib)] if partition.memory_request else []),
        f"--time={format_walltime(plan.walltime_s)}",
        f"--signal=B:USR1@{drain_notice_s}",
        "--no-requeue",
        "--open-mode=append",
        "--output=slurm-%j.out",
    ]
    if plan.shape.gpus and partition.gpu_request:
        options.append(partition.gpu_request.format(type=plan.shape.gpu_type, count=plan.shape.gpus))
    if constraint is not None:
        options.append(f"--constraint={constraint}")
    if partition.sharing == "exclusive":
        options.append("--exclusive")
    return (*options, *partition.options)


def keeper_options(plan: Plan, keeper: Keeper, partition: Partition) -> tuple[str, ...]:
    """The sbatch options of one wake of a leased annex's keeper. Only `--begin` differs from wake to wake."""
    return (
        f"--job-name={plan.annex_id}.keeper",
        *([f"--partition={keeper.partition}"] if partition.request_by == "partition" else []),
        *([f"--account={plan.account}"] if plan.account else []),
        *([f"--qos={partition.qos}"] if partition.qos else []),
        "--nodes=1",
        "--ntasks=1",
        "--cpus-per-task=1",
        *([partition.memory_request.format(mib=keeper.memory)] if partition.memory_request else []),
        f"--time={format_walltime(keeper.walltime)}",
        "--no-requeue",
        "--open-mode=truncate",
        "--output=keeper.out",
        *keeper.options,
    )


FIND_SLURM = (
    "for v in $(awk 'BEGIN { for (v in ENVIRON) if (v ~ /^(SBATCH|SQUEUE|SACCT|SCANCEL|SLURM)_/) print v }'); do\n"
    '  [ "$v" = SLURM_CONF ] || unset "$v"\ndone\n'
    "command -v sbatch >/dev/null 2>&1 || "
    """PATH="$PATH:$(bash -lc 'printf %s "$PATH"' 2>/dev/null </dev/null | tail -n 1)"\n"""
)
"""Before every use of Slurm. The user's own SBATCH_ACCOUNT, SQUEUE_PARTITION ... would override what was planned and
shown (sbatch(1): environment variables override options in the script). Where Slurm is on the PATH of login shells
only (a module), take the PATH from one."""


def submit_script(annex_dir: str, pilots: int, *, patience_s: int = 60) -> str:
    """Submit `batch.sh` once per pilot, at most once for ever: a directory is made as a mark before each sbatch.

    A refusal takes the mark back; an answer that got lost does not, because Slurm may have taken the job. An sbatch
    that says nothing for `patience_s` is ended and counts as such.
    """
    return f"""{FIND_SLURM}cd {annex_dir} || exit 73
patient=
command -v timeout >/dev/null 2>&1 && patient="timeout -k 5 {patience_s}"
i=0
while [ "$i" -lt {pilots} ]; do
  i=$((i + 1))
  mkdir "submit.$i" 2>/dev/null || continue
  out=$($patient sbatch --parsable batch.sh 2>submit.err); rc=$?
  [ "$rc" -eq 124 ] || [ "$rc" -eq 137 ] && echo "sbatch gave no answer in {patience_s} s and was ended" >>submit.err
  if [ "$rc" -ne 0 ]; then
    grep -qiE '{UNCERTAIN}' submit.err || rmdir "submit.$i"
    printf '%s\\n' "$out"; cat submit.err >&2; exit "$rc"
  fi
  printf '%s\\n' "$out" >"submit.$i/answer"
  printf '%s\\n' "$out" | sed "s/^/@pilot $i /"
done"""


def keeper_script(annex_dir: str, annex_id: str) -> str:
    """Submit the first wake of a keeper, unless one waits or runs; prints its job id."""
    name = shlex.quote(f"{annex_id}.keeper")
    return f"""{FIND_SLURM}cd {annex_dir} || exit 73
living=$(squeue -h --name={name} -o %A) || exit 75
[ -z "$living" ] || {{ printf '%s\\n' "$living" | sed 's/^/@pilot 1 /'; exit 0; }}
out=$(sbatch --parsable keep.sh) || exit
printf '%s\\n' "$out" | sed 's/^/@pilot 1 /'"""


def withdraw_script(annex_dir: str, annex_id: str) -> str:
    """End a lease and its keeper, and wait until Slurm shows that it is gone: then it submits no pilot any more."""
    name = shlex.quote(f"{annex_id}.keeper")
    return f"""{FIND_SLURM}[ -e {annex_dir}/keep.sh ] || exit 0
rm -f {annex_dir}/lease.sh
tries=0
while [ "$tries" -lt 45 ]; do
  scancel --user="$(id -un)" --name={name} 2>/dev/null
  left=$(squeue -h --name={name} -o %A) && [ -z "$left" ] && exit 0
  tries=$((tries + 1)); sleep 1
done
echo "keeper $left is still there" >&2; exit 1"""


def forget_script(annex_dir: str) -> str:
    """Remove an annex's directory if nothing was ever submitted from it; status 1 when something was."""
    return f"""[ -d {annex_dir} ] || exit 0
for mark in {annex_dir}/submit.[0-9]*; do [ -d "$mark" ] && exit 1; done
rm -rf {annex_dir}"""


def read_submitted(text: str) -> tuple[str, ...]:
    """Job ids out of `submit_script`'s output, one a pilot newly submitted. Sites print greetings before an id."""
    ids: dict[str, str] = {}
    for line in text.splitlines():
        if match := _SUBMITTED.fullmatch(line):
            ids[match.group(1)] = match.group(2)  # the last such line of a pilot is the id
    return tuple(ids.values())


def query_script(annex_id: str, *, since: datetime, known: tuple[str, ...] = ()) -> str:
    """Ask squeue for every pilot of an annex and, unless all `known` ones wait or run, sacct; in one go.

    The answer says which of the two could be asked: a squeue that fails is "not known", never "nothing there".
    """
    name = shlex.quote(annex_id)
    day = f"{since - timedelta(days=1):%Y-%m-%d}"  # sacct reads site-local days; a start yet to come is an error there
    return f"""{FIND_SLURM}export SLURM_TIME_FORMAT=%s
say() {{ if [ "$2" -eq 0 ]; then echo "$1 ok"; else echo "$1 failed"; fi; printf '%s\\n' "$3"; }}
echo "{_TAG_NOW} $(date +%s)"
q=$(squeue -h -r -t all --name={name} -o '{_SQUEUE_FORMAT}' 2>&1); say {_TAG_QUEUE} $? "$q"
alive={"yes" if known else ""}
for id in {" ".join(map(shlex.quote, known))}; do
  printf '%s\\n' "$q" | grep -qE "^$id[|][^|]*[|](PENDING|RUNNING)[|]" || alive=
done
[ -n "$alive" ] && {{ say {_TAG_ACCOUNTING} 0 ""; exit 0; }}
a=$(sacct -n -P -X --name={name} -S {day} -o {_SACCT_FORMAT} 2>&1); say {_TAG_ACCOUNTING} $? "$a"
for id in $(printf '%s\\n' "$a" | sed -n 's/^.*|CANCELLED by \\([0-9][0-9]*\\)|.*$/\\1/p' | sort -u); do
  [ "$id" = "$(id -u)" ] && echo "{_TAG_USER} $id" || echo "{_TAG_USER} $id $(getent passwd "$id" | cut -d: -f1)"
done"""


@dataclass(frozen=True, slots=True)
class QueueAnswer:
    """What the batch system said about one annex."""

    jobs: tuple[BatchJob, ...] | None
    """None when squeue could not be asked: then nothing is known, whatever accounting says."""
    complaint: str = ""
    """The words of the command that failed, if one did."""
    now: datetime | None = None
    """The site's own clock when it answered: its times are to be compared with this one."""


def read_query(text: str, annex_id: str) -> QueueAnswer:
    """Join squeue's and sacct's lines by job id; squeue wins while it knows the job. Never raises on foreign text."""
    queue, accounting = _sections(text)
    users = _users(text)
    jobs: dict[str, BatchJob] = {}
    for job in _sacct_jobs(accounting.lines if accounting.ok else (), annex_id):
        jobs[job.job_id] = replace(job, cancelled_by=_who(job.state_text, users))
    for job in _squeue_jobs(queue.lines if queue.ok else (), annex_id):
        known = jobs.get(job.job_id)
        both_ended = known is not None and known.state.ended and job.state.ended
        jobs[job.job_id] = replace(known, reason=known.reason or job.reason) if known and both_ended else job
    complaint = "\n".join(line for section in (queue, accounting) if not section.ok for line in section.lines)
    if not queue.ok:  # accounting alone lags behind: a pilot missing there may well run
        return QueueAnswer(None, complaint, _site_clock(text))
    return QueueAnswer(tuple(sorted(jobs.values(), key=lambda job: int(job.job_id))), complaint, _site_clock(text))


def _site_clock(text: str) -> datetime | None:
    said = (line.partition(" ") for line in text.splitlines())
    return next((parse_moment(value) for tag, _, value in said if tag == _TAG_NOW), None)


def _users(text: str) -> dict[str, str]:
    """User number to name, as the site told them: "you" is the account we are logged in as."""
    found = {}
    for line in text.splitlines():
        if (match := _USER.fullmatch(line)) is not None:
            number, name = match.groups()
            found[number] = "you" if name is None else f"{name} (uid {number})" if name else ""
    return found


def _who(state_text: str, users: dict[str, str]) -> str:
    match = _CANCELLED_BY.match(state_text)
    return (users.get(match[1]) or f"uid {match[1]}") if match else ""


@dataclass(frozen=True, slots=True)
class _Section:
    ok: bool
    lines: tuple[str, ...]


def _sections(text: str) -> tuple[_Section, _Section]:
    found: dict[str, tuple[bool, list[str]]] = {}
    current: list[str] | None = None
    for line in text.splitlines():
        tag, _, verdict = line.partition(" ")
        if tag in (_TAG_QUEUE, _TAG_ACCOUNTING) and verdict in ("ok", "failed"):
            current = []
            found[tag] = (verdict == "ok", current)
        elif current is not None and line.strip():
            current.append(line)
    nothing: tuple[bool, list[str]] = (False, [])
    queue_ok, queue = found.get(_TAG_QUEUE, nothing)
    sacct_ok, sacct = found.get(_TAG_ACCOUNTING, nothing)
    return _Section(queue_ok, tuple(queue)), _Section(sacct_ok, tuple(sacct))


def _squeue_jobs(lines: tuple[str, ...], annex_id: str) -> Iterator[BatchJob]:
    for line in lines:
        fields = line.split("|", 6)
        if len(fields) == 7 and _JOB_ID.fullmatch(fields[0]) and fields[1] == annex_id:
            job_id, name, state, node, start, end, reason = fields
            yield BatchJob(
                job_id=job_id,
                name=name,
                state=parse_state(state),
                state_text=state.strip(),
                reason="" if reason.strip() in ("None", "") else reason.strip(),
                node=node.strip(),
                start=parse_moment(start),
                end=parse_moment(end),
            )


def _sacct_jobs(lines: tuple[str, ...], annex_id: str) -> Iterator[BatchJob]:
    for line in lines:
        fields = line.split("|", 7)
        if len(fields) == 8 and _JOB_ID.fullmatch(fields[0]) and fields[1] == annex_id:
            job_id, name, state, node, start, end, exit_code, reason = fields
            yield BatchJob(
                job_id=job_id,
                name=name,
                state=parse_state(state),
                state_text=state.strip(),
                reason="" if reason.strip() in ("None", "") else reason.strip(),
                node="" if node.strip() == "None assigned" else node.strip(),
                start=parse_moment(start),
                end=parse_moment(end),
                exit_code=exit_code.strip(),
            )


def drain_script(job_ids: tuple[str, ...]) -> str:
    """Ask running pilots to take no new job and end when theirs are done (the pilot traps USR1)."""
    return f"{FIND_SLURM}scancel --batch --signal=USR1 {' '.join(map(shlex.quote, job_ids))}"


def stop_script(job_ids: tuple[str, ...]) -> str:
    """Ask running pilots to evict their jobs and end at once (the pilot traps TERM).

    Only the batch shell is signalled: a plain scancel would also kill the EP's processes under it, and then the AP
    would take the jobs to be still running until their lease is over.
    """
    return f"{FIND_SLURM}scancel --batch --signal=TERM {' '.join(map(shlex.quote, job_ids))}"


def cancel_script(job_ids: tuple[str, ...]) -> str:
    """End pilots, pending or running; a job that already ended is no error."""
    return f"{FIND_SLURM}scancel {' '.join(map(shlex.quote, job_ids))}"


def cancel_annex_script(annex_id: str, job_ids: tuple[str, ...]) -> str:
    """End every pilot of an annex, also those whose ids we do not know; its status is no proof that they end."""
    by_id = f"scancel {' '.join(map(shlex.quote, job_ids))}\n" if job_ids else ""
    return f'{FIND_SLURM}{by_id}scancel --user="$(id -un)" --name={shlex.quote(annex_id)}'
