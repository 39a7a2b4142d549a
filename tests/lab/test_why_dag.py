"""`why NODE` for nodes that DAGMan has not submitted, on a real DAG."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.ground import Ground
from tests.lab.person import Person

DAG = """JOB A long.sub
JOB B short.sub
JOB C short.sub
JOB P short.sub
SCRIPT PRE P /bin/sleep 60
JOB M1 long.sub
JOB M2 long.sub
CATEGORY M1 gpu
CATEGORY M2 gpu
MAXJOBS gpu 1
JOB BAD bad.sub
JOB NEVER short.sub
PARENT A B CHILD C
PARENT BAD CHILD NEVER
"""
SUBMIT = "universe = local\\nexecutable = /bin/{program}\\narguments = {arguments}\\nlog = job.log\\nqueue\\n"
FILES = {
    "long": SUBMIT.format(program="sleep", arguments="300"),
    "short": SUBMIT.format(program="sleep", arguments="1"),
    "bad": SUBMIT.format(program="false", arguments=""),
}


@pytest.fixture
def dag(alice: Person) -> Iterator[Person]:
    """Alice, with that DAG submitted."""
    alice.shell("rm -rf ~/why-dag && mkdir ~/why-dag")
    for name, text in FILES.items():
        alice.shell(f"printf '{text}' >~/why-dag/{name}.sub")
    alice.shell(f"cd ~/why-dag && cat >d.dag <<'END'\n{DAG}END\ncondor_submit_dag d.dag")
    yield alice
    alice.shell("condor_rm -all || true; rm -rf ~/why-dag")


def test_every_node_says_what_stands_before_it(dag: Person, ground: Ground) -> None:
    def why(node: str, *, until: str) -> str:
        def look() -> str:
            return dag.types("why", node).text

        shown = ground.wait_for(look, lambda said: until in said, within_s=40)
        assert until in shown, shown
        return shown

    said = why("C", until="it waits for 1 of its 2 parents, A")
    job = said.split("A: its job ")[1].split()[0]
    assert "siteannex why A" in said
    assert f"job {job} (A)" in why("A", until="runs")
    assert "MAXJOBS gpu 1 in d.dag" in why("M2", until="held back")
    assert "/bin/sleep 60" in why("P", until="its PRE script runs")
    assert "its job failed with status 1" in why("NEVER", until="will not run: BAD before it failed")
    why("B", until="is done")
    assert dag.types("why", "M2", "--json").json()["verdict"] == "throttled"
    assert dag.types("why", "nosuchnode").status == 10
