"""EP_CONFIG: what the node turns out to be is not what was asked, or no job could ever match it."""

from __future__ import annotations

import pytest

from tests.faultbook import FaultRow
from tests.lab.faults.pilots import Trial
from tests.lab.faults.tokens import Mint

TWO_GPUS = ("--gpus", "2")


@pytest.mark.fault("fewer GPUs than asked", code="gpus-missing")
def test_a_node_with_a_dead_gpu(trial: Trial, fault: FaultRow) -> None:
    trial.site(config=("GPU_DISCOVERY_EXTRA = -simulate:4,1",))
    trial.fails(fault, "Slurm granted 2 GPUs", "HTCondor found 1", "condor_gpu_discovery: ", options=TWO_GPUS)


@pytest.mark.fault("no GPUs", code="gpus-none")
def test_a_node_whose_gpus_are_not_there(trial: Trial, fault: FaultRow) -> None:
    trial.site(config=("GPU_DISCOVERY_EXTRA =",))
    seen = ("this node shows none (driver not loaded)", "DetectedGPUs=0", "nvidia-smi: not on this node")
    trial.fails(fault, *seen, options=TWO_GPUS)


@pytest.mark.fault("other GPU model", code="gpu-model-differs")
def test_gpus_of_another_model(trial: Trial, fault: FaultRow) -> None:
    trial.site(config=("GPU_DISCOVERY_EXTRA = -simulate:2,4",))
    words = "this node's GPUs are Tesla V100-PCIE-16GB; the plan is for NVIDIA A100-SXM4-40GB"
    trial.fails(fault, words, options=TWO_GPUS)


@pytest.mark.fault("less GPU memory", code="gpu-memory-small")
def test_gpus_with_less_memory_than_the_sites_file_says(trial: Trial, fault: FaultRow) -> None:
    trial.site(gpus={"memory": "80GB"})
    trial.fails(fault, "has 46.5 GB; the plan is for 80 GB", options=TWO_GPUS)


@pytest.mark.fault("fewer CPUs", code="cpus-missing")
def test_slurm_grants_fewer_cpus_than_asked(trial: Trial, fault: FaultRow) -> None:
    trial.site(options=("--cpus-per-task=1",))
    trial.fails(fault, "Slurm granted 1 of the 4 CPUs asked for", options=("--cpus", "4", "--mem", "2GB"))


@pytest.mark.fault("less memory", code="memory-missing")
def test_slurm_grants_less_memory_than_asked(trial: Trial, fault: FaultRow) -> None:
    trial.site(options=("--mem=1024M",))
    trial.fails(fault, "Slurm granted 1 GB of the 4 GB asked for", options=("--cpus", "1", "--mem", "4GB"))


@pytest.mark.fault("slot smaller than granted", code="memory-missing")
def test_the_sites_lines_make_the_slot_smaller_than_what_is_paid_for(trial: Trial, fault: FaultRow) -> None:
    trial.site(config=("MEMORY = 512",))
    trial.fails(fault, "the slot would have 512 MB", "MEMORY = 512")


@pytest.mark.fault("START that no job can satisfy", code="start-never")
def test_a_start_that_no_job_can_satisfy(trial: Trial, fault: FaultRow) -> None:
    trial.site(config=('START = TARGET.User =?= "root@nowhere"',))
    trial.fails(fault, 'START is false for a plain job of alice@ap.lab\'s with TargetAnnexName = "lab"', "root@nowhere")


@pytest.mark.fault("owner mismatch", code="owner-mismatch")
def test_an_ep_that_the_collector_takes_for_somebody_elses(trial: Trial, mint: Mint, fault: FaultRow) -> None:
    mint.put(trial, identity="bob@ap.lab")
    trial.fails(fault, "ap.lab takes this EP for bob@ap.lab's; the annex is alice@ap.lab's")


@pytest.mark.fault("HTCondor too old for direct attach", code="direct-attach-unsupported")
def test_an_htcondor_that_does_not_know_direct_attach(trial: Trial, fault: FaultRow) -> None:
    older = trial.software(
        "sed -i 's/STARTD_DIRECT_ATTACH_SCHEDD_NAME/STARTD_DIRECT_OTHERS_SCHEDD_NAME/' real/condor_startd"
    )
    trial.site(environment=(older,))
    words = "cannot attach to a schedd directly"
    trial.fails(fault, words, "STARTD_DIRECT_ATTACH_SCHEDD_NAME", options=("--cpus", "1", "--join", "direct"))
