"""The session holder: one login for many commands, and nothing a client does or suffers can harm it."""

from __future__ import annotations

import os
import re
import signal
import socket
import stat
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import paramiko
import pytest

from siteannex.errors import AnnexError, Secret, StageFailure
from siteannex.ports import Command, Prompt
from siteannex.site.schema import Site
from siteannex.transport.held import HeldTransport, start_holder
from siteannex.transport.places import Places
from siteannex.transport.sessions import close_session, list_sessions, open_transport
from siteannex.transport.ssh import SshTransport
from tests.loopback.holding import eventually, holder_of, holder_pid, lives
from tests.loopback.people import Person, loopback_site
from tests.loopback.sshd import LoopbackSshd


@pytest.fixture
def held(places: Places) -> Iterator[Places]:
    """Places whose holder is ended after the test."""
    with holder_of(places) as same:
        yield same


def open_it(site: Site, places: Places, person: Person | None = None, **more: object) -> HeldTransport:
    transport = open_transport(site, user=None, prompter=person or Person(), places=places, **more)  # type: ignore[arg-type]
    assert isinstance(transport, HeldTransport)
    return transport


def fails(site: Site, places: Places, person: Person | None = None, *, allow_login: bool = True) -> StageFailure:
    with pytest.raises(AnnexError) as raised:
        open_transport(site, user=None, prompter=person or Person(), places=places, allow_login=allow_login)
    return raised.value.failure


def says(transport: HeldTransport, word: str = "here") -> bool:
    return transport.run([Command(f"echo {word}")])[0].stdout == f"{word}\n"


def works(transport: HeldTransport) -> bool:
    try:
        return says(transport)
    finally:
        transport.close()


def test_one_login_serves_every_later_command(sshd: LoopbackSshd, held: Places) -> None:
    site = loopback_site(sshd.port)
    first = Person()
    with_login = open_it(site, held, first)
    assert says(with_login)
    with_login.close()
    nobody = Person([])
    again = open_it(site, held, nobody)
    assert says(again)
    assert again.opened_channels == 1
    again.close()
    assert [prompt.text for prompt in first.asked] == ["Password: ", "Verification code: "]
    assert nobody.asked == []
    assert sshd.seen.logins == 1
    (session,) = list_sessions(places=held)
    assert (session.site, session.login) == ("loop", f"alice@127.0.0.1:{sshd.port}")
    assert (session.authentications, session.channels_opened) == (1, 1)
    assert 3500 < (session.idle_until - session.since).total_seconds() < 3610


def test_an_unknown_host_key_is_compared_with_the_one_in_the_site_file(
    sshd: LoopbackSshd, held: Places, host_key: paramiko.PKey
) -> None:
    published = {"ecdsa": host_key.fingerprint, "ed25519": "SHA256:of-a-key-not-shown"}
    person = Person()
    open_it(loopback_site(sshd.port, fingerprints=published), held, person).close()
    assert person.told == [f"The site file has this ecdsa key: {host_key.fingerprint}"]


def test_a_host_key_that_differs_from_the_site_files_is_told_before_the_question(
    sshd: LoopbackSshd, held: Places
) -> None:
    person = Person(accepts_keys=False)
    with pytest.raises(AnnexError) as raised:
        open_it(loopback_site(sshd.port, fingerprints={"ecdsa": "SHA256:other"}), held, person)
    assert raised.value.failure.code == "host-key-unknown"
    assert "The site file has another ecdsa key: SHA256:other" in person.told[0]


def test_questions_banners_and_host_keys_reach_the_clients_person(
    sshd: LoopbackSshd, held: Places, host_key: paramiko.PKey
) -> None:
    sshd.script.banner = "Use is monitored.\n"
    person = Person()
    open_it(loopback_site(sshd.port), held, person).close()
    assert person.told == ["Use is monitored.\n"]
    assert person.shown_keys == [(f"[127.0.0.1]:{sshd.port}", "ecdsa-sha2-nistp256", host_key.fingerprint)]
    assert person.asked[1] == Prompt("loop", f"alice@127.0.0.1:{sshd.port}", "Verification code: ", False, "otp", "")


def test_a_failed_login_comes_back_whole(sshd: LoopbackSshd, held: Places) -> None:
    failure = fails(loopback_site(sshd.port), held, Person([("Password", "wrong secret")]))
    assert failure.code == "password-refused"
    assert failure.site == "loop"
    assert "answered 'Password:', refused" in failure.evidence[0].text
    assert "wrong secret" not in repr(failure)
    assert list_sessions(places=held) == []


