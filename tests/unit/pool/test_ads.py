import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import classad2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from siteannex.model import JobCounts
from siteannex.pool import ads

RECORDED = json.loads(Path(__file__).with_name("slots-25.14.1.json").read_text())
"""A partitionable slot whose two GPUs are busy and one of its dynamic slots, as a 25.14.1 collector gave them."""


def test_a_recorded_partitionable_slot_is_read_whole() -> None:
    slot = ads.slot_from_ad(RECORDED[0])
    assert (slot.name, slot.slot_type) == ("slot1@ep31337@ap.lab", "Partitionable")
    assert (slot.annex_name, slot.annex_id, slot.site) == ("pooltest", "pooltest-20260829-abc", "lab")
    assert (slot.batch_job_id, slot.machine, slot.owner) == ("31337", "ap.lab", "alice@ap.lab")
    assert (slot.state, slot.activity, slot.job) == ("Unclaimed", "Idle", "")
    assert (slot.cpus, slot.memory_mib, slot.gpus) == (2, 7168, 0)
    assert (slot.total_cpus, slot.total_memory_mib, slot.total_gpus) == (4, 8192, 2)
    assert (slot.gpu_model, slot.gpu_memory_mib) == ("A100-SXM4-40GB", 47661)
    assert slot.last_heard == datetime.fromtimestamp(RECORDED[0]["LastHeardFrom"], UTC)
    assert slot.version == "25.14.1"


def test_a_recorded_dynamic_slot_names_its_job_and_counts_its_own_resources() -> None:
    slot = ads.slot_from_ad(RECORDED[1])
    assert (slot.slot_type, slot.state, slot.activity, slot.job) == ("Dynamic", "Claimed", "Busy", "1.0")
    assert (slot.total_cpus, slot.total_memory_mib, slot.total_gpus) == (1, 512, 1)


def test_an_empty_ad_is_an_empty_slot() -> None:
    slot = ads.slot_from_ad({})
    assert (slot.name, slot.annex_id, slot.cpus, slot.gpus, slot.last_heard) == ("", "", 0, 0, None)
    assert slot.slot_type == "Static"


def test_attribute_names_are_read_in_any_letter_case() -> None:
    assert ads.slot_from_ad({"annexname": "lab", "TOTALSLOTGPUS": 4}).total_gpus == 4


@pytest.mark.parametrize(
    ("ad", "kind"),
    [
        ({"CUDADeviceName": "Tesla V100", "CUDAGlobalMemoryMb": 32510}, ("Tesla V100", 32510)),
        ({"AvailableGPUs": [{"DeviceName": "A40", "GlobalMemoryMb": 45634}]}, ("A40", 45634)),
        ({"GPUs_GPU_12ab": {"DeviceName": "A40"}, "GPUs_GlobalMemoryMb": 1000}, ("A40", 1000)),
        (
            {
                "GPUs_GPU_1": {"DeviceName": "H100", "GlobalMemoryMb": 81000},
                "GPUs_GPU_2": {"DeviceName": "A40", "GlobalMemoryMb": 45000},
            },
            ("A40 + H100", 45000),
        ),
        ({"AvailableGPUs": [None, "GPUs_GPU_1"], "GPUs_DeviceName": 7.5}, ("", 0)),
        ({}, ("", 0)),
    ],
)
def test_the_gpu_is_found_in_every_spelling(ad: Mapping[str, object], kind: tuple[str, int]) -> None:
    assert ads.gpu_kind(ad) == kind


@pytest.mark.parametrize(
    ("ad", "slot_type"),
    [
        ({"PartitionableSlot": True}, "Partitionable"),
        ({"DynamicSlot": True}, "Dynamic"),
        ({"Name": "slot1_12@c1"}, "Dynamic"),
        ({"SlotType": "STATIC"}, "Static"),
        ({"SlotType": "odd", "Name": "slot1@c1"}, "Static"),
    ],
)
def test_the_slot_type_is_told_from_whatever_says_it(ad: Mapping[str, object], slot_type: str) -> None:
    assert ads.slot_from_ad(ad).slot_type == slot_type


