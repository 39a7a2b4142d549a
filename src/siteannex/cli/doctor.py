"""`siteannex doctor`."""

from __future__ import annotations

from typing import Annotated

import typer

EXAMPLES = """\b
Examples:
  siteannex doctor
  siteannex doctor --json
"""


def doctor(
    json_output: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Say whether this access point is fit for annexes.

    Each line: ok, a note, or a problem and what to do.
    """
    import json
    from dataclasses import asdict

    from siteannex.pool.condor import CondorPool
    from siteannex.pool.doctor import run_doctor

    checks = run_doctor(CondorPool())
    if json_output:
        print(json.dumps([asdict(check) for check in checks], indent=1))
    else:
        for check in checks:
            print(f"{check.verdict:<8} {check.name}: {check.text}")
            if check.todo:
                print(f"{'':<8}   do: {check.todo}")
    if any(check.verdict == "problem" for check in checks):
        raise typer.Exit(1)
