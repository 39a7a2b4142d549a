"""What sbatch says when it refuses: the code it means, and what to ask Slurm so that the user knows what would do.

The texts are Slurm's own (src/common/slurm_errno.c, src/sbatch), as 22.05 to 26.05 print them; a site's job_submit
plugin writes its own, which pass through whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from siteannex.errors import AnnexError, Evidence
from siteannex.failures import fail
from siteannex.ports import CommandResult


@dataclass(frozen=True, slots=True)
class Refusal:
    """How Slurm words one kind of refusal, and our code for it."""

    pattern: str
    code: str


UNCERTAIN = "socket timed out|zero bytes were transmitted|sbatch gave no answer"
"""The link between sbatch and slurmctld broke after the request was sent: it may well have been accepted."""

REFUSALS = (
    Refusal(UNCERTAIN, "submit-uncertain"),
    Refusal(r"unable to contact slurm controller|slurm controller not responding", "slurm-unreachable"),
    Refusal(
        r"invalid account|account/partition combination|not a valid account"
        r"|(specify|provide|give|missing|need)[^\n]*\baccount|\baccount (is )?(required|missing)",
        "account-invalid",
    ),
    Refusal(r"invalid partition|partition specified", "partition-invalid"),
    Refusal(r"invalid qos|qos specification", "qos-invalid"),
    Refusal(r"violates accounting/qos policy", "limits-exceeded"),
    Refusal(r"invalid --time|invalid time limit|requested time limit", "walltime-invalid"),
    Refusal(
        r"generic resource \(gres\)|invalid gres|specify --g(res|pus)|--g(res|pus)\S* is (required|missing)",
        "gres-invalid",
    ),
    Refusal(r"node configuration is not available|can ?not be satisfied", "nodes-unavailable"),
    Refusal(
        r"(--mem\b|--mem-per-|memory (request|specification))[^\n]*"
        r"(not (be )?(allowed|supported|permitted|used|given)|forbidden|prohibited|remove|do not|don't)"
        r"|(not (be )?(allowed|supported|permitted)|forbidden|prohibited|remove|do not|don't)[^\n]*--mem\b",
        "memory-request-refused",
    ),
)
"""In order; the first that matches names the code."""


def refusal(result: CommandResult, site: str) -> AnnexError:
    """Turn sbatch's words into the code they mean; unknown words pass through whole."""
    words = "\n".join(text for text in (result.stderr.strip(), result.stdout.strip()) if text)
    code = next((r.code for r in REFUSALS if re.search(r.pattern, words, re.IGNORECASE)), "submit-refused")
    said = _SAID.get(code, "sbatch refused the pilot")
    return fail(
        code,
        site,
        said if words else f"sbatch ended with status {result.status} and said nothing",
        evidence=[Evidence.tail(f"sbatch at {site}, exit status {result.status}", words)],
    )


_SAID = {
    "submit-uncertain": "sbatch did not say whether Slurm took the pilot",
    "slurm-unreachable": "sbatch could not reach Slurm's controller",
}


@dataclass(frozen=True, slots=True)
class Inquiry:
    """What to ask Slurm after a refusal: a command, and the hint its lines allow."""

    command: str
    hint: Callable[[list[str]], str]


_MINE = 'sacctmgr -nP show assoc where user="$(id -un)" format='
_INQUIRIES = {
    "account-invalid": Inquiry(
        f"{_MINE}account",
        lambda names: f"Slurm knows these accounts of yours there: {_listed(names)}. Name one: --account {names[0]}",
    ),
    "partition-invalid": Inquiry(
        "sinfo -h -o %R",
        lambda names: f"Its partitions now: {_listed(names)}. Name one (--partition); the site's YAML is stale.",
    ),
    "qos-invalid": Inquiry(
        f"{_MINE}qos | tr ',' '\\n'",
        lambda names: f"You may use these QOS there: {_listed(names)}. Mend qos: of the partition in the site's YAML.",
    ),
    "walltime-invalid": Inquiry(
        "sinfo -h -o '%R %l'",
        lambda limits: f"Its limits: {_listed(limits)}. Ask for a shorter --lifetime or name another --partition.",
    ),
    "nodes-unavailable": Inquiry(
        "sinfo -h -o '%R: %c CPUs, %m MB, %G'",
        lambda nodes: f"Its nodes have {_listed(nodes, '; ')}. Ask for what fits one, or mend the site's YAML.",
    ),
    "gres-invalid": Inquiry(
        "sinfo -h -o '%R: %G'",
        lambda gres: (
            f"Slurm names the GPUs there {_listed(gres, '; ')}. Mend gpu_request: and type: in the site's YAML."
        ),
    ),
    "limits-exceeded": Inquiry(
        "sacctmgr -nP show qos format=name,maxwall,maxtrespu,maxjobspu,maxsubmitpu",
        lambda limits: (
            "Ask for less, or end what you have there. QOS limits (name|walltime|a user's TRES|jobs|submitted): "
            f"{_listed(limits)}"
        ),
    ),
}
_NAMED = 12
"""Longest list in a hint."""


def inquiry_script(code: str) -> str | None:
    """A bounded command whose lines `advised` reads; None where nothing would help."""
    inquiry = _INQUIRIES.get(code)
    return f"{{ timeout 10 sh -c {_quoted(inquiry.command)} | sort -u; }} 2>/dev/null" if inquiry else None


def advised(error: AnnexError, said: str) -> AnnexError:
    """The failure with a hint that names what Slurm would take; as it was when Slurm named nothing."""
    lines = [line.strip() for line in said.splitlines() if line.strip() and line.isprintable()]
    inquiry = _INQUIRIES.get(error.failure.code)
    if inquiry is None or not lines:
        return error
    seen = Evidence.tail(f"{inquiry.command} at {error.failure.site}", "\n".join(lines))
    evidence = (*error.failure.evidence, seen)
    return AnnexError(replace(error.failure, evidence=evidence, hint=inquiry.hint(lines)))


def _listed(names: list[str], between: str = ", ") -> str:
    more = f"{between}..." if len(names) > _NAMED else ""
    return between.join(names[:_NAMED]) + more


def _quoted(command: str) -> str:
    return "'" + command.replace("'", "'\\''") + "'"
