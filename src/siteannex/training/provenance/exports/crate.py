"""Training runs as a Workflow Run RO-Crate (https://w3id.org/ro/wfrun/workflow/0.5), by the library `rocrate`.

The DAG is the workflow; each training run and each attempt is an action; side-cars and events travel as files,
checkpoints by their sha256 only: they are large, and some were pruned. Needs the extra `export`.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rocrate.model.computerlanguage import ComputerLanguage
from rocrate.model.contextentity import ContextEntity
from rocrate.model.softwareapplication import SoftwareApplication
from rocrate.rocrate import ROCrate

from siteannex.training.epoch import VERSION
from siteannex.training.provenance.exports.scrub import scrubbed, scrubbed_text
from siteannex.training.provenance.exports.told import Attempt, Told

PROFILES = {
    "https://w3id.org/ro/wfrun/process/0.5": "Process Run Crate",
    "https://w3id.org/ro/wfrun/workflow/0.5": "Workflow Run Crate",
    "https://w3id.org/workflowhub/workflow-ro-crate/1.0": "Workflow RO-Crate",
}
TERMS = {"sha256": "https://w3id.org/ro/terms/workflow-run#sha256"}
_STATUS = {"COMPLETE": "CompletedActionStatus", "FAIL": "FailedActionStatus", "ABORT": "FailedActionStatus"}
Entity = Any
"""The library is not typed."""


def write_crate(out: Path, runs: Sequence[Told], folders: Sequence[Path], dag: Path | None, license_: str) -> None:
    """Write the crate as the new directory `out`, or as one file where its name ends in .zip. OSError.

    `folders` are the runs' directories; `dag` the DAG's file, if it is there. All of it appears at once.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".crate-", dir=out.parent) as name:
        stage, made = Path(name) / "files", Path(name) / "crate"
        stage.mkdir()
        crate = _crate(stage, runs, folders, dag, license_)
        if out.suffix == ".zip":
            made = made.with_suffix(".zip")
            crate.write_zip(made)
        else:
            crate.write(made)
        made.rename(out)


def _crate(stage: Path, runs: Sequence[Told], folders: Sequence[Path], dag: Path | None, license_: str) -> ROCrate:
    crate = ROCrate(version="1.1")
    experiment = runs[0].experiment
    crate.name = f"Training runs of {experiment}"
    crate.description = f"Provenance of {len(runs)} training runs: attempts, checkpoints and where they come from."
    crate.license = license_ or "No licence is stated"
    crate.metadata.extra_terms.update(TERMS)
    workflow = _workflow(crate, stage, runs, dag)
    for address, name in PROFILES.items():
        properties = {"@type": "CreativeWork", "name": name, "version": address.rpartition("/")[2]}
        crate.root_dataset.append_to("conformsTo", crate.add(ContextEntity(crate, address, properties=properties)))
    properties = {"name": "siteannex-epoch", "softwareVersion": VERSION, "url": "urn:siteannex:epoch-runner"}
    runner = crate.add(SoftwareApplication(crate, "#siteannex-epoch", properties=properties))
    for run, folder in zip(runs, folders, strict=True):
        _run(crate, stage, workflow, runner, run, folder)
    return crate


def _workflow(crate: ROCrate, out: Path, runs: Sequence[Told], dag: Path | None) -> Entity:
    """The DAG as it is, without secrets; where it is gone, the nodes that left events."""
    nodes = sorted({attempt.node for run in runs for attempt in run.attempts})
    seen = "# The DAG's file was not there; nodes that left events:\n" + "".join(f"# {node}\n" for node in nodes)
    text = scrubbed_text(dag.read_text(encoding="utf-8", errors="replace")) if dag else seen
    name = dag.name if dag else f"{runs[0].experiment}.dag"
    (out / name).write_text(text, encoding="utf-8")
    language = crate.add(
        ComputerLanguage(
            crate, "#dagman", properties={"name": "HTCondor DAGMan", "url": {"@id": "https://htcondor.org/"}}
        )
    )
    workflow = crate.add_workflow(
        out / name, name, main=True, lang=language, properties={"name": name, "encodingFormat": "text/plain"}
    )
    parameters = {key for run in runs for key in ("seed", *run.facts["run"].get("parameters", {}))}
    for key in sorted(parameters):
        workflow.append_to("input", crate.add_formal_parameter(key, "Text", identifier=f"#parameter-{key}"))
    return workflow


def _run(crate: ROCrate, out: Path, workflow: Entity, runner: Entity, run: Told, folder: Path) -> None:
    values = [_value(crate, run, key, value) for key, value in _parameters(run).items()]
    known: dict[str, Entity] = {}
    for car in run.cars:
        said = car.said.checkpoint
        known[said.sha256] = _checkpoint(crate, known, run, said.sha256, said.file, car.said.checkpoint.bytes)
        text = json.dumps(scrubbed(car.raw), indent=1, sort_keys=True) + "\n"
        target = f"{run.directory}/checkpoints/{car.name}"
        file = _file(crate, out, target, text, f"Side-car of {said.file}", "application/json")
        file["about"] = known[said.sha256]
        if car.said.parent.sha256:
            parent = car.said.parent
            known[car.said.parent.sha256] = origin = _checkpoint(
                crate, known, run, car.said.parent.sha256, parent.file or "", None
            )
            known[said.sha256]["isBasedOn"] = origin
    actions = [_action(crate, out, runner, run, attempt, known, folder) for attempt in run.attempts]
    written = [known[car.said.checkpoint.sha256] for car in run.cars]
    properties = {
        "name": f"Training run {run.name}",
        "startTime": _when(run.attempts[0].began) if run.attempts else None,
        "endTime": _when(max(each.ended for each in run.attempts)) if run.attempts else None,
        "identifier": run.id,
        "description": f"{len(actions)} attempts, {len(run.cars)} checkpoints",
    }
    made = crate.add_action(
        workflow, f"#run-{run.id}", object=_one(values), result=_one(written), properties=_without_none(properties)
    )
    crate.root_dataset.append_to("mentions", made)
    for action in actions:
        crate.root_dataset.append_to("mentions", action)


