"""The real pool adapter on the lab's access point, as the users there."""

import json
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lab import Lab

PROBE = Path(__file__).with_name("pool_probe.py").read_text()
Ask = Callable[..., Any]
BOTH = pytest.mark.parametrize("join", ["pool", "direct"])


@pytest.fixture
def ask(lab: Lab) -> Ask:
    """Put one question to the pool adapter on the AP: `ask("facts", "pool", user="alice")`."""

    def put(*words: str, user: str = "alice") -> Any:
        done = lab.exec("ap", ["/opt/siteannex/bin/python", "-W", "error", "-", *words], user=user, input=PROBE)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return put


@BOTH
def test_both_ways_to_join_are_offered(ask: Ask, join: str) -> None:
    facts = ask("facts", join)
    address = {"pool": "ap.lab:9618", "direct": "ap.lab:9618?sock=ap_collector"}[join]
    assert (facts["join"], facts["collector"]) == (join, address)
    assert (facts["identity"], facts["trust_domain"], facts["schedd"]) == ("alice@ap.lab", "ap.lab", "ap.lab")
    assert facts["cm_version"].count(".") == 2


def test_auto_is_the_pool(ask: Ask) -> None:
    assert ask("facts", "auto")["join"] == "pool"


@pytest.mark.parametrize(
    ("join", "key", "scopes"),
    [
        ("pool", "POOL", ["READ", "ADVERTISE_STARTD", "ADVERTISE_MASTER"]),
        ("direct", "AP", ["READ", "ADVERTISE_STARTD", "ADVERTISE_MASTER", "WRITE"]),
    ],
)
def test_tokens_are_narrow_and_short(ask: Ask, join: str, key: str, scopes: list[str]) -> None:
    claims = ask("token", join, "900")
    assert (claims["subject"], claims["key_id"], claims["scopes"]) == ("alice@ap.lab", key, scopes)
    issued, expires = (datetime.fromisoformat(claims[name]) for name in ("issued_at", "expires_at"))
    assert expires - issued == timedelta(seconds=900)


@pytest.fixture
def stand_in(ask: Ask) -> Iterator[Ask]:
    """Slot ads sent with an issued token, as an EP of alice's would send them; gone after the test."""
    sent: list[tuple[str, str]] = []

    def send(join: str, mark: str) -> None:
        sent.append((join, ask("stand-in", join, mark)))

    yield send
    for join, name in sent:
        ask("take-away", join, name)


def test_an_issued_token_advertises_slots_and_only_their_owner_sees_them(ask: Ask, stand_in: Ask) -> None:
    for join in ("pool", "direct"):
        stand_in(join, "pool-test-1")
    seen = ask("slots", "pool-test-1")
    assert [slot["name"] for slot in seen] == ["slot1@pool-test-1-direct", "slot1@pool-test-1-pool"]
    assert {(slot["owner"], slot["state"], slot["total_gpus"]) for slot in seen} == {("alice@ap.lab", "Drained", 2)}
    assert ask("slots", "pool-test-2") == []
    assert ask("slots", user="bob") == []


@pytest.fixture
def waiting_jobs(lab: Lab) -> Iterator[None]:
    """Two idle jobs and a held one of alice's, for an annex nobody has."""
    job = 'executable=/bin/true\ntransfer_executable=false\nMY.TargetAnnexName="Pool-Count"\n'
    submit = f"cd; printf '{job}queue 2\n' | condor_submit && printf '{job}hold=true\nqueue\n' | condor_submit"
    done = lab.exec("ap", ["sh", "-c", submit], user="alice")
    assert done.returncode == 0, done.stderr
    yield
    lab.exec("ap", ["condor_rm", "-constraint", 'TargetAnnexName == "pool-count"'], user="alice")


@pytest.mark.usefixtures("waiting_jobs")
def test_jobs_are_counted_for_their_owner(ask: Ask) -> None:
    counts = ask("counts", "pool-count", "nobodys", 'odd"name')
    assert counts["pool-count"] == {"waiting": 2, "running": 0, "held": 1}
    assert counts["nobodys"] == counts['odd"name'] == {"waiting": 0, "running": 0, "held": 0}
    assert ask("counts", "pool-count", user="bob")["pool-count"]["waiting"] == 0


def test_the_doctor_finds_the_ap_fit_and_its_private_address(ask: Ask) -> None:
    checks = {check["name"]: check for check in ask("doctor")}
    sound = ("host name", "clock", "HTCondor", "schedd", "identity", "collector", "negotiator", "join pool")
    assert {checks[name]["verdict"] for name in (*sound, "join direct", "join pool: token", "network")} == {"ok"}
    assert "WRITE" in checks["join direct: token"]["text"]
    assert "private address" in checks["join pool: address"]["text"]
    assert "TCP_FORWARDING_HOST" in checks["join pool: address"]["todo"]


# In a mount namespace of the AP: a resolver that takes the question and never answers.
SILENT_DNS = """
echo 'hosts: dns' > /run/nss && mount --bind /run/nss /etc/nsswitch.conf
echo 'nameserver 127.0.0.1' > /run/rc && mount --bind /run/rc /etc/resolv.conf
/opt/siteannex/bin/python -c '
import socket, time
held = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); held.bind(("127.0.0.1", 53)); time.sleep(120)' &
/usr/local/bin/lab-as alice /opt/siteannex/bin/python -W error - facts auto
kill $!; wait; rm -f /run/nss /run/rc
"""


def test_a_dead_name_server_is_told_and_not_waited_for(lab: Lab) -> None:
    begun = time.monotonic()
    done = lab.exec("ap", ["unshare", "--mount", "sh", "-c", SILENT_DNS], input=PROBE)
    assert time.monotonic() - begun < 40
    failure = json.loads(done.stdout)["failure"]
    assert failure["code"] == "ap-unreachable"
    assert "no answer within 15 s" in failure["summary"]
    assert "name server" in failure["hint"]
