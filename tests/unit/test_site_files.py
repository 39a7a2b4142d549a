"""The packaged site files: each says whence and when, editors and the loader agree on them, and none guesses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML

from siteannex.errors import AnnexError
from siteannex.resources import data_dir
from siteannex.site.gpus import find_model
from siteannex.site.kinds import AnySite, json_schema
from siteannex.site.loader import read_any
from siteannex.site.other_kinds import AwsSite, OpenStackSite
from siteannex.site.schema import Caps, Site

FILES = sorted(data_dir("sites").glob("*.yaml"))
SCHEMA = json_schema()
EDITOR = jsonschema.Draft202012Validator(SCHEMA)
each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


def plain(path: Path) -> Any:
    """The file as an editor's checker sees it: dates are text there."""
    return json.loads(json.dumps(YAML(typ="safe").load(path.read_text(encoding="utf-8")), default=str))


def accepted(data: Any) -> bool:
    return bool(EDITOR.is_valid(data))


def sites() -> list[AnySite]:
    return [read_any(path) for path in FILES]


def test_the_sites_of_the_plan_are_there() -> None:
    kinds = {site.name: site.kind for site in sites()}
    slurm = {"expanse", "bridges-2", "anvil", "delta", "deltaai", "stampede3", "vista", "lonestar6", "perlmutter"}
    slurm |= {"osc-pitzer", "osc-ascend", "osc-cardinal", "lab"}
    assert slurm <= {name for name, kind in kinds.items() if kind == "slurm"}
    assert (kinds["aws"], kinds["jetstream2"]) == ("aws", "openstack")
    assert kinds["ospool"] == kinds["chtc"] == "target"


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@each_file
def test_editors_find_the_schema_and_accept_the_file(path: Path) -> None:
    assert path.read_text(encoding="utf-8").startswith("# yaml-language-server: $schema=schema.json\n")
    assert accepted(plain(path))


@each_file
def test_editors_mark_an_unknown_key_wherever_it_stands(path: Path) -> None:
    def misspelt(node: Any, at: tuple[str, ...] = ()) -> list[Any]:
        """Copies of the file, one with a wrong key in each mapping that has fixed keys; two of many alike do."""
        whole = json.dumps(data)
        found = []
        alike = 2 if at and at[-1] in FREE else None
        for key, value in list(node.items())[:alike] if isinstance(node, dict) else ():
            found += misspelt(value, (*at, key))
        if isinstance(node, dict) and not (at and at[-1] in FREE):
            copy = json.loads(whole)
            place = copy
            for key in at:
                place = place[key]
            place["no_such_key"] = 1
            found.append(copy)
        return found

    data = plain(path)
    copies = misspelt(data)
    assert copies
    assert not any(accepted(copy) for copy in copies)


FREE = {"nodes", "partitions", "instances", "fingerprints", "endpoints", "users", "walltimes"}
"""Mappings whose keys are names."""


def test_editors_accept_a_file_that_extends_another_and_still_check_it() -> None:
    mine = {
        "extends": "expanse",
        "account": "abc123",
        "partitions": {"ind-gpu": None, "gpu": {"caps": {"nodes_per_job": 2}}},
    }
    assert accepted(mine)
    assert not accepted({**mine, "acount": "abc123"})
    assert not accepted({"extends": "expanse", "partitions": {"gpu": {"caps": {"nodes": 2}}}})
    assert not accepted({"name": "mine", "account": "abc123"})


@pytest.mark.parametrize("bare", [{"max_walltime": 4}, {"max_walltime": "4"}, {"sharing": "some"}, {"nodes": []}])
def test_editors_mark_what_the_loader_refuses(bare: dict[str, Any]) -> None:
    data = plain(next(path for path in FILES if path.stem == "lab"))
    data["partitions"]["gpu"].update(bare)
    assert not accepted(data)


