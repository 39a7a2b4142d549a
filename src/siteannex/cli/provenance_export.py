"""`siteannex provenance export`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from siteannex.training.provenance.exports.told import Told

EXAMPLES = """\b
Examples:
  siteannex provenance export protein --format openlineage --out protein.openlineage.ndjson
  siteannex provenance export protein --format ro-crate --out protein.crate.zip --license https://spdx.org/licenses/CC-BY-4.0
"""


class Format(StrEnum):
    """Formats that others read."""

    OPENLINEAGE = "openlineage"
    RO_CRATE = "ro-crate"


LIBRARIES = {
    Format.OPENLINEAGE: ("openlineage", "openlineage-python"),
    Format.RO_CRATE: ("rocrate", "rocrate"),
}
"""What is imported, and what pip calls it."""


def export(
    directory: Annotated[Path, typer.Argument(help="A run's directory, or an experiment's.", metavar="DIR")],
    form: Annotated[Format, typer.Option("--format", help="OpenLineage events, or a Workflow Run RO-Crate.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="A new file; of a crate a new directory or .zip. Events: else printed.")
    ] = None,
    license_: Annotated[str, typer.Option("--license", help="URL of the crate's licence.")] = "",
) -> None:
    """Attempts, checkpoints and lineage in a format that others read; without secrets, checkpoints by their sha256.

    Refused (exit 1) where events and side-cars do not agree; the bytes of checkpoints are verify's to look at.
    """
    import sys

    from siteannex.cli.provenance import tell
    from siteannex.failures import fail
    from siteannex.training.provenance.exports.told import told
    from siteannex.training.provenance.files import name_in, read_run, run_directories
    from siteannex.training.provenance.verify import verify

    _library(form)
    folders = run_directories(directory)
    if not folders:
        raise fail("checkpoint-unknown", "", f"{directory} has no directory that the epoch runner worked in")
    if out is None and form is Format.RO_CRATE:
        raise typer.BadParameter("name the new directory or .zip of the crate", param_hint="--out")
    if out is not None and out.exists():
        raise typer.BadParameter(f"{out} exists already", param_hint="--out")
    files = [read_run(path, name_in(directory, path), measure=False) for path in folders]
    if broken := [verdict for verdict in verify(files) if verdict.breaks]:
        for verdict in broken:
            tell(verdict)
        raise typer.Exit(1)
    runs = [told(each) for each in files]
    try:
        _write(form, out, runs, folders, _dag_of(directory, folders), license_)
    except OSError as problem:
        print(f"{out}: {problem.strerror or problem}", file=sys.stderr)
        raise typer.Exit(1) from problem


def _library(form: Format) -> None:
    """AnnexError(export-not-installed) where the format's library is missing."""
    from importlib.util import find_spec

    from siteannex.failures import fail

    package, name = LIBRARIES[form]
    if find_spec(package) is None:
        raise fail("export-not-installed", "", f"--format {form.value} needs the package {name}, which is not there")


def _dag_of(directory: Path, folders: list[Path]) -> Path | None:
    """NAME.dag beside the experiment's directory NAME."""
    experiment = directory.resolve() if directory not in folders else directory.resolve().parent
    dag = experiment.with_name(f"{experiment.name}.dag")
    return dag if dag.is_file() else None


def _write(
    form: Format, out: Path | None, runs: list[Told], folders: list[Path], dag: Path | None, license_: str
) -> None:
    from siteannex.cli.screen import LABEL_WIDTH, printable

    attempts, cars = sum(len(run.attempts) for run in runs), sum(len(run.cars) for run in runs)
    if form is Format.RO_CRATE:
        from siteannex.training.provenance.exports.crate import write_crate

        assert out is not None
        write_crate(out, runs, folders, dag, license_)
        counted = f"{len(runs)} runs, {attempts} attempts, {cars} checkpoints"
    else:
        from siteannex.training.provenance.exports.openlineage import as_ndjson, run_events

        events = run_events(runs)
        if out is None:
            print(as_ndjson(events), end="")
            return
        partial = out.with_name(f".{out.name}.partial")
        partial.write_text(as_ndjson(events), encoding="utf-8")
        partial.replace(out)
        counted = f"{len(events)} events of {attempts} attempts"
    print(f"{'written':<{LABEL_WIDTH}}{printable(f'{out}: {counted}')}")
