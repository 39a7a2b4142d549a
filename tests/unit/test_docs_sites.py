"""docs/add-a-site.md: what it shows is read by siteannex as it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from siteannex.errors import AnnexError
from siteannex.resources import data_dir
from siteannex.site.loader import read_any
from siteannex.site.schema import Site

PAGE = (Path(__file__).parents[2] / "docs" / "add-a-site.md").read_text(encoding="utf-8")
WHOLE, EXTENDING = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


def read(directory: Path, name: str, text: str) -> Site:
    path = directory / f"{name}.yaml"
    path.write_text(text, encoding="utf-8")
    site = read_any(path, (directory, data_dir("sites")))
    assert isinstance(site, Site)
    return site


def test_the_whole_file_is_a_site(tmp_path: Path) -> None:
    site = read(tmp_path, "badger", WHOLE)
    assert (site.nodes["a100"].memory, site.environment) == (None, ("module load apptainer",))


def test_the_complaint_it_quotes_is_the_real_one(tmp_path: Path) -> None:
    [quoted] = re.findall(r"badger\.yaml(:\d+: .*)", PAGE)
    with pytest.raises(AnnexError) as raised:
        read(tmp_path, "badger", WHOLE.replace("cores: 64", "cors: 64", 1))
    assert quoted in raised.value.failure.evidence[0].text


def test_the_file_that_extends_changes_what_it_says(tmp_path: Path) -> None:
    site = read(tmp_path, "expanse", EXTENDING)
    assert site.account == "abc123"
    assert site.partitions["gpu-shared"].caps.gpus_per_job == 4
    assert site.partitions["gpu-shared"].caps.cores_per_job == 37
    assert "ind-gpu" not in site.partitions


def test_the_pack_it_shows_names_the_entry_point_group() -> None:
    from siteannex.site.packs import GROUP

    assert f'[project.entry-points."{GROUP}"]' in PAGE


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\((\.\./[^)]+)\)", PAGE))))
def test_its_links_lead_somewhere(link: str) -> None:
    assert (Path(__file__).parents[2] / "docs" / link).resolve().exists()