@each_file
def test_every_gpu_is_in_the_catalogue(path: Path) -> None:
    site = read_any(path)
    if isinstance(site, Site):
        assert all(kind.gpus.known for kind in site.nodes.values() if kind.gpus)
    elif isinstance(site, AwsSite | OpenStackSite):
        assert all(find_model(each.gpus.model) for each in site.instances.values() if each.gpus)


def test_nothing_is_more_certain_than_its_source() -> None:
    for site in sites():
        assert site.source
        for facts in site.partitions.values() if isinstance(site, Site) else ():
            assert facts.source
            assert facts.confidence or site.name in ("lab", "lab2")


def test_what_the_facts_leave_open_is_null() -> None:
    by_name = {site.name: site for site in sites()}
    bridges, delta, aws = by_name["bridges-2"], by_name["delta"], by_name["aws"]
    assert isinstance(bridges, Site)
    assert isinstance(delta, Site)
    assert isinstance(aws, AwsSite)
    assert (bridges.nodes["l40s"].cores, bridges.nodes["l40s"].memory_usable) == (None, None)
    assert delta.partitions["gpuA100x4"].caps.nodes_per_job is None
    assert aws.instances["p5e.48xlarge"].price is None


@pytest.mark.parametrize("site", [site for site in sites() if isinstance(site, Site)], ids=lambda site: site.name)
def test_a_site_survives_the_journey_to_the_session_holder(site: Site) -> None:
    assert Site.model_validate_json(site.model_dump_json()) == site


def test_a_users_file_may_extend_the_one_it_hides(tmp_path: Path) -> None:
    mine = tmp_path / "expanse.yaml"
    text = "extends: expanse\naccount: abc123\nlogin: {keys: required}\npartitions: {gpu: null, debug: {caps: null}}\n"
    mine.write_text(text)
    site = read_any(mine, (tmp_path, data_dir("sites")))
    packaged = read_any(data_dir("sites") / "expanse.yaml")
    assert isinstance(site, Site)
    assert isinstance(packaged, Site)
    assert (site.account, site.login.keys, site.login.auth) == ("abc123", "required", packaged.login.auth)
    assert set(packaged.partitions) - set(site.partitions) == {"gpu"}
    assert site.partitions["debug"].caps == Caps()
    assert site.partitions["debug"].nodes == packaged.partitions["debug"].nodes


def test_a_file_may_extend_another_under_a_name_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "delta-mine.yaml").write_text("extends: delta\ntitle: Delta, my way\n")
    site = read_any(tmp_path / "delta-mine.yaml", (tmp_path, data_dir("sites")))
    assert (site.name, site.title) == ("delta-mine", "Delta, my way")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("extends: nowhere\n", "lab.yaml:1: extends: no site 'nowhere'"),
        ("title: x\nextends: lab\n", "lab.yaml:2: extends: no site 'lab'"),
        ("extends: other\n", "other.yaml:1: extends: 'lab' leads back to"),
        ("extends: base\ntitel: x\n", "lab.yaml:2: titel: no such key; did you mean title?"),
        ("extends: base\nlogin:\n  hots: x\n", "lab.yaml:3: login.hots: no such key; did you mean host"),
        ("extends: base\nlogin: null\n", "lab.yaml:2: login: required, and missing"),
        ("extends: base\nverified: never\n", "lab.yaml:2: verified: "),
        ("extends: broken\n", "broken.yaml:3: "),
    ],
)
def test_a_mistake_in_a_chain_of_files_is_shown_where_it_stands(tmp_path: Path, text: str, words: str) -> None:
    packaged = (data_dir("sites") / "lab.yaml").read_text(encoding="utf-8").replace("name: lab", "name: base")
    (tmp_path / "base.yaml").write_text(packaged)
    (tmp_path / "broken.yaml").write_text("a: 1\nb: [\n")
    (tmp_path / "other.yaml").write_text("extends: lab\n")
    (tmp_path / "lab.yaml").write_text(text)
    with pytest.raises(AnnexError) as raised:
        read_any(tmp_path / "lab.yaml", (tmp_path,))
    assert words in "\n".join(item.text for item in raised.value.failure.evidence)
