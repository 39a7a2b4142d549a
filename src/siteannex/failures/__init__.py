"""The catalogue of failure codes: each code's stage, what it means, what to do, and whether trying again can help.

`docs/failures.md` is written from this table by `scripts/failures_doc.py`; a test keeps both and every use in step.
Codes are stable: scripts may match on them.
"""

from __future__ import annotations

from collections.abc import Sequence

from siteannex.errors import AnnexError, Evidence, Stage, StageFailure
from siteannex.failures import connecting, planning, running, submitting
from siteannex.failures.kind import FailureKind

FAILURES: dict[str, FailureKind] = {**planning.KINDS, **connecting.KINDS, **submitting.KINDS, **running.KINDS}


def failure(
    code: str,
    site: str,
    summary: str,
    *,
    evidence: Sequence[Evidence] = (),
    hint: str | None = None,
    stage: Stage | None = None,
) -> StageFailure:
    """Build a StageFailure from the catalogue; `hint` replaces the general one when more is known."""
    kind = FAILURES[code]
    return StageFailure(
        stage=stage or kind.stage,
        code=code,
        site=site,
        summary=summary,
        evidence=tuple(evidence),
        hint=kind.hint if hint is None else hint,
        retryable=kind.retryable,
    )


def fail(
    code: str,
    site: str,
    summary: str,
    *,
    evidence: Sequence[Evidence] = (),
    hint: str | None = None,
    stage: Stage | None = None,
) -> AnnexError:
    """The exception for `raise fail("collector-unreachable", site, ...)`."""
    return AnnexError(failure(code, site, summary, evidence=evidence, hint=hint, stage=stage))
