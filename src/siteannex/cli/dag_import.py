"""`siteannex dag import`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXAMPLES = """\b
Examples:
  siteannex dag import Experiment.yaml resources.yaml -o experiment.yaml
  siteannex dag import global_pretraining.dag -o experiment.yaml
"""


def import_files(
    files: Annotated[list[Path], typer.Argument(help="MLDAG's Experiment.yaml [resources.yaml], or a DAG.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The experiment file to write; default: the screen.")
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Make an experiment file of MLDAG's files, or of a DAG of chains of epochs.

    What those files say that never took effect is told, with its line. Only a DAG knows the run ids, seeds and sites
    that were drawn when it was made.
    """
    import json
    import sys
    from dataclasses import asdict

    from siteannex.training.dag.dagfile import load_text
    from siteannex.training.importing.dagimport import import_dag
    from siteannex.training.importing.mldag import import_mldag

    if len(files) > 2 or (len(files) == 2 and ".dag" in files[0].suffixes):
        raise typer.BadParameter("give one DAG, or Experiment.yaml and resources.yaml", param_hint="FILES")
    if output is not None and output.exists():
        raise typer.BadParameter(f"{output} exists; move it away or choose another name", param_hint="-o")
    for file in files:
        if not file.is_file():
            raise typer.BadParameter(f"there is no file {file}", param_hint="FILES")
    if ".dag" in files[0].suffixes:
        imported = import_dag(load_text(files[0]), str(files[0]))
    else:
        imported = import_mldag(files[0], files[1] if len(files) == 2 else None)
    mend: list[str] = []
    if output is not None:
        output.write_text(imported.text, encoding="utf-8")
        mend = _to_mend(output)
    if json_output:
        print(json.dumps({**asdict(imported), "to_mend": mend}, indent=1))
        return
    for finding in imported.findings:
        print(f"{finding.place}: {finding.text}", file=sys.stderr)
    for line in mend:
        print(f"to mend: {line}", file=sys.stderr)
    if output is None:
        print(imported.text, end="")
    else:
        print(f"{output}: look it through, then siteannex dag plan {output}")


def _to_mend(file: Path) -> list[str]:
    """What an imported experiment file still lacks."""
    from siteannex.cli.experiments import read_experiment
    from siteannex.errors import AnnexError

    try:
        read_experiment(file)
    except AnnexError as problem:
        return problem.failure.evidence[0].text.splitlines()
    return []
