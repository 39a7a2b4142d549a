"""siteannex's shell scripts for a login node, really run under dash and bash, with a stub Slurm on PATH."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from siteannex.model import BatchState
from siteannex.ports import CommandResult
from siteannex.scheduler.refusals import refusal
from siteannex.scheduler.slurm import (
    cancel_script,
    drain_script,
    query_script,
    read_query,
    read_submitted,
    submit_script,
)
from tests.unit.samples import NOW
from tests.unit.stub_slurm import StubSlurm, run_shell

NAME = "sweep1-00000001"
REFUSED = "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified"
TIMED_OUT = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"


class Login:
    """A login node: a shell, a home with one annex's directory, a Slurm."""

    def __init__(self, shell: str, root: Path) -> None:
        self.shell, self.home, self.slurm = shell, root / "home", StubSlurm(root / "slurm")
        self.annex = self.home / "annex dir"
        self.annex.mkdir(parents=True)
        (self.annex / "batch.sh").write_text(f"#!/bin/sh\n#SBATCH --job-name={NAME}\n", encoding="utf-8")

    def run(self, script: str) -> CommandResult:
        return run_shell(self.shell, script, stub=self.slurm, home=self.home)

    def submit(self, pilots: int) -> CommandResult:
        return self.run(submit_script('"$HOME/annex dir"', pilots))

    def query(self) -> CommandResult:
        return self.run(query_script(NAME, since=NOW))


@pytest.fixture(params=["dash", "bash"])
def login(request: pytest.FixtureRequest, tmp_path: Path) -> Login:
    shell = shutil.which(request.param)
    assert shell is not None, f"{request.param} is needed to test the scripts"
    return Login(shell, tmp_path)


def test_each_pilot_is_submitted_once(login: Login) -> None:
    answer = login.submit(2)
    assert (answer.status, answer.stderr) == (0, "")
    assert read_submitted(answer.stdout) == ("71", "72")
    assert login.slurm.states() == {"71": "PENDING", "72": "PENDING"}


def test_the_same_submission_again_submits_nothing(login: Login) -> None:
    login.submit(2)
    again = login.submit(2)
    assert (again.status, read_submitted(again.stdout)) == (0, ())
    assert login.slurm.submissions() == 2


def test_a_submission_cut_off_between_two_pilots_goes_on_with_the_second(login: Login) -> None:
    login.submit(1)
    assert read_submitted(login.submit(2).stdout) == ("72",)
    assert login.slurm.submissions() == 2


def test_a_submission_cut_off_while_sbatch_ran_is_never_repeated(login: Login) -> None:
    (login.annex / "submit.1").mkdir()
    answer = login.submit(1)
    assert (answer.status, read_submitted(answer.stdout), login.slurm.submissions()) == (0, (), 0)


def test_a_refused_second_pilot_tells_the_first_ones_id_and_slurms_words(login: Login) -> None:
    login.slurm.set("refuse.72", REFUSED)
    answer = login.submit(3)
    assert answer.status == 1
    assert read_submitted(answer.stdout) == ("71",)
    assert refusal(answer, "lab").failure.code == "account-invalid"
    assert login.slurm.submissions() == 2


def test_a_refused_pilot_may_be_tried_again(login: Login) -> None:
    login.slurm.set("refuse.71", REFUSED)
    assert login.submit(1).status == 1
    assert read_submitted(login.submit(1).stdout) == ("72",)


def test_a_pilot_that_slurm_took_while_its_answer_was_lost_is_never_submitted_again(login: Login) -> None:
    login.slurm.set("lost.71", TIMED_OUT)
    assert refusal(login.submit(1), "lab").failure.code == "submit-uncertain"
    assert login.slurm.states() == {"71": "PENDING"}
    assert read_submitted(login.submit(1).stdout) == ()
    assert login.slurm.submissions() == 1


