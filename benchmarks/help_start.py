"""CPU seconds (user + system) of `siteannex --help`, on this machine and on the lab's access point.

usage: .venv/bin/python -m benchmarks.help_start     (the access point only when a lab is up)
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from lab import Lab, LabError

RUNS = 10
_SCRIPT = f"TIMEFORMAT='%U %S'; for i in $(seq {RUNS + 1}); do time \"$0\" --help >/dev/null; done"


def cpu_seconds(argv: Sequence[str]) -> list[float]:
    """Of RUNS starts; one more, before them, warms the file cache. `argv` runs bash with _SCRIPT and a program."""
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return [sum(map(float, line.split())) for line in done.stderr.splitlines()][1:]


def report() -> dict[str, list[float]]:
    """Measure and print."""
    found = {"this machine": cpu_seconds(["bash", "-c", _SCRIPT, str(Path(sys.executable).with_name("siteannex"))])}
    try:
        argv = Lab.attach().argv("ap", ["bash", "-c", _SCRIPT, "/opt/siteannex/bin/siteannex"], user="alice")
        found["access point"] = cpu_seconds(argv)
    except LabError as reason:
        print(f"not on the access point: {reason}")
    for where, seconds in found.items():
        middle, most = statistics.median(seconds), max(seconds)
        print(
            f"siteannex --help, {where}: {middle:.3f} s CPU (median of {RUNS}), at most {most:.3f}; the target is 0.25"
        )
    return found


if __name__ == "__main__":
    report()
