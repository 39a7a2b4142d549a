"""`siteannex provenance ...`: what checkpoints say of themselves, where they come from, whether all of it is true."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from siteannex.cli.provenance_export import EXAMPLES as EXPORT_EXAMPLES
from siteannex.cli.provenance_export import export

if TYPE_CHECKING:
    from siteannex.training.provenance.events import Break
    from siteannex.training.provenance.files import RunFiles
    from siteannex.training.provenance.lineage import Link
    from siteannex.training.provenance.verify import Verdict
    from siteannex.training.sidecar import SideCar

app = typer.Typer(help="Checkpoints: what made them, and is it true.", no_args_is_help=True, rich_markup_mode=None)

SHOW_EXAMPLES = """\b
Examples:
  siteannex provenance show protein/r00/last.ckpt
  siteannex provenance show protein/r00/checkpoints/epoch003.ckpt --json
"""
LINEAGE_EXAMPLES = """\b
Examples:
  siteannex provenance lineage protein/r00/last.ckpt
  siteannex provenance lineage protein/r00/checkpoints/epoch003.ckpt --metric val_accuracy
"""
VERIFY_EXAMPLES = """\b
Examples:
  siteannex provenance verify protein
  siteannex provenance verify protein/r00 --json
"""
MERGE_EXAMPLES = """\b
Examples:
  siteannex provenance merge protein
  siteannex provenance merge protein/r00 --json
"""
app.command("export", epilog=EXPORT_EXAMPLES)(export)
Directory = Annotated[Path, typer.Argument(help="A run's directory, or an experiment's.", metavar="DIR")]
Checkpoint = Annotated[
    Path, typer.Argument(help="A checkpoint (pruned ones too), its side-car, or last.ckpt.", metavar="CHECKPOINT")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print as JSON.")]


@app.command("show", epilog=SHOW_EXAMPLES)
def show(checkpoint: Checkpoint, json_output: AsJson = False) -> None:
    """What a checkpoint's side-car says: run, epoch, parent, machine, software, metrics."""
    import json

    from siteannex.training.provenance.lineage import find

    car, _, present = find(checkpoint)
    if json_output:
        print(json.dumps({**car.raw, "present": car.said.checkpoint.file in present}, indent=1))
        return
    for label, text in _words(car.said, present=car.said.checkpoint.file in present):
        _line(label, text)


def _words(said: SideCar, *, present: bool) -> list[tuple[str, str]]:
    from siteannex.training.provenance.lineage import gpus_of
    from siteannex.units import format_bytes

    file, run, where, software, training = said.checkpoint, said.run, said.where, said.software, said.training
    job = said.attempt.job
    told = "" if job.cluster is None else f", job {job.cluster}.{job.proc or 0} of {job.schedd or 'an unnamed schedd'}"
    state = "end of" if file.complete else f"saved within (step {file.step})"
    gpus = where.gpus or where.advertised_gpus
    parent = f"{said.parent.file} ({said.parent.kind}), sha256 {said.parent.sha256}"
    versions = [f"Python {software.python}", f"Linux {software.kernel} {software.arch}", f"runner {software.runner}"]
    parts = (("code", software.code), ("container", software.container), ("dataset", software.dataset))
    times = (("transfer", training.transfer_in_s), ("unpack", training.unpack_s), ("start-up", training.start_up_s))
    return [
        ("file", f"{file.file}, {format_bytes(file.bytes)}{'' if present else ', not here any more'}"),
        ("sha256", file.sha256),
        ("epoch", f"{state} epoch {said.epoch} of {run.stage}"),
        ("run", f"{run.name} (index {run.index}, id {run.id}) of experiment {said.experiment}, seed {run.seed}"),
        ("set to", _pairs(run.parameters)),
        ("from", "nothing: the beginning" if said.parent.kind == "none" else parent),
        ("attempt", f"node {said.attempt.node}, retry {said.attempt.retry}, start {said.attempt.start}{told}"),
        ("site", f"{where.site or 'unknown'} (target {where.targeted_site or 'none'}), annex {where.annex or 'none'}"),
        ("host", f"{where.host}{'' if where.slot is None else f', slot {where.slot}'}"),
        ("gpu", "; ".join(f"{name} {gpu.uuid}, driver {gpu.driver or 'unknown'}"
                          for name, gpu in zip(gpus_of(said), gpus, strict=True)) or "none"),
        ("software", ", ".join([*versions, *(f"{name} {value}" for name, value in parts if value)])),
        ("command", _pairs(software.command)),
        ("metrics", _pairs(training.metrics)),
        ("time", ", ".join([f"{training.seconds:g} s of training until {said.written:%Y-%m-%d %H:%M:%S} UTC",
                            *(f"{name} {value:g} s" for name, value in times if value is not None)])),
    ]  # fmt: skip


