"""Read one HTCondor event log with siteannex's reader and with the bindings' own, by turns.

    .venv/bin/python -m benchmarks.event_log --gigabyte       # logs of 20 MB and of 1 GB
    .venv/bin/python -m benchmarks.event_log --log FILE       # a log of your own

The log is made up (`tests/unit/training/log_twin.py`), mostly events 006 as real job logs are. Each measurement is a
process of its own. Both look at number, cluster, proc and time of every event; `details` also reads the bodies of all
starts, ends and holds. Memory is the process's peak.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import subprocess
import sys
import tempfile
import time
from datetime import UTC
from pathlib import Path
from statistics import median

MB = 1_000_000
WAYS = ("siteannex", "siteannex, details", "bindings")


def make_log(path: Path, size: int) -> None:
    """A healthy log of at least so many bytes: 90 sizes to a job's submit, start and end."""
    from tests.unit.training import log_twin as twin

    written = 0
    with path.open("w") as out:
        for job in itertools.count(1000):
            at = job * 60
            text = "".join(
                [
                    twin.submitted(job, at, f"run{job % 50}-train_epoch{job // 50}"),
                    twin.executing(job, at + 60, gpus=2, site="Lake-CE1"),
                    *(twin.size(job, at + 100 + step) for step in range(90)),
                    twin.terminated(job, at + 5000) if job % 3 else twin.evicted(job, at + 5000),
                ]
            )
            out.write(text)
            written += len(text)
            if written >= size:
                return


def measure(way: str, path: Path) -> dict[str, float]:
    """One measurement, in this process."""
    import htcondor2

    from siteannex.training.eventlog.details import end_of, hold_of, start_of
    from siteannex.training.eventlog.reader import EventLog

    count, begun, wall = 0, time.process_time(), time.monotonic()
    if way == "bindings":
        for event in htcondor2.JobEventLog(str(path)).events(stop_after=0):
            _ = event.type, event.cluster, event.proc, event.timestamp
            count += 1
    else:
        details = {1: start_of, 4: end_of, 5: end_of, 12: hold_of} if "details" in way else {}
        with EventLog(path, UTC) as log:
            for batch in log.read():
                for each in batch.events:
                    _ = each.number, each.cluster, each.proc, each.at
                    if each.number in details:
                        details[each.number](each)
                    count += 1
    seconds, wall = time.process_time() - begun, time.monotonic() - wall
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"events": count, "cpu_s": seconds, "wall_s": wall, "mb": path.stat().st_size / MB, "peak_mib": peak}


def compare(path: Path, ways: tuple[str, ...], times: int) -> None:
    """Print the rows of one log."""
    found: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    for _ in range(times):
        for way in ways:
            argv = [sys.executable, "-m", "benchmarks.event_log", "--measure", way, str(path)]
            done = subprocess.run(argv, capture_output=True, text=True, check=True)
            found[way].append(json.loads(done.stdout.splitlines()[-1]))
    base = median(each["events"] / each["cpu_s"] for each in found.get("bindings", found[ways[0]]))
    for way, taken in found.items():
        middle = {key: median(each[key] for each in taken) for key in taken[0]}
        rate = median(each["events"] / each["cpu_s"] for each in taken)
        print(
            f"| {middle['mb']:.0f} | {way} | {middle['events']:.0f} | {middle['cpu_s']:.2f} | {middle['wall_s']:.2f} "
            f"| {rate:,.0f} | {middle['peak_mib']:.0f} | {rate / base:.1f} |",
            flush=True,
        )


def main() -> None:
    """Take the measurements by turns and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--gigabyte", action="store_true", help="also a log of 1 GB")
    parser.add_argument("--measure", nargs=2, metavar=("WAY", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure[0], Path(options.measure[1]))))
        return
    print("| MB | way | events | CPU s | wall s | events per CPU s | peak MiB | speed / bindings |")
    print("|---|---|---|---|---|---|---|---|")
    if options.log:
        compare(options.log, WAYS, options.times)
        return
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "made.log"
        make_log(path, 20 * MB)
        compare(path, WAYS, options.times)
        if options.gigabyte:
            make_log(path, 1000 * MB)
            compare(path, WAYS, 1)


if __name__ == "__main__":
    main()
