"""Jobs against slots, evaluated by HTCondor's own bindings: condition by condition, in words."""

from __future__ import annotations

import pytest

from siteannex.pool.hold_codes import HOLDS, hold_meaning
from siteannex.pool.matching import Candidate, Match, Says, best_of_each_annex
from siteannex.pool.predicted import ApWords, predicted_slot
from siteannex.pool.words import AP, Row, rows
from siteannex.site.gpus import compute_capability
from tests.unit.paper_queue import GPU_JOB, JOB, SLOT, PaperQueue, ad
from tests.unit.samples import plan, site

AP_WORDS = ApWords("alice@ap.lab", "25.14.1")


@pytest.fixture(scope="module")
def queue() -> PaperQueue:
    return PaperQueue()


def against(queue: PaperQueue, job_text: str, slot_text: str, *, predicted: bool = False) -> tuple[Match, list[Row]]:
    job, slot = queue.read([job_text, slot_text])
    [match] = queue.match(job, [Candidate("sweep1", "up", slot, predicted)])
    return match, rows(job.values, [match], queue.ap_words())


def says(table: list[Row]) -> dict[str, str]:
    """What each row that is not simply met says."""
    return {row.asks: cell.text for row in table if (cell := row.cells[0]) is not None and cell.says is not Says.YES}


def test_a_job_that_fits_meets_every_condition(queue: PaperQueue) -> None:
    match, table = against(queue, ad(JOB), ad(SLOT))
    assert match.says is Says.YES
    assert says(table) == {}
    assert [row.kind for row in table][:3] == ["annex", "gpus", "memory"]


def test_too_much_memory(queue: PaperQueue) -> None:
    match, table = against(queue, ad(JOB, RequestMemory="131072"), ad(SLOT))
    assert match.says is Says.NO
    assert says(table) == {"memory 131072 MB": "no: 32768 MB"}


def test_gpus_too_small_say_so_and_their_number_is_not_blamed(queue: PaperQueue) -> None:
    match, table = against(queue, ad(JOB, GPU_JOB), ad(SLOT))
    assert match.says is Says.NO
    assert says(table) == {"GPU memory >= 60000 MB": "no: 40536 MB (A100-SXM4-40GB)"}


def test_more_gpus_than_there_are(queue: PaperQueue) -> None:
    _, table = against(queue, ad(JOB, GPU_JOB, RequestGPUs="4", GPUsMinMemory="30000"), ad(SLOT))
    assert says(table) == {"4 GPUs": "no: 2"}


def test_a_gpu_driver_that_is_too_old(queue: PaperQueue) -> None:
    wants = {"RequireGPUs": "MaxSupportedVersion >= GPUsMinRuntime", "GPUsMinRuntime": "12010"}
    _, table = against(queue, ad(JOB, GPU_JOB, wants), ad(SLOT, GPUs_MaxSupportedVersion="11080"))
    assert says(table) == {"GPU driver's CUDA >= 12.1": "no: 11.8 (A100-SXM4-40GB)"}


def test_a_job_for_gpus_on_a_slot_without(queue: PaperQueue) -> None:
    none = {"GPUs": "0", "TotalSlotGPUs": "0", "AvailableGPUs": "{ }", "GPUs_GPU_a": "", "GPUs_GPU_b": ""}
    _, table = against(queue, ad(JOB, GPU_JOB), ad(SLOT, none))
    assert says(table)["1 GPU"] == "no: 0"
    assert says(table)["GPU memory >= 60000 MB"] == "no: no GPU there"


def test_another_annex_name_and_a_start_that_insists_on_letter_case(queue: PaperQueue) -> None:
    _, table = against(queue, ad(JOB, TargetAnnexName='"other"'), ad(SLOT))
    assert says(table) == {'TargetAnnexName = "other"': "no: sweep1"}
    assert says(against(queue, ad(JOB, TargetAnnexName='"Sweep1"'), ad(SLOT))[1]) == {}
    strict = ad(SLOT, Start="TARGET.TargetAnnexName =?= MY.AnnexName")
    _, table = against(queue, ad(JOB, TargetAnnexName='"Sweep1"'), strict)
    assert says(table) == {'TargetAnnexName = "Sweep1"': "no: sweep1"}


