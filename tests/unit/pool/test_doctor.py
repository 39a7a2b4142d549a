from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from siteannex.failures import failure
from siteannex.model import Join
from siteannex.pool.checks import ApView, Check, Door, Lookup, Verdict, judge_ap
from siteannex.pool.condor import AP, CondorPool
from siteannex.pool.doctor import gather, keyring_kind, look_up_host
from siteannex.pool.link import CondorError
from siteannex.pool.settings import read_settings
from siteannex.pool.tokens import TokenClaims
from tests.unit.pool.test_condor import ANNEX_PARAMS, PARAMS, VERSION, ScriptedLink, an_ap

NOW = datetime(2026, 8, 29, 12, 0, tzinfo=UTC)
SCOPES = ("READ", "ADVERTISE_STARTD", "ADVERTISE_MASTER")
CLAIMS = TokenClaims("POOL", "ap.example.org", "alice@ap.lab", SCOPES, NOW, NOW + timedelta(minutes=1), "1")
PUBLIC = Lookup("ap.example.org", ("8.8.8.8",))
POOL_DOOR = Door(Join.POOL, "", "ap.example.org:9618", PUBLIC, CLAIMS)
SOUND = ApView(
    now=NOW,
    hostname=PUBLIC,
    keyring="SecretService",
    settings=read_settings(PARAMS | ANNEX_PARAMS, "25.14.1"),
    schedd={"Name": "ap.lab", "CondorVersion": VERSION},
    identity="alice@ap.lab",
    collector={"Name": "pool", "CondorVersion": VERSION},
    negotiators=1,
    schedd_in_collector={"MyCurrentTime": 1000, "LastHeardFrom": 1002},
    doors=(POOL_DOOR,),
    waiting_jobs=0,
)


def line(view: ApView, name: str) -> Check:
    return next(check for check in judge_ap(view) if check.name == name)


def test_a_sound_ap_has_no_problem_and_nothing_to_do() -> None:
    checks = judge_ap(SOUND)
    assert {check.verdict for check in checks} == {Verdict.OK}
    assert not any(check.todo for check in checks)


def with_address(address: str, *numbers: str) -> ApView:
    return replace(SOUND, doors=(replace(POOL_DOOR, address=address, lookup=Lookup(address, numbers)),))


@pytest.mark.parametrize(
    ("view", "name", "text", "todo"),
    [
        (
            replace(SOUND, hostname=Lookup("ap", timed_out=True, seconds=8)),
            "host name",
            "no answer in 8 s",
            "/etc/hosts",
        ),
        (replace(SOUND, hostname=Lookup("ap")), "host name", "does not resolve", "/etc/hosts"),
        (replace(SOUND, hostname=Lookup("ap", ("192.0.2.1",), 5.0)), "host name", "after 5.0 s", "name servers"),
        (replace(SOUND, now=datetime(1970, 1, 1, tzinfo=UTC)), "clock", "1970-01-01", "set the clock"),
        (
            replace(SOUND, schedd_in_collector={"MyCurrentTime": 4600, "LastHeardFrom": 1000}),
            "clock",
            "1 h ahead of the collector's",
            "NTP",
        ),
        (with_address("127.0.0.1:9618", "127.0.0.1"), "join pool: address", "loopback", "NETWORK_INTERFACE"),
        (with_address("ap.lab:9618"), "join pool: address", "does not resolve", "COLLECTOR_HOST"),
        (with_address(""), "join pool: address", "not known", "COLLECTOR_HOST"),
        (replace(SOUND, doors=(Door(Join.POOL, "no negotiator"),)), "joins", "no way", "HPC_ANNEX"),
        (
            replace(SOUND, settings=read_settings({"ENABLE_CCB_SERVER": "false"}, "")),
            "network",
            "ENABLE_CCB_SERVER is false",
            "ask your admin",
        ),
        (
            replace(SOUND, settings=read_settings({"USE_SHARED_PORT": "False"}, "")),
            "network",
            "USE_SHARED_PORT is false",
            "ask your admin",
        ),
        (replace(SOUND, identity="alice@other.org"), "annex jobs", "alice@other.org", "ANNEX_TOKEN_DOMAIN"),
        (
            replace(SOUND, schedd=failure("ap-unreachable", AP, "no schedd is found")),
            "schedd",
            "no schedd is found",
            "condor_status -schedd",
        ),
        (
            replace(SOUND, doors=(replace(POOL_DOOR, token=failure("token-refused", AP, "no token")),)),
            "join pool: token",
            "no token",
            "admin",
        ),
    ],
)
def test_each_thing_that_keeps_annexes_from_working_is_a_problem_with_something_to_do(
    view: ApView, name: str, text: str, todo: str
) -> None:
    check = line(view, name)
    assert check.verdict is Verdict.PROBLEM
    assert text in check.text
    assert todo in check.todo


