"""MLDAG's `Experiment.yaml` and `resources.yaml`, as they are, to an experiment file. Pure but for reading them.

What those files say and MLDAG never did is told, each with its line: ranges without their stop, a shuffle that main no
longer calls, `memory` where `mem_mb` is read, an `environment` that a second one replaces, text that `rstrip("queue")`
eats. Run ids and seeds cannot be had back from these files (MLDAG draws them without a seed): import the DAG for that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from siteannex.failures import fail
from siteannex.site.layers import Layer
from siteannex.training.experiment.ranges import RangeError, by_step
from siteannex.training.importing.foreign_submit import NEXT_EPOCH, Finding, gathered, needs_next_epoch, translate
from siteannex.training.importing.imported import Imported, experiment_name, experiment_text, site_key, size_text

_COUNTS = ("epochs", "epochs_per_job", "run_number")
_FIELD = re.compile(r"\{resource\.(\w+)\}")
_NAMES = {
    "mem_mb": "memory",
    "disk": "disk",
    "cpus": "cpus",
    "gpus": "gpus",
    "gpu_memory": "gpu_memory",
    "name": "name",
}
_DEFAULTS = {"disk": "5GB", "gpus": "1", "gpu_memory": 8192, "annex": True}
"""What MLDAG's model takes for keys that are not written."""
_NOT_JOBS = ("queue", "allocation", "login_name", "lifetime", "two_factor_auth", "login_node")
_OTHER_NAMES = {"memory": "mem_mb", "gpu_count": "gpus", "username": "login_name"}
"""Keys of its committed files that its model does not read, and the ones it reads."""


@dataclass(slots=True)
class _Found:
    experiment: dict[str, Any] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def tell(self, place: str, text: str) -> None:
        self.findings.append(Finding(place, text))


def import_mldag(experiment: Path, resources: Path | None) -> Imported:
    """The experiment file of MLDAG's two files. AnnexError import-invalid when they are not what MLDAG reads."""
    layer = _read(experiment)
    places = _read(resources) if resources is not None else None
    found = _Found()
    name = str(layer.data.get("name") or experiment.stem)
    found.experiment = {"name": experiment_name(name), "seed": 1, "description": f"imported from MLDAG: {name}"}
    swept = _variables(layer, found)
    template, fields, environment = _template(layer, found)
    found.experiment["submit"] = template
    found.experiment["sites"] = _sites(places, fields, found)
    many = len(found.experiment["sites"]) > 1
    if many:
        found.experiment["policy"] = "shuffle"
        told = "MLDAG's main combines the vars and never calls its shuffle over resources; policy: shuffle does"
        found.tell(f"{(places or layer).path}:1", told)
    if environment:
        found.experiment["environment"] = environment
    if layer.data.get("post_script"):
        found.experiment["hooks"] = {"post": str(layer.data["post_script"])}
        found.tell(
            layer.place(("post_script",)), "post_script is called with node name, run directory and exit code here"
        )
    for key in layer.data:
        if key not in ("name", "submit_template", "vars", "description", "post_script", "training_runs"):
            found.tell(layer.place((key,)), f"left out: {key}")
    if swept:
        found.tell(layer.place(("vars",)), f"swept: {', '.join(swept)} (mode: product, as MLDAG combines them)")
    told = "run ids and seeds are drawn without a seed there; to keep those of a DAG: siteannex dag import FILE.dag"
    found.tell(str(experiment), told)
    header = [f"Imported from {experiment.name} by siteannex dag import."]
    return Imported(experiment_text(found.experiment, header), gathered(found.findings))


def _read(path: Path) -> Layer:
    try:
        data = YAML(typ="rt").load(path.read_text(encoding="utf-8"))
    except MarkedYAMLError as problem:
        line = (problem.problem_mark.line + 1) if problem.problem_mark else 1
        raise _invalid(f"{path}:{line}", str(problem.problem or "not YAML")) from problem
    except (OSError, YAMLError, ValueError) as problem:
        raise _invalid(str(path), str(problem)) from problem
    if not isinstance(data, CommentedMap):
        raise _invalid(f"{path}:1", "not a mapping of keys to values")
    return Layer(path, data)


def _invalid(place: str, text: str) -> Exception:
    return fail("import-invalid", place.partition(":")[0], f"{place}: {text}")