def test_a_job_without_an_annex_name(queue: PaperQueue) -> None:
    _, table = against(queue, ad(JOB, TargetAnnexName="", Requirements="true"), ad(SLOT))
    assert says(table) == {"TargetAnnexName (the job sets none)": "no: sweep1"}


def test_another_owners_slot(queue: PaperQueue) -> None:
    start = SLOT["Start"].replace("alice@", "bob@")
    _, table = against(queue, ad(JOB), ad(SLOT, Start=start, AuthenticatedIdentity='"bob@ap.lab"'))
    assert says(table) == {
        "an EP of alice@ap.lab": "no: bob@ap.lab",
        "jobs of alice@ap.lab": "no: it takes only jobs of bob@ap.lab",
    }


def test_an_ep_near_its_walltime_and_one_that_drains(queue: PaperQueue) -> None:
    _, table = against(queue, ad(JOB), ad(SLOT, Start=SLOT["Start"].replace("99999999999", "1000")))
    assert says(table) == {"walltime left": "no: it takes no new jobs: its walltime ends soon"}
    _, table = against(queue, ad(JOB), ad(SLOT, Start=SLOT["Start"].replace("false == false", "true == false")))
    assert says(table) == {"an EP that takes new jobs": "no: it is being taken down"}


def test_a_directly_attached_ep_hides_its_start_which_is_ours(queue: PaperQueue) -> None:
    attached = ad(SLOT, Start='"Directly attached to schedd ap.lab"', SiteannexDraining="false")
    match, table = against(queue, ad(JOB), attached)
    assert (match.says, says(table)) == (Says.YES, {})
    ending = ad(SLOT, Start='"Directly attached to schedd ap.lab"', SiteannexDraining="true")
    assert says(against(queue, ad(JOB), ending)[1]) == {"an EP that takes new jobs": "no: it is being taken down"}


def test_a_default_of_the_ap_is_told_from_what_the_user_wrote(queue: PaperQueue) -> None:
    wants = {"Requirements": 'TARGET.WantSquid && Foo == "bar" && HasLong =?= JobDurationCategory'}
    _, table = against(queue, ad(JOB, wants, JobDurationCategory='"Long"'), ad(SLOT))
    by = {row.asks: row.by for row in table if row.failing}
    assert by == {"TARGET.WantSquid": AP, 'Foo == "bar"': "you", 'JobDurationCategory = "Long"': AP}


def test_a_full_slot_is_busy_not_unfit(queue: PaperQueue) -> None:
    taken = {"Cpus": "0", "Memory": "0", "GPUs": "0", "AvailableGPUs": "{ }"}
    match, table = against(queue, ad(JOB, GPU_JOB, GPUsMinMemory="30000"), ad(SLOT, taken))
    assert match.says is Says.BUSY
    assert says(table)["1 GPU"] == "yes, but busy now"


def test_of_several_slots_of_an_annex_the_nearest_is_told(queue: PaperQueue) -> None:
    job, small, free = queue.read([ad(JOB, RequestMemory="20000"), ad(SLOT, TotalSlotMemory="100"), ad(SLOT)])
    found = queue.match(job, [Candidate("sweep1", "up", small), Candidate("sweep1", "up", free)])
    [best] = best_of_each_annex(found)
    assert best.says is Says.YES


def test_a_planned_slot_answers_from_the_sites_facts(queue: PaperQueue) -> None:
    coming = predicted_slot(plan(), site(), AP_WORDS)
    match, table = against(queue, ad(JOB, GPU_JOB), coming, predicted=True)
    assert match.says is Says.NO
    assert says(table) == {"GPU memory >= 60000 MB": "no: 40536 MB (NVIDIA A100-SXM4-40GB)"}
    match, _ = against(queue, ad(JOB, GPU_JOB, GPUsMinMemory="30000"), coming, predicted=True)
    assert match.says is Says.YES