@pytest.mark.parametrize(
    ("view", "name", "text"),
    [
        (with_address("ap.lab:9618", "10.77.1.10"), "join pool: address", "private"),
        (replace(SOUND, keyring=""), "keyring", "keeps a session"),
        (replace(SOUND, negotiators=0), "negotiator", "only attach directly"),
        (replace(SOUND, waiting_jobs=3), "jobs", "3 of your idle jobs"),
        (replace(SOUND, doors=(POOL_DOOR, Door(Join.DIRECT, "not configured"))), "join direct", "not configured"),
        (
            replace(SOUND, doors=(replace(POOL_DOOR, token=replace(CLAIMS, scopes=(*SCOPES, "WRITE"))),)),
            "join pool: token",
            "can also submit jobs as you",
        ),
    ],
)
def test_what_is_good_to_know_is_a_note(view: ApView, name: str, text: str) -> None:
    check = line(view, name)
    assert check.verdict is Verdict.NOTE
    assert text in check.text


def test_a_configuration_that_does_not_load_still_gives_a_report() -> None:
    dead = failure("ap-unreachable", AP, "HTCondor's configuration does not load: no answer within 15 s")
    checks = judge_ap(ApView(NOW, Lookup("ap", timed_out=True, seconds=8), "", dead))
    assert [check.name for check in checks] == ["host name", "clock", "HTCondor", "keyring"]
    assert "mend the host name first" in checks[2].todo


def test_everything_is_gathered_from_an_ap_with_both_ways_to_join(tmp_path: Path) -> None:
    program = tmp_path / "condor_token_fetch"
    program.write_text("#!/bin/sh\necho no >&2; exit 1\n")
    program.chmod(0o755)
    link = an_ap()
    link.answers["config"]["params"] = PARAMS | ANNEX_PARAMS | {"BIN": str(tmp_path), "FULL_HOSTNAME": "ap.lab"}
    view = gather(CondorPool(link), look_up=lambda name: Lookup(name, ("10.77.1.10",)))
    assert view.hostname.name == "ap.lab"
    assert [(door.join, door.address) for door in view.doors] == [
        (Join.POOL, "ap.lab:9618"),
        (Join.DIRECT, "ap.lab:9618?sock=ap_collector"),
    ]
    assert (view.identity, view.negotiators, view.waiting_jobs) == ("alice@ap.lab", 1, 1)


@pytest.mark.parametrize("dead", ["config", "schedd", "ping", "query", "jobs"])
def test_whatever_does_not_answer_the_doctor_still_reports(dead: str, tmp_path: Path) -> None:
    link: ScriptedLink = an_ap()
    link.answers["config"]["params"] = PARAMS | {"BIN": str(tmp_path)}
    link.answers[dead] = CondorError("no answer", timed_out=True)
    checks = judge_ap(gather(CondorPool(link), look_up=lambda name: Lookup(name, ("192.0.2.1",))))
    assert len(checks) >= 4
    assert any(check.verdict is not Verdict.OK for check in checks)


def test_names_are_looked_up_as_this_machine_does() -> None:
    assert {"127.0.0.1", "::1"} & set(look_up_host("localhost").addresses)
    assert look_up_host("no-such-host.invalid").addresses == ()


def test_the_keyring_is_named_or_empty() -> None:
    assert isinstance(keyring_kind(), str)