def test_a_host_key_refused_by_the_person(sshd: LoopbackSshd, held: Places) -> None:
    assert fails(loopback_site(sshd.port), held, Person(accepts_keys=False)).code == "host-key-unknown"


def test_a_prompter_without_a_terminal_ends_the_login_with_its_own_failure(sshd: LoopbackSshd, held: Places) -> None:
    failure = fails(loopback_site(sshd.port), held, Person([]))
    assert failure.code == "no-terminal"
    assert failure.summary == "nobody answers 'Password: '"


def test_a_stored_password_travels_and_is_not_asked(sshd: LoopbackSshd, held: Places) -> None:
    person = Person([("code", "123456")])
    assert works(open_it(loopback_site(sshd.port), held, person, stored_password=Secret("right password")))
    assert [prompt.kind for prompt in person.asked] == ["otp"]


def test_without_a_session_and_without_leave_to_log_in(sshd: LoopbackSshd, held: Places) -> None:
    failure = fails(loopback_site(sshd.port), held, allow_login=False)
    assert failure.code == "session-needed"
    assert "siteannex login" in failure.hint
    assert holder_pid(held) == 0, "asking must not start a holder"


def test_a_session_is_not_lent_to_another_address_or_user(sshd: LoopbackSshd, held: Places) -> None:
    site = loopback_site(sshd.port)
    open_it(site, held).close()
    assert fails(loopback_site(sshd.port, host="localhost"), held, allow_login=False).code == "session-needed"
    with pytest.raises(AnnexError) as raised:
        open_transport(site, user="bob", prompter=Person(), places=held, allow_login=False)
    assert raised.value.failure.code == "session-needed"
    assert open_transport(site, user="alice", prompter=Person(), places=held, allow_login=False)


def test_a_login_as_another_user_says_that_it_ends_the_session_of_the_first(sshd: LoopbackSshd, held: Places) -> None:
    site = loopback_site(sshd.port)
    open_it(site, held).close()
    bob = Person()
    open_transport(site, user="bob", prompter=bob, places=held).close()
    assert bob.told == [f"Your session at loop as alice@127.0.0.1:{sshd.port} ends when this login succeeds.\n"]
    assert [session.login for session in list_sessions(places=held)] == [f"bob@127.0.0.1:{sshd.port}"]


def test_logout_of_one_site_and_of_all(sshd: LoopbackSshd, held: Places) -> None:
    transport = open_it(loopback_site(sshd.port), held)
    assert says(transport)
    pid = holder_pid(held)
    assert close_session("elsewhere", places=held) == []
    assert close_session("loop", places=held) == ["loop"]
    with pytest.raises(AnnexError) as raised:
        transport.run([Command("true")])
    assert raised.value.failure.code == "session-needed"
    assert "siteannex logout" in raised.value.failure.summary
    transport.close()
    assert lives(pid)
    assert close_session(None, places=held) == []
    assert eventually(lambda: not lives(pid))
    assert not held.holder_socket.exists()
    assert close_session(None, places=held) == []


def test_the_holder_is_alone_detached_and_private(sshd: LoopbackSshd, held: Places) -> None:
    open_it(loopback_site(sshd.port), held).close()
    pid = holder_pid(held)
    start_holder(held)
    start_holder(held)
    assert holder_pid(held) == pid
    assert os.getsid(pid) == pid
    assert Path(f"/proc/{pid}/cwd").readlink() == Path("/")
    files = {path.readlink().name for path in Path(f"/proc/{pid}/fd").iterdir() if path.name in "012"}
    assert files == {"null"}
    assert stat.S_IMODE(held.runtime.stat().st_mode) == 0o700
    assert stat.S_IMODE(held.holder_socket.stat().st_mode) == 0o600
    assert stat.S_IMODE(held.holder_log.stat().st_mode) == 0o600
    assert b"secret" not in Path(f"/proc/{pid}/environ").read_bytes()

    def holders() -> int:
        return sum(str(held.runtime) in _command(path) for path in Path("/proc").glob("[0-9]*/cmdline"))

    assert eventually(lambda: holders() == 1), "a second holder gives way to the first"