def test_what_only_the_node_can_tell_is_unknown_before_it_is_there(queue: PaperQueue) -> None:
    coming = predicted_slot(plan(), site(), AP_WORDS)
    wants = {"RequireGPUs": "MaxSupportedVersion >= 12010"}
    match, table = against(queue, ad(JOB, GPU_JOB, wants), coming, predicted=True)
    assert match.says is Says.UNKNOWN
    assert says(table) == {"GPU driver's CUDA >= 12.1": "seen only on the node"}
    match, _ = against(queue, ad(JOB, Requirements="OpSysMajorVer == 9"), coming, predicted=True)
    assert match.says is Says.UNKNOWN


IN_OSDF = {
    "ContainerImage": '"train.sif"',
    # As condor_submit 25.14.1 writes it for container_image = osdf:///ospool/ap40/train.sif.
    "Requirements": '(TARGET.AnnexName == "sweep1") && TARGET.HasContainer && TARGET.HasSIF && (TARGET.HasFileTransfer '
    '&& stringListIMember("osdf",TARGET.HasFileTransferPluginMethods))',
}
PLUG_INS = {"HasFileTransferPluginMethods": '"data,ftp,http,https"', "HasFileTransfer": "true"}


@pytest.mark.parametrize(
    ("slot", "has"),
    [
        ({"SiteannexContainers": '"no apptainer here"'}, "no apptainer"),
        (
            {"SiteannexContainers": '"apptainer 1.3.1 does not work (user namespaces are off): FATAL"'},
            "apptainer 1.3.1 does not work (user namespaces are off): FATAL",
        ),
        ({"HasUserNamespaces": "false"}, "no user namespaces there"),
        ({}, "no apptainer that works"),
    ],
)
def test_what_a_container_misses_on_a_node(queue: PaperQueue, slot: dict[str, str], has: str) -> None:
    match, table = against(queue, ad(JOB, IN_OSDF), ad(SLOT, PLUG_INS, slot))
    assert match.says is Says.NO
    assert says(table) == {
        "a container, train.sif": f"no: {has}",
        "transfer by osdf://": "no: plug-ins for data, ftp, http, https only",
    }


def test_a_node_that_has_what_a_container_needs(queue: PaperQueue) -> None:
    has = {"HasContainer": "true", "HasSIF": "true", "HasFileTransferPluginMethods": '"https,osdf"'}
    match, _ = against(queue, ad(JOB, IN_OSDF), ad(SLOT, PLUG_INS, has))
    assert match.says is Says.YES


def test_containers_and_plug_ins_are_not_promised_before_a_node_is_seen(queue: PaperQueue) -> None:
    wants = {**IN_OSDF, "Requirements": IN_OSDF["Requirements"].replace('(TARGET.AnnexName == "sweep1") && ', "")}
    match, table = against(queue, ad(JOB, wants), predicted_slot(plan(), site(), AP_WORDS), predicted=True)
    assert match.says is Says.UNKNOWN
    assert says(table) == {
        "a container, train.sif": "seen only on the node",
        "transfer by osdf://": "seen only on the node",
    }


def test_capabilities_by_the_name_a_driver_reports() -> None:
    known = {
        "NVIDIA A100-SXM4-40GB": 8.0,
        "Tesla V100-SXM2-32GB": 7.0,
        "NVIDIA RTX 6000 Ada Generation": 8.9,
        "Quadro RTX 6000": 7.5,
        "NVIDIA H200": 9.0,
        "NVIDIA GH200 120GB": 9.0,
        "AMD Instinct MI100": None,
    }
    assert {model: compute_capability(model) for model in known} == known


def test_hold_codes_say_their_subcode_where_it_means_something() -> None:
    assert hold_meaning(34, 102).meaning == "it used more memory than it had asked for"
    assert hold_meaning(34, 0).meaning == "it used more memory or disk than it had asked for"
    assert hold_meaning(13, 2).meaning.endswith("(No such file or directory)")
    assert hold_meaning(1, 17).meaning == HOLDS[1].meaning
    assert "99" in hold_meaning(99, 0).meaning
    assert all(hold.todo for hold in HOLDS.values())
