"""`siteannex dag ...`: an experiment file's plan, its DAG, its submission."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from siteannex.cli import dag_archive, dag_import, dag_prune, dag_status

if TYPE_CHECKING:
    from siteannex.training.experiment.matrix import Matrix
    from siteannex.training.experiment.reading import Loaded
    from siteannex.training.rendering.writing import Written

app = typer.Typer(
    help="Experiments: plan, render, submit, import, status, archive.", no_args_is_help=True, rich_markup_mode=None
)

PLAN_EXAMPLES = """\b
Examples:
  siteannex dag plan experiment.yaml
  siteannex dag plan experiment.yaml --json
"""
RENDER_EXAMPLES = """\b
Examples:
  siteannex dag render experiment.yaml
  siteannex dag render sweep.dag -o plain.dag
"""
SUBMIT_EXAMPLES = """\b
Examples:
  siteannex dag submit experiment.yaml
  siteannex dag submit experiment.yaml --json
"""
File = Annotated[Path, typer.Argument(help="An experiment file (docs/experiment.md).", metavar="FILE")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


app.command("import", epilog=dag_import.EXAMPLES)(dag_import.import_files)
app.command("status", epilog=dag_status.EXAMPLES)(dag_status.status)
app.command("prune", epilog=dag_prune.EXAMPLES)(dag_prune.prune_runs)
app.command("archive", epilog=dag_archive.EXAMPLES)(dag_archive.archive)


@app.command("plan", epilog=PLAN_EXAMPLES)
def plan(file: File, json_output: AsJson = False) -> None:
    """What an experiment comes to: runs, epochs, jobs by site, GPU-hours at most, annexes needed, what is missing."""
    import json

    from siteannex.cli.experiments import answers, read_experiment
    from siteannex.training.experiment.matrix import as_data, matrix
    from siteannex.training.rendering.descriptions import trackers as urls_of
    from siteannex.training.rendering.writing import loose_secrets, missing_inputs

    loaded = read_experiment(file)
    found = matrix(loaded.experiment, loaded.targets)
    missing = missing_inputs(loaded.experiment, file.parent)
    loose = loose_secrets(loaded.experiment, file.parent)
    up = _annexes_up(list(found.annexes))
    charges = _charges(loaded, found)
    trackers = {url: answers(url) for url in urls_of(loaded.experiment)}
    staged = _staged(loaded)
    if json_output:
        seen = {"annexes_up": up, "trackers": trackers, "staged": staged, "missing": missing, "readable_secrets": loose}
        print(json.dumps({**as_data(found), "charges": charges, **seen}, indent=1))
        return
    _show_plan(loaded, found, charges, up)
    for url, there in trackers.items():
        _line("tracking", f"{url}: {'answers here; jobs must reach it too' if there else 'does not answer from here'}")
    for path, sites in staged.items():
        _line("staged", f"{path}: {_staged_words(path, sites)}")
    for text in missing:
        _line("missing", text)
    for path in loose:
        _line("secret", f"{path} can be read by others: chmod 600 {path}")


def _charges(loaded: Loaded, found: Matrix) -> dict[str, str]:
    """Site -> what its jobs cost at most, in its own unit: `120 SU`; only where walltime and rate are known."""
    from siteannex.cli.experiments import charge_an_hour

    charges = {}
    for share in found.shares:
        place = loaded.experiment.sites.get(share.site)
        if place is None or share.annex is None or share.job_hours_ceiling is None:
            continue
        rate = charge_an_hour(place.site or share.site, share.gpus, place.cpus, place.memory)
        if rate is not None:
            charges[share.site] = f"{round(rate[0] * share.job_hours_ceiling, 2):g} {rate[1]}"
    return charges


def _show_plan(loaded: Loaded, found: Matrix, charges: dict[str, str], up: list[str] | None) -> None:
    from siteannex.cli.tables import print_table

    experiment = loaded.experiment
    swept = " x ".join(f"{sweep.size()} {name}" for name, sweep in experiment.swept().items()) or "no sweep"
    how = f" ({swept}{', side by side' if experiment.mode == 'zip' else ''})" if experiment.swept() else ""
    count = f"{found.points} point{'s' if found.points != 1 else ''}{how} x {experiment.runs_per_point} runs each = "
    _line("plan", f"{found.name}: {'' if experiment.runs else count}{found.runs} training runs")
    _line(
        "",
        f"{found.epochs_per_run} epochs a run; {found.nodes} DAG nodes, each tried {_times(1 + found.retries)}",
    )
    for sweep in experiment.swept().values():
        if (grid := sweep.grid()) is not None and grid.note:
            _line("note", grid.note)
    print()
    rows = [
        (
            share.site,
            share.annex or "-",
            str(share.runs),
            str(share.epochs),
            str(share.jobs),
            str(share.gpus),
            str(share.cap or "-"),
            "-" if share.gpu_hours_ceiling is None else f"{share.gpu_hours_ceiling:g}",
            charges.get(share.site, "-"),
        )
        for share in found.shares
    ]
    print_table(
        ("SITE", "ANNEX", "RUNS", "EPOCHS", "JOBS", "GPUS/JOB", "AT ONCE", "GPU-H AT MOST", "CHARGE AT MOST"), rows
    )
    print()
    ceiling = found.gpu_hours_ceiling
    if ceiling is None:
        _line("ceiling", "not known: write walltime: (the longest one epoch job may run) under train: and the others")
    else:
        _line("ceiling", f"{ceiling:g} GPU-h when every job takes its whole walltime, once; each retry may add its own")
    standing = _standing(list(found.annexes))
    for annex in found.annexes:
        if up is None:
            _line("annex", f"{annex}: needed (whether it is up is not known: this AP's HTCondor does not answer)")
        elif annex in up:
            _line("annex", f"{annex}: up")
        else:
            _line("annex", f"{annex}: {standing.get(annex, 'not up; jobs for it wait')}")
    if up is not None and not found.annexes.keys() <= {*up, *standing}:
        _line("next", f"siteannex up --for {shlex.quote(str(loaded.path))}   brings up what is not, after one question")


def _staged(loaded: Loaded) -> dict[str, dict[str, str | None]]:
    """File -> site of the experiment -> its copy's path there, None where jobs bring the file along."""
    from siteannex.training.experiment.staged import staged_names

    sites = {key: target.staged for key, target in loaded.targets.items()}
    return {
        path: {key: copies[path].path if path in copies else None for key, copies in sites.items()}
        for path in staged_names(loaded.experiment)
    }


