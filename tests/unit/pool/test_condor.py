"""The pool adapter on real parts: the real bindings against addresses where nothing or nobody answers, and a stand-in
for condor_token_fetch. The happy path runs on a real AP in tests/lab/test_pool.py."""

import socket
import time
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from siteannex.errors import AnnexError, Stage
from siteannex.model import Join
from siteannex.pool import condor
from siteannex.pool.condor import DIRECT_SCOPES, NARROW_SCOPES, CondorPool
from siteannex.pool.link import CondorError, CondorLink
from tests.unit.pool.test_tokens import token

Answers = Callable[..., Any]


class ScriptedLink(CondorLink):
    """Answers from a table instead of from HTCondor."""

    def __init__(self, answers: dict[str, Any]) -> None:
        super().__init__()
        self.answers = answers

    def ask(self, op: str, *, limit_s: int = 15, **arguments: object) -> Any:
        answer = self.answers[op]
        if callable(answer):
            answer = answer(**arguments)
        if isinstance(answer, CondorError):
            raise answer
        return answer


VERSION = "$CondorVersion: 25.14.1 2026-10-16 $"
PARAMS = {"COLLECTOR_HOST": "ap.lab:9618", "TRUST_DOMAIN": "ap.lab", "UID_DOMAIN": "ap.lab"}
ANNEX_PARAMS = {
    "HPC_ANNEX_ENABLED": "True",
    "ANNEX_COLLECTOR": "ap.lab:9618?sock=ap_collector",
    "ANNEX_TOKEN_KEY_NAME": "AP",
    "ANNEX_TOKEN_DOMAIN": "ap.lab",
}


def an_ap(*, negotiators: int = 1, annexes: bool = True, schedd_in: tuple[str, ...] = ("", "annex")) -> ScriptedLink:
    """A link to an AP as the lab has one, with parts left out."""

    def query(*, pool: str, kind: str, constraint: str, keep: list[str]) -> object:
        here = "annex" if pool else ""
        return {
            "Negotiator": [{"Name": "ap.lab"}] * negotiators,
            "Collector": [{"Name": "c", "MyAddress": "<10.77.1.10:9618?alias=ap.lab>", "CondorVersion": VERSION}],
            "Schedd": [{"Name": "ap.lab"}] if here in schedd_in else [],
            "Startd": [],
        }[kind]

    return ScriptedLink(
        {
            "config": {"params": PARAMS | (ANNEX_PARAMS if annexes else {}), "bindings": VERSION},
            "schedd": {"Name": "ap.lab", "MyAddress": "<10.77.1.10:9618?sock=schedd>", "CondorVersion": VERSION},
            "ping": {"MyRemoteUserName": "alice@ap.lab"},
            "query": query,
            "jobs": [{"JobStatus": 1, "TargetAnnexName": "lab"}],
        }
    )


def refused(act: Callable[[], object], code: str) -> AnnexError:
    with pytest.raises(AnnexError) as caught:
        act()
    assert caught.value.failure.code == code
    return caught.value


def test_auto_takes_the_pool_where_a_negotiator_serves_it() -> None:
    facts = CondorPool(an_ap()).facts(Join.AUTO)
    assert facts.join is Join.POOL
    assert facts.collector == "ap.lab:9618"
    assert (facts.identity, facts.schedd, facts.cm_version) == ("alice@ap.lab", "ap.lab", "25.14.1")


@pytest.mark.parametrize("link", [an_ap(negotiators=0), an_ap(schedd_in=("annex",))])
def test_auto_attaches_directly_where_the_pool_does_not_serve_this_ap(link: ScriptedLink) -> None:
    facts = CondorPool(link).facts(Join.AUTO)
    assert facts.join is Join.DIRECT
    assert facts.collector == "ap.lab:9618?sock=ap_collector"


def test_an_ap_without_any_way_to_join_says_why_for_each() -> None:
    error = refused(lambda: CondorPool(an_ap(negotiators=0, annexes=False)).facts(Join.AUTO), "join-unavailable")
    assert "no negotiator serves ap.lab:9618" in error.failure.summary
    assert "use feature:HPC_ANNEX" in error.failure.summary


