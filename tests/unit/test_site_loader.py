"""Site files: whose wins, and how a mistake is shown: file, line, key, what was expected."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from siteannex.annex.planning.plan import plan_annex
from siteannex.errors import AnnexError, Stage
from siteannex.model import Deadlines
from siteannex.resources import data_dir
from siteannex.site.loader import load_any, load_site, read_any, read_site, site_files
from tests.unit.samples import TODAY, request

GOOD = """\
name: lab
title: test site
login:
  host: login.lab
  auth:
    - {by: [password], prompt: 'password:'}
nodes:
  a100:
    cores: 16
    memory: 60GB
    gpus: {type: a100, model: NVIDIA A100, per_node: 4}
partitions:
  gpu:
    sharing: shared
    nodes: [a100]
    max_walltime: 4h
    gpu_request: --gres=gpu:{type}:{count}
    verified: 2026-11-01
    source: a test
verified: 2026-11-01
source: a test
"""


def write(directory: Path, text: str, name: str = "lab") -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def complaint(path: Path) -> str:
    with pytest.raises(AnnexError) as raised:
        read_site(path)
    failure = raised.value.failure
    assert (failure.stage, failure.code) == (Stage.PLAN, "site-invalid")
    return "\n".join(item.text for item in failure.evidence)


def test_sizes_and_durations_are_read_as_people_write_them(tmp_path: Path) -> None:
    site = read_site(write(tmp_path, GOOD))
    assert site.partitions["gpu"].nodes == (site.nodes["a100"],)
    assert site.nodes["a100"].memory == 60 * 1024
    assert site.partitions["gpu"].max_walltime == 4 * 3600
    assert site.partitions["gpu"].caps.nodes_per_job is None


def test_a_site_says_which_stage_may_take_longer_and_the_plan_carries_it(tmp_path: Path) -> None:
    site = read_site(write(tmp_path, GOOD + "deadlines: {join: 5m, unheard: 15s}\n"))
    assert site.deadlines.seconds() == Deadlines(join_s=300, unheard_s=15)
    planned = plan_annex(request(), site, annex_id="sweep1-00000001", today=TODAY)
    assert planned.deadlines == site.deadlines.seconds()


@pytest.mark.parametrize("path", sorted(data_dir("sites").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_packaged_site_file_is_valid(path: Path) -> None:
    assert read_any(path).name == path.stem


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("    cores: 16\n", "    cors: 16\n", ":9: nodes.a100.cors: no such key; did you mean cores?"),
        ("    cores: 16\n", "", ":8: nodes.a100.cores: required, and missing; write null if it is not known"),
        ("    sharing: shared\n", "", ":13: partitions.gpu.sharing: required, and missing"),
        ("60GB", "'60'", ":10: nodes.a100.memory: '60' has no unit; did you mean 60GB or 60MB?"),
        ("60GB", "60", ":10: nodes.a100.memory: '60' has no unit; did you mean 60GB or 60MB?"),
        (
            "max_walltime: 4h",
            "max_walltime: 4",
            ":16: partitions.gpu.max_walltime: '4' is not a duration; did you mean 4h",
        ),
        ("max_walltime: 4h", "max_walltime: 3-0:00", ":16: partitions.gpu.max_walltime: "),
        (
            "sharing: shared",
            "sharing: sometimes",
            ":14: partitions.gpu.sharing: should be 'shared' or 'exclusive'",
        ),
        (
            "nodes: [a100]",
            "nodes: [a10]",
            ":15: partitions.gpu.nodes.0: no kind 'a10' under nodes:; did you mean a100?",
        ),
        ("nodes: [a100]", "nodes: [zz]", ":15: partitions.gpu.nodes.0: no kind 'zz' under nodes:; there are: a100"),
        ("{type}:{count}", "{type}", "gpu_request must contain {count}"),
        ("prompt: 'password:'", "prompt: '('", ":6: login.auth.0.prompt: not a regular expression"),
        ("per_node: 4", "per_node: 0", ":11: nodes.a100.gpus.per_node: "),
        ("per_node: 4", "per_node: 4, arch: 8", ":11: nodes.a100.gpus.arch: no such key; known here: type, model"),
        ("title: test site", "tilte: test site", "tilte: no such key; did you mean title?"),
        ("title: test site", "title: test site\nkind: moon", ":3: kind: is 'moon'; known: slurm, aws"),
        ("name: lab", "name: Lab", ":1: name: "),
        ("verified: 2026-11-01\nsource", "verified: yesterday\nsource", ":20: verified: "),
        ("  host: login.lab", "  host: login.lab\n   port: 22", ":5: "),
        ("title: test site", "title: test site\ntitle: again", "title"),
        ("title: test site", "title: \x07", "special characters"),
    ],
)
def test_a_mistake_is_shown_with_file_line_and_key(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in GOOD
    path = write(tmp_path, GOOD.replace(old, new, 1))
    shown = complaint(path)
    assert words in shown
    assert str(path) in shown


def test_every_mistake_of_a_file_is_shown_at_once(tmp_path: Path) -> None:
    shown = complaint(write(tmp_path, GOOD.replace("60GB", "lots").replace("4h", "long")))
    assert "nodes.a100.memory" in shown
    assert "max_walltime" in shown


@pytest.mark.parametrize("text", ["", "just words\n", "- a\n- b\n", "a: [1\n", "&a [*a]\n", "a: &a {b: *a}\n"])
def test_a_file_that_is_no_mapping_of_facts_is_refused(tmp_path: Path, text: str) -> None:
    assert "lab.yaml" in complaint(write(tmp_path, text))


def test_a_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    path.write_bytes(b"name: \xff\xfe\n")
    assert "utf-8" in complaint(path)


def test_the_name_in_the_file_must_be_the_files_name(tmp_path: Path) -> None:
    assert "is 'lab', the file says 'other'" in complaint(write(tmp_path, GOOD, name="other"))


def test_the_users_file_wins_over_the_admins_and_a_missing_directory_is_no_error(tmp_path: Path) -> None:
    write(tmp_path / "user", GOOD.replace("test site", "mine"))
    write(tmp_path / "admin", GOOD)
    write(tmp_path / "admin", GOOD.replace("name: lab", "name: other"), name="other")
    directories = (tmp_path / "user", tmp_path / "nowhere", tmp_path / "admin")
    assert load_site("lab", directories).title == "mine"
    assert sorted(site_files(directories)) == ["lab", "other"]


def test_an_unknown_name_is_answered_with_the_nearest_one_and_where_was_looked(tmp_path: Path) -> None:
    write(tmp_path, GOOD.replace("name: lab", "name: expanse"), name="expanse")
    with pytest.raises(AnnexError) as raised:
        load_site("expnase", (tmp_path,))
    failure = raised.value.failure
    assert failure.code == "site-unknown"
    assert "Did you mean expanse?" in failure.hint
    assert str(tmp_path) in failure.evidence[0].text


def test_a_name_like_no_other_gets_no_suggestion(tmp_path: Path) -> None:
    with pytest.raises(AnnexError) as raised:
        load_site("zzz", (tmp_path,))
    assert "Did you mean" not in raised.value.failure.hint


TARGET = """\
name: pool
title: a pool of machines elsewhere
kind: target
requirements: null
site_attribute: GLIDEIN_ResourceName
verified: 2026-11-01
source: a test
"""


def test_a_site_without_a_batch_system_is_read_but_takes_no_pilots(tmp_path: Path) -> None:
    write(tmp_path, TARGET, name="pool")
    assert load_any("pool", (tmp_path,)).kind == "target"
    with pytest.raises(AnnexError) as raised:
        load_site("pool", (tmp_path,))
    assert raised.value.failure.code == "no-annex-here"


LINES = GOOD.splitlines()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(index=4, line="?")
@given(
    index=st.integers(0, len(LINES) - 1),
    line=st.text(max_size=20)
    | st.sampled_from(["a: [", "&a [*a]", "? x", "!!python/object:os.system x", "<<: *b", "- 1"]),
)
def test_a_file_with_any_line_replaced_is_read_or_refused_with_its_name(tmp_path: Path, index: int, line: str) -> None:
    text = "\n".join([*LINES[:index], line, *LINES[index + 1 :]])
    path = tmp_path / "lab.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        site = read_site(path)
    except AnnexError:
        assert "lab.yaml" in complaint(path)
    else:
        assert site.name == "lab"
