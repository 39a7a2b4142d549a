"""The Slurm provider over a scripted link: what each answer of a site becomes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siteannex.annex.slurm_site import SlurmSite
from siteannex.errors import AnnexError, Stage
from siteannex.failures import fail
from siteannex.model import BatchState
from siteannex.ports import CommandResult
from tests.unit.doubles import Answer, ScriptedTransport
from tests.unit.samples import NOW, site, software

ANNEX = "sweep1-00000001"


def access(*rules: tuple[str, Answer]) -> tuple[SlurmSite, ScriptedTransport]:
    transport = ScriptedTransport(list(rules))
    return SlurmSite(site(), transport), transport


def refused(*rules: tuple[str, Answer]) -> str:
    provider, _ = access(*rules)
    with pytest.raises(AnnexError) as raised:
        provider.survey()
    return raised.value.failure.code


def test_a_survey_tells_home_processor_and_what_is_there() -> None:
    listing = f"/home/alice/.siteannex\nx86_64\n{'ab' * 32}.tar.gz\nhalf.part\n"
    provider, _ = access(("uname -m", CommandResult(0, listing, "")))
    survey = provider.survey()
    assert (survey.home, survey.arch) == ("/home/alice/.siteannex", "x86_64")
    assert survey.ep_present == {"ab" * 32}


def test_a_survey_that_fails_says_why() -> None:
    assert refused(("uname", CommandResult(72, "/home\nx86_64\n", "sbatch: not found"))) == "slurm-missing"
    assert refused(("uname", CommandResult(73, "", "mkdir: Disk quota exceeded"))) == "quota-exceeded"
    assert refused(("uname", CommandResult(73, "", "mkdir: Read-only file system"))) == "home-unwritable"
    assert refused(("uname", CommandResult(73, "", "mkdir: Input/output error"))) == "ship-failed"
    assert refused(("uname", fail("link-broken", "lab", "the link broke"))) == "link-broken"


@given(st.text())
def test_any_survey_answer_is_a_survey_or_a_failure(text: str) -> None:
    provider, _ = access(("uname", CommandResult(0, text, "")))
    try:
        survey = provider.survey()
    except AnnexError:
        return
    assert survey.home
    assert survey.arch


def test_software_that_is_there_is_not_sent_again(tmp_path: Path) -> None:
    archive = tmp_path / "ep.tar.gz"
    archive.write_bytes(b"x" * 21)
    provider, transport = access(("uname", CommandResult(0, f"/h\nx86_64\n{'ab' * 32}.tar.gz\n", "")))
    assert provider.ship_software(software(str(archive)), provider.survey(), None) == 0
    provider, transport = access(("uname", CommandResult(0, "/h\nx86_64\n", "")))
    assert provider.ship_software(software(str(archive)), provider.survey(), None) == 21
    assert list(transport.files) == [f"/h/ep/{'ab' * 32}.tar.gz"]


def test_a_refusal_is_told_and_ending_what_was_accepted_is_the_callers() -> None:
    provider, transport = access(("sbatch --parsable", CommandResult(1, "@pilot 1 71\n", "Invalid qos specification")))
    with pytest.raises(AnnexError) as raised:
        provider.submit(ANNEX, b"bundle", 2)
    assert raised.value.failure.code == "qos-invalid"
    provider.cancel_annex(ANNEX, ("71",))
    assert f"--name={ANNEX}" in transport.scripts[-1]
    assert "scancel 71" in transport.scripts[-1]


@pytest.mark.parametrize(
    "answer", [CommandResult(1, "", "Socket timed out on send/recv operation"), CommandResult(0, "", ""), None]
)
def test_a_lost_answer_removes_nothing(answer: CommandResult | None) -> None:
    lost: Answer = answer or fail("remote-timeout", "lab", "no answer within 120 s")
    provider, transport = access(("sbatch --parsable", lost))
    with pytest.raises(AnnexError) as raised:
        provider.submit(ANNEX, b"bundle", 1)
    assert raised.value.failure.code == ("submit-uncertain" if answer else "remote-timeout")
    assert not [script for script in transport.scripts if re.search("scancel|rm -rf", script)]


def test_what_the_site_shows_of_an_annex_is_read_together() -> None:
    line = '{"at":"2026-11-29T12:00:00Z","job":"71","node":"c1","stage":"EP_START","code":"ok","text":"up"}\n'
    squeue = f"@squeue ok\n71|{ANNEX}|RUNNING|c1|1700000000|1700003600|None\n@sacct failed\ndisabled\n"
    provider, _ = access(
        ("squeue", CommandResult(0, squeue, "")),
        ("progress", CommandResult(0, line, "")),
        ("[ -d", CommandResult(1, "", "")),
    )
    seen = provider.observe(ANNEX, NOW)
    assert seen.queue.jobs is not None
    assert [job.state for job in seen.queue.jobs] == [BatchState.RUNNING]
    assert [report.text for report in seen.reports] == ["up"]
    assert not seen.directory_left


def test_cancelling_a_job_that_is_gone_is_no_error_and_other_refusals_are() -> None:
    provider, _ = access(
        ("scancel", CommandResult(1, "", "scancel: error: Kill job error on job id 71: Invalid job id"))
    )
    provider.cancel(("71",))
    provider, _ = access(("scancel", CommandResult(1, "", "scancel: error: Access/permission denied")))
    with pytest.raises(AnnexError) as raised:
        provider.cancel(("71",))
    assert (raised.value.failure.code, raised.value.failure.stage) == ("release-incomplete", Stage.RELEASED)
    assert "permission denied" in raised.value.failure.evidence[0].text


@pytest.mark.parametrize("name", ["", "../other", "a b", "$(id)", "a;b", "-rf", "a/b", "a'b", 'a"b', "a\n"])
def test_a_name_that_would_harm_in_a_script_is_refused(name: str) -> None:
    provider, transport = access()
    with pytest.raises(ValueError):
        provider.remove(name)
    assert transport.scripts == []


def test_a_log_that_is_gone_is_empty() -> None:
    provider, transport = access(("ls -d", CommandResult(0, "/h/logs/a/71.out\n", "")))
    transport.files["/h/logs/a/71.out"] = b"hello"
    assert provider.log_names(ANNEX) == ("/h/logs/a/71.out",)
    assert provider.read("/h/logs/a/71.out") == b"hello"
    assert provider.read("/h/logs/a/72.out") == b""