def _pairs(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items()) or "nothing told"


@app.command("lineage", epilog=LINEAGE_EXAMPLES)
def show_lineage(
    checkpoint: Checkpoint,
    metric: Annotated[
        str | None, typer.Option("--metric", help="Show this one; else val_loss or another loss.")
    ] = None,
    json_output: AsJson = False,
) -> None:
    """The checkpoints that led to one, newest first: where, when, in which attempt. Exit 1 when a parent is unknown."""
    import json
    from dataclasses import asdict

    from siteannex.training.provenance.lineage import find, lineage

    car, cars, present = find(checkpoint)
    chain = lineage(car, cars, present, metric)
    if json_output:
        print(json.dumps(asdict(chain), indent=1, default=str))
    else:
        _table(chain.links)
        _line("lost" if chain.lost else "begin", chain.lost or chain.origin)
    if chain.lost:
        raise typer.Exit(1)


def _table(links: tuple[Link, ...]) -> None:
    from siteannex.cli.screen import printable

    rows = [("CHECKPOINT", "EPOCH", "SITE", "GPU", "HOST", "ATTEMPT", "METRIC", "TIME", "SHA256", "FILE")]
    for link in links:
        gpus = f"{len(link.gpus)} x {link.gpus[0]}" if len(link.gpus) > 1 else "".join(link.gpus)
        value = f"{link.value:.6g}" if isinstance(link.value, float) else str(link.value)
        rows.append((
            link.file,
            ("" if link.stage == "train" else f"{link.stage} ") + f"{link.epoch}{'' if link.complete else ' (part)'}",
            link.site or (f"? (target {link.targeted_site})" if link.targeted_site else "-"),
            gpus or "-",
            link.host,
            f"{link.node} retry {link.retry} start {link.start}" + (f" job {link.job}" if link.job else ""),
            f"{link.metric} {value}" if link.metric else "-",
            f"{link.seconds:.0f} s",
            link.sha256[:12],
            "here" if link.present else "gone",
        ))  # fmt: skip
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print(printable("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()))


@app.command("verify", epilog=VERIFY_EXAMPLES)
def verify_directory(
    directory: Directory,
    head: Annotated[str, typer.Option("--head", help="The hash that merge printed for this one run.")] = "",
    json_output: AsJson = False,
) -> None:
    """Recompute hashes, follow parents, compare side-cars with events. Exit 1 at a break; the first stands first."""
    import json
    from dataclasses import asdict

    from siteannex.training.provenance.verify import verify

    found = _read(directory)
    if head and len(found) > 1:
        raise typer.BadParameter("a hash is of one run: name its directory", param_hint="--head")
    verdicts = verify(list(found.values()), head)
    lines, broken = _witnessed(directory)
    sound = not broken and not any(each.breaks for each in verdicts)
    if json_output:
        data = {
            "sound": sound,
            "runs": [asdict(each) for each in verdicts],
            "access_point": {"lines": lines, "broken": asdict(broken) if broken else None},
        }
        print(json.dumps(data, indent=1))
    else:
        for verdict in verdicts:
            tell(verdict)
        if lines or broken:
            _line("ap", f"{'1 break' if broken else 'sound'} ({lines} events of DAG, jobs and transfers)")
        if broken:
            _line("first", f"{broken.kind} {broken.where}: {broken.text}")
    if not sound:
        raise typer.Exit(1)


def _witnessed(directory: Path) -> tuple[int, Break | None]:
    """How many lines the access point's own file has, and its first break."""
    from siteannex.training.provenance.ap_file import check

    path = _journal(_experiment_of(directory))
    return check(path) if path.is_file() else (0, None)


@app.command("merge", epilog=MERGE_EXAMPLES)
def merge(directory: Directory, json_output: AsJson = False) -> None:
    """Verify, then add what is new to each run's provenance.ndjson, a chain of hashes. A break: exit 1, unwritten."""
    import json
    from dataclasses import asdict

    from siteannex.cli.ap_events import collect_at
    from siteannex.training.provenance.files import write_merged
    from siteannex.training.provenance.merge import to_merge
    from siteannex.training.provenance.merged import Merged, extended, merged_text
    from siteannex.training.provenance.verify import verify

    found = _read(directory)
    verdicts = verify(list(found.values()))
    if broken := [verdict for verdict in verdicts if verdict.breaks]:
        if json_output:
            print(json.dumps({"sound": False, "runs": [asdict(each) for each in broken]}, indent=1))
        else:
            for verdict in broken:
                tell(verdict)
        raise typer.Exit(1)
    witnessed = collect_at(_experiment_of(directory))
    told = []
    for (path, files), verdict in zip(found.items(), verdicts, strict=True):
        new = to_merge(files)
        merged = extended(files.merged or Merged((), None), new)
        if new:
            write_merged(path, merged_text(merged))
        told.append({"run": verdict.run, "added": len(new), "entries": len(merged.entries), "head": merged.head})
    if json_output:
        ap = None if witnessed is None else asdict(witnessed)
        print(json.dumps({"sound": True, "runs": told, "access_point": ap}, indent=1))
        return
    for each in told:
        _line("merged", f"{each['run']}: {each['added']} new, {each['entries']} entries, head {each['head']}")
    if witnessed is not None:
        _line("ap", f"{witnessed.new} new, {witnessed.lines} events of DAG, jobs and transfers, head {witnessed.head}")


def _experiment_of(directory: Path) -> Path:
    """The experiment's directory: of a run, the one it is in."""
    return directory.resolve().parent if (directory / "checkpoints").is_dir() else directory


def _journal(directory: Path) -> Path:
    from siteannex.training.provenance.ap_file import NAME

    return directory / NAME


def _read(directory: Path) -> dict[Path, RunFiles]:
    from siteannex.failures import fail
    from siteannex.training.provenance.files import name_in, read_run, run_directories

    found = run_directories(directory)
    if not found:
        raise fail("checkpoint-unknown", "", f"{directory} has no directory that the epoch runner worked in")
    return {path: read_run(path, name_in(directory, path)) for path in found}


def tell(verdict: Verdict) -> None:
    """A verdict in lines: counts, breaks in order, doubts."""
    counts = (
        f"epochs {verdict.epochs}, attempts {verdict.attempts}, side-cars {verdict.sidecars}, "
        f"checkpoints compared byte for byte {verdict.compared}, pruned {verdict.pruned}, "
        f"merged {verdict.merged}"
    )
    state = f"{len(verdict.breaks)} breaks" if len(verdict.breaks) > 1 else "1 break" if verdict.breaks else "sound"
    _line("run", f"{verdict.run}: {state} ({counts})")
    for number, each in enumerate(verdict.breaks):
        _line("then" if number else "first", f"{each.kind} {verdict.run}/{each.where}: {each.text}")
    for each in verdict.doubts:
        _line("doubt", f"{each.kind} {verdict.run}/{each.where}: {each.text}")


def _line(label: str, text: str) -> None:
    from siteannex.cli.screen import LABEL_WIDTH, printable

    print(f"{label:<{LABEL_WIDTH}}{printable(text)}")
