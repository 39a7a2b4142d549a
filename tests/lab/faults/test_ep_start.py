"""EP_START: nodes, software and configuration with which no EP can start, and what the pilot says of them."""

from __future__ import annotations

import pytest

from tests.faultbook import FaultRow
from tests.lab.faults.pilots import Trial, take_software

UNMOUNT = "umount /scratch"


def tmpfs(options: str) -> str:
    """In place of the nodes' scratch."""
    return f"mount -t tmpfs -o mode=1777,{options} none /scratch"


@pytest.mark.fault("missing library", code="ep-library-missing")
def test_a_library_that_is_missing(trial: Trial, fault: FaultRow) -> None:
    trial.site(environment=(trial.software("rm lib/libclassad.so.*"),))
    trial.fails(fault, "error while loading shared libraries: libclassad.so", "cannot open shared object file")


@pytest.mark.fault("loader too old", code="ep-loader-too-old")
def test_a_c_library_that_is_too_old(trial: Trial, fault: FaultRow) -> None:
    newer = trial.software("sed -i 's/GLIBC_2[.]34/GLIBC_9.34/' real/condor_startd")
    trial.site(environment=(newer,))
    trial.fails(fault, "condor_startd needs GLIBC_9.34", "version `GLIBC_9.34' not found")


@pytest.mark.fault("bad tarball", code="ep-software-damaged")
def test_software_that_is_damaged_at_the_site_is_removed_and_shipped_anew(trial: Trial, fault: FaultRow) -> None:
    trial.ground.at("login1", "cd ~/.siteannex/ep && for f in *.tar.gz; do truncate -s 1000000 $f; done", user="alice")
    trial.fails(fault, "is damaged and was removed: its sha256 is")
    assert "ship     EP software 17." in trial.comes_up()


@pytest.mark.fault("software that is no archive", code="ep-unpack-failed")
def test_software_that_tar_cannot_read(trial: Trial, fault: FaultRow) -> None:
    make = "head -c 100000 /dev/zero >$HOME/odd; s=$(sha256sum <$HOME/odd | cut -c 1-64)"
    put = 'cd "$SITEANNEX_HOME/ep"; mv $HOME/odd $s.tar.gz; ln $s.tar.gz $s.odd'
    trial.site(environment=(make, put, take_software("$s")))
    trial.fails(fault, "tar could not unpack", "tar: ")


@pytest.mark.fault("no scratch", code="scratch-unusable")
def test_scratch_where_no_program_may_run(trial: Trial, fault: FaultRow) -> None:
    with trial.nodes(tmpfs("noexec"), UNMOUNT):
        trial.fails(fault, "/scratch: programs cannot run there (noexec)")


@pytest.mark.fault("no room in scratch", code="scratch-full")
def test_scratch_without_room(trial: Trial, fault: FaultRow) -> None:
    with trial.nodes(tmpfs("size=60m"), UNMOUNT):
        failure = trial.fails(fault, "/scratch: 60 MB free, 141 MB needed")
    assert failure["retryable"] is True


@pytest.mark.fault("no inodes in scratch", code="scratch-full")
def test_scratch_without_inodes(trial: Trial, fault: FaultRow) -> None:
    with trial.nodes(tmpfs("nr_inodes=100"), UNMOUNT):
        trial.fails(fault, "inodes free, 500 needed")


@pytest.mark.fault("config rejected by this HTCondor version", code="ep-config-invalid")
def test_a_configuration_that_this_htcondor_does_not_know(trial: Trial, fault: FaultRow) -> None:
    trial.site(config=("use security:recommended_v99",))
    trial.fails(fault, "does not accept its configuration", "condor_config_val: ", "recommended_v99")


@pytest.mark.fault("master exits at once", code="ep-master-exited")
def test_a_master_that_ends_at_once(trial: Trial, fault: FaultRow) -> None:
    trial.site(config=("MASTER_LOG = /nonexistent/MasterLog",))
    trial.fails(fault, "condor_master ended with status 4", "/nonexistent/MasterLog")


@pytest.mark.fault("startd crashes repeatedly", code="ep-startd-crashes")
def test_a_startd_that_crashes_again_and_again(trial: Trial, fault: FaultRow) -> None:
    trial.site(config=("STARTD_LOG = /nonexistent/StartLog", "MASTER_BACKOFF_CONSTANT = 1"))
    trial.fails(fault, "condor_startd ended 2 times", "MasterLog (", "exited with status 4")


def test_a_failed_pilot_tells_the_access_point_without_any_connection_to_the_site(trial: Trial) -> None:
    trial.site(config=("use security:recommended_v99",))
    assert trial.person.types("up", "lab", "--cpus", "1", "--lifetime", "30m", "--no-wait").status == 0
    row: dict[str, str] = {}

    def told() -> str:
        row.update(trial.person.types("status", "lab", "--json").json()[0])
        return str(row["stage"])

    assert trial.ground.wait_for(told, lambda stage: stage == "EP_START", within_s=30) == "EP_START", row
    assert "ep-config-invalid" in str(row)
    assert "recommended_v99" in str(row)
    assert trial.person.types("down", "lab", "--now").status == 0
    trial.ground.nothing_left()
