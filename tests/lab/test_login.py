"""Logins and uploads at a real sshd with PAM: what it really says when something is wrong, and what we make of it."""

from __future__ import annotations

import pytest

from lab import Lab
from siteannex.errors import Stage
from tests.faultbook import FaultRow
from tests.lab.probing import RELOAD, AtSite, Probe


@pytest.mark.parametrize(
    ("account", "asked"),
    [
        ("bob", ["Password: ", "Verification code: "]),
        ("tess", ["Password: ", "Verification code: "]),
        ("nora", ["Password: ", "Verification code: "]),
        ("kim", ["Verification code: "]),
        ("kay", []),
    ],
)
@pytest.mark.parametrize("persist", [True, False], ids=["held", "in-process"])
def test_every_kind_of_account(probe: Probe, account: str, asked: list[str], persist: bool) -> None:
    result = probe(account, keys="allowed", persist=persist, do=["run", "put:2000000:.probe/file", "run:rm -r .probe"])
    assert result["code"] == "ok", result
    assert result["asked"] == ["key of login.lab", *asked]
    assert "LAB CLUSTER" in result["told"][0]
    assert result["did"][0] == [{"status": 0, "stdout": f"{account}\nlogin1\n", "stderr": ""}]
    assert result["did"][1] == 2_000_000


def test_a_menu_like_duos(probe: Probe) -> None:
    result = probe("dana")
    assert result["code"] == "ok", result
    assert "1. Duo Push" in result["asked"][2]


@pytest.mark.fault("wrong password", code="password-refused")
def test_a_wrong_password(probe: Probe, fault: FaultRow) -> None:
    result = probe("bob", password="wrong one")
    assert result["code"] == "password-refused", result
    assert result["asked"][1:] == ["Password: "]
    fault.saw(result["failure"], seconds=result["seconds"])


@pytest.mark.fault("wrong code", code="code-refused")
def test_a_wrong_code(probe: Probe, fault: FaultRow) -> None:
    result = probe("bob", code="000000")
    assert result["code"] == "code-refused", result
    fault.saw(result["failure"], seconds=result["seconds"])


@pytest.mark.fault("reused code", code="code-refused")
def test_a_code_used_twice(lab: Lab, probe: Probe, fault: FaultRow) -> None:
    code = lab.code("bob")
    assert probe("bob", code=code)["code"] == "ok"
    result = probe("bob", code=code)
    assert result["code"] == "code-refused", result
    fault.saw(result["failure"], seconds=result["seconds"])


@pytest.mark.fault("menu answered with a wrong option", code="code-refused")
def test_a_wrong_option(probe: Probe, fault: FaultRow) -> None:
    result = probe("dana", option="3")
    assert result["code"] == "code-refused", result
    assert "Passcode or option (1-3):" in result["evidence"]
    assert result["failure"]["hint"] == "Answer with a number of its menu, or with a passcode."
    fault.saw(result["failure"], seconds=result["seconds"])


@pytest.mark.fault("no key", code="key-refused")
def test_no_key(lab: Lab, probe: Probe, home: str, fault: FaultRow) -> None:
    lab.exec("ap", ["sh", "-c", f"rm {home}/.ssh/id_*"], user="bob", check=True)
    result = probe("kay", keys="allowed")
    assert result["code"] == "key-refused", result
    assert "none was found" in result["summary"]
    fault.saw(result["failure"], seconds=result["seconds"])


@pytest.mark.fault("key refused", code="key-refused")
def test_a_key_the_site_does_not_know(lab: Lab, probe: Probe, home: str, fault: FaultRow) -> None:
    make = f"rm {home}/.ssh/id_*; ssh-keygen -q -t ed25519 -N '' -f {home}/.ssh/id_ed25519"
    lab.exec("ap", ["sh", "-c", make], user="bob", check=True)
    result = probe("kay", keys="allowed")
    assert result["code"] == "key-refused", result
    assert f"{home}/.ssh/id_ed25519" in result["summary"]
    fault.saw(result["failure"], seconds=result["seconds"])


