"""`transport: openssh`, with a stand-in for the ssh program that keeps a master in a file."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from siteannex.errors import AnnexError
from siteannex.ports import Command, Transport
from siteannex.site.schema import Site
from siteannex.transport.openssh import Master
from siteannex.transport.places import Places
from siteannex.transport.sessions import close_session, list_sessions, open_transport
from tests.loopback.people import Person, loopback_site

FAKE_SSH = """\
#!/bin/sh
# A stand-in: -O check/exit look at the control socket's file, -f makes it, anything else runs the command here.
echo "$*" >>"$0.log"
for word; do
  case $word in ControlPath=*) path=${word#ControlPath=};; -f) login=yes;; esac
  last=$word
done
case "${login-} $* " in
*" -O check "*) [ -e "$path" ];;
*" -O exit "*) [ -e "$path" ] && rm "$path";;
yes*) . "$0.login";;
*) exec /bin/sh -c "$last";;
esac
"""


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(home=tmp_path, user="alice", state=tmp_path / "state", runtime=tmp_path / "run")


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """A function that says what a login does (shell, `$path` is the socket); returns the log of calls."""
    program = tmp_path / "bin/ssh"
    program.parent.mkdir()
    program.write_text(FAKE_SSH)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")

    def on_login(script: str) -> Path:
        program.with_name("ssh.login").write_text(textwrap.dedent(script))
        return program.with_name("ssh.log")

    return on_login


def site() -> Site:
    plain = loopback_site(2222, host="login.lab")
    return plain.model_copy(update={"login": plain.login.model_copy(update={"transport": "openssh"})})


def open_it(places: Places, person: Person | None = None, *, allow_login: bool = True) -> Transport:
    return open_transport(site(), user="alice", prompter=person or Person(), places=places, allow_login=allow_login)


def test_one_master_serves_every_command(ssh: Callable[[str], Path], places: Places) -> None:
    log = ssh('echo "Use is monitored." >&2; touch "$path"')
    person = Person()
    transport = open_it(places, person)
    assert transport.run([Command("echo one")])[0].stdout == "one\n"
    assert transport.run([Command("echo two")])[0].stdout == "two\n"
    transport.close()
    again = open_it(places, allow_login=False)
    assert again.run([Command("echo three")])[0].stdout == "three\n"
    again.close()
    assert person.told == ["Use is monitored.\n"]
    calls = log.read_text().splitlines()
    assert sum(" -f " in call for call in calls) == 1
    login = next(call for call in calls if " -f " in call)
    assert "-p 2222 -l alice login.lab" in login
    assert "ControlPersist=3600" in login
    (session,) = list_sessions(places=places)
    assert (session.site, session.login) == ("loop", "alice@login.lab")
    assert close_session("loop", places=places) == ["loop"]
    assert list_sessions(places=places) == []


def test_files_go_over_the_master(ssh: Callable[[str], Path], places: Places, tmp_path: Path) -> None:
    ssh('touch "$path"')
    transport = open_it(places)
    (tmp_path / "source").write_bytes(b"\0\xff" * 50_000)
    assert transport.put(tmp_path / "source", str(tmp_path / "there/target")) == 100_000
    assert transport.get(str(tmp_path / "there/target"), limit_bytes=5) == b"\xff\0\xff\0\xff"
    transport.close()


def test_a_channel_never_logs_in_by_itself(ssh: Callable[[str], Path], places: Places) -> None:
    log = ssh('touch "$path"')
    transport = open_it(places)
    transport.run([Command("true")])
    transport.close()
    channel = next(call for call in log.read_text().splitlines() if call.endswith("exec /bin/sh"))
    assert "ControlMaster=no" in channel
    assert "ProxyCommand=false" in channel
    assert "BatchMode=yes" in channel
    Master.of(site(), "alice", places).socket.unlink()
    with pytest.raises(AnnexError) as raised:
        transport.run([Command("true")])
    assert raised.value.failure.code == "link-broken"


def test_without_a_master_and_without_leave(ssh: Callable[[str], Path], places: Places) -> None:
    ssh("exit 1")
    with pytest.raises(AnnexError) as raised:
        open_it(places, allow_login=False)
    assert raised.value.failure.code == "session-needed"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("ssh: Could not resolve hostname login.lab: Name or service not known", "host-unresolvable"),
        ("ssh: connect to host login.lab port 22: Connection refused", "host-unreachable"),
        (
            "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.",
            "host-key-changed",
        ),
        ("Host key verification failed.", "host-key-unknown"),
        ("alice@login.lab: Permission denied (publickey).", "key-refused"),
        ("alice@login.lab: Permission denied (keyboard-interactive).", "login-refused"),
        ("Your account has expired; please contact your system administrator.", "account-locked"),
        ("Connection closed by 10.0.0.1 port 22", "link-broken"),
        ("Down for maintenance until Friday.\nConnection closed by 10.0.0.1 port 22", "site-maintenance"),
        ("something new", "login-refused"),
    ],
)
def test_what_ssh_says_becomes_a_failure(ssh: Callable[[str], Path], places: Places, words: str, code: str) -> None:
    ssh(f"cat >&2 <<'EOF'\n{words}\nEOF\nexit 255\n")
    with pytest.raises(AnnexError) as raised:
        open_it(places)
    assert raised.value.failure.code == code
    assert words.splitlines()[0] in raised.value.failure.evidence[0].text
    assert "exit status 255" in raised.value.failure.evidence[0].source