def _command(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""


def test_no_answer_is_ever_written_anywhere(sshd: LoopbackSshd, held: Places, tmp_path: Path) -> None:
    open_it(loopback_site(sshd.port), held).close()
    fails(loopback_site(sshd.port, host="localhost"), held, Person([("Password", "wrong secret")]))
    log = held.holder_log.read_text()
    assert re.search(r"login: loop as alice@127\.0\.0\.1", log)
    assert "login refused: loop: password-refused" in log
    for path in tmp_path.rglob("*"):
        if path.is_file():
            text = path.read_bytes()
            assert b"right password" not in text
            assert b"123456" not in text
            assert b"wrong secret" not in text


CLIENT = """
import sys
from pathlib import Path
from siteannex.ports import Command
from siteannex.transport.places import Places
from siteannex.transport.sessions import list_sessions
from siteannex.transport.held import HeldTransport
places = Places(home=Path("/"), user="x", state=Path(sys.argv[1]), runtime=Path(sys.argv[2]))
(session,) = list_sessions(places=places)
transport = HeldTransport(session, places)
"""


def client(places: Places, code: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", CLIENT + textwrap.dedent(code), str(places.state), str(places.runtime)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGINT])
def test_a_client_that_dies_in_the_middle_of_a_command_harms_nothing(
    sshd: LoopbackSshd, held: Places, blow: signal.Signals
) -> None:
    transport = open_it(loopback_site(sshd.port), held)
    code = """
    print("go", flush=True)
    try:
        transport.run([Command("touch started; sleep 1; touch done")])
    except KeyboardInterrupt:
        pass
    """
    with client(held, code) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "go\n"
        assert eventually((sshd.home / "started").exists)
        process.send_signal(blow)
        process.wait(5)
    assert says(transport)
    assert (sshd.home / "done").exists(), "the command ran to its end; its answer was for nobody"
    assert sshd.seen.logins == 1
    transport.close()


def test_a_client_killed_in_the_middle_of_an_upload_leaves_no_half_file(
    sshd: LoopbackSshd, held: Places, tmp_path: Path
) -> None:
    transport = open_it(loopback_site(sshd.port), held)
    source = tmp_path / "big"
    source.write_bytes(os.urandom(60_000_000))
    code = f"""
    def progress(done, total):
        print(done, flush=True)
    transport.put(Path({str(source)!r}), "big", progress=progress)
    """
    with client(held, code) as process:
        assert process.stdout is not None
        while int(process.stdout.readline()) == 0:
            pass
        process.kill()
        process.wait(5)
    far = sshd.home / "big"
    assert eventually(lambda: not [path for path in sshd.home.iterdir() if ".part-" in path.name], 30)
    assert not far.exists() or far.read_bytes() == source.read_bytes()
    assert says(transport)
    transport.close()


def test_ctrl_c_at_a_question_gives_the_login_up(sshd: LoopbackSshd, held: Places) -> None:
    def interrupt(prompt: Prompt) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        open_it(loopback_site(sshd.port), held, Person(before=interrupt))
    assert eventually(lambda: "login given up by the client" in held.holder_log.read_text())
    assert list_sessions(places=held) == []
    assert works(open_it(loopback_site(sshd.port), held))


def test_a_connection_that_broke_is_noticed_and_the_session_dropped(sshd: LoopbackSshd, held: Places) -> None:
    transport = open_it(loopback_site(sshd.port), held)
    assert says(transport)
    sshd.drop_connections()
    assert eventually(lambda: list_sessions(places=held) == [])
    with pytest.raises(AnnexError) as raised:
        transport.run([Command("true")])
    assert raised.value.failure.code == "session-needed"
    assert "the connection was lost" in raised.value.failure.summary
    transport.close()


def test_a_holder_that_was_killed_is_told_and_replaced(sshd: LoopbackSshd, held: Places) -> None:
    transport = open_it(loopback_site(sshd.port), held)
    pid = holder_pid(held)
    os.kill(pid, signal.SIGKILL)
    assert eventually(lambda: not lives(pid))
    with pytest.raises(AnnexError) as raised:
        transport.run([Command("true")])
    assert raised.value.failure.code in {"session-holder-lost", "session-needed"}
    assert list_sessions(places=held) == []
    assert works(open_it(loopback_site(sshd.port), held))
    assert sshd.seen.logins == 2


def test_a_session_nobody_uses_ends_and_then_the_holder(sshd: LoopbackSshd, places: Places) -> None:
    places.runtime.mkdir(mode=0o700)
    places.state.mkdir(mode=0o700)
    start_holder(places, grace_s=0.5)
    with holder_of(places):
        assert eventually(lambda: holder_pid(places) != 0)
        pid = holder_pid(places)
        transport = open_it(loopback_site(sshd.port, idle_s=1), places)
        assert says(transport)
        transport.close()
        assert eventually(lambda: not lives(pid), 15)
    assert "it was not used for 1 s" in places.holder_log.read_text()
    assert "holder ended" in places.holder_log.read_text()
    assert not places.holder_socket.exists()


def test_many_clients_and_two_sites_at_once(
    sshd: LoopbackSshd, held: Places, tmp_path: Path, host_key: paramiko.PKey
) -> None:
    other = LoopbackSshd(tmp_path, [host_key])
    try:
        first = loopback_site(sshd.port)
        second = loopback_site(other.port).model_copy(update={"name": "second"})
        open_it(first, held).close()
        open_it(second, held).close()
        good: list[bool] = []

        def use(number: int) -> None:
            transport = open_it((first, second)[number % 2], held, Person([]))
            good.append(says(transport, str(number)))
            transport.close()

        threads = [threading.Thread(target=use, args=(number,)) for number in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert good == [True] * 12
        assert [session.site for session in list_sessions(places=held)] == ["loop", "second"]
        assert (sshd.seen.logins, other.seen.logins) == (1, 1)
    finally:
        close_session(None, places=held)
        other.stop()


def test_two_logins_at_once_ring_the_phone_once(sshd: LoopbackSshd, held: Places) -> None:
    waiting, told = threading.Event(), threading.Event()

    class Slow(Person):
        def ask(self, prompt: Prompt) -> Secret:
            waiting.set()
            assert told.wait(10)
            return super().ask(prompt)

    class Second(Person):
        def tell(self, text: str) -> None:
            super().tell(text)
            told.set()

    site = loopback_site(sshd.port)
    first = threading.Thread(target=lambda: open_it(site, held, Slow()).close())
    first.start()
    assert waiting.wait(10)
    second = Second([])
    assert works(open_it(site, held, second))
    first.join(10)
    assert "logging in to loop" in second.told[0]
    assert sshd.seen.logins == 1


def test_a_site_can_forbid_kept_sessions(sshd: LoopbackSshd, held: Places) -> None:
    site = loopback_site(sshd.port, persist=False)
    transport = open_transport(site, user=None, prompter=Person(), places=held)
    assert isinstance(transport, SshTransport)
    assert transport.run([Command("true")])[0].ok
    transport.close()
    assert holder_pid(held) == 0
    assert fails(site, held, allow_login=False).code == "session-needed"


@pytest.mark.parametrize(
    ("line", "word"),
    [
        (b"not json\n", "not JSON"),
        (b'{"v": 99, "type": "Ping"}\n', "version 99"),
        (b'{"v": 1, "type": "Dance"}\n', "unknown message type"),
        (b'{"v": 1, "type": "RunRequest", "site": 5}\n', "bad field"),
        (b'{"v": 1, "type": "Pong", "pid": 5}\n', "not a request"),
    ],
)
def test_a_client_of_another_mind_gets_a_clear_error(sshd: LoopbackSshd, held: Places, line: bytes, word: str) -> None:
    open_it(loopback_site(sshd.port), held).close()
    with socket.socket(socket.AF_UNIX) as stream:
        stream.connect(str(held.holder_socket))
        stream.sendall(line)
        with stream.makefile("rb") as reader:
            reply = reader.readline().decode()
    assert "session-holder-lost" in reply
    assert word in reply
    assert len(list_sessions(places=held)) == 1


def test_a_socket_path_that_is_too_long_is_said(sshd: LoopbackSshd, places: Places) -> None:
    long = replace(places, runtime=places.runtime / ("x" * 100))
    failure = fails(loopback_site(sshd.port), long)
    assert failure.code == "session-holder-lost"
    assert "107" in failure.summary
    assert "XDG_RUNTIME_DIR" in failure.hint


def test_a_runtime_directory_that_is_not_ours_alone_is_mended_or_refused(sshd: LoopbackSshd, held: Places) -> None:
    held.runtime.mkdir(mode=0o755)
    open_it(loopback_site(sshd.port), held).close()
    assert stat.S_IMODE(held.runtime.stat().st_mode) == 0o700


def test_a_runtime_directory_that_cannot_be_made(sshd: LoopbackSshd, places: Places, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    failure = fails(loopback_site(sshd.port), replace(places, runtime=tmp_path / "file/run"))
    assert failure.code == "session-holder-lost"
    assert failure.evidence