def _staged_words(path: str, sites: dict[str, str | None]) -> str:
    there = [key for key, at in sites.items() if at is not None]
    moved = [key for key, at in sites.items() if at is None]
    parts = [f"read at {', '.join(there)}"] if there else []
    parts += [f"moved with each job to {', '.join(moved)} (siteannex stage SITE {path})"] if moved else []
    return "; ".join(parts)


def _times(count: int) -> str:
    return "once" if count == 1 else f"up to {count} times"


def _annexes_up(names: list[str]) -> list[str] | None:
    """Those of these annexes that have a slot now; None when the AP does not answer."""
    from siteannex.cli.experiments import annexes_up
    from siteannex.errors import AnnexError

    try:
        return annexes_up(names)
    except AnnexError:
        return None


def _standing(names: list[str]) -> dict[str, str]:
    """How annexes stand that are coming, or failed; empty when that cannot be told."""
    from siteannex.cli.feeding import annexes_standing
    from siteannex.errors import AnnexError

    try:
        return annexes_standing(names)
    except AnnexError:
        return {}


@app.command("render", epilog=RENDER_EXAMPLES)
def render(
    file: Annotated[Path, typer.Argument(help="An experiment file, or a .dag with GEN SUBDAG.", metavar="FILE")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The DAG file; default: NAME.dag beside FILE.")
    ] = None,
    max_nodes: Annotated[
        int, typer.Option(help="Most nodes that GEN SUBDAG may make; an experiment file says max_nodes itself.")
    ] = 100_000,
    json_output: AsJson = False,
) -> None:
    """Write the DAG and what it needs beside it, as condor_submit_dag takes it. Nothing is submitted."""
    import json

    if file.suffix == ".dag":
        _render_plain(file, output, max_nodes, json_output=json_output)
        return
    written = _write(file, output)
    if json_output:
        print(json.dumps(_written_data(written), indent=1))
        return
    _line("dag", f"{written.dag}: {written.nodes} nodes, sha256 {written.sha256[:16]}")
    _line("", f"{written.manifest}: what each node trains")
    _show_code(written)
    _line("next", f"siteannex dag submit {file}")