def _variables(layer: Layer, found: _Found) -> list[str]:
    """Epochs, runs and parameters from `vars`; the names of what is swept."""
    given = layer.value(("vars",))
    if not isinstance(given, Mapping):
        raise _invalid(
            layer.place(("vars",)), "vars: is missing; MLDAG needs vars with epochs, epochs_per_job, run_number"
        )
    values = {str(name): _value(layer, str(name), each, found) for name, each in given.items()}
    epochs = _count(layer, values, "epochs")
    per_job = _count(layer, values, "epochs_per_job")
    done = epochs - epochs % per_job
    if done == 0:
        raise _invalid(layer.place(("vars", "epochs_per_job")), f"{epochs} epochs make no job of {per_job} epochs")
    if done != epochs:
        told = f"MLDAG stops after {done} of {epochs} epochs, because jobs have {per_job}; so does this"
        found.tell(layer.place(("vars", "epochs")), told)
    runs = values.get("run_number", 1)
    runs = runs.get("values", [0]) if isinstance(runs, dict) else [0]
    parameters = {name: value for name, value in values.items() if name not in _COUNTS}
    swept = [name for name, value in parameters.items() if isinstance(value, dict)]
    if parameters:
        found.experiment["parameters"] = parameters
        if len(swept) > 1:
            found.experiment["mode"] = "product"
    if len(runs) > 1:
        found.experiment["runs_per_point"] = len(runs)
    found.experiment["train"] = {"epochs": done, "epochs_per_job": per_job}
    return swept


def _count(layer: Layer, values: Mapping[str, Any], name: str) -> int:
    value = values.get(name)
    if not isinstance(value, int) or value < 1:
        raise _invalid(layer.place(("vars", name)), f"{name}: one whole number above 0 is needed, not {value}")
    return value


def _value(layer: Layer, name: str, given: Any, found: _Found) -> Any:
    """One var: a value, or `{values: [...]}` or `{range: ...}` for what is swept."""
    place = layer.place(("vars", name))
    kind = given.get("type") if isinstance(given, Mapping) else None
    if kind == "value" and "value" in given:
        value = given["value"]
        return {"values": list(value)} if isinstance(value, list) else value
    if kind == "range" and "stop" in given:
        return _range(place, name, given, found)
    if kind == "function":
        raise _invalid(place, f"{name}: type: function; MLDAG refuses it too (NotImplementedError)")
    raise _invalid(place, f"{name}: needs type: value and a value, or type: range and a stop")


def _range(place: str, name: str, given: Mapping[str, Any], found: _Found) -> Any:
    start, stop, step = (given.get(key, default) for key, default in (("start", 0), ("stop", 0), ("step", 1)))
    if all(isinstance(part, int) for part in (start, stop, step)):
        if step == 0 or not (values := range(start, stop, step)):
            raise _invalid(place, f"{name}: range({start}, {stop}, {step}) is empty or endless")
        if name != "run_number":
            found.tell(place, f"{name}: as MLDAG's ranges do, this one ends at {values[-1]}, before stop: {stop}")
        return {"values": list(values)}
    found.tell(place, f"{name}: MLDAG's ranges take whole numbers only and end in a TypeError here; stop is included")
    text = f"{start} to {stop} by {step}"
    try:
        by_step(str(start), str(stop), str(step))
    except RangeError as problem:
        raise _invalid(place, f"{name}: {problem}") from None
    return {"range": text}


def _template(layer: Layer, found: _Found) -> tuple[str, dict[str, str], dict[str, Any]]:
    """The submit template, the resource fields it uses with their line, and the environment."""
    place = layer.place(("submit_template",))
    text = layer.data.get("submit_template")
    if not isinstance(text, str) or not text.strip():
        raise _invalid(place, "submit_template: is missing")
    first = int(place.rpartition(":")[2]) + 1
    numbered = [(f"{layer.path}:{first + at}", line) for at, line in enumerate(text.splitlines())]
    _eaten(text, numbered, found)
    fields: dict[str, str] = {}
    filled = []
    for where, line in numbered:
        fields |= dict.fromkeys((name for name in _FIELD.findall(line) if name not in fields), where)
        line = _FIELD.sub(lambda match: f"{{site.{_NAMES.get(match[1], match[1])}}}", line)
        filled.append((where, line.replace("{{", "{").replace("}}", "}")))
    translated = translate(filled)
    found.findings += translated.findings
    if translated.environment or translated.secrets:
        where = next((spot for spot, line in numbered if re.match(r"\s*environment\b", line, re.IGNORECASE)), place)
        found.tell(where, "MLDAG appends an environment of its own, and this one never took effect; here it does")
    lines = [NEXT_EPOCH, *translated.lines] if needs_next_epoch(translated.lines) else translated.lines
    environment: dict[str, Any] = dict(translated.environment)
    environment |= {name: {"secret_file": f"secrets/{name}"} for name in translated.secrets}
    return "\n".join(lines) + "\n", fields, environment