@pytest.mark.parametrize("reply", ["@", "@;expanse", "Submitted batch job @", "Submitted batch job @ on cluster x"])
def test_numbers_in_a_banner_are_not_taken_for_the_job_id(login: Login, reply: str) -> None:
    login.slurm.set(
        "banner", "  Welcome to Stampede3\n\nCurrent Balance: 497,218.77\n3\n% used: 12\\n 5 & / $HOME `id`\n"
    )
    login.slurm.set("reply", reply + "\n")
    assert read_submitted(login.submit(2).stdout) == ("71", "72")


def test_no_directory_is_an_error_and_no_submission(login: Login) -> None:
    answer = login.run(submit_script('"$HOME/nowhere"', 1))
    assert answer.status == 73
    assert login.slurm.submissions() == 0


def test_no_sbatch_is_a_refusal_with_the_shells_words(login: Login) -> None:
    (login.slurm.bin / "sbatch").unlink()
    answer = login.submit(1)
    assert answer.status == 127
    assert "sbatch" in answer.stderr
    assert not (login.annex / "submit.1").exists()


def test_a_query_finds_the_pilots_by_name_and_nobody_elses(login: Login) -> None:
    login.submit(2)
    login.slurm.job("71", NAME, "RUNNING", node="c1", reason="None")
    login.slurm.job("80", "someone-else", "RUNNING")
    jobs = read_query(login.query().stdout, NAME).jobs or ()
    assert [(job.job_id, job.state, job.reason) for job in jobs] == [
        ("71", BatchState.RUNNING, ""),
        ("72", BatchState.PENDING, "Resources"),
    ]


def test_a_pilot_purged_from_squeue_is_found_in_accounting(login: Login) -> None:
    login.submit(1)
    login.slurm.job("71", NAME, "FAILED", exit_code="127:0", reason="NonZeroExitCode")
    login.slurm.set("purged")
    [job] = read_query(login.query().stdout, NAME).jobs or ()
    assert (job.state, job.exit_code, job.reason) == (BatchState.FAILED, "127:0", "NonZeroExitCode")


def test_a_pilot_purged_while_accounting_is_off_is_nothing_there(login: Login) -> None:
    login.submit(1)
    login.slurm.job("71", NAME, "FAILED")
    login.slurm.set("purged")
    login.slurm.set("sacct.off")
    seen = read_query(login.query().stdout, NAME)
    assert seen.jobs == ()
    assert seen.complaint == "Slurm accounting storage is disabled"


def test_a_squeue_that_is_down_is_not_known_with_its_words(login: Login) -> None:
    login.submit(1)
    login.slurm.set("squeue.down", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)")
    seen = read_query(login.query().stdout, NAME)
    assert seen.jobs is None
    assert "Unable to contact" in seen.complaint


def test_no_slurm_commands_at_all_are_not_known(login: Login) -> None:
    (login.slurm.bin / "squeue").unlink()
    (login.slurm.bin / "sacct").unlink()
    assert read_query(login.query().stdout, NAME).jobs is None


def test_a_query_asks_accounting_from_a_day_before_because_sites_have_their_own_midnight() -> None:
    assert "-S 2026-11-28" in query_script(NAME, since=NOW)


def test_a_cancel_ends_pending_and_running_pilots_and_a_drain_only_signals(login: Login) -> None:
    login.submit(2)
    login.slurm.job("71", NAME, "RUNNING", node="c1")
    assert login.run(drain_script(("71",))).status == 0
    assert login.slurm.cancels() == ["--batch --signal=USR1 71"]
    assert login.slurm.states()["71"] == "RUNNING"
    assert login.run(cancel_script(("71", "72"))).status == 0
    assert {state.split()[0] for state in login.slurm.states().values()} == {"CANCELLED"}


def test_slurm_that_only_login_shells_have_on_their_path_is_found(tmp_path: Path) -> None:
    stub = StubSlurm(tmp_path / "slurm")
    (tmp_path / ".bash_profile").write_text(f"echo welcome; PATH={stub.bin}:$PATH\n", encoding="utf-8")
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    script = cancel_script(("71",))
    done = subprocess.run(["/bin/sh", "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert stub.cancels() == ["71"]
