"""Write the DAG of an ensemble with siteannex's renderer and with HTCondor's own `htcondor2.dags`, by turns.

    .venv/bin/python -m benchmarks.dag_render                 # 1,000, 10,000 and 100,000 nodes, three times each
    .venv/bin/python -m benchmarks.dag_render --nodes 1000

Both write chains (runs of ten epochs, a VARS line for each node) into a fresh directory; siteannex's go over two sites.
Each measurement is a process of its own: seconds are CPU seconds of reading, rendering and writing without imports,
memory is the process's peak. `htcondor2.dags` is used in the two ways its API allows: a layer for each epoch
(`layers`: an epoch has one submit file, so all runs of it are at one site), and a layer for each node (`nodes`: what
chains over sites need).
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

EPOCHS = 10
MOST_SINGLE_LAYERS = 2000
"""A layer for each node takes time that grows with the square of their number: not tried beyond."""
EXPERIMENT = """name: bench
seed: 1
parameters: {{lr: 0.001, width: 256}}
runs_per_point: {runs}
max_nodes: 1000000
train: {{epochs: {epochs}}}
submit: |
  executable = /bin/true
  arguments = $(run) $(epoch) $(lr) $(width)
  request_cpus = 1
  request_memory = 1GB
sites: {{one: {{annex: one}}, two: {{annex: two}}}}
policy: shuffle
"""


def ours(nodes: int, folder: Path) -> None:
    """Read the experiment file, write the DAG."""
    from siteannex.training.experiment.reading import read_experiment
    from siteannex.training.rendering.render import dag_lines
    from siteannex.training.rendering.writing import companions

    file = folder / "bench.yaml"
    file.write_text(EXPERIMENT.format(runs=nodes // EPOCHS, epochs=EPOCHS))
    loaded = read_experiment(file, lambda _: None, [])
    names, _ = companions(folder / "bench.dag", folder)
    with (folder / "bench.dag").open("w") as out:
        out.writelines(f"{line}\n" for line in dag_lines(loaded.experiment, loaded.targets, names))


def theirs(nodes: int, folder: Path, *, single: bool) -> None:
    """The same chains through the bindings."""
    import htcondor2
    from htcondor2 import dags

    submit = htcondor2.Submit(
        {"executable": "/bin/true", "arguments": "$(run) $(epoch) $(lr) $(width)", "request_memory": "1GB"}
    )
    dag = dags.DAG()
    runs = nodes // EPOCHS

    def values(run: int, epoch: int) -> dict[str, str]:
        return {"run": str(run), "run_id": f"{run:032x}", "seed": str(run * 7919), "epoch": str(epoch), "lr": "0.001"}

    if single:
        for run in range(runs):
            before: Any = dag
            for epoch in range(EPOCHS):
                options = {"name": f"r{run}e{epoch}", "submit_description": submit, "vars": [values(run, epoch)]}
                before = before.layer(**options) if before is dag else before.child_layer(**options)
    else:
        layer: Any = dag
        for epoch in range(EPOCHS):
            options = {"name": f"e{epoch}", "submit_description": submit}
            options["vars"] = [values(run, epoch) for run in range(runs)]
            layer = layer.layer(**options) if layer is dag else layer.child_layer(**options, edge=dags.OneToOne())
    dags.write_dag(dag, folder)


def measure(way: str, nodes: int) -> dict[str, float]:
    """One measurement, in this process."""
    if way == "siteannex":
        import siteannex.training.experiment.reading
        import siteannex.training.rendering.render
        import siteannex.training.rendering.writing  # noqa: F401
    else:
        import htcondor2.dags  # noqa: F401
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wall, begun = time.monotonic(), time.process_time()
        if way == "siteannex":
            ours(nodes, folder)
        else:
            theirs(nodes, folder, single=way == "nodes")
        seconds, wall = time.process_time() - begun, time.monotonic() - wall
        files = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".yaml"]
        size = sum(path.stat().st_size for path in files)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"cpu_s": seconds, "wall_s": wall, "peak_mib": peak, "mb": size / 1e6, "files": len(files)}


def main() -> None:
    """Take the measurements by turns and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, action="append", help="how many nodes (repeat it)")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--measure", nargs=2, metavar=("WAY", "NODES"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure[0], int(options.measure[1]))))
        return
    print("| nodes | way | CPU s | wall s | peak MiB | MB | files | CPU / ours |\n|---|---|---|---|---|---|---|---|")
    for nodes in options.nodes or [1000, 10_000, 100_000]:
        ways = ["siteannex", "layers", *(["nodes"] if nodes <= MOST_SINGLE_LAYERS else [])]
        found: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
        for _ in range(options.times):
            for way in ways:
                argv = [sys.executable, "-m", "benchmarks.dag_render", "--measure", way, str(nodes)]
                done = subprocess.run(argv, capture_output=True, text=True, check=True)
                found[way].append(json.loads(done.stdout.splitlines()[-1]))
        base = median(each["cpu_s"] for each in found["siteannex"])
        for way, taken in found.items():
            middle = {key: median(each[key] for each in taken) for key in taken[0]}
            print(
                f"| {nodes} | {way} | {middle['cpu_s']:.2f} | {middle['wall_s']:.2f} | {middle['peak_mib']:.0f} "
                f"| {middle['mb']:.1f} | {middle['files']:.0f} | {middle['cpu_s'] / base:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
