"""Staging at a site: this machine stands for it, by the real framed shell and the real uploads."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from siteannex.errors import AnnexError
from siteannex.model import StagedCopy
from siteannex.site.schema import Directories, Site
from siteannex.staging.ground import look_script, read_look
from siteannex.staging.record import Record
from siteannex.staging.stage import look, remove, stage
from siteannex.transport.local import LocalTransport
from tests.unit.doubles import RecordingView
from tests.unit.samples import site as lab_site


@pytest.fixture
def far(tmp_path: Path) -> Path:
    (tmp_path / "far" / "scratch").mkdir(parents=True)
    return tmp_path / "far"


@pytest.fixture
def site(far: Path) -> Site:
    directories = Directories(
        home=f"{far}/home/.siteannex", shared_scratch=("$NOWHERE", f"{far}/scratch", "/fs/<project>")
    )
    return lab_site().model_copy(update={"directories": directories})


@pytest.fixture
def transport(far: Path) -> Iterator[LocalTransport]:
    (far / "home").mkdir()
    made = LocalTransport("lab", home=str(far))
    yield made
    made.close()


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return Record.under(tmp_path / "state")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    file = tmp_path / "data set.tar"
    file.write_bytes(os.urandom(300_000))
    return file


def sum_of(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def test_a_file_is_sent_once_and_known_by_its_content(
    site: Site, transport: LocalTransport, record: Record, data: Path, far: Path
) -> None:
    [first] = stage([data], site, transport, record, RecordingView())
    at = far / "scratch/.siteannex/data" / sum_of(data)
    assert (first.copy.path, first.sent_bytes) == (str(at), 300_000)
    assert at.read_bytes() == data.read_bytes()
    assert at.stat().st_mode & 0o777 == 0o400
    assert record.staged("lab", data) == first.copy
    other_name = data.with_name("again.tar")
    other_name.write_bytes(data.read_bytes())
    [second] = stage([other_name], site, transport, record, RecordingView())
    assert (second.copy, second.sent_bytes) == (first.copy, 0)
    data.write_bytes(b"changed")
    assert record.staged("lab", data) is None


def test_a_copy_that_was_damaged_at_the_site_is_sent_anew(
    site: Site, transport: LocalTransport, record: Record, data: Path
) -> None:
    [first] = stage([data], site, transport, record, RecordingView())
    copy = Path(first.copy.path)
    copy.chmod(0o600)
    copy.write_bytes(b"x" * 300_000)
    view = RecordingView()
    [second] = stage([data], site, transport, record, view)
    assert second.sent_bytes == 300_000
    assert copy.read_bytes() == data.read_bytes()
    assert "damaged" in view.text


def test_what_a_cut_upload_left_is_gone_on_with_and_a_wrong_beginning_never_counts(
    site: Site, transport: LocalTransport, record: Record, data: Path, far: Path
) -> None:
    look(site, transport)
    part = far / "home/.siteannex/data" / f"{sum_of(data)}.part"
    part.write_bytes(data.read_bytes()[:200_000])
    [done] = stage([data], site, transport, record, RecordingView())
    assert (done.sent_bytes, done.copy.path) == (300_000 - 3 * 65536, str(part).removesuffix(".part"))
    assert not part.exists()
    other = data.with_name("other")
    other.write_bytes(os.urandom(300_000))
    wrong = far / "home/.siteannex/data" / f"{sum_of(other)}.part"
    wrong.write_bytes(b"y" * 200_000)
    with pytest.raises(AnnexError) as raised:
        stage([other], site, transport, record, RecordingView())
    assert raised.value.failure.code == "ship-corrupt"
    assert record.staged("lab", other) is None
    assert not wrong.exists()
    assert stage([other], site, transport, record, RecordingView())[0].sent_bytes == 300_000


def test_what_is_remembered_is_made_anew_from_the_site(
    site: Site, transport: LocalTransport, record: Record, data: Path, tmp_path: Path
) -> None:
    [done] = stage([data], site, transport, record, RecordingView())
    ground = look(site, transport)
    assert ground.copies == (done.copy,)
    assert ground.copies[0].name == "data set.tar"
    fresh = Record.under(tmp_path / "other-state")
    fresh.replace("lab", ground.copies)
    fresh.sum_of(data)
    assert fresh.staged("lab", data) == done.copy
    (record.folder / "lab.json").write_text("{ torn")
    assert record.copies("lab") == []
    gone, unknown = remove([done.copy.sha256[:8], "nothing"], ground, site, transport, record)
    assert (gone, unknown) == ([done.copy], ["nothing"])
    assert look(site, transport).copies == ()
    assert list(Path(done.copy.path).parent.iterdir()) == []


def test_a_place_without_room_is_said_before_a_byte_is_sent(
    site: Site, transport: LocalTransport, record: Record, tmp_path: Path
) -> None:
    huge = tmp_path / "huge"
    with huge.open("wb") as file:
        file.truncate(1 << 43)
    ground = look(site, transport)
    assert all(place.free_bytes is not None and place.free_bytes < 1 << 43 for place in ground.places)
    known = {"shape": [huge.stat().st_size, huge.stat().st_mtime_ns, huge.stat().st_ino], "sha256": "0" * 64}
    record.folder.mkdir(parents=True)
    (record.folder / "sums.json").write_text(json.dumps({str(huge.resolve()): known}))
    with pytest.raises(AnnexError) as raised:
        stage([huge], site, transport, record, RecordingView())
    assert raised.value.failure.code == "site-disk-full"
    assert "free" in raised.value.failure.evidence[0].text


def test_a_home_that_may_not_be_written_is_told_as_ever(site: Site, transport: LocalTransport, far: Path) -> None:
    (far / "home").rmdir()
    (far / "home").write_text("a file")
    (far / "scratch").rmdir()
    with pytest.raises(AnnexError) as raised:
        look(site, transport)
    assert raised.value.failure.stage == "SHIP"


def test_foreign_words_in_the_listing_are_passed_over() -> None:
    told = "Welcome\n@place\tscratch\t-\t/s/data\n@file\tmany\t/s/x\t\n@file\t5\t/s/data/readme\t\n@place\thome\n"
    ground = read_look(told + f"@file\t7\t/s/data/{'a' * 64}\t\n")
    assert [(place.path, place.free_bytes) for place in ground.places] == [("/s/data", None)]
    assert ground.copies == (StagedCopy("a" * 64, 7, f"/s/data/{'a' * 64}", "a" * 12),)


def test_a_site_file_cannot_smuggle_commands_into_the_listing() -> None:
    script = look_script(Directories(shared_scratch=('/x"; $(touch /tmp/no) `id`',)))
    assert "$(touch" not in script
    assert "`" not in script