@pytest.mark.fault("account locked", code="account-locked")
def test_an_expired_account(probe: Probe, at_site: AtSite, fault: FaultRow) -> None:
    with at_site("chage -E 1 nora", "chage -E -1 nora"):
        result = probe("nora")
    assert result["code"] == "account-locked", result
    assert "expired" in result["summary"]
    fault.saw(result["failure"], seconds=result["seconds"])


@pytest.mark.fault("password expired", code="password-expired")
def test_an_expired_password(probe: Probe, at_site: AtSite, fault: FaultRow) -> None:
    with at_site("chage -d 0 nora", "chage -d $(date +%F) nora"):
        result = probe("nora")
    assert result["code"] == "password-expired", result
    assert "must be changed" in result["summary"]
    assert "ssh nora@login.lab" in result["failure"]["hint"]
    fault.saw(result["failure"], seconds=result["seconds"])


def test_a_login_shell_that_is_none(probe: Probe, at_site: AtSite) -> None:
    shell = "/usr/local/bin/closed"
    text = "#!/bin/sh\\necho This account is currently not available.\\nexit 1\\n"
    with at_site(
        f"printf '{text}' >{shell} && chmod 755 {shell} && usermod -s {shell} nora",
        f"usermod -s /bin/bash nora; rm {shell}",
    ):
        result = probe("nora")
    assert result["code"] == "account-locked", result
    assert "not available" in result["evidence"]


@pytest.mark.fault("MaxSessions = 1", code="-")
def test_a_site_with_one_session_a_connection(probe: Probe, at_site: AtSite, fault: FaultRow) -> None:
    with at_site(
        f"sed -i 's/^MaxSessions 10/MaxSessions 1/' /etc/ssh/sshd_config; {RELOAD}",
        f"sed -i 's/^MaxSessions 1$/MaxSessions 10/' /etc/ssh/sshd_config; {RELOAD}",
    ):
        result = probe("bob", do=["run", "put:100000:.probe/file", "run:rm -r .probe"])
    assert result["code"] == "ok", result
    assert result["did"][1] == 100_000
    fault.no_failure(Stage.CONNECT, seconds=result["seconds"])


@pytest.mark.fault("changed host key", code="host-key-changed")
def test_a_changed_host_key(lab: Lab, probe: Probe, home: str, fault: FaultRow) -> None:
    fake = (
        f"ssh-keygen -q -t ed25519 -N '' -f {home}/other && "
        f"echo login.lab $(cut -d' ' -f1,2 {home}/other.pub) >{home}/.ssh/known_hosts"
    )
    lab.exec("ap", ["sh", "-c", fake], user="bob", check=True)
    result = probe("bob")
    assert result["code"] == "host-key-changed", result
    assert f"{home}/.ssh/known_hosts:1" in result["evidence"]
    assert result["asked"] == []
    fault.saw(result["failure"], seconds=result["seconds"])


@pytest.mark.fault("connection dropped mid-login", code="link-broken")
def test_a_login_cut_off_while_the_person_types(probe: Probe, at_site: AtSite, fault: FaultRow) -> None:
    with at_site(
        f"sed -i '1i LoginGraceTime 2' /etc/ssh/sshd_config; {RELOAD}",
        f"sed -i '/^LoginGraceTime/d' /etc/ssh/sshd_config; {RELOAD}",
    ):
        result = probe("bob", slow_s=4)
    assert result["code"] == "link-broken", result
    assert "answered 'Password:'" in result["evidence"]
    assert "LAB CLUSTER" in result["evidence"]
    fault.saw(result["failure"], seconds=result["seconds"])


def test_the_ssh_program_with_a_key(probe: Probe, lab: Lab) -> None:
    known = lab.known_hosts()
    lab.exec("ap", ["sh", "-c", "cat >>~/.ssh/known_hosts"], user="bob", input=known, check=True)
    result = probe("kay", keys="allowed", transport="openssh", do=["run", "put:300000:.probe/file", "run:rm -r .probe"])
    assert result["code"] == "ok", result
    assert result["did"][0][0]["stdout"] == "kay\nlogin1\n"
    assert result["did"][1] == 300_000
