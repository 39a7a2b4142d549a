"""Waiting in Slurm's queue: reasons in plain words, and what `sbatch --test-only` and its kin say. Pure text."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siteannex.annex.explaining.waiting import Waiting, explain_waiting, queue_hint
from siteannex.annex.judging.verdict import PilotVerdict
from siteannex.errors import Stage
from siteannex.model import BatchState, Plan
from siteannex.scheduler.limits import Limits, limit_behind, parse_walltime
from siteannex.scheduler.reasons import HOPELESS_REASONS, explain_reason
from siteannex.scheduler.starts import Outlook, Standing, Trial, read_outlook, starts_script
from tests.unit.samples import NOW, job, plan, request

ANSWER = """Welcome to the cluster
@jobs
8|normal|abc123|100|1795966800|QOSMaxGRESPerUser
@ahead
8|100
9|250
10|300
11|20
@qos
Name|MaxTRESPU|MaxWall
normal|cpu=64,gres/gpu=6|
long||2-00:00:00
@own
Account|User|MaxJobs
abc123|alice|4
@account
Account|User|GrpTRES
abc123||cpu=100,mem=200G
@partition
PartitionName=gpu AllowQos=ALL AllocNodes=ALL Default=NO QoS=gpu-qos DefaultTime=00:30:00
@partitions
debug|30:00
gpu|4:00:00
week|7-00:00:00
free|infinite
@now 1795965000 -0500
@try debug
sbatch: Job 12 to start at 1795965001 using 8 processors on nodes c1 in partition debug
@try old
sbatch: Job 13 to start at 2026-11-29T10:10:27 using 8 processors on c[1-2]
@try small
sbatch: error: Batch job submission failed: Requested node configuration is not available
@try mute
"""


def test_the_whole_answer_is_read() -> None:
    seen = read_outlook(ANSWER)
    [standing] = seen.standings
    assert standing == Standing(
        "8", "normal", "abc123", datetime.fromtimestamp(1795966800, UTC), "QOSMaxGRESPerUser", ahead=2
    )
    assert [row["name"] for row in seen.limits.qos] == ["normal", "long"]
    assert [row["user"] for row in seen.limits.associations] == ["alice", ""]
    assert seen.partition_qos == "gpu-qos"
    assert seen.walltimes == {"debug": 1800, "gpu": 14400, "week": 7 * 86400}
    assert seen.now == datetime.fromtimestamp(1795965000, UTC)


def test_a_trial_start_is_read_as_seconds_or_in_the_sites_own_time() -> None:
    trials = read_outlook(ANSWER).trials
    assert trials["debug"].start == datetime.fromtimestamp(1795965001, UTC)
    assert trials["old"].start == datetime(2026, 11, 29, 15, 10, 27, tzinfo=UTC)
    assert trials["small"] == Trial(None, "Batch job submission failed: Requested node configuration is not available")
    assert trials["mute"] == Trial(None, "sbatch said nothing")


def test_one_script_asks_everything_and_submits_nothing() -> None:
    script = starts_script(["8", "9"], "gpu", {"gpu shared": ["--partition=gpu shared", "--mem=1M"]})
    assert "squeue -h -j 8,9 " in script
    assert "sbatch --test-only '--partition=gpu shared' --mem=1M" in script
    assert script.count("sbatch ") == script.count("sbatch --test-only ") + script.count("command -v sbatch ")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 1800),
        ("30:00", 1800),
        ("1:30", 90),
        ("4:00:00", 14400),
        ("1-0", 86400),
        ("1-12", 129600),
        ("1-12:30", 131400),
        ("2-00:00:00", 172800),
        ("infinite", None),
        ("UNLIMITED", None),
        ("n/a", None),
        ("", None),
    ],
)
def test_slurms_forms_of_a_time(text: str, seconds: int | None) -> None:
    assert parse_walltime(text) == seconds


@given(st.text(max_size=400))
def test_foreign_text_is_never_an_exception(text: str) -> None:
    read_outlook(text)
    read_outlook(
        "\n".join(f"{tag}\n{text}" for tag in ("@jobs", "@ahead", "@qos", "@own", "@account", "@partition", "@try x"))
    )
    read_outlook(f"@now {text}\n@try x\nJob 1 to start at {text}")
    parse_walltime(text)
    assert explain_reason(text).text


@pytest.mark.parametrize(
    ("reason", "words", "hopeless"),
    [
        ("", "no reason yet", False),
        ("Priority", "other jobs stand before it", False),
        ("Resources", "waits for nodes", False),
        ("ReqNodeNotAvail, UnavailableNodes:c[1-4]", "reserved or down", False),
        ("QOSMaxGRESPerUser", "more GPUs than the QOS allows one user", False),
        ("QOSMaxCpuPerUserLimit", "more CPUs than the QOS allows one user", False),
        ("QOSMaxJobsPerUserLimit", "more running jobs than the QOS allows one user", False),
        ("AssocGrpGRESMinutes", "your account has used up its GPUs x time", False),
        ("AssocGrpCPURunMinutesLimit", "CPUs x time of what runs now", False),
        ("QOSGrpGRES", "all jobs under the QOS together", False),
        ("MaxGRESPerAccount", "all jobs of your account together", False),
        ("QOSMaxGRESPerNode", "a job on one node", True),
        ("QOSMaxWallDurationPerJobLimit", "longer than the QOS allows", True),
        ("QOSMinGRES", "at least", True),
        ("PartitionTimeLimit", "longer than the partition allows", True),
        ("JobHeldUser", "you hold it", True),
        ("SomethingNew", "'SomethingNew'", False),
    ],
)
def test_reasons_in_plain_words(reason: str, words: str, *, hopeless: bool) -> None:
    told = explain_reason(reason)
    assert words in told.text
    assert told.hopeless is hopeless


def test_whatever_judge_calls_hopeless_is_hopeless_here() -> None:
    assert all(explain_reason(reason).hopeless and explain_reason(reason).todo for reason in HOPELESS_REASONS)


def waiting(reason: str, outlook: Outlook | None = None, asked: Plan | None = None, **changes: object) -> Waiting:
    pending = replace(job("8", BatchState.PENDING, reason=reason, start=None), **changes)  # type: ignore[arg-type]
    pilot = PilotVerdict("8", Stage.BATCH_JOB, "PENDING", None, pending)
    return explain_waiting(asked or plan(), pilot, outlook or Outlook(), NOW)


def limited(reason: str, columns: dict[str, str]) -> Waiting:
    """Waiting for a limit of QOS gpu-qos (and of the account's association, under the same column names)."""
    row = {"name": "gpu-qos", "account": "abc123", "user": "" if "grp" in next(iter(columns)) else "alice", **columns}
    outlook = Outlook((Standing("8", "gpu-qos", "abc123", ahead=0),), Limits((row,), (row,)))
    return waiting(reason, outlook, start=NOW + timedelta(hours=1))


@pytest.mark.parametrize(
    ("reason", "columns", "words"),
    [
        (
            "QOSMaxGRESPerUser",
            {"maxtrespu": "gres/gpu=3"},
            "QOS gpu-qos allows you 3 GPUs at once; this pilot asks 2 GPUs",
        ),
        ("QOSMaxCpuPerUserLimit", {"maxtrespu": "cpu=8,mem=1G"}, "QOS gpu-qos allows you 8 CPUs at once"),
        (
            "QOSMaxJobsPerUserLimit",
            {"maxjobspu": "1"},
            "allows you 1 running job at once; this pilot asks 1 running job",
        ),
        ("QOSMaxGRESPerAccount", {"maxtrespa": "gres/gpu=3"}, "allows an account 3 GPUs at once"),
        ("QOSGrpNodeLimit", {"grptres": "node=2"}, "allows all its jobs together 2 nodes at once"),
        ("AssocGrpMemLimit", {"grptres": "mem=40G"}, "account abc123 allows all its jobs together 40 GB"),
        ("AssocMaxJobsLimit", {"maxjobs": "2"}, "your association with abc123 allows you 2 running jobs at once"),
        (
            "AssocMaxSubmitJobLimit",
            {"maxsubmit": "5"},
            "your association with abc123 allows you 5 jobs in the queue at once",
        ),
    ],
)
def test_a_limit_reached_with_others_is_told_with_its_number(reason: str, columns: dict[str, str], words: str) -> None:
    told = limited(reason, columns)
    assert not told.hopeless
    assert words in told.so[0]
    assert "hold the rest: it starts when they end" in told.so[0]


@pytest.mark.parametrize(
    ("reason", "columns", "words", "todo"),
    [
        (
            "QOSMaxGRESPerUser",
            {"maxtrespu": "gres/gpu=1"},
            "you asked 2 GPUs, QOS gpu-qos allows 1 GPU per user",
            "--gpus 1",
        ),
        ("QOSMaxGRESPerUser", {"maxtrespu": "gres/gpu=9,gres/gpu:a100=1"}, "allows 1 GPU per user", "--gpus 1"),
        ("QOSMaxGRESPerJob", {"maxtres": "gres/gpu=1"}, "QOS gpu-qos allows 1 GPU a job", "--gpus 1"),
        (
            "QOSMaxCpuPerUserLimit",
            {"maxtrespu": "cpu=4"},
            "you asked 8 CPUs, QOS gpu-qos allows 4 CPUs per user",
            "--cpus 4",
        ),
        ("QOSMaxMemoryPerUser", {"maxtrespu": "mem=16000M"}, "you asked 32 GB, QOS gpu-qos allows", "--mem 16000MB"),
        ("QOSMaxWallDurationPerJobLimit", {"maxwall": "00:05:00"}, "you asked 1 h, QOS gpu-qos allows 5 m a job", "5m"),
        (
            "AssocMaxWallDurationPerJobLimit",
            {"maxwall": "30"},
            "your association with abc123 allows 30 m a job",
            "--lifetime 30m",
        ),
        (
            "AssocGrpGRES",
            {"grptres": "gres/gpu=1"},
            "account abc123 allows 1 GPU for all its jobs together",
            "--gpus 1",
        ),
        ("QOSMaxJobsPerUserLimit", {"maxjobspu": "0"}, "QOS gpu-qos allows 0 running jobs per user", "--account"),
        ("QOSMaxNodePerUserLimit", {"maxtrespu": "node=0"}, "allows 0 nodes per user", "another --partition"),
    ],
)
def test_a_pilot_beyond_a_limit_by_itself_never_starts(
    reason: str, columns: dict[str, str], words: str, todo: str
) -> None:
    told = limited(reason, columns)
    assert told.hopeless
    assert told.start is None
    assert "it can never start: you asked" in told.so[0]
    assert words in told.so[0]
    assert told.short.startswith("never: you asked")
    assert todo in told.do[0]


def test_a_partitions_qos_counts_before_the_jobs_own() -> None:
    rows = ({"name": "gpu-qos", "maxtrespu": "gres/gpu=4"}, {"name": "normal", "maxtrespu": "gres/gpu=6"})
    outlook = Outlook((Standing("8", "normal"),), Limits(rows), partition_qos="gpu-qos")
    five = plan(shape=replace(plan().shape, gpus=5), request=request(gpus=5))
    told = waiting("QOSMaxGRESPerUser", outlook, five)
    assert told.short == "never: you asked 5 GPUs, QOS gpu-qos allows 4 GPUs per user"


def test_a_limit_the_site_does_not_tell_leaves_slurms_reason_in_plain_words() -> None:
    told = waiting("QOSMaxGRESPerUser", Outlook((Standing("8", "normal"),)))
    assert "more GPUs than the QOS allows one user" in told.so[0]
    assert limit_behind("Priority", Limits(), ["normal"], "abc123") is None


def test_a_walltime_beyond_the_partition_is_told_with_both_numbers_and_what_to_type() -> None:
    long = plan(walltime_s=36000, request=request(lifetime_s=36000))
    told = waiting("PartitionTimeLimit", Outlook(walltimes={"gpu-shared": 14400}), long)
    assert "you asked 10 h, partition gpu-shared takes at most 4 h" in told.so[0]
    assert told.do == ("siteannex down sweep1, then siteannex up lab --name sweep1 --gpus 2 --lifetime 4h",)


def test_projection_and_position() -> None:
    told = waiting("Priority", Outlook((Standing("8", ahead=2),)), start=NOW + timedelta(minutes=72))
    assert any("Slurm projects its start at" in text and "in 1 h 12 m" in text for text in told.so)
    assert any("2 waiting jobs of partition gpu-shared before it" in text for text in told.so)
    assert told.do == ("wait: it starts by itself; siteannex down sweep1 takes it out of the queue",)


def test_what_would_start_sooner_is_offered_unless_that_partition_would_not_take_it() -> None:
    trials = {
        "gpu": Trial(NOW),
        "late": Trial(NOW + timedelta(hours=2)),
        "short": Trial(NOW),
        "full": Trial(None, "not available"),
    }
    told = waiting("Priority", Outlook(trials=trials, walltimes={"short": 60}), start=NOW + timedelta(hours=1))
    assert told.do == (
        "siteannex down sweep1, then siteannex up lab --name sweep1 --gpus 2 --partition gpu   would start now",
    )


def test_a_users_own_limit_is_not_escaped_by_another_partition() -> None:
    told = waiting("QOSMaxGRESPerUser", Outlook(trials={"gpu": Trial(NOW)}))
    assert not any("would start" in text for text in told.do)


@pytest.mark.parametrize(
    ("reason", "outlook", "hint"),
    [
        ("Priority", Outlook(trials={"gpu": Trial(NOW)}), "gpu would start now: siteannex why sweep1"),
        ("Priority", Outlook(trials={"gpu": Trial(NOW + timedelta(hours=2))}), ""),
        ("Resources", Outlook(), ""),
        ("ReqNodeNotAvail, UnavailableNodes:c1", Outlook(), "the nodes it could use are reserved or down"),
        (
            "QOSMaxGRESPerUser",
            Outlook((Standing("8", "q"),), Limits(({"name": "q", "maxtrespu": "gres/gpu=1"},))),
            "It can never start: you asked 2 GPUs, QOS q allows 1 GPU per user; siteannex why sweep1",
        ),
    ],
)
def test_the_queue_line_of_up_names_why_when_waiting_is_not_the_best_one_can_do(
    reason: str, outlook: Outlook, hint: str
) -> None:
    told = waiting(reason, outlook, start=NOW + timedelta(hours=1))
    said = queue_hint(plan(), told, outlook, NOW)
    assert said.startswith(hint)
    assert bool(said) is bool(hint)
