"""A user's own site file is changed where it must be, and is otherwise as the user wrote it."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from siteannex.errors import AnnexError
from siteannex.resources import data_dir
from siteannex.site.loader import load_site
from siteannex.site.rewrite import write_changes

PACKAGED = data_dir("sites")
MINE = "# of our group\nextends: expanse\naccount: abc123  # Ann's\npartitions:\n  gpu: {max_walltime: 24h}\n"


def test_what_the_user_wrote_stays_and_a_link_stays_a_link(tmp_path: Path) -> None:
    kept, directory = tmp_path / "dotfiles" / "expanse.yaml", tmp_path / "sites"
    kept.parent.mkdir()
    directory.mkdir()
    kept.write_text(MINE, encoding="utf-8")
    kept.chmod(0o640)
    (directory / "expanse.yaml").symlink_to(kept)
    write_changes("expanse", {("partitions", "gpu", "max_walltime"): "12h"}, [directory, PACKAGED])
    assert kept.read_text(encoding="utf-8") == MINE.replace("24h", "12h")
    assert (directory / "expanse.yaml").is_symlink()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o640
    assert [each.name for each in kept.parent.iterdir()] == ["expanse.yaml"]
    assert load_site("expanse", [directory, PACKAGED]).partitions["gpu"].max_walltime == 12 * 3600


@pytest.mark.parametrize("before", [MINE, None])
def test_a_change_that_makes_no_site_leaves_everything_as_it_was(tmp_path: Path, before: str | None) -> None:
    path = tmp_path / "expanse.yaml"
    if before is not None:
        path.write_text(before, encoding="utf-8")
    with pytest.raises(AnnexError) as raised:
        write_changes("expanse", {("partitions", "gpu", "max_walltime"): "soon"}, [tmp_path, PACKAGED])
    assert raised.value.failure.code == "site-invalid"
    assert (path.read_text(encoding="utf-8") if path.exists() else None) == before
    assert len(list(tmp_path.iterdir())) == (before is not None)
