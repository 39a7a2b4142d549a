"""How long a look at a DAG of 100,000 nodes takes: the first one, one without news, one with one new event.

    .venv/bin/python -m benchmarks.dag_status

10,000 runs of ten epochs, a made-up log of 145 MB, 91,000 nodes done and 2,000 running. CPU seconds, one process.
"""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Callable
from datetime import UTC
from pathlib import Path

from siteannex.training.eventlog.reader import EventLog
from siteannex.training.monitoring.monitor import Monitor
from siteannex.training.monitoring.plan import Planned
from siteannex.training.monitoring.text import run_cells, urgent_first
from tests.unit.training import log_twin as twin

RUNS, EPOCHS, RUNNING, LAST_DONE = 10_000, 10, 3_000, 1_000


def write(path: Path) -> None:
    """The log: epoch after epoch of all runs."""
    with path.open("w") as out:
        for job in range((EPOCHS - 1) * RUNS + RUNNING):
            epoch, run = divmod(job, RUNS)
            at = job * 3
            out.write(twin.submitted(job, at, f"r{run:04}-e{epoch:02}") + twin.executing(job, at + 60))
            if epoch < EPOCHS - 1 or run < LAST_DONE:
                out.write(twin.terminated(job, at + 3600))


def main() -> None:
    """Take the measurements and print them."""
    plan = {
        f"r{run:04}-e{epoch:02}": Planned(f"r{run:04}", epoch, "lake") for run in range(RUNS) for epoch in range(EPOCHS)
    }
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "big.dag.nodes.log"
        write(path)
        monitor = Monitor(plan)
        with EventLog(path, UTC) as log:

            def look() -> None:
                for batch in log.read():
                    monitor.take(batch.events)
                now = monitor.board.last_at
                run_cells(monitor, urgent_first(monitor.runs())[:40], now)
                monitor.totals(now)

            print(f"first look, {path.stat().st_size / 1e6:.0f} MB: {timed(look):.2f} s")
            print(f"no news: {timed(look):.3f} s")
            with path.open("a") as out:
                out.write(twin.terminated((EPOCHS - 1) * RUNS + RUNNING - 1, 500_000))
            print(f"one event: {timed(look):.3f} s")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


def timed(act: Callable[[], None]) -> float:
    """CPU seconds."""
    begun = time.process_time()
    act()
    return time.process_time() - begun


if __name__ == "__main__":
    main()