def test_a_way_that_was_asked_for_by_name_is_not_replaced_by_another() -> None:
    refused(lambda: CondorPool(an_ap(annexes=False)).facts(Join.DIRECT), "join-unavailable")
    refused(lambda: CondorPool(an_ap(negotiators=0)).facts(Join.POOL), "join-unavailable")


def test_an_identity_that_the_schedd_does_not_give_is_made_from_its_domain() -> None:
    link = an_ap()
    link.answers["ping"] = {"MyRemoteUserName": "unauthenticated@unmapped"}
    assert CondorPool(link).identity().endswith("@ap.lab")


def test_slots_of_another_identity_are_left_out_whatever_the_collector_answers() -> None:
    link = an_ap()
    theirs = {"Name": "s1", "SiteannexRequestId": "x", "AuthenticatedIdentity": "bob@ap.lab"}
    older = {"Name": "s2", "SiteannexRequestId": "x", "AuthenticatedIdentity": "alice@ap.lab", "LastHeardFrom": 1}
    newer = older | {"LastHeardFrom": 2, "State": "Claimed"}
    link.answers["query"] = lambda *, pool, **_: [newer, theirs] if pool else [older]
    assert [(slot.name, slot.state) for slot in CondorPool(link).slots()] == [("s2", "Claimed")]


def test_a_collector_that_does_not_answer_is_not_an_annex_without_slots() -> None:
    link = an_ap()
    link.answers["query"] = CondorError("Failed communication with collector.", log="Connection refused")
    error = refused(CondorPool(link).slots, "ap-unreachable")
    assert error.failure.stage is Stage.PLAN
    assert error.failure.evidence[0].text == "Connection refused"


def test_every_name_asked_for_is_counted() -> None:
    counts = CondorPool(an_ap()).job_counts(["lab", "other"])
    assert (counts["lab"].waiting, counts["other"].waiting) == (1, 0)
    assert CondorPool(an_ap()).job_counts([]) == {}


# The real bindings


@pytest.fixture
def real_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CondorPool]:
    monkeypatch.setenv("CONDOR_CONFIG", str(tmp_path / "condor_config"))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        closed_port = listener.getsockname()[1]
    (tmp_path / "condor_config").write_text(f"COLLECTOR_HOST = 127.0.0.1:{closed_port}\nTRUST_DOMAIN = here, there\n")
    pool = CondorPool()
    yield pool
    pool.close()


def test_the_real_configuration_is_read(real_pool: CondorPool) -> None:
    settings = real_pool.settings()
    assert settings.collector_host.startswith("127.0.0.1:")
    assert (settings.trust_domain, settings.annex_collector) == ("here", "")
    assert settings.bindings_version.count(".") == 2


def test_a_collector_that_is_down_is_named_with_the_reason_the_system_gave(real_pool: CondorPool) -> None:
    error = refused(lambda: real_pool.facts(Join.AUTO), "ap-unreachable")
    assert "127.0.0.1" in error.failure.summary
    assert "Connection refused" in error.failure.evidence[0].text


def test_a_daemon_that_takes_the_connection_and_stays_silent_is_given_up_in_time(real_pool: CondorPool) -> None:
    link = CondorLink()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        where = f"127.0.0.1:{silent.getsockname()[1]}"
        begun = time.monotonic()
        with pytest.raises(CondorError) as caught:
            link.ask("query", limit_s=1, pool=where, kind="Startd", constraint="", keep=[])
        assert time.monotonic() - begun < 5
    assert caught.value.timed_out
    assert link.ask("config", names=["TRUST_DOMAIN"])["params"] == {"TRUST_DOMAIN": "here, there"}
    link.close()


def test_a_question_that_the_bindings_cannot_take_is_an_error_and_not_the_end(real_pool: CondorPool) -> None:
    link = CondorLink()
    with pytest.raises(CondorError, match="KeyError"):
        link.ask("no such question")
    assert link.ask("config", names=[])["params"] == {}
    link.close()


# Tokens, with a stand-in for condor_token_fetch

NOW = datetime.now(UTC).replace(microsecond=0)


