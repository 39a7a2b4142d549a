"""CONNECT: what a real network, sshd and PAM do when a login cannot be, and what siteannex says of it."""

from __future__ import annotations

import pytest

from lab import Lab
from tests.faultbook import FaultRow
from tests.lab.probing import AtSite, Probe, changed

NOBODY = "10.77.2.99"
"""An address of the login node's network that no host has."""
CLOSED = "The cluster is down for maintenance until 17:00."


def configure(lab: Lab, home: str, text: str) -> None:
    lab.exec("ap", ["sh", "-c", f"cat >{home}/.ssh/config"], user="bob", input=text, check=True)


@pytest.mark.fault("host down", code="host-unreachable")
def test_a_host_that_is_down(lab: Lab, probe: Probe, fault: FaultRow) -> None:
    route = f"route add {NOBODY}/32 dev v-login1"
    with changed(lab, "router", f"ip {route}", f"ip {route.replace('add', 'del')}"):
        result = probe("bob", host=NOBODY)
    assert "No route to host" in result["evidence"]
    assert "down" in result["failure"]["hint"]
    assert result["asked"] == []
    fault.saw(result["failure"], seconds=result["seconds"])


@pytest.mark.fault("port filtered", code="host-unreachable")
def test_a_port_that_a_firewall_filters(lab: Lab, probe: Probe, home: str, fault: FaultRow) -> None:
    configure(lab, home, "Host login.lab\n  ConnectTimeout 3\n")
    chain = "add table ip probe; add chain ip probe f { type filter hook forward priority -10; }"
    drop = f"nft '{chain}; add rule ip probe f tcp dport 2222 drop'"
    with changed(lab, "router", drop, "nft delete table ip probe"):
        result = probe("bob", port=2222)
    assert "10.77.2.10 port 2222: no answer in 3 s" in result["evidence"]
    assert "firewall" in result["failure"]["hint"]
    fault.saw(result["failure"], seconds=result["seconds"])


@pytest.mark.fault("no sshd listens", code="host-unreachable")
def test_a_port_where_nothing_listens(probe: Probe, fault: FaultRow) -> None:
    result = probe("bob", port=2222)
    assert "Connection refused" in result["evidence"]
    assert "nothing listens" in result["failure"]["hint"]
    fault.saw(result["failure"], seconds=result["seconds"])


@pytest.mark.fault("unknown host key, not accepted", code="host-key-unknown")
def test_a_host_key_that_is_not_trusted(lab: Lab, probe: Probe, home: str, fault: FaultRow) -> None:
    result = probe("bob", trusts=False)
    assert result["asked"] == ["key of login.lab"]
    assert "SHA256:" in result["evidence"]
    assert lab.exec("ap", ["test", "-e", f"{home}/.ssh/known_hosts"], user="bob").returncode == 1
    fault.saw(result["failure"], seconds=result["seconds"])


@pytest.mark.fault("account locked after wrong passwords", code="account-locked")
def test_an_account_that_pam_locked(probe: Probe, at_site: AtSite, fault: FaultRow) -> None:
    """As many sites do it: pam_faillock before and after the password."""
    locking = (
        "auth required pam_faillock.so preauth deny=1",
        "auth [success=1 default=ignore] pam_unix.so",
        "auth [default=die] pam_faillock.so authfail deny=1",
    )
    lines = "\\n".join(locking)
    with at_site(
        f"cp /etc/pam.d/sshd /etc/pam.d/sshd.lab; sed -i 's/^auth requisite pam_unix.so/{lines}/' /etc/pam.d/sshd",
        "mv /etc/pam.d/sshd.lab /etc/pam.d/sshd; faillock --user nora --reset",
    ):
        assert probe("nora", password="wrong one")["code"] == "password-refused"
        result = probe("nora")
    assert "The account is locked due to 1 failed logins." in result["evidence"]
    assert "erification code" not in "".join(result["asked"]), "a locked account is not asked on"
    fault.saw(result["failure"], seconds=result["seconds"])


@pytest.mark.fault("closed for maintenance (nologin)", code="site-maintenance")
def test_a_site_that_lets_nobody_in(probe: Probe, at_site: AtSite, fault: FaultRow) -> None:
    with at_site(
        f"echo '{CLOSED}' >/etc/nologin; sed -i '1i account requisite pam_nologin.so' /etc/pam.d/sshd",
        "rm /etc/nologin; sed -i '/pam_nologin/d' /etc/pam.d/sshd",
    ):
        result = probe("nora")
    assert result["code"] == "site-maintenance", result
    assert CLOSED in result["summary"]
    assert result["failure"]["retryable"]
    fault.saw(result["failure"], seconds=result["seconds"])


@pytest.mark.fault("jump host down", code="host-unreachable")
def test_a_jump_host_that_is_down(lab: Lab, probe: Probe, home: str, fault: FaultRow) -> None:
    configure(lab, home, f"Host login.lab\n  ProxyJump gina@{NOBODY}\n")
    result = probe("bob")
    assert result["summary"].startswith(f"at the jump host {NOBODY}:22: ")
    assert f"{NOBODY}:22 -> login.lab:22; failed at {NOBODY}:22" in result["evidence"]
    fault.saw(result["failure"], seconds=result["seconds"])


@pytest.mark.fault("jump host does not reach the site", code="host-unreachable")
def test_a_jump_host_that_does_not_reach_the_site(lab: Lab, probe: Probe, home: str, fault: FaultRow) -> None:
    configure(lab, home, "Host 10.77.2.98\n  ProxyJump kay@login.lab\n")
    result = probe("bob", host="10.77.2.98", keys="allowed")
    assert result["summary"].startswith("at the login host 10.77.2.98:22: the jump host does not reach")
    assert "kay" not in "".join(result["asked"])
    fault.saw(result["failure"], seconds=result["seconds"])