def _render_plain(file: Path, output: Path | None, max_nodes: int, *, json_output: bool) -> None:
    import json

    from siteannex.training.dag.plaindag import plain_dag
    from siteannex.training.rendering.writing import write_compiled

    target = output or file.with_name(f"{file.stem}-plain.dag")
    if target.resolve() == file.resolve():
        raise typer.BadParameter("that is the file itself", param_hint="-o")
    compiled, graph = plain_dag(file, ceiling=max_nodes)
    written = write_compiled(compiled, len(graph.nodes), target)
    doubts = [f"{target}:{each.line}:{each.column}: {each.message}" for each in graph.problems]
    if json_output:
        print(json.dumps({**_written_data(written), "notes": list(compiled.notes), "doubts": doubts}, indent=1))
        return
    _line("dag", f"{written.dag}: {written.nodes} nodes, sha256 {written.sha256[:16]}")
    for note in compiled.notes:
        _line("note", note)
    for doubt in doubts:
        _line("doubt", doubt)
    _line("next", f"condor_submit_dag {written.dag}")


def _write(file: Path, output: Path | None) -> Written:
    from siteannex.cli.ap_events import note_generated
    from siteannex.cli.experiments import read_experiment, requests_folder
    from siteannex.training.rendering.shipping import epoch_runner
    from siteannex.training.rendering.writing import default_dag, write_dag

    loaded = read_experiment(file)
    written = write_dag(loaded, output or default_dag(loaded), epoch_runner, requests_folder())
    note_generated(loaded, written)
    return written


def _written_data(written: Written) -> dict[str, Any]:
    return {
        "dag": str(written.dag),
        "manifest": str(written.manifest),
        "nodes": written.nodes,
        "sha256": written.sha256,
        "code": written.origins.code or None,
        "dataset": written.origins.dataset or None,
    }


def _show_code(written: Written) -> None:
    from siteannex.training.experiment.origins import MODIFIED

    code = written.origins.code
    if not code:
        _line("code", "no git commit here, and no code: in the file: side-cars will not say which code it was")
    elif code.endswith(MODIFIED):
        _line("code", f"{code}: what is not committed cannot be found again from a side-car")


@app.command("submit", epilog=SUBMIT_EXAMPLES)
def submit(file: File, json_output: AsJson = False) -> None:
    """Write the DAG and hand it to DAGMan. After a failure, run it again: finished nodes are not repeated."""
    import json
    from dataclasses import asdict

    from siteannex.cli.ap_events import note_submitted
    from siteannex.cli.experiments import dag_lives, read_experiment
    from siteannex.cli.screen import WallClock
    from siteannex.errors import Evidence
    from siteannex.failures import fail
    from siteannex.training.experiment.matrix import matrix
    from siteannex.training.experiment.submission import Records, Submission, run_program
    from siteannex.training.rendering.writing import missing_inputs
    from siteannex.transport.places import Places

    loaded = read_experiment(file)
    experiment = loaded.experiment
    if missing := missing_inputs(experiment, file.parent):
        seen = [Evidence("looked for beside the experiment file", "\n".join(missing))]
        raise fail("inputs-missing", experiment.name, f"{len(missing)} of its input files are not there", evidence=seen)
    written = _write(file, None)
    needs = matrix(experiment, loaded.targets).annexes
    wanted = Submission(
        experiment=experiment.name,
        dag=str(written.dag.resolve()),
        folder=str(file.parent.resolve()),
        sha256=written.sha256,
        nodes=written.nodes,
        annexes={name: asdict(need) for name, need in needs.items()},
    )
    records = Records(Places.from_environment().state, WallClock())
    done = records.submit(wanted, run_program, dag_lives)
    note_submitted(loaded.path.parent / experiment.name, done)
    if json_output:
        print(json.dumps({**_written_data(written), "cluster": done.cluster, "annexes": done.annexes}, indent=1))
        return
    _line("dag", f"{written.dag.name}: {written.nodes} nodes")
    _show_code(written)
    _line(
        "submit", f"DAGMan is job {done.cluster}.0; condor_q -nobatch shows its jobs, condor_rm {done.cluster} ends it"
    )
    up = _annexes_up(list(done.annexes))
    standing = _standing(list(done.annexes))
    missing = [annex for annex in needs if up is not None and annex not in up and annex not in standing]
    if missing:
        _line("annex", f"not up, jobs wait for {', '.join(missing)}:  siteannex up --pending")


def _line(label: str, text: str) -> None:
    from siteannex.cli.screen import LABEL_WIDTH, printable

    print(f"{label:<{LABEL_WIDTH}}{printable(text)}")