def a_token(scopes: tuple[str, ...] = NARROW_SCOPES, lifetime_s: int = 3600) -> str:
    at = int(NOW.timestamp())
    scope = " ".join(f"condor:/{name}" for name in scopes)
    return token(iss="ap.lab", sub="alice@ap.lab", iat=at, exp=at + lifetime_s, scope=scope).reveal()


@pytest.fixture
def fetches(tmp_path: Path) -> Callable[[str], CondorPool]:
    def build(script: str) -> CondorPool:
        program = tmp_path / "condor_token_fetch"
        program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/argv\n{script}\n')
        program.chmod(0o755)
        link = an_ap()
        link.answers["config"]["params"] = PARAMS | ANNEX_PARAMS | {"BIN": str(tmp_path)}
        return CondorPool(link, now=lambda: NOW)

    return build


def test_a_token_is_asked_for_with_the_narrowest_rights(fetches: Callable[[str], CondorPool], tmp_path: Path) -> None:
    pool = fetches(f"echo {a_token()}")
    assert pool.issue_token(Join.POOL, 3600).reveal() == a_token()
    assert (tmp_path / "argv").read_text() == (
        "-lifetime 3600 -authz READ -authz ADVERTISE_STARTD -authz ADVERTISE_MASTER\n"
    )


def test_direct_attach_adds_write_and_the_aps_own_key(fetches: Callable[[str], CondorPool], tmp_path: Path) -> None:
    pool = fetches(f"echo {a_token(DIRECT_SCOPES)}")
    assert pool.issue_token(Join.DIRECT, 3600).reveal() == a_token(DIRECT_SCOPES)
    assert (tmp_path / "argv").read_text().endswith("-authz WRITE -key AP\n")


def test_a_user_whose_own_narrow_token_narrows_the_new_one_is_asked_for_again_as_local_user(
    fetches: Callable[[str], CondorPool],
) -> None:
    pool = fetches(
        f'if [ "$_CONDOR_SEC_CLIENT_AUTHENTICATION_METHODS" = FS ]; then echo {a_token()}; '
        f"else echo {a_token(('READ',))}; fi"
    )
    assert pool.issue_token(Join.POOL, 3600).reveal() == a_token()


def test_a_token_that_lacks_something_is_refused_with_what_it_lacks(fetches: Callable[[str], CondorPool]) -> None:
    narrow = fetches(f"echo {a_token(('READ',))}")
    error = refused(lambda: narrow.issue_token(Join.POOL, 3600), "token-refused")
    assert "lacks the authorization ADVERTISE_STARTD, ADVERTISE_MASTER" in error.failure.summary
    limited = fetches(f"echo {a_token(lifetime_s=600)}")
    error = refused(lambda: limited.issue_token(Join.POOL, 3600), "token-refused")
    assert "expires in 10 m, the annex needs 1 h" in error.failure.summary


def test_what_condor_token_fetch_says_when_it_fails_is_the_evidence(fetches: Callable[[str], CondorPool]) -> None:
    pool = fetches('echo "Failed to request a session token" >&2; exit 1')
    error = refused(lambda: pool.issue_token(Join.POOL, 3600), "token-refused")
    assert error.failure.evidence[0].text == "Failed to request a session token"
    assert error.failure.evidence[0].source.startswith("condor_token_fetch -lifetime 3600")


@pytest.mark.parametrize("ending", ["exit 3", "sleep 60"])
def test_no_token_is_in_an_error_however_the_program_ends(
    fetches: Callable[[str], CondorPool], monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    monkeypatch.setattr(condor, "_TOKEN_LIMIT_S", 0.5)
    pool = fetches(f"echo {a_token()}; echo {a_token()} >&2; exec {ending}")
    with pytest.raises(AnnexError) as caught:
        pool.issue_token(Join.POOL, 3600)
    told = repr(caught.value.failure) + "".join(traceback.format_exception(caught.value))
    assert a_token() not in told
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_a_missing_program_is_told_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(condor, "_LAST_PLACES", ())
    error = refused(lambda: CondorPool(an_ap()).issue_token(Join.POOL, 60), "token-refused")
    assert "condor_token_fetch is not installed" in error.failure.summary
