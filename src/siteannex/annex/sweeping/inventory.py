"""What bears our marks at a Slurm site, as one script prints it: jobs by their comment, annexes' directories. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from siteannex.annex.marks import ORIGIN, ORIGIN_FILE, is_annex_id, read_comment
from siteannex.scheduler.slurm import FIND_SLURM

_JOBS, _JOBS_END, _DIRECTORY = "@jobs", "@jobs ok", "@directory"


@dataclass(frozen=True, slots=True)
class MarkedJob:
    """A Slurm job of this user that waits, runs or ends, and bears our mark."""

    job_id: str
    annex_id: str
    origin: str
    """"" when it does not say whose it is."""
    state: str
    """Slurm's own word."""


@dataclass(frozen=True, slots=True)
class MarkedDirectory:
    """An annex's directory below siteannex's home at the site, token included."""

    annex_id: str
    origin: str


@dataclass(frozen=True, slots=True)
class SiteInventory:
    """What the site showed."""

    site: str
    login: str
    jobs: tuple[MarkedJob, ...] | None
    """None when squeue gave no answer: then nothing is known of jobs."""
    directories: tuple[MarkedDirectory, ...]
    complaint: str = ""
    """What squeue said instead."""


def inventory_script(home: str) -> str:
    """List this user's jobs with their comments, and the annexes' directories with their origins. One round trip."""
    return f"""{FIND_SLURM}echo "{_JOBS}"
jobs=$(squeue -h -a -r -u "$(id -un)" -o '%A|%T|%j|%k' 2>&1) && jobs="$jobs
{_JOBS_END}"
printf '%s\\n' "$jobs"
cd "{home}/annex" 2>/dev/null || exit 0
for d in */; do
  d=${{d%/}}
  [ -d "$d" ] && printf '{_DIRECTORY} %s %s\\n' "$d" "$(head -c 200 "$d/{ORIGIN_FILE}" 2>/dev/null | head -n 1)"
done
true"""


def read_inventory(text: str, site: str, login: str) -> SiteInventory:
    """Read the answer. Never raises on foreign text; what is not surely ours is left out."""
    lines = text.splitlines()
    listed = _between(lines, _JOBS, _JOBS_END)
    words = [line.split(" ", 2) for line in lines if line.startswith(f"{_DIRECTORY} ")]
    directories = tuple(
        MarkedDirectory(name, _origin(rest[0] if rest else "")) for _, name, *rest in words if is_annex_id(name)
    )
    if listed is None:
        complaint = "\n".join(line for line in lines if not line.startswith("@"))
        return SiteInventory(site, login, None, directories, complaint)
    return SiteInventory(site, login, tuple(_jobs(listed)), directories)


def _between(lines: list[str], first: str, last: str) -> list[str] | None:
    try:
        start = lines.index(first) + 1
        return lines[start : lines.index(last, start)]
    except ValueError:
        return None


def _jobs(lines: list[str]) -> Iterator[MarkedJob]:
    for line in lines:
        job_id, _, rest = line.strip().partition("|")
        state, _, named = rest.partition("|")
        name, _, comment = named.partition("|")
        mark = read_comment(comment)
        if job_id.isascii() and job_id.isdigit() and mark is not None and mark[0] == name.strip():
            yield MarkedJob(job_id, mark[0], mark[1], state.strip())


def _origin(text: str) -> str:
    word = text.strip()
    return word if ORIGIN.fullmatch(word) else ""
