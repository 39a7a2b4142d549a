"""Ordinary HTCondor jobs, as a researcher submits them."""

from __future__ import annotations

from dataclasses import dataclass

from tests.lab.person import Person

SUBMIT = """executable = /bin/sh
arguments = "-c '{script}'"
transfer_executable = false
should_transfer_files = YES
when_to_transfer_output = ON_EXIT
output = out.$(Cluster).$(Process)
error = err.$(Cluster).$(Process)
log = log.$(Cluster)
request_cpus = 1
request_memory = 128MB
request_disk = 10MB
{gpus}
MY.TargetAnnexName = "{annex}"
queue {count}
"""


@dataclass(frozen=True, slots=True)
class Batch:
    """One cluster of jobs of one person."""

    person: Person
    cluster: str

    def states(self) -> list[str]:
        """JobStatus of those still in the queue (1 idle, 2 running, 5 held)."""
        return self.person.shell(f"condor_q {self.cluster} -af JobStatus").split()

    def output(self, process: int = 0) -> str:
        """What one job printed, back on the AP."""
        return self.person.shell(f"cat ~/out.{self.cluster}.{process}")

    def remove(self) -> None:
        """Take them out of the queue."""
        self.person.shell(f"condor_rm {self.cluster} >/dev/null 2>&1 || true")


def submit(person: Person, annex: str, script: str, *, gpus: int = 0, count: int = 1) -> Batch:
    """Submit `count` jobs that run `script` in `sh` at an annex. The script may not contain quotes."""
    request = f"request_gpus = {gpus}\ngpus_minimum_memory = 30GB" if gpus else ""
    text = SUBMIT.format(script=script, gpus=request, annex=annex, count=count)
    said = person.shell(f"cd && cat >job.sub <<'END'\n{text}\nEND\ncondor_submit -terse job.sub")
    return Batch(person, said.split(".")[0])
