"""What clusters of several Slurm versions say of themselves is read, never invented; foreign text breaks nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siteannex.scheduler.cluster import Cluster, cluster_script, live_groups, read_cluster
from siteannex.scheduler.draft import LoginSeen, Seen, draft_site
from siteannex.scheduler.drift import drifts
from siteannex.scheduler.starts import Trial
from siteannex.site.fields import FROM_YAML
from siteannex.site.schema import Bundle, Caps, Charge, Partition, Preemption, Site
from tests.unit.samples import node, partition, plain_partition, site

SEEN = Seen(date(2026, 11, 29), "test")

# Recorded from this repository's lab (Slurm 24.11.5), shortened to two partitions.
LAB = """\
@version
slurm-wlm 24.11.5
@machine
x86_64
Debian GNU/Linux 13 (trixie)
@partitions
PartitionName=debug AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=YES QoS=N/A \
DefaultTime=00:10:00 DisableRootJobs=NO ExclusiveUser=NO ExclusiveTopo=NO GraceTime=0 Hidden=NO MaxNodes=UNLIMITED \
MaxTime=00:30:00 MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED MaxCPUsPerSocket=UNLIMITED Nodes=c[1-2] PriorityTier=1 \
OverSubscribe=NO OverTimeLimit=NONE PreemptMode=REQUEUE State=UP TotalCPUs=32 TotalNodes=2 JobDefaults=(null) \
DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED TRES=cpu=32,mem=125G,node=2,billing=32,gres/gpu=8
PartitionName=gpu AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=NO QoS=N/A \
DefaultTime=00:30:00 Hidden=NO MaxNodes=UNLIMITED MaxTime=04:00:00 MinNodes=0 Nodes=c[1-2] OverSubscribe=EXCLUSIVE \
PreemptMode=REQUEUE State=UP TotalCPUs=32 TotalNodes=2 TRES=cpu=32,mem=125G,node=2,billing=32,gres/gpu=8
@nodes
debug|2|16|64000|gpu:a100:4|(null)
gpu|2|16|64000|gpu:a100:4|(null)
@qos
Name|MaxTRES|MaxTRESPU|MaxTRESPA|MaxJobsPU|MaxJobsPA|MaxSubmitPU|MaxSubmitPA|MaxWall|GrpTRES|GrpJobs|GrpSubmit
normal||gres/gpu=6|||||||||
@own
Account|User|Partition|QOS|Def QOS|MaxTRES|MaxJobs|MaxSubmit|MaxWall
abc123|alice||normal,tiny|normal||||
@config
AccountingStorageEnforce = associations,limits,qos
ClusterName             = lab
PreemptType             = preempt/partition_prio
@scratch
/scratch
/tmp
@done
"""

# Written after Slurm 20.11's manual pages: `Shared` was OverSubscribe, no PreemptType line, GRES with sockets, a site
# that keeps limits in a partition QOS and prints `infinite`, features, two kinds of GPU, a node count of its own.
OLD = """\
Welcome to the big machine
@version
slurm 20.11.8
@machine
x86_64
@partitions
PartitionName=gpu AllowGroups=gpuusers AllowAccounts=proj1,proj2 AllowQos=ALL Default=NO QoS=gpu-qos DefaultTime=NONE \
Hidden=NO MaxNodes=8 MaxTime=infinite MinNodes=1 Nodes=g[001-016],h[000-020] Shared=NO State=UP TotalNodes=37
PartitionName=wide AllowAccounts=ALL Default=NO QoS=N/A MaxTime=2-12 MinNodes=2 Shared=EXCLUSIVE State=DRAIN
@nodes
gpu|16|128|515400|gpu:a100:4(S:0-3)|G,g,A100
gpu|21|96|1031000|gpu:h100:4(S:0-1),mps:100|H,h,H100
wide|100|128|257400|(null)|A,a
@qos
Name|MaxTRES|MaxTRESPU|MaxTRESPA|MaxJobsPU|MaxJobsPA|MaxSubmitPU|MaxSubmitPA|MaxWall|GrpTRES|GrpJobs|GrpSubmit
gpu-qos|gres/gpu=8|gres/gpu=12|gres/gpu=32|16||40||2-00:00:00|||
@own
@config
@scratch
@done
"""


def read(text: str) -> Cluster:
    cluster = read_cluster(text)
    assert cluster is not None
    return cluster


def test_a_cluster_of_today_is_read() -> None:
    cluster = read(LAB)
    assert (cluster.version, cluster.arch, cluster.name) == ("24.11.5", "x86_64", "lab")
    assert cluster.accounts == ("abc123",)
    gpu = cluster.partitions["gpu"]
    assert (gpu.max_walltime, gpu.exclusive, gpu.state) == (4 * 3600, True, "UP")
    [group] = live_groups(cluster, "gpu")
    assert (group.count, group.cores, group.memory_mib, group.gpu_type, group.gpus) == (2, 16, 64000, "a100", 4)


def test_an_old_cluster_with_its_limits_in_a_qos_is_read() -> None:
    cluster = read(OLD)
    data = draft_site("big", "big", LoginSeen("login.big"), cluster, SEEN)
    gpu = data["partitions"]["gpu"]
    assert gpu["max_walltime"] == "2d"
    assert gpu["caps"] == {
        "nodes_per_job": 8,
        "gpus_per_job": 8,
        "gpus_per_user": 12,
        "gpus_per_account": 32,
        "running_per_user": 16,
        "submitted_per_user": 40,
    }
    assert gpu["restricted"] == "accounts proj1, proj2 and groups gpuusers only"
    assert set(data["nodes"]) == {"a100", "h100"}
    assert "wide" not in data["partitions"]  # it drains


@pytest.mark.parametrize("text", [LAB, OLD])
def test_a_draft_is_a_site_file_that_agrees_with_its_site(text: str) -> None:
    cluster = read(text)
    data = draft_site("found", "found", LoginSeen("login.found"), cluster, SEEN)
    drafted = Site.model_validate({**data, "account": None}, context=FROM_YAML)
    assert [drift.key for drift in drifts(drafted, cluster, SEEN)] == []


def test_an_answer_that_was_cut_off_is_no_answer() -> None:
    assert read_cluster(LAB.replace("@done\n", "")) is None
    assert read_cluster("") is None
    assert read_cluster("@partitions\nnothing here\n@done") is None
    assert "@done" in cluster_script()


@given(st.text() | st.lists(st.sampled_from(LAB.splitlines() + OLD.splitlines())).map("\n".join))
def test_foreign_text_breaks_nothing(text: str) -> None:
    cluster = read_cluster(text)
    if cluster is not None:
        drifts(site(), cluster, SEEN)
        draft_site("found", "found", LoginSeen("login.found"), cluster, SEEN)


def lab_file(**changes: object) -> Site:
    """The file that agrees with LAB."""
    kind = node(memory=61440)
    plain = node(name="plain", memory=61440, gpus=None)
    partitions = {
        "debug": plain_partition(nodes=(plain,), max_walltime=1800),
        "gpu": partition(nodes=(kind,), sharing="exclusive", caps=Caps(gpus_per_user=6)),
    }
    return site(**{"partitions": partitions, "nodes": {"a100": kind, "plain": plain}, **changes})


def found(at: Site, cluster: Cluster | None = None, **more: object) -> dict[str, tuple[str, str]]:
    seen = drifts(at, cluster or read(LAB), SEEN, **more)  # type: ignore[arg-type]
    return {drift.key: (drift.here, drift.there) for drift in seen}


def test_a_file_that_is_right_has_no_drift() -> None:
    assert found(lab_file()) == {}


def test_a_partition_nobody_wrote_down_is_offered_whole() -> None:
    one = lab_file()
    less = one.model_copy(update={"partitions": {"gpu": one.partitions["gpu"]}})
    [drift] = drifts(less, read(LAB), SEEN)
    assert drift.key == "partitions.debug"
    assert drift.change["partitions", "debug"]["max_walltime"] == "30m"


def test_a_refused_job_that_is_not_about_gpus_is_told_as_such() -> None:
    told = found(lab_file(), trials={"gpu": Trial(None, "Job violates accounting/QOS policy")})
    assert told == {
        "partitions.gpu.(job)": ("--gres=gpu:{type}:{count}", "refused: Job violates accounting/QOS policy")
    }


def test_an_account_that_is_gone_and_another_architecture_are_told() -> None:
    assert found(lab_file(account="old"))["account"] == ("old", "yours are abc123")
    assert found(lab_file(), replace(read(LAB), arch="aarch64"))["arch"] == ("x86_64", "aarch64")


def test_what_the_site_does_not_tell_is_no_drift() -> None:
    silent = replace(read(LAB), limits=read(OLD.replace("gpu-qos|gres", "other|gres")).limits, version=None, arch=None)
    assert found(lab_file(), silent) == {}


MORE = LAB.replace(
    "@nodes\n",
    "PartitionName=big MaxTime=04:00:00 State=UP\nPartitionName=small MaxTime=04:00:00 State=UP\n"
    "@nodes\nbig|3|64|512000|(null)|(null)\nsmall|9|8|16000|(null)|(null)\ngpu|1|16|64000|gpu:plain:2|(null)\n"
    "small|2|16|64000|gpu:a100:4|(null)\n",
)
"""The lab with two new partitions, and with GPUs that Slurm calls as the file calls its CPU nodes."""


def test_new_kinds_of_node_get_names_of_their_own_and_known_ones_keep_theirs() -> None:
    changes = {drift.key: drift.change for drift in drifts(lab_file(), read(MORE), SEEN)}
    written = {place[1]: kind for change in changes.values() for place, kind in change.items() if place[0] == "nodes"}
    assert {name: (kind["cores"], kind["count"]) for name, kind in written.items()} == {
        "cpu": (64, 3),
        "cpu-2": (8, 9),
        "plain-2": (16, 1),
    }
    assert changes["partitions.gpu.nodes"]["partitions", "gpu", "nodes"] == ["a100", "plain-2"]
    assert changes["partitions.small"]["partitions", "small"]["nodes"] == ["cpu-2", "a100"]


def test_a_renamed_partition_keeps_what_only_a_person_knew() -> None:
    kind = node(memory=61440)
    charge = Charge(unit="SU", per="gpu_hour", factor=2, bundle=Bundle(memory=92 * 1024), minimum=900)
    old = partition(
        nodes=(kind,),
        sharing="exclusive",
        memory_request=None,
        options=("--constraint=scratch",),
        charge=charge,
        preemption=Preemption(grace=300, requeue=False),
    )
    file = lab_file(partitions={**lab_file().partitions, "gpus": old}, nodes={"a100": kind})
    file = file.model_copy(update={"partitions": {name: file.partitions[name] for name in ("debug", "gpus")}})
    [renamed] = [each for each in drifts(file, read(LAB), SEEN) if each.key == "partitions.gpus"]
    kept = renamed.change["partitions", "gpu"]
    assert renamed.there == "renamed to gpu?"
    again = Partition.model_validate({**kept, "nodes": [kind]}, context=FROM_YAML)
    told = ("memory_request", "options", "charge", "preemption", "gpu_request")
    assert {key: getattr(again, key) for key in told} == {key: getattr(old, key) for key in told}