def _parameters(run: Told) -> dict[str, Any]:
    facts = run.facts["run"]
    return {"seed": facts["seed"], **facts["parameters"]} if "seed" in facts else {}


def _value(crate: ROCrate, run: Told, key: str, value: Any) -> Entity:
    properties = {"@type": "PropertyValue", "name": key, "value": value if _plain(value) else json.dumps(value)}
    entity = crate.add(ContextEntity(crate, f"#{run.id}-{key}", properties=properties))
    parameter = crate.dereference(f"#parameter-{key}")
    entity["exampleOfWork"] = parameter
    parameter.append_to("workExample", entity)
    return entity


def _plain(value: Any) -> bool:
    return isinstance(value, str | int | float | bool)


def _checkpoint(
    crate: ROCrate, known: dict[str, Entity], run: Told, sha256: str, file: str, size: int | None
) -> Entity:
    """By its digest: the file may be pruned, archived, or too large to travel."""
    if sha256 in known:
        entity = known[sha256]
    else:
        properties = {"@type": "CreativeWork", "name": f"{run.name}/checkpoints/{file}", "sha256": sha256}
        entity = crate.add(ContextEntity(crate, f"urn:sha256:{sha256}", properties=properties))
    if size is not None:
        entity["size"] = f"{size} bytes"
    return entity


def _file(crate: ROCrate, out: Path, target: str, text: str, name: str, form: str) -> Entity:
    (out / target).parent.mkdir(parents=True, exist_ok=True)
    (out / target).write_text(text, encoding="utf-8")
    return crate.add_file(out / target, target, properties={"name": name, "encodingFormat": form})


def _action(
    crate: ROCrate, out: Path, runner: Entity, run: Told, attempt: Attempt, known: dict[str, Entity], folder: Path
) -> Entity:
    lines = (folder / "attempts" / attempt.file).read_text(encoding="utf-8", errors="replace").splitlines()
    events = "".join(_line(line) for line in lines)
    target = f"{run.directory}/attempts/{attempt.file}"
    file = _file(crate, out, target, events, f"Events of {attempt.node}", "application/x-ndjson")
    used = [
        known.setdefault(each["sha256"], _checkpoint(crate, known, run, each["sha256"], each["file"] or "", None))
        for each in attempt.inputs
    ]
    made = [
        known.setdefault(
            each.payload["sha256"],
            _checkpoint(crate, known, run, each.payload["sha256"], each.payload["file"], None),
        )
        for each in attempt.outputs
    ]
    properties = {
        "name": f"{attempt.node}, retry {attempt.retry}, start {attempt.start}",
        "description": f"{attempt.stage}, {len(made)} checkpoints written, ended as {attempt.outcome}",
        "startTime": _when(attempt.began),
        "endTime": _when(attempt.ended),
        "actionStatus": f"http://schema.org/{_STATUS[attempt.outcome]}",
        "error": attempt.reason or None,
        "location": _place(crate, attempt),
        "subjectOf": file,
    }
    return crate.add_action(
        runner, f"#attempt-{attempt.id}", object=_one(used), result=_one(made), properties=_without_none(properties)
    )


def _line(line: str) -> str:
    """An event; where a secret had to go from it, its hash does not hold any more and says so."""
    return json.dumps(scrubbed(json.loads(line)), sort_keys=True) + "\n"


def _place(crate: ROCrate, attempt: Attempt) -> Entity:
    place = attempt.place
    parts = [("site", place["site"]), ("host", place["host"]), ("slot", place["slot"]), ("HTCondor job", attempt.job)]
    for number, gpu in enumerate(place["gpus"] or []):
        parts += [(f"GPU {number} {name}", value) for name, value in gpu.items()]
    values = [
        crate.add(
            ContextEntity(
                crate,
                f"#{attempt.id}-{name.replace(' ', '-')}",
                properties={"@type": "PropertyValue", "name": name, "value": value},
            )
        )
        for name, value in parts
        if value is not None
    ]
    properties = {"@type": "Place", "name": f"{place['site'] or 'a site not told'}: {place['host']}"}
    entity = crate.add(ContextEntity(crate, f"#place-{attempt.id}", properties=properties))
    if values:
        entity["additionalProperty"] = _one(values)
    return entity


def _when(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds")


def _one(entities: list[Entity]) -> Entity:
    """A single value stands without a list in RO-Crates."""
    return entities[0] if len(entities) == 1 else entities


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}
