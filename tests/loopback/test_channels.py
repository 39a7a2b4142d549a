"""Channels and uploads at sites that are full, slow, hostile or cut off in the middle."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Timer

import pytest

from siteannex.errors import AnnexError, StageFailure
from siteannex.ports import Command
from siteannex.transport.places import Places
from siteannex.transport.ssh import SshTransport, connect
from tests.faultbook import FaultRow
from tests.loopback.holding import eventually
from tests.loopback.people import Person, loopback_site
from tests.loopback.sshd import LoopbackSshd


@pytest.fixture
def transport(sshd: LoopbackSshd, places: Places) -> Iterator[SshTransport]:
    made = connect(loopback_site(sshd.port), user=None, prompter=Person(), places=places)
    yield made
    made.close()


@pytest.fixture
def big(tmp_path: Path) -> Path:
    source = tmp_path / "big"
    source.write_bytes(os.urandom(8_000_000))
    return source


def failure_of(raised: pytest.ExceptionInfo[AnnexError]) -> StageFailure:
    return raised.value.failure


def left(sshd: LoopbackSshd) -> list[str]:
    return sorted(path.name for path in sshd.home.rglob("*") if path.is_file())


def test_one_login_two_channels_for_a_whole_ship_and_poll(
    sshd: LoopbackSshd, transport: SshTransport, big: Path
) -> None:
    transport.run([Command("true")])
    transport.put(big, "ep/software.tar.gz")
    for _ in range(20):
        transport.run([Command("true"), Command("true")])
    assert transport.opened_channels == 2
    assert sshd.seen.logins == 1


def test_a_site_with_one_session_a_connection(sshd: LoopbackSshd, transport: SshTransport, big: Path) -> None:
    sshd.script.max_sessions = 1
    transport.run([Command("true")])
    transport.put(big, "file")
    assert transport.run([Command("wc -c <file")])[0].stdout.strip() == "8000000"


@pytest.mark.fault("no channel after the login (MaxSessions)", code="channel-refused")
def test_a_site_that_opens_no_channel(sshd: LoopbackSshd, transport: SshTransport, big: Path, fault: FaultRow) -> None:
    sshd.script.max_sessions = 0
    for use in (lambda: transport.run([Command("true")]), lambda: transport.put(big, "file")):
        with pytest.raises(AnnexError) as raised:
            use()
        assert failure_of(raised).code == "channel-refused"
        assert "MaxSessions" in failure_of(raised).hint
        assert "prohibited" in failure_of(raised).evidence[0].text
    fault.saw(failure_of(raised))


def test_a_quota_that_ends_in_the_middle(sshd: LoopbackSshd, transport: SshTransport, big: Path) -> None:
    sshd.script.rc = "trap '' XFSZ; ulimit -f 2000"
    with pytest.raises(AnnexError) as raised:
        transport.put(big, "dir/file")
    failure = failure_of(raised)
    assert (failure.stage, failure.code) == ("SHIP", "ship-failed")
    assert "File too large" in failure.evidence[0].text
    assert left(sshd) == []
    sshd.script.rc = ""
    transport.put(big, "dir/file")
    assert left(sshd) == ["file"]


def test_bytes_changed_on_the_way_are_never_used(sshd: LoopbackSshd, transport: SshTransport, big: Path) -> None:
    fake = sshd.home / "bin"
    fake.mkdir()
    (fake / "cat").write_text("#!/bin/sh\ndd bs=1000 2>/dev/null | tr a b\n")
    (fake / "cat").chmod(0o755)
    (sshd.home / "file").write_text("the old one")
    sshd.script.rc = f"PATH={fake}:$PATH"
    with pytest.raises(AnnexError) as raised:
        transport.put(big, "file")
    failure = failure_of(raised)
    assert (failure.stage, failure.code) == ("SHIP", "ship-corrupt")
    assert "sha256" in failure.evidence[0].text
    assert left(sshd) == ["cat", "file"]
    assert (sshd.home / "file").read_text() == "the old one"


@pytest.mark.parametrize("tools", ["openssl", "shasum", "none"])
def test_checksums_by_whatever_the_site_has(sshd: LoopbackSshd, transport: SshTransport, big: Path, tools: str) -> None:
    small = sshd.home / "bin"
    small.mkdir()
    for name in ("sh", "cat", "wc", "tr", "rm", "mv", "chmod", "mkdir", "find"):
        (small / name).symlink_to(f"/usr/bin/{name}")
    if tools == "openssl":
        (small / "openssl").write_text(
            '#!/bin/sh\n[ "$*" = "dgst -sha256 -r" ] && sum=$(/usr/bin/sha256sum) && echo "${sum%% *} *stdin"\n'
        )
        (small / "openssl").chmod(0o755)
    if tools == "shasum":
        (small / "shasum").write_text('#!/bin/sh\n[ "$*" = "-a 256" ] && exec /usr/bin/sha256sum\n')
        (small / "shasum").chmod(0o755)
    sshd.script.rc = f"PATH={small}"
    if tools == "none":
        with pytest.raises(AnnexError) as raised:
            transport.put(big, "out/file")
        assert failure_of(raised).code == "ship-failed"
        assert "none of sha256sum" in failure_of(raised).evidence[0].text
        assert not (sshd.home / "out/file").exists()
        return
    transport.put(big, "out/file")
    assert (sshd.home / "out/file").read_bytes() == big.read_bytes()


def test_a_connection_cut_halfway_leaves_nothing_that_is_used(
    sshd: LoopbackSshd, transport: SshTransport, places: Places, big: Path
) -> None:
    def cut(done: int, total: int) -> None:
        if done > total // 2:
            sshd.drop_connections()

    with pytest.raises(AnnexError) as raised:
        transport.put(big, "file", progress=cut)
    assert failure_of(raised).code == "upload-cut"
    assert failure_of(raised).retryable
    assert "file" not in left(sshd)
    assert not transport.alive
    assert eventually(lambda: not sshd.busy)
    assert left(sshd) == []
    stale = sshd.home / "file.part-0badcafe"  # as a login node that died would leave one
    stale.touch()
    os.utime(stale, (time.time() - 10_000,) * 2)
    again = connect(loopback_site(sshd.port), user=None, prompter=Person(), places=places)
    again.put(big, "file")
    again.close()
    assert left(sshd) == ["file"], "the next upload sweeps up what an old one left"


def test_an_upload_with_a_known_sum_goes_on_after_a_cut_connection(
    sshd: LoopbackSshd, transport: SshTransport, places: Places, big: Path
) -> None:
    sha256 = hashlib.sha256(big.read_bytes()).hexdigest()

    def cut(done: int, total: int) -> None:
        if done > total // 2:
            sshd.drop_connections()

    with pytest.raises(AnnexError) as raised:
        transport.put(big, f"data/{sha256}", progress=cut, sha256=sha256)
    assert failure_of(raised).code == "upload-cut"
    assert "goes on from there" in failure_of(raised).summary
    assert eventually(lambda: not sshd.busy)
    assert left(sshd) == [f"{sha256}.part"], "under its name is only what was verified"
    there = (sshd.home / "data" / f"{sha256}.part").stat().st_size
    assert there > 1_000_000
    seen: list[int] = []
    again = connect(loopback_site(sshd.port), user=None, prompter=Person(), places=places)
    sent = again.put(big, f"data/{sha256}", progress=lambda done, _: seen.append(done), sha256=sha256)
    again.close()
    assert sent == 8_000_000 - there // 65536 * 65536
    assert seen[0] == there // 65536 * 65536
    assert (sshd.home / "data" / sha256).read_bytes() == big.read_bytes()
    assert left(sshd) == [sha256]


def test_a_file_that_changes_while_it_is_sent_is_not_taken_for_its_old_self(
    sshd: LoopbackSshd, transport: SshTransport, big: Path
) -> None:
    with pytest.raises(AnnexError) as raised:
        transport.put(big, "data/old", sha256="0" * 64)
    assert failure_of(raised).code == "ship-failed"
    assert "changed while it was sent" in failure_of(raised).summary
    assert left(sshd) == []


def test_a_connection_that_dies_in_the_middle_of_a_command(sshd: LoopbackSshd, transport: SshTransport) -> None:
    transport.run([Command("true")])
    os.mkfifo(sshd.home / "cut")
    timer = Timer(0.3, sshd.drop_connections)
    timer.start()
    with pytest.raises(AnnexError) as raised:
        transport.run([Command("echo halfway; read x <cut")], timeout_s=20)
    timer.join()
    assert failure_of(raised).code == "link-broken"
    assert "not known" in failure_of(raised).summary
    assert "halfway" in failure_of(raised).evidence[0].text
    with pytest.raises(AnnexError) as raised:
        transport.run([Command("true")])
    assert failure_of(raised).code == "link-broken"


def test_an_upload_that_is_interrupted_leaves_the_session_alone(
    sshd: LoopbackSshd, transport: SshTransport, big: Path
) -> None:
    def interrupt(done: int, total: int) -> None:
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        transport.put(big, "file", progress=interrupt)
    assert transport.run([Command("ls -A")])[0].stdout == ""


@pytest.mark.parametrize(
    ("rc", "code"),
    [
        ("echo This account is currently not available.; exit 1", "account-locked"),
        ("echo 'WARNING: Your password has expired.' >&2; exit 1", "password-expired"),
        ("echo 'disk quota exceeded for /home' >&2; exit 1", "link-broken"),
    ],
)
def test_a_login_that_runs_no_command_says_why(sshd: LoopbackSshd, transport: SshTransport, rc: str, code: str) -> None:
    sshd.script.rc = rc
    with pytest.raises(AnnexError) as raised:
        transport.run([Command("true")])
    assert failure_of(raised).code == code
    assert failure_of(raised).evidence[0].text in rc
