"""An annex's logs: live files and archives, damaged ones too."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from siteannex.annex.logs import follow_logs, news, read_logs
from siteannex.annex.slurm_site import SlurmSite
from siteannex.annex.store import Annex
from tests.unit.world import World


def archive(**files: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(f"log/{name}")
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    return buffer.getvalue()


class Logged:
    """An annex with a live file and a log archive at its site."""

    def __init__(self, root: Path) -> None:
        self.world = World(root)
        self.annex: Annex = self.world.up(wait=False)[0]
        self.access = SlurmSite(self.world.site, self.world.transport)
        self.live = self.world.directory(self.annex) / "slurm-71.out"
        self.live.write_text("pilot starts\n", encoding="utf-8")
        self.archive = self.world.transport.home / ".siteannex/logs" / self.annex.plan.annex_id / "71.tar.gz"
        self.archive.parent.mkdir(parents=True)

    def read(self, file: str | None = None) -> dict[str, str]:
        return dict(read_logs(self.annex, self.access, file))


@pytest.fixture
def logged(tmp_path: Path) -> Logged:
    return Logged(tmp_path)


def test_live_files_and_archived_ones_are_read_with_their_names(logged: Logged) -> None:
    logged.archive.write_bytes(archive(MasterLog="master", StartLog="startd"))
    assert logged.read() == {
        "slurm-71.out": "pilot starts\n",
        "MasterLog (pilot 71)": "master",
        "StartLog (pilot 71)": "startd",
    }
    assert list(logged.read("StartLog")) == ["StartLog (pilot 71)"]
    assert logged.read("Nothing") == {}


def test_bytes_that_are_no_text_are_shown_all_the_same(logged: Logged) -> None:
    logged.live.write_bytes(b"\xffpilot")
    assert logged.read()["slurm-71.out"] == "\ufffdpilot"


def test_a_cut_off_archive_is_told_and_not_raised(logged: Logged) -> None:
    logged.archive.write_bytes(archive(MasterLog="master" * 1000)[:60])
    assert "damaged log archive" in logged.read()["71.tar.gz"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(st.data())
def test_an_archive_with_any_byte_wrong_is_read_or_told(logged: Logged, data: st.DataObject) -> None:
    whole = bytearray(archive(MasterLog="".join(f"{number:x} " for number in range(20_000)), StartLog="x"))
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    logged.archive.write_bytes(bytes(whole))
    assert "slurm-71.out" in logged.read()


def test_following_shows_what_is_added_and_ends_with_the_files(logged: Logged) -> None:
    lines = iter(["EP up\n", "job 12.0 starts\n"])

    def grow() -> None:
        text = next(lines, None)
        if text is None:
            logged.live.unlink()
            return
        with logged.live.open("a", encoding="utf-8") as file:
            file.write(text)

    logged.world.clock.on_sleep = grow
    shown = "".join(follow_logs(logged.annex, logged.access, logged.world.clock, "slurm"))
    assert shown == "==> slurm-71.out <==\npilot starts\nEP up\njob 12.0 starts\n"


def test_following_goes_on_when_the_window_on_a_long_file_moves() -> None:
    lines = [f"line {number}\n" for number in range(1000)]
    shown = "".join(lines[100:900])
    assert news(shown, "".join(lines[300:950])) == "".join(lines[900:950])
    assert news("", "a") == "a"
    assert news("old file", "another file") == "another file"
