"""Annexes on disk: private, locked across processes, and never losing what was already written."""

from __future__ import annotations

import json
import os
import resource
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from siteannex.annex.events import What, from_line
from siteannex.annex.store import Annex, Store, plan_from_data
from siteannex.errors import AnnexError, Stage
from siteannex.failures import failure
from tests.unit.doubles import FakeClock
from tests.unit.samples import plan, request


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "state", FakeClock())


@pytest.fixture
def annex(store: Store) -> Annex:
    return store.create(plan())


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def stages(annex: Annex) -> list[Stage]:
    return [event.stage for event in annex.events()]


def test_a_created_annex_is_found_again_with_its_plan(store: Store, annex: Annex) -> None:
    [found] = store.annexes()
    assert found.plan == plan() == annex.plan
    assert found.created_at() == store.clock.now()
    assert found.events()[0].stage is Stage.PLAN


def test_everything_written_is_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o000)
    try:
        store = Store(tmp_path / "state", FakeClock())
        annex = store.create(plan())
        annex.record(Stage.CONNECT, What.BEGIN)
        annex.keep({"batch.sh": "#!/bin/sh\n"})
        with store.lock("sweep1", "lab"):
            pass
    finally:
        os.umask(before)
    written = list((tmp_path / "state").rglob("*"))
    assert {mode(path) for path in written if path.is_file()} == {0o600}
    assert {mode(path) for path in [tmp_path / "state", *written] if path.is_dir()} == {0o700}


def test_the_living_and_the_latest_annex_of_a_name_are_told_apart(store: Store, annex: Annex) -> None:
    annex.record(Stage.RELEASED, What.DONE, text="taken down")
    assert store.living("sweep1") is None
    latest = store.latest("sweep1")
    assert latest is not None
    assert latest.state().end_text == "taken down"
    second = store.create(plan(annex_id="sweep1-00000002"))
    living = store.living("sweep1")
    assert living is not None
    assert living.plan.annex_id == second.plan.annex_id
    assert store.living("other") is None
    assert store.latest("other") is None


def test_an_empty_state_directory_holds_no_annexes(tmp_path: Path) -> None:
    assert list(Store(tmp_path / "nowhere", FakeClock()).annexes()) == []


@pytest.mark.parametrize("text", [None, "", "{", "[]", "{}", '{"request": 5}', "\ud800"])
def test_an_annex_whose_plan_cannot_be_read_is_never_passed_over(store: Store, annex: Annex, text: str | None) -> None:
    file = annex.path / "plan.json"
    file.unlink()
    if text is not None:
        file.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(AnnexError) as raised:
        store.annexes()
    assert raised.value.failure.code == "state-unreadable"
    assert str(file) in raised.value.failure.evidence[0].source


def test_a_directory_without_events_never_was_an_annex(store: Store, annex: Annex) -> None:
    (annex.path / "events.jsonl").unlink()
    assert store.annexes() == []


def test_a_plan_of_another_version_is_read(annex: Annex) -> None:
    data = json.loads((annex.path / "plan.json").read_text(encoding="utf-8"))
    data |= {"later": 1, "request": data["request"] | {"also": 2}, "shape": data["shape"] | {"more": 3}}
    assert plan_from_data(data) == annex.plan


def test_a_plan_reads_back_as_it_was_written(annex: Annex) -> None:
    data = json.loads((annex.path / "plan.json").read_text(encoding="utf-8"))
    assert plan_from_data(data) == annex.plan


def test_a_torn_last_line_is_ignored_and_closed_off_by_the_next_write(annex: Annex) -> None:
    annex.record(Stage.CONNECT, What.BEGIN)
    log = annex.path / "events.jsonl"
    with log.open("ab") as file:
        file.write(b'{"v":1,"at":"2026-11-29T12:0')
    known = len(annex.events())
    annex.record(Stage.CONNECT, What.DONE)
    assert len(annex.events()) == known + 1
    assert stages(annex)[-1] is Stage.CONNECT
    assert log.read_bytes().endswith(b"\n")


def test_bytes_that_are_no_text_do_not_hide_the_events_around_them(annex: Annex) -> None:
    with (annex.path / "events.jsonl").open("ab") as file:
        file.write(b"\xff\xfe\x00garbage\n")
    annex.record(Stage.CONNECT, What.DONE)
    assert len(annex.events()) == 2


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.characters(codec=None)))
def test_whatever_text_a_failure_carries_it_is_read_back(store: Store, text: str) -> None:
    annex = store.living("sweep1") or store.create(plan())
    told = failure("batch-job-failed", "lab", text)
    annex.record_failure(told, ended=False)
    assert annex.state().failure == told


