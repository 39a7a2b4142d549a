"""Logins against a scripted server: every step that can fail says so."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path

import paramiko
import pytest

from siteannex.errors import AnnexError, Secret, StageFailure
from siteannex.ports import Command
from siteannex.transport.places import Places
from siteannex.transport.ssh import SshTransport, connect
from siteannex.transport.sshconfig import resolve
from tests.faultbook import FaultRow
from tests.loopback.people import Person, loopback_site
from tests.loopback.sshd import CODE, DONE, PASSWORD, LoopbackSshd, Round, Script


def log_in(
    sshd: LoopbackSshd,
    places: Places,
    person: Person | None = None,
    stored: str | None = None,
    keys: str = "allowed",
) -> SshTransport:
    return connect(
        loopback_site(sshd.port, keys=keys),
        user=None,
        prompter=person or Person(),
        stored_password=Secret(stored) if stored else None,
        places=places,
    )


def refused(
    sshd: LoopbackSshd,
    places: Places,
    person: Person | None = None,
    stored: str | None = None,
    keys: str = "allowed",
) -> StageFailure:
    with pytest.raises(AnnexError) as raised:
        log_in(sshd, places, person, stored, keys)
    failure = raised.value.failure
    assert failure.stage == "CONNECT"
    assert "right password" not in repr(raised.value) + repr(failure)
    return failure


def words(failure: StageFailure) -> str:
    return failure.summary + "\n" + "\n".join(f"{piece.source}: {piece.text}" for piece in failure.evidence)


def works(transport: SshTransport) -> None:
    assert transport.run([Command("echo in")])[0].stdout == "in\n"
    transport.close()


def save_key(places: Places, key: paramiko.PKey, name: str = "id_ecdsa", passphrase: str | None = None) -> Path:
    path = places.home / ".ssh" / name
    key.write_private_key_file(str(path), password=passphrase)
    path.with_name(f"{name}.pub").write_text(f"{key.get_name()} {key.get_base64()} alice\n")
    return path


def test_password_then_code_then_a_round_without_prompts(sshd: LoopbackSshd, places: Places) -> None:
    person = Person()
    works(log_in(sshd, places, person))
    assert [(prompt.text, prompt.kind, prompt.echo) for prompt in person.asked] == [
        ("Password: ", "password", False),
        ("Verification code: ", "otp", False),
    ]
    assert sshd.seen.answers == [["right password"], ["123456"], []]
    assert person.asked[0].login == f"alice@127.0.0.1:{sshd.port}"


def test_banner_and_instructions_reach_the_person(sshd: LoopbackSshd, places: Places) -> None:
    sshd.script = Script(
        banner="Use is monitored.\n",
        rounds=(replace(PASSWORD, instructions="Kerberos"), CODE, Round(instructions="Success. Logging you in...")),
    )
    person = Person()
    works(log_in(sshd, places, person))
    assert person.told == ["Use is monitored.\n", "Success. Logging you in..."]
    assert person.asked[0].instructions == "Kerberos"


def test_both_questions_in_one_round(sshd: LoopbackSshd, places: Places) -> None:
    both = Round((*PASSWORD.prompts, *CODE.prompts), ("right password", "123456"))
    sshd.script = Script(rounds=(both,))
    works(log_in(sshd, places))


def test_a_wrong_password_is_named(sshd: LoopbackSshd, places: Places) -> None:
    failure = refused(sshd, places, Person([("Password", "wrong secret"), ("code", "123456")]))
    assert failure.code == "password-refused"
    assert "answered 'Password:', refused" in words(failure)
    assert "wrong secret" not in words(failure)
    assert len(sshd.seen.answers) == 1, "a refused password must not be tried again"


def test_a_wrong_code_is_named(sshd: LoopbackSshd, places: Places) -> None:
    failure = refused(sshd, places, Person([("Password", "right password"), ("code", "999999")]))
    assert failure.code == "code-refused"
    assert "or the password, if it judges both at the end" in failure.summary
    assert "999999" not in words(failure)
    assert len(sshd.seen.answers) == 2


def test_a_site_that_judges_both_together_is_not_overinterpreted(sshd: LoopbackSshd, places: Places) -> None:
    sshd.script = Script(rounds=(Round((*PASSWORD.prompts, *CODE.prompts), ("right password", "123456")),))
    failure = refused(sshd, places, Person([("Password", "wrong secret"), ("code", "123456")]))
    assert failure.code == "code-refused"
    assert "the password or the code" in failure.summary


def test_a_code_after_a_judged_password_is_the_code_alone(sshd: LoopbackSshd, places: Places) -> None:
    sshd.script = Script(methods=(("password",), ("keyboard-interactive",)), rounds=(CODE,))
    failure = refused(sshd, places, Person([("password", "right password"), ("code", "999999")]))
    assert failure.code == "code-refused"
    assert "password" not in failure.summary


DUO = Round((("Duo two-factor login for alice\n\n 1. Duo Push\n\nPasscode or option (1-1): ", True),), ("1",))


def test_a_duo_menu_is_shown_whole_with_echo(sshd: LoopbackSshd, places: Places) -> None:
    sshd.script = Script(rounds=(PASSWORD, DUO, DONE))
    person = Person([("Password", "right password"), ("option", "1")])
    works(log_in(sshd, places, person))
    assert person.asked[1].echo
    assert "1. Duo Push" in person.asked[1].text


def test_a_wrong_option_of_a_menu_is_a_refused_code(sshd: LoopbackSshd, places: Places) -> None:
    sshd.script = Script(rounds=(PASSWORD, DUO, DONE))
    failure = refused(sshd, places, Person([("Password", "right password"), ("option", "7")]))
    assert failure.code == "code-refused"
    assert "Passcode or option (1-1):" in words(failure)


def test_a_server_may_ask_again_within_one_conversation(sshd: LoopbackSshd, places: Places) -> None:
    again = replace(CODE, instructions="Incorrect passcode. Please try again.")
    sshd.script = Script(rounds=(PASSWORD, Round(CODE.prompts, ("123456",), judge_late=True), again))
    person = Person()
    works(log_in(sshd, places, person))
    assert len(person.asked) == 3


def test_key_then_code(sshd: LoopbackSshd, places: Places) -> None:
    key = paramiko.ECDSAKey.generate()
    save_key(places, key)
    sshd.script = Script(methods=(("publickey",), ("keyboard-interactive",)), keys=[key], rounds=(CODE, DONE))
    works(log_in(sshd, places))
    failure = refused(sshd, places, Person([("code", "999999")]))
    assert failure.code == "code-refused"
    assert "publickey: offered" in words(failure)


def test_key_alone(sshd: LoopbackSshd, places: Places) -> None:
    key = paramiko.ECDSAKey.generate()
    save_key(places, key)
    sshd.script = Script(methods=(("publickey",),), keys=[key])
    person = Person([])
    works(log_in(sshd, places, person))
    assert person.asked == []


def test_a_locked_key_is_opened_only_when_the_site_wants_it(sshd: LoopbackSshd, places: Places) -> None:
    key = paramiko.ECDSAKey.generate()
    path = save_key(places, key, passphrase="open sesame")
    person = Person([("Passphrase", "open sesame"), ("Password", "right password"), ("code", "123456")])
    sshd.script = Script(methods=(("publickey",),), keys=[key])
    works(log_in(sshd, places, person))
    assert [prompt.text for prompt in person.asked] == [f"Passphrase for {path}: "]
    sshd.script = Script(methods=(("publickey", "keyboard-interactive"),), keys=[])
    person.asked.clear()
    works(log_in(sshd, places, person))
    assert [prompt.text for prompt in person.asked] == ["Password: ", "Verification code: "]


def test_a_refused_key_is_named(sshd: LoopbackSshd, places: Places) -> None:
    path = save_key(places, paramiko.ECDSAKey.generate())
    sshd.script = Script(methods=(("publickey",),))
    failure = refused(sshd, places)
    assert failure.code == "key-refused"
    assert str(path) in failure.summary


def test_no_key_at_all_is_said(sshd: LoopbackSshd, places: Places) -> None:
    sshd.script = Script(methods=(("publickey",),))
    failure = refused(sshd, places)
    assert failure.code == "key-refused"
    assert "none was found" in failure.summary


def test_where_keys_are_required_no_password_is_asked(sshd: LoopbackSshd, places: Places) -> None:
    save_key(places, paramiko.ECDSAKey.generate())
    sshd.script = Script(methods=(("publickey", "keyboard-interactive"),))
    person = Person()
    assert refused(sshd, places, person, keys="required").code == "key-refused"
    assert person.asked == []


def test_where_keys_are_forbidden_none_is_offered(sshd: LoopbackSshd, places: Places) -> None:
    key = paramiko.ECDSAKey.generate()
    save_key(places, key)
    sshd.script = Script(methods=(("publickey", "keyboard-interactive"),), keys=[key])
    person = Person()
    works(log_in(sshd, places, person, keys="forbidden"))
    assert len(person.asked) == 2


def test_a_password_by_the_password_method(sshd: LoopbackSshd, places: Places) -> None:
    sshd.script = Script(methods=(("password",),))
    person = Person([("password", "right password")])
    works(log_in(sshd, places, person))
    assert person.asked[0].text == f"alice@127.0.0.1:{sshd.port}'s password: "
    failure = refused(sshd, places, Person([("password", "wrong secret")]))
    assert failure.code == "password-refused"
    assert sshd.seen.passwords == ["right password", "wrong secret"]


def test_a_stored_password_answers_the_password_and_never_the_code(sshd: LoopbackSshd, places: Places) -> None:
    person = Person([("code", "123456")])
    works(log_in(sshd, places, person, stored="right password"))
    assert [prompt.kind for prompt in person.asked] == ["otp"]


def test_a_stored_password_is_tried_once(sshd: LoopbackSshd, places: Places) -> None:
    person = Person()
    failure = refused(sshd, places, person, stored="stale secret")
    assert failure.code == "password-refused"
    assert "from the keyring" in failure.summary
    assert sshd.seen.answers == [["stale secret"]]
    assert person.asked == []


def test_nobody_at_the_terminal(sshd: LoopbackSshd, places: Places) -> None:
    assert refused(sshd, places, Person([])).code == "no-terminal"


@pytest.mark.parametrize(
    "text", ["The account is locked due to 3 failed logins.", "Your account has expired; contact your admin."]
)
def test_a_locked_account_is_told_from_a_wrong_password(sshd: LoopbackSshd, places: Places, text: str) -> None:
    sshd.script = Script(rounds=(Round(instructions=text), PASSWORD))
    failure = refused(sshd, places)
    assert failure.code == "account-locked"
    assert text in words(failure)


def test_a_locked_account_told_by_a_late_banner_and_a_hangup(sshd: LoopbackSshd, places: Places) -> None:
    def judge(login: object) -> None:
        assert hasattr(login, "say_banner")
        assert hasattr(login, "hang_up")
        login.say_banner("Your account has expired; please contact your system administrator.\n")
        login.hang_up()

    sshd.script = Script(rounds=(PASSWORD, replace(CODE, after=judge)))
    assert refused(sshd, places).code == "account-locked"


def test_an_expired_password_is_not_answered(sshd: LoopbackSshd, places: Places) -> None:
    sshd.script = Script(rounds=(PASSWORD, Round((("New password: ", False),))))
    person = Person()
    failure = refused(sshd, places, person)
    assert failure.code == "password-expired"
    assert "must be changed" in failure.summary
    assert f"ssh -p {sshd.port} alice@127.0.0.1" in failure.hint
    assert [prompt.text for prompt in person.asked] == ["Password: "]


def test_a_connection_closed_while_the_person_types(sshd: LoopbackSshd, places: Places) -> None:
    sshd.script = Script(banner="Maintenance from 9:00 to 17:00.\n")
    person = Person(before=lambda prompt: sshd.drop_connections() if prompt.kind == "otp" else None)
    failure = refused(sshd, places, person)
    assert failure.code == "link-broken"
    assert "Maintenance from 9:00" in words(failure)
    assert "answered 'Verification code:'" in words(failure)


@pytest.mark.fault("login banner says maintenance, then a hangup", code="site-maintenance")
def test_a_connection_closed_before_any_question(sshd: LoopbackSshd, places: Places, fault: FaultRow) -> None:
    sshd.script = Script(banner="Down for maintenance until Friday.\n", close_at="auth")
    failure = refused(sshd, places)
    assert failure.code == "site-maintenance"
    assert failure.summary == "loop takes no logins now: Down for maintenance until Friday."
    assert failure.retryable
    fault.saw(failure)


def test_a_disconnect_after_a_wrong_code_is_a_refused_code(sshd: LoopbackSshd, places: Places) -> None:
    def judge(login: object) -> None:
        assert hasattr(login, "hang_up")
        login.hang_up("Too many authentication failures")

    sshd.script = Script(rounds=(PASSWORD, replace(CODE, after=judge)))
    failure = refused(sshd, places)
    assert failure.code == "code-refused"
    assert "Too many authentication failures" in words(failure)


def test_methods_nobody_speaks_are_named(sshd: LoopbackSshd, places: Places) -> None:
    sshd.script = Script(methods=(("gssapi-with-mic", "hostbased"),))
    failure = refused(sshd, places)
    assert failure.code == "login-method-unsupported"
    assert "gssapi-with-mic, hostbased" in failure.summary
    assert "transport: openssh" in failure.hint


def test_a_site_that_bans_quick_returns_is_not_to_be_tried_again_at_once(sshd: LoopbackSshd, places: Places) -> None:
    wrong = Person(answers=(("Password", "wrong"),))
    with pytest.raises(AnnexError) as raised:
        connect(loopback_site(sshd.port, retry="never"), user=None, prompter=wrong, places=places)
    assert "Not at once: loop shuts out who comes back quickly" in raised.value.failure.hint


def test_a_refused_key_is_explained_by_what_the_site_file_knows(sshd: LoopbackSshd, places: Places) -> None:
    sshd.script = Script(methods=(("publickey",),))
    known = loopback_site(sshd.port, keys="required", user_form="x-<ACCESS name>", certificate_lifetime="49h")
    with pytest.raises(AnnexError) as raised:
        connect(known, user=None, prompter=Person(), places=places)
    assert raised.value.failure.code == "key-refused"
    assert "Login names at loop look like x-<ACCESS name>; you came as " in raised.value.failure.hint
    assert "Certificates of loop are good for 2 d 1 h: get a new one." in raised.value.failure.hint


def test_an_unknown_host_key_is_asked_about_once(sshd: LoopbackSshd, places: Places, host_key: paramiko.PKey) -> None:
    person = Person()
    works(log_in(sshd, places, person))
    assert person.shown_keys == [(f"[127.0.0.1]:{sshd.port}", "ecdsa-sha2-nistp256", host_key.fingerprint)]
    works(log_in(sshd, places, person))
    assert len(person.shown_keys) == 1


@pytest.mark.fault("unknown host key, not accepted", code="host-key-unknown")
def test_a_host_key_that_is_not_accepted_ends_the_login(sshd: LoopbackSshd, places: Places, fault: FaultRow) -> None:
    person = Person(accepts_keys=False)
    failure = refused(sshd, places, person)
    assert failure.code == "host-key-unknown"
    assert not (places.home / ".ssh/known_hosts").exists()
    assert person.asked == []
    fault.saw(failure)


def test_a_changed_host_key_is_refused_with_both_fingerprints(
    sshd: LoopbackSshd, places: Places, host_key: paramiko.PKey
) -> None:
    old = paramiko.ECDSAKey.generate()
    known = places.home / ".ssh/known_hosts"
    known.write_text(f"# mine\n[127.0.0.1]:{sshd.port} {old.get_name()} {old.get_base64()}\n")
    person = Person()
    failure = refused(sshd, places, person)
    assert failure.code == "host-key-changed"
    assert old.fingerprint in words(failure)
    assert host_key.fingerprint in words(failure)
    assert f"{known}:2" in words(failure)
    assert person.asked == []
    assert person.shown_keys == []


def test_a_host_known_by_one_key_is_met_by_that_key(sshd: LoopbackSshd, places: Places) -> None:
    second = paramiko.ECDSAKey.generate(bits=384)
    sshd.host_keys.append(second)
    (places.home / ".ssh/known_hosts").write_text(
        f"[127.0.0.1]:{sshd.port} {second.get_name()} {base64.b64encode(second.asbytes()).decode()}\n"
    )
    person = Person(accepts_keys=False)
    works(log_in(sshd, places, person))
    assert person.shown_keys == []


@pytest.mark.fault("no sshd listens", code="host-unreachable")
def test_nothing_listens(sshd: LoopbackSshd, places: Places, fault: FaultRow) -> None:
    sshd.stop()
    failure = refused(sshd, places)
    assert failure.code == "host-unreachable"
    assert "Connection refused (errno 111)" in words(failure)
    assert failure.retryable
    fault.saw(failure)


@pytest.mark.fault("host name does not resolve", code="host-unresolvable")
def test_a_name_that_does_not_resolve(places: Places, fault: FaultRow) -> None:
    with pytest.raises(AnnexError) as raised:
        connect(loopback_site(22, host="no-such-host.invalid"), user=None, prompter=Person(), places=places)
    assert raised.value.failure.code == "host-unresolvable"
    fault.saw(raised.value.failure)


def test_something_that_is_not_ssh(sshd: LoopbackSshd, places: Places) -> None:
    sshd.script = Script(greeting=b"220 mail.example.org ESMTP\r\n")
    assert refused(sshd, places).code == "not-ssh"


def test_the_users_connect_timeout_is_heeded(sshd: LoopbackSshd, places: Places) -> None:
    configure(places, "Host 127.0.0.1\n  ConnectTimeout 7\n")
    assert resolve("loop", loopback_site(sshd.port).login, places).connect_timeout_s == 7


def test_maintenance_announced_for_another_day_does_not_hide_a_wrong_password(
    sshd: LoopbackSshd, places: Places
) -> None:
    sshd.script = Script(banner="Maintenance on 3 December.\n")
    failure = refused(sshd, places, Person([("Password", "wrong secret")]))
    assert failure.code == "password-refused"
    assert "Maintenance on 3 December." in words(failure)


@pytest.mark.fault("jump host refuses the code", code="code-refused")
def test_a_jump_host_that_refuses_the_code_is_named(
    sshd: LoopbackSshd, places: Places, tmp_path: Path, host_key: paramiko.PKey, fault: FaultRow
) -> None:
    gate = LoopbackSshd(tmp_path, [host_key], Script(rounds=(CODE,), forward=True))
    try:
        configure(places, f"Host 127.0.0.1\n  ProxyJump gina@localhost:{gate.port}\n")
        failure = refused(sshd, places, Person([("code", "999999")]))
    finally:
        gate.stop()
    assert failure.summary.startswith(f"at the jump host localhost:{gate.port}: ")
    assert sshd.seen.users == []
    fault.saw(failure)


def test_a_host_that_closes_at_once(sshd: LoopbackSshd, places: Places) -> None:
    sshd.script = Script(close_at="connect")
    failure = refused(sshd, places)
    assert failure.code == "host-unreachable"
    assert "before it greets" in failure.summary


def configure(places: Places, text: str) -> None:
    (places.home / ".ssh/config").write_text(text)


def test_through_a_jump_host_each_with_its_own_login(
    sshd: LoopbackSshd, places: Places, tmp_path: Path, host_key: paramiko.PKey
) -> None:
    gate = LoopbackSshd(tmp_path, [host_key], Script(rounds=(CODE,), forward=True))
    try:
        configure(places, f"Match host 127.0.0.1 !host 127.0.0.2\n  ProxyJump gina@localhost:{gate.port}\n")
        person = Person()
        transport = log_in(sshd, places, person)
        assert transport.authentications == 2
        works(transport)
        assert [prompt.login.partition("@")[0] for prompt in person.asked] == ["gina", "alice", "alice"]
        assert gate.seen.users == ["gina"]
    finally:
        gate.stop()


@pytest.mark.fault("jump host does not reach the site", code="host-unreachable")
def test_a_jump_host_that_does_not_reach_the_site(
    sshd: LoopbackSshd, places: Places, tmp_path: Path, host_key: paramiko.PKey, fault: FaultRow
) -> None:
    gate = LoopbackSshd(tmp_path, [host_key], Script(rounds=(CODE,), forward=True))
    try:
        configure(places, f"Host 127.0.0.1\n  ProxyJump localhost:{gate.port}\n")
        sshd.stop()
        failure = refused(sshd, places)
        assert failure.code == "host-unreachable"
        assert failure.summary.startswith(f"at the login host 127.0.0.1:{sshd.port}: the jump host does not reach")
        assert f"localhost:{gate.port} -> 127.0.0.1:{sshd.port}" in words(failure)
        fault.saw(failure)
    finally:
        gate.stop()


@pytest.mark.fault("jump host down", code="host-unreachable")
def test_a_jump_host_that_is_down(sshd: LoopbackSshd, places: Places, fault: FaultRow) -> None:
    configure(places, "Host 127.0.0.1\n  ProxyJump localhost:1\n")
    failure = refused(sshd, places)
    assert failure.code == "host-unreachable"
    assert failure.summary == "at the jump host localhost:1: localhost:1 does not answer"
    assert f"localhost:1 -> 127.0.0.1:{sshd.port}" in words(failure)
    fault.saw(failure)


def test_a_proxy_command_carries_the_connection(sshd: LoopbackSshd, places: Places) -> None:
    script = "import socket,sys,threading,os\ns=socket.create_connection((sys.argv[1],int(sys.argv[2])))\n" + (
        "def up():\n while (d:=os.read(0,65536)): s.sendall(d)\n s.close()\n os._exit(0)\n"
        "threading.Thread(target=up,daemon=True).start()\nwhile (d:=s.recv(65536)): os.write(1,d)\n"
    )
    (places.home / "proxy.py").write_text(script)
    configure(places, f"Host 127.0.0.1\n  ProxyCommand python3 {places.home}/proxy.py %h %p\n")
    works(log_in(sshd, places))


def test_a_proxy_command_that_fails_is_quoted(sshd: LoopbackSshd, places: Places) -> None:
    configure(places, "Host 127.0.0.1\n  ProxyCommand sh -c 'echo gate is closed >&2'\n")
    failure = refused(sshd, places)
    assert failure.code == "host-unreachable"
    assert "gate is closed" in words(failure)