def _eaten(text: str, numbered: list[tuple[str, str]], found: _Found) -> None:
    """MLDAG takes the last `queue` off by rstrip, which takes every q, u and e at the end."""
    stripped = text.strip()
    last = next(((place, line.strip()) for place, line in reversed(numbered) if line.strip()), ("", ""))
    if stripped.endswith("queue") and last[1].lower() != "queue":
        kept = stripped.rstrip("queue").splitlines()[-1].strip()  # noqa: B005  (what MLDAG does)
        found.tell(last[0], f"MLDAG cuts every q, u and e off the end here: {last[1]} became {kept}; kept whole here")
    elif re.match(r"queue\s+\S", last[1], re.IGNORECASE):
        found.tell(last[0], f"left out: {last[1]}: what MLDAG wrote after it took no effect; a node is one job")


def _sites(layer: Layer | None, fields: Mapping[str, str], found: _Found) -> dict[str, Any]:
    if layer is None:
        return {"ospool": {"requirements": "true", **_filled({}, "ospool", fields, found)}}
    sites = {}
    for name, given in layer.data.items():
        if not isinstance(given, Mapping):
            raise _invalid(layer.place((name,)), f"{name}: a resource is a mapping of keys to values")
        resource = {**_DEFAULTS, **given}
        for key, meant in _OTHER_NAMES.items():
            if key in given and meant not in given:
                resource[meant] = given[key]
                told = f"{key}: MLDAG reads {meant}, so this never took effect; here it does"
                found.tell(layer.place((name, key)), told)
        elsewhere = [key for key in _NOT_JOBS if key in given]
        if elsewhere:
            told = f"left out: {', '.join(elsewhere)}: that is for siteannex up and ~/.config/siteannex/config.yaml"
            found.tell(layer.place((name,)), told)
        key = site_key(str(name))
        bound = {"annex": f"{name}_annex"} if resource["annex"] else {"requirements": "true"}
        sites[key] = {**bound, **_filled(resource, str(name), fields, found, layer)}
    if not sites:
        raise _invalid(f"{layer.path}:1", "no resource is written here")
    return sites


def _filled(
    resource: Mapping[str, Any], name: str, fields: Mapping[str, str], found: _Found, layer: Layer | None = None
) -> dict[str, Any]:
    """What the template's `{resource.NAME}` are for a site, in our keys; sizes with the unit HTCondor took."""
    site: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for name_of_field, where in fields.items():
        value = resource.get(name_of_field, _DEFAULTS.get(name_of_field))
        place = layer.place((name, name_of_field)) if layer is not None else where
        if name_of_field == "name":
            continue
        if value is None:
            raise _invalid(
                place, f"{name}: the template uses {{resource.{name_of_field}}}, and this has none ({where})"
            )
        if name_of_field in ("mem_mb", "gpu_memory"):
            site[_NAMES[name_of_field]] = _size(str(value), "MB")
        elif name_of_field == "disk":
            site["disk"] = _size(str(value), "KB")
            if str(value).isdecimal():
                found.tell(place, f"disk: {value}: HTCondor takes a bare number as KB; taken as {site['disk']}")
        elif name_of_field in ("cpus", "gpus") and str(value).isdecimal():
            site[name_of_field] = int(value)
        else:
            others[name_of_field] = value
    return {**site, **({"values": others} if others else {})}


def _size(text: str, unit: str) -> str:
    match = re.fullmatch(r"\s*(\d+)\s*(KB?|MB?|GB?|TB?)?\s*", text, re.IGNORECASE)
    return size_text(int(match[1]), match[2] or unit) if match else text