def test_an_annex_without_a_log_has_no_events(annex: Annex) -> None:
    (annex.path / "events.jsonl").unlink()
    assert annex.events() == []


def test_a_second_command_on_the_same_name_is_told_that_it_is_busy(store: Store) -> None:
    script = (
        "import sys; from pathlib import Path; from siteannex.annex.store import Store\n"
        "from tests.unit.doubles import FakeClock\n"
        "with Store(Path(sys.argv[1]), FakeClock()).lock('sweep1', 'lab'):\n"
        "    print('held', flush=True); sys.stdin.read()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(store.root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(AnnexError) as raised, store.lock("sweep1", "lab"):
            pass
        assert raised.value.failure.code == "annex-busy"
        assert raised.value.failure.retryable
        with store.lock("another", "lab"):
            pass
        assert holder.stdin is not None
        holder.stdin.close()
        assert holder.wait(timeout=30) == 0
    with store.lock("sweep1", "lab"):
        pass


def test_a_lock_is_free_again_after_an_exception(store: Store) -> None:
    with pytest.raises(RuntimeError), store.lock("sweep1", "lab"):
        raise RuntimeError
    with store.lock("sweep1", "lab"):
        pass


class FullDisk:
    """No file of this process may grow beyond `limit` bytes: the kernel answers as it does on a full disk."""

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def __enter__(self) -> None:
        self.before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.limit, self.before[1]))

    def __exit__(self, *_: object) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, self.before)


@pytest.mark.parametrize("room", [0, 1, 40])
@pytest.mark.parametrize("torn", [b"", b'{"v":1,"at'])
def test_a_full_disk_is_an_error_and_leaves_the_log_as_it_was(annex: Annex, room: int, torn: bytes) -> None:
    log = annex.path / "events.jsonl"
    with log.open("ab") as file:
        file.write(torn)
    before = log.read_bytes()
    with FullDisk(len(before) + room), pytest.raises(AnnexError) as raised:
        annex.record(Stage.CONNECT, What.BEGIN)
    told = raised.value.failure
    assert (told.stage, told.code) == (Stage.PLAN, "state-unwritable")
    assert str(annex.path) in told.evidence[0].source
    assert "errno" in told.evidence[0].text
    assert log.read_bytes() == before
    annex.record(Stage.CONNECT, What.BEGIN)
    assert stages(annex) == [Stage.PLAN, Stage.CONNECT]


def test_a_full_disk_while_an_annex_is_created_leaves_no_annex(store: Store) -> None:
    with FullDisk(10), pytest.raises(AnnexError) as raised:
        store.create(plan())
    assert raised.value.failure.code == "state-unwritable"
    assert list(store.annexes()) == []
    assert store.create(plan(annex_id="sweep1-00000002")).events()


def test_a_state_directory_that_cannot_be_made_is_an_error_not_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where a directory should be", encoding="utf-8")
    store = Store(tmp_path / "state", FakeClock())
    with pytest.raises(AnnexError) as raised:
        store.create(plan())
    assert raised.value.failure.code == "state-unwritable"
    with pytest.raises(AnnexError) as raised, store.lock("sweep1", "lab"):
        pass
    assert raised.value.failure.code == "state-unwritable"


def test_many_processes_may_append_and_no_line_is_lost(annex: Annex) -> None:
    script = (
        "import sys; from pathlib import Path; from siteannex.annex.store import Annex\n"
        "from siteannex.annex.events import What; from siteannex.errors import Stage\n"
        "from tests.unit.doubles import FakeClock; from tests.unit.samples import plan\n"
        "annex = Annex(Path(sys.argv[1]), plan(), FakeClock())\n"
        "[annex.record(Stage.READY, What.SEEN, text='x' * 500) for _ in range(50)]\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", script, str(annex.path)]) for _ in range(3)]
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0, 0]
    lines = (annex.path / "events.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 151
    assert all(from_line(line) for line in lines)


def test_requests_of_every_kind_survive_the_disk(store: Store) -> None:
    asked = request(nodes=2, cpus=3, memory_mib=4096, partition="gpu", account="mine")
    made = store.create(plan(request=asked, annex_id="x-1", qos="q", notes=("a", "b")))
    assert [found.plan for found in store.annexes()] == [made.plan]
