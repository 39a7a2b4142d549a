"""`siteannex dag prune`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from siteannex.training.prune import Pruned

EXAMPLES = """\b
Examples:
  siteannex dag prune protein/r00
  siteannex dag prune --keep-last 3 protein/r*
  hooks: {post: siteannex dag prune --hook}      in the experiment file: after each epoch
"""


def prune_runs(
    words: Annotated[list[str], typer.Argument(help="Directories of training runs, NAME/RUN_NAME.", metavar="RUN_DIR")],
    keep_last: Annotated[
        int, typer.Option("--keep-last", min=1, help="Checkpoints of so many newest epochs stay.")
    ] = 2,
    best: Annotated[bool, typer.Option("--best/--no-best", help="The best one stays too.")] = True,
    metric: Annotated[str, typer.Option("--metric", help="Best by this metric.")] = "val_loss",
    highest: Annotated[bool, typer.Option("--highest", help="The highest is the best; else the lowest.")] = False,
    hook: Annotated[bool, typer.Option("--hook", help="As hooks.post of an experiment: NODE RUN_DIR STATUS.")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Remove checkpoints that nothing needs any more, and make room for the next. Side-cars stay, for lineage."""
    import json
    import sys
    from dataclasses import asdict

    from siteannex.training.prune import Keep, prune

    keep = Keep(keep_last, best, metric, "max" if highest else "min")
    if hook:
        if len(words) != 3:
            raise typer.BadParameter("--hook takes NODE RUN_DIR STATUS", param_hint="RUN_DIR")
        words = [words[1]] if words[2] == "0" else []
    found: dict[str, Pruned] = {}
    for word in words:
        try:
            found[word] = prune(Path(word), keep)
        except OSError as problem:
            # An epoch that came back is not failed by its clearing up.
            print(f"{word}: {problem.strerror or problem}", file=sys.stderr)
            if not hook:
                raise typer.Exit(1) from problem
    if json_output:
        print(json.dumps({word: asdict(done) for word, done in found.items()}, indent=1))
        return
    for word, done in found.items():
        _show(word, done)


def _show(word: str, done: Pruned) -> None:
    from siteannex.cli.screen import LABEL_WIDTH, printable
    from siteannex.units import format_bytes

    count = len(done.removed)
    told = f"{count} checkpoint{'' if count == 1 else 's'} removed, {format_bytes(done.freed_bytes)} freed"
    print(f"{'pruned':<{LABEL_WIDTH}}{printable(f'{word}: {done.note or told}')}")
    if not done.has_room:
        needed = format_bytes(done.needed_bytes)
        print(f"{'disk':<{LABEL_WIDTH}}no room for the next checkpoint ({needed}), with only the newest left")
