"""`siteannex dag archive DIR --to PATH`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXAMPLES = """\b
Examples:
  siteannex dag archive protein --to /archive/alice
  siteannex dag archive protein --to /archive/alice --checkpoints best-and-last --older-than 7d
"""


def archive(
    folder: Annotated[Path, typer.Argument(help="The results: the directory NAME beside NAME.manifest.jsonl.")],
    to: Annotated[Path, typer.Option("--to", help="Where; the runs go below NAME there.")],
    checkpoints: Annotated[str, typer.Option(help="Which: all, or best-and-last.")] = "all",
    metric: Annotated[str, typer.Option(help="What best means; lower is better unless --highest.")] = "val_loss",
    highest: Annotated[bool, typer.Option("--highest", help="The highest is the best; else the lowest.")] = False,
    older_than: Annotated[str | None, typer.Option(help="Only runs finished so long ago, e.g. 7d.")] = None,
    keep_here: Annotated[bool, typer.Option("--keep-here", help="Copy and compare; remove nothing.")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Copy finished runs elsewhere, compare checksums, and only then remove their checkpoints here.

    Side-cars, events and logs are copied and stay. Interrupted at any point nothing is lost: run it again.
    """
    import json
    from dataclasses import asdict

    from siteannex.cli.experiments import dag_lives
    from siteannex.cli.screen import LABEL_WIDTH, WallClock, printable
    from siteannex.errors import Evidence
    from siteannex.failures import fail
    from siteannex.training.archive import Policy
    from siteannex.training.archive import archive as archive_runs
    from siteannex.training.experiment.submission import Records
    from siteannex.training.prune import Keep
    from siteannex.transport.places import Places
    from siteannex.units import format_bytes, parse_duration_s

    if checkpoints not in ("all", "best-and-last"):
        raise typer.BadParameter("all or best-and-last", param_hint="--checkpoints")
    try:
        age_s = parse_duration_s(older_than) if older_than else 0
    except ValueError as problem:
        raise typer.BadParameter(str(problem), param_hint="--older-than") from problem
    folder = folder.resolve()
    last = Records(Places.from_environment().state, WallClock()).last(
        folder.name, folder.with_name(f"{folder.name}.dag")
    )
    if last is not None and last.cluster is not None and dag_lives(last.cluster):
        what = f"{folder.name}.dag runs as job {last.cluster}.0; its runs are archived after its end"
        raise fail("dag-running", folder.name, what)
    keep = Keep(last=1, metric=metric, mode="max" if highest else "min") if checkpoints != "all" else None
    policy = Policy(keep=keep, older_than_s=age_s, remove=not keep_here)
    done = []
    try:
        for each in archive_runs(folder, to, policy):
            done.append(each)
            if json_output:
                continue
            told = f"{each.run}: " + (
                f"not archived: {each.skipped}"
                if each.skipped
                else f"{each.copied} files copied ({format_bytes(each.copied_bytes)}) and compared; "
                f"{len(each.removed)} checkpoints removed here ({format_bytes(each.freed_bytes)})"
            )
            print(f"{'archive':<{LABEL_WIDTH}}{printable(told)}")
            for doubt in each.doubts:
                print(f"{'left':<{LABEL_WIDTH}}{printable(doubt)}")
    except OSError as problem:
        seen = [Evidence(str(problem.filename or to), f"{problem.strerror} (errno {problem.errno})")]
        raise fail("state-unwritable", folder.name, f"cannot archive to {to}", evidence=seen) from problem
    if json_output:
        print(json.dumps({"to": str(to), "runs": [asdict(each) for each in done]}, indent=1))
