"""What every Transport promises."""

from __future__ import annotations

import os
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from siteannex.errors import AnnexError, StageFailure
from siteannex.ports import Command, CommandResult
from tests.contract.conftest import Far


def failure_of(raised: pytest.ExceptionInfo[AnnexError]) -> StageFailure:
    return raised.value.failure


def parts(home: Path) -> list[str]:
    return [str(path) for path in home.rglob("*.part-*")]


def test_several_commands_in_one_round_trip(far: Far) -> None:
    assert far.transport.run(
        [
            Command("echo out; echo err >&2; exit 3"),
            Command("cat", stdin="no newline at the end"),
            Command("tr a-z A-Z", stdin="two\nlines\n"),
            Command("cat; echo nothing to read"),
        ]
    ) == [
        CommandResult(3, "out\n", "err\n"),
        CommandResult(0, "no newline at the end", ""),
        CommandResult(0, "TWO\nLINES\n", ""),
        CommandResult(0, "nothing to read\n", ""),
    ]


def test_no_commands_no_answers(far: Far) -> None:
    assert far.transport.run([]) == []


def test_commands_start_in_the_home_directory_and_keep_nothing_between_them(far: Far) -> None:
    first, second = far.transport.run([Command("pwd; cd /; X=1"), Command("pwd; echo ${X-unset}")])
    assert first.stdout == f"{far.home}\n"
    assert second.stdout == f"{far.home}\nunset\n"


def test_a_command_killed_by_a_signal_has_a_status(far: Far) -> None:
    (result,) = far.transport.run([Command("kill -9 $$")])
    assert result.status == 137
    assert not result.ok


def test_long_input_and_long_output_do_not_block_each_other(far: Far) -> None:
    text = "x" * 79 + "\n"
    first, second = far.transport.run(
        [Command("head -c 3000000 /dev/zero | tr '\\0' y"), Command("wc -c", stdin=text * 20_000)]
    )
    assert len(first.stdout) == 3_000_000
    assert int(second.stdout) == 80 * 20_000


def test_output_that_is_no_text_comes_as_replacement_characters(far: Far) -> None:
    (result,) = far.transport.run([Command("printf '\\377ok'")])
    assert result.stdout == "�ok"


def test_a_thousand_commands_use_one_channel(far: Far) -> None:
    for _ in range(10):
        answers = far.transport.run([Command(f"echo {n}") for n in range(100)])
        assert [answer.stdout for answer in answers] == [f"{n}\n" for n in range(100)]
    assert far.channels() == 1


def test_many_threads_get_their_own_answers(far: Far) -> None:
    def one(number: int) -> bool:
        (answer,) = far.transport.run([Command(f"echo {number}")])
        return answer.stdout == f"{number}\n"

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(one, range(40)))


def test_a_command_that_takes_too_long_is_given_up_and_the_next_one_works(far: Far) -> None:
    started = time.monotonic()
    with pytest.raises(AnnexError) as raised:
        far.transport.run([Command("echo first"), Command("echo so far; sleep 5")], timeout_s=0.5)
    assert time.monotonic() - started < 4
    assert failure_of(raised).code == "remote-timeout"
    assert failure_of(raised).retryable
    assert "1 commands had answered" in failure_of(raised).summary
    assert "so far" in failure_of(raised).evidence[0].text
    assert far.transport.run([Command("echo again")])[0].stdout == "again\n"


def test_a_far_shell_that_dies_is_a_broken_link_and_the_next_command_works(far: Far) -> None:
    with pytest.raises(AnnexError) as raised:
        far.transport.run([Command("kill -9 $PPID; sleep 0.2")], timeout_s=10)
    assert failure_of(raised).code == "link-broken"
    assert "not known" in failure_of(raised).summary
    assert far.transport.run([Command("echo again")])[0].stdout == "again\n"


def test_an_upload_arrives_whole_private_and_under_its_name_only(far: Far, tmp_path: Path) -> None:
    content = os.urandom(1_500_000)
    source = tmp_path / "source"
    source.write_bytes(content)
    target = far.home / "deep er/it's $HOME/file"
    seen: list[tuple[int, int]] = []
    assert far.transport.put(source, str(target), progress=lambda done, total: seen.append((done, total))) == len(
        content
    )
    assert target.read_bytes() == content
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert stat.S_IMODE(target.parent.stat().st_mode) == 0o700
    assert parts(far.home) == []
    assert seen[-1] == (len(content), len(content))
    assert seen == sorted(seen)


def test_an_upload_replaces_what_was_there(far: Far, tmp_path: Path) -> None:
    source = tmp_path / "source"
    target = far.home / "file"
    target.write_text("old")
    target.chmod(0o644)
    source.write_text("new")
    far.transport.put(source, "file")
    assert target.read_text() == "new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_an_empty_file_is_uploaded(far: Far, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.touch()
    assert far.transport.put(source, str(far.home / "empty")) == 0
    assert (far.home / "empty").read_bytes() == b""


def test_a_target_that_cannot_be_written_says_the_far_sides_words(far: Far, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"x" * 1_000_000)
    (far.home / "file").write_text("in the way")
    with pytest.raises(AnnexError) as raised:
        far.transport.put(source, str(far.home / "file/below"))
    assert failure_of(raised).stage == "SHIP"
    assert failure_of(raised).code == "ship-failed"
    (evidence,) = failure_of(raised).evidence
    assert "Not a directory" in evidence.text or "File exists" in evidence.text
    assert "Welcome" not in evidence.text, "an rc file's noise is no evidence"


def test_a_missing_source_is_told_as_ours(far: Far, tmp_path: Path) -> None:
    with pytest.raises(AnnexError) as raised:
        far.transport.put(tmp_path / "absent", str(far.home / "x"))
    assert failure_of(raised).code == "ship-failed"
    assert "here" in failure_of(raised).summary
    assert far.transport.run([Command("echo fine")])[0].ok


def test_uploads_at_the_same_time(far: Far, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(os.urandom(300_000))
    with ThreadPoolExecutor(4) as pool:
        sent = list(pool.map(lambda n: far.transport.put(source, str(far.home / f"up{n % 2}")), range(4)))
    assert sent == [300_000] * 4
    assert (far.home / "up0").read_bytes() == (far.home / "up1").read_bytes() == source.read_bytes()
    assert parts(far.home) == []


def test_the_end_of_a_file_byte_for_byte(far: Far) -> None:
    content = bytes(range(256)) * 1000
    (far.home / "it's a log").write_bytes(content)
    assert far.transport.get(str(far.home / "it's a log"), limit_bytes=1_000_000) == content
    assert far.transport.get("it's a log", limit_bytes=300) == content[-300:]


def test_a_file_that_does_not_exist_is_none(far: Far) -> None:
    assert far.transport.get(str(far.home / "absent"), limit_bytes=10) is None


def test_a_file_that_cannot_be_read_is_no_missing_file(far: Far) -> None:
    (far.home / "directory").mkdir()
    with pytest.raises(AnnexError) as raised:
        far.transport.get(str(far.home / "directory"), limit_bytes=10)
    assert failure_of(raised).code == "file-unreadable"


def test_close_can_be_said_twice(far: Far) -> None:
    far.transport.run([Command("true")])
    far.transport.close()
    far.transport.close()
