"""AP_CONNECT: everything that can stand between a node and its access point."""

from __future__ import annotations

import pytest

from lab import Lab
from siteannex.errors import Stage
from tests.faultbook import FaultRow
from tests.lab.faults.pilots import Trial
from tests.lab.faults.tokens import Mint

HOSTS_BACK = "cat /run/hosts >/etc/hosts; rm /run/hosts"


@pytest.mark.fault("collector port dropped", code="collector-unreachable")
def test_a_port_that_a_firewall_drops(trial: Trial, lab: Lab, fault: FaultRow) -> None:
    lab.net("blocked")
    try:
        trial.fails(fault, "cannot reach ap.lab:9618", "DNS ok (10.77.1.10, a private address)", "no answer within 5 s")
    finally:
        lab.net("nat")


@pytest.mark.fault("collector port refused", code="collector-refused")
def test_a_port_that_is_refused(trial: Trial, lab: Lab, fault: FaultRow) -> None:
    lab.net("rejected")
    try:
        trial.fails(fault, "ap.lab:9618: Connection refused", "tried 3 times")
    finally:
        lab.net("nat")


@pytest.mark.fault("collector at a wrong address", code="collector-no-route")
def test_an_address_that_leads_nowhere(trial: Trial, fault: FaultRow) -> None:
    with trial.nodes("cp /etc/hosts /run/hosts; sed -i 's/^10.77.1.10/10.99.0.1/' /etc/hosts", HOSTS_BACK):
        trial.fails(fault, "DNS ok (10.99.0.1, a private address)")


@pytest.mark.fault("collector's port is another program's", code="collector-silent")
def test_a_port_where_something_else_answers(trial: Trial, fault: FaultRow) -> None:
    params = '"$ANNEX_DIR/params.sh"'
    elsewhere = f's=$(sed "s/9618/22/; s/ap[.]lab:22/login.lab:22/; s/HOST=ap[.]lab/HOST=login.lab/" {params})'
    trial.site(environment=(elsewhere, f'echo "$s" >{params}'))
    trial.fails(fault, "does not speak to HTCondor")


@pytest.mark.fault("DNS fails", code="collector-unresolvable")
def test_a_name_that_does_not_resolve(trial: Trial, fault: FaultRow) -> None:
    with trial.nodes("cp /etc/hosts /run/hosts; grep -v ap.lab /run/hosts >/etc/hosts", HOSTS_BACK):
        trial.fails(fault, "ap.lab does not resolve on c", "getent ahosts ap.lab: not found")


@pytest.mark.fault("token expired", code="token-expired")
def test_a_token_that_has_expired(trial: Trial, mint: Mint, fault: FaultRow) -> None:
    mint.put(trial, shift="-2h")
    trial.fails(fault, "the token expired 1 h", "AUTHENTICATE:1004:Failed to authenticate using IDTOKENS")


@pytest.mark.fault("token not yet valid", code="-")
def test_htcondor_takes_a_token_before_its_time(trial: Trial, mint: Mint, fault: FaultRow) -> None:
    """HTCondor 25.14 looks neither at `iat` nor at `nbf`. Where one refuses it: token-not-yet-valid."""
    mint.put(trial, shift="+2h")
    trial.comes_up()
    fault.no_failure(Stage.AP_CONNECT)


@pytest.mark.fault("token of another issuer", code="token-wrong-issuer")
def test_a_token_of_another_pool(trial: Trial, mint: Mint, fault: FaultRow) -> None:
    mint.put(trial, before="export _CONDOR_TRUST_DOMAIN=other.org")
    trial.fails(fault, "the token is from other.org; ap.lab takes those of ap.lab", "AUTHENTICATE:1004")