names = st.sampled_from([*RECORDED[1], "GPUs_GPU_x", "CUDADeviceName", "cpus"]) | st.text()
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(names, inner),
    max_leaves=8,
)


@given(st.dictionaries(names, values))
def test_no_ad_whatever_it_says_is_an_exception(ad: dict[str, object]) -> None:
    slot = ads.slot_from_ad(ad)
    assert min(slot.cpus, slot.memory_mib, slot.gpus, slot.total_gpus, slot.gpu_memory_mib) >= 0
    assert isinstance(slot.batch_job_id + slot.job + slot.gpu_model + slot.version, str)


job_ads: st.SearchStrategy[dict[str, object]] = st.dictionaries(
    names | st.sampled_from(["JobStatus", "TargetAnnexName"]), values
)


@given(st.lists(job_ads))
def test_no_job_ad_is_an_exception(found: list[ads.Ad]) -> None:
    assert set(ads.count_jobs(found, ["lab"])) == {"lab"}


def test_jobs_are_counted_by_annex_without_letter_case() -> None:
    found: list[ads.Ad] = [
        {"JobStatus": 1, "TargetAnnexName": "Lab"},
        {"JobStatus": 2, "TargetAnnexName": "lab"},
        {"JobStatus": 5, "TargetAnnexName": "lab"},
        {"JobStatus": 4, "TargetAnnexName": "lab"},
        {"JobStatus": 1, "TargetAnnexName": "other"},
        {"JobStatus": 1},
    ]
    assert ads.count_jobs(found, ["lab", "none"]) == {"lab": JobCounts(1, 1, 1), "none": JobCounts()}


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("$CondorVersion: 25.14.1 2026-09-24 BuildID: UW $", "25.14.1"),
        ("$CondorVersion: 23.9.6 2024-08-08 PackageID: 23.9.6+dfsg-2 $", "23.9.6"),
        ("none", ""),
    ],
)
def test_versions_are_found(text: str, version: str) -> None:
    assert ads.parse_version(text) == version


def evaluated(expression: str, ad: Mapping[str, object]) -> object:
    """What HTCondor's own ClassAd library makes of a constraint."""
    held = classad2.ClassAd()
    held.update(ad)
    held["Verdict"] = classad2.ExprTree(expression)
    return held.eval("Verdict")


@given(st.text())
def test_a_quoted_text_is_that_text_to_htcondor_or_is_refused(text: str) -> None:
    try:
        literal = ads.quote(text)
    except ValueError:
        return
    assert evaluated(literal, {}) == text


@pytest.mark.parametrize("text", ['"', "\\", 'x" || true || "', "a\nb", "a\x00", "\x7f"])
def test_what_could_end_a_string_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="ClassAd string"):
        ads.quote(text)


def test_the_slot_constraint_takes_our_own_annex_and_nothing_else() -> None:
    ours = {"AuthenticatedIdentity": "alice@ap.lab", "SiteannexRequestId": "lab-1"}
    assert evaluated(ads.slots_constraint("alice@ap.lab", "lab-1"), ours) is True
    assert evaluated(ads.slots_constraint("alice@ap.lab", None), ours) is True
    assert evaluated(ads.slots_constraint("bob@ap.lab", None), ours) is False
    assert evaluated(ads.slots_constraint("alice@ap.lab", "lab-2"), ours) is False
    assert evaluated(ads.slots_constraint("alice@ap.lab", None), {"AuthenticatedIdentity": "alice@ap.lab"}) is False


def test_the_job_constraint_leaves_out_names_that_nobody_can_have() -> None:
    constraint = ads.jobs_constraint("alice", ["lab", 'x", "y'])
    job = {"Owner": "alice", "TargetAnnexName": "LAB", "JobStatus": 1}
    assert evaluated(constraint, job) is True
    assert evaluated(constraint, {**job, "TargetAnnexName": "y"}) is False
    assert evaluated(constraint, {**job, "Owner": "bob"}) is False
    assert evaluated(constraint, {**job, "JobStatus": 4}) is False
    assert evaluated(ads.waiting_constraint("alice"), job) is True
