"""A failure on the screen: what, seen, so, do; and its exit code."""

from __future__ import annotations

import json
import sys

from siteannex.errors import Stage, StageFailure

EXIT_CODES = {
    Stage.PLAN: 10,
    Stage.PACK: 11,
    Stage.CONNECT: 12,
    Stage.SHIP: 13,
    Stage.SUBMIT: 14,
    Stage.BATCH_JOB: 15,
    Stage.EP_START: 16,
    Stage.AP_CONNECT: 17,
    Stage.EP_CONFIG: 18,
    Stage.READY: 19,
    Stage.DRAIN: 20,
    Stage.RELEASED: 21,
}
"""One per stage; 0 is success, 2 wrong usage, 130 interrupted."""


def exit_code(stage: Stage) -> int:
    """The exit code of a failure at a stage."""
    return EXIT_CODES[stage]


def render(failure: StageFailure) -> str:
    """Plain lines, readable without colour: stage and code, what, what was seen with its source, what to do."""
    from siteannex.failures import FAILURES

    lines = [f"{failure.stage.label:<9}FAILED: {failure.code}", f"  what   {failure.summary}"]
    for item in failure.evidence:
        if item.text in failure.summary:
            continue  # it is quoted above already
        seen = item.text.splitlines()
        if len(seen) > 1:
            lines += [f"  seen   {item.source}:", *(f"         {line}" for line in seen)]
        else:
            lines.append(f"  seen   {item.source}: {item.text}")
    meaning = FAILURES[failure.code].meaning if failure.code in FAILURES else ""
    if meaning and meaning.rstrip(".") not in failure.summary:
        lines.append(f"  so     {meaning}")
    if failure.hint:
        lines.append(f"  do     {failure.hint}")
    return "\n".join(lines)


def show(failure: StageFailure, *, as_json: bool) -> None:
    """Print a failure: JSON on standard output, or words on standard error."""
    if as_json:
        from siteannex.annex.events import failure_to_data

        print(json.dumps({"failure": failure_to_data(failure)}, indent=1))
    else:
        from siteannex.cli.screen import printable

        if sys.stdout.isatty():
            print("\r\x1b[K", end="", flush=True)  # whatever line was moving
        print(printable(render(failure)), file=sys.stderr)