@pytest.mark.fault("token signed with another key", code="token-wrong-key")
def test_a_token_that_another_key_signed(trial: Trial, mint: Mint, fault: FaultRow) -> None:
    keys = (
        "d=$(mktemp -d); head -c 32 /dev/urandom >$d/POOL; chmod 600 $d/POOL; export _CONDOR_SEC_PASSWORD_DIRECTORY=$d"
    )
    mint.put(trial, before=f"{keys} _CONDOR_SEC_TOKEN_POOL_SIGNING_KEY_FILE=$d/POOL")
    trial.fails(fault, "has no key POOL that signed it", "AUTHENTICATE:1004")


@pytest.mark.fault("token lacking ADVERTISE_STARTD", code="token-scope-missing")
def test_a_token_that_allows_too_little(trial: Trial, mint: Mint, fault: FaultRow) -> None:
    mint.put(trial, scopes=("READ", "ADVERTISE_MASTER"))
    trial.fails(fault, "the token lacks ADVERTISE_STARTD", 'SECMAN:2010:Received "DENIED"')


@pytest.mark.fault("owner not allowed to bring EPs", code="token-not-authorized")
def test_an_owner_whom_the_ap_does_not_allow(trial: Trial, mint: Mint, fault: FaultRow) -> None:
    mint.put(trial, identity="mallory@other.org")
    trial.fails(fault, "knows mallory@other.org and does not allow this", 'SECMAN:2010:Received "DENIED"')


@pytest.mark.fault("clock skew", code="clock-skew")
def test_a_node_whose_clock_is_two_hours_ahead(trial: Trial, fault: FaultRow) -> None:
    date = 'exec env LD_PRELOAD=$(ls /usr/lib/*/faketime/libfaketime.so.1) FAKETIME=+2h /bin/date "$@"'
    make = f"mkdir -p $TMPDIR/odd; printf '%s\\n' '#!/bin/sh' '{date}' >$TMPDIR/odd/date; chmod 700 $TMPDIR/odd/date"
    odd = "export TMPDIR=/dev/shm/$SLURM_JOB_ID"
    trial.site(environment=(odd, make, "export PATH=$TMPDIR/odd:$PATH"))
    try:
        trial.fails(fault, "this node's clock is 2 h ahead of ap.lab's", "condor_ping, session's second")
    finally:
        with trial.nodes("rm -rf /dev/shm/[0-9]*", "true"):
            pass


@pytest.mark.fault("NAT without CCB", code="ccb-missing")
def test_an_ep_that_jobs_could_not_come_back_to(trial: Trial, fault: FaultRow) -> None:
    trial.site(config=("CCB_ADDRESS =",))
    trial.fails(fault, "CCB_ADDRESS is empty")


@pytest.mark.fault("collector restarted", code="-")
def test_a_collector_that_is_restarted_finds_its_ep_again(
    trial: Trial, lab: Lab, fault: FaultRow, request: pytest.FixtureRequest
) -> None:
    trial.comes_up("--cpus", "1", "--idle", "60s")
    lab.exec("ap", ["condor_restart", "-daemon", "collector"], check=True)
    request.addfinalizer(lambda: _negotiator_back(lab, trial))
    ended = "grep -c 'COLLECTOR (pid [0-9]*) exited' /var/log/condor/MasterLog || true"
    assert trial.ground.wait_for(lambda: trial.ground.at("ap", ended), lambda seen: seen != "0", within_s=20) != "0"

    def stage() -> str:
        return str(trial.person.types("status", "lab", "--json").json()[0]["stage"])

    assert trial.ground.wait_for(stage, lambda seen: seen == "READY", within_s=90) == "READY"
    fault.no_failure(Stage.AP_CONNECT)


def _negotiator_back(lab: Lab, trial: Trial) -> None:
    """A restarted collector hears of its negotiator only minutes later, and `up` asks for it: hurry it."""
    lab.exec("ap", ["sh", "-c", "kill -HUP $(pgrep -f '^condor_negotiator')"], check=True)
    look = "condor_status -negotiator -af Name"
    assert trial.ground.wait_for(lambda: trial.ground.at("ap", look), lambda seen: seen != "", within_s=60)
