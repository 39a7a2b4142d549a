"""`siteannex up` beside the same steps by hand, in one run on a running lab; prints what docs/measurements.md tells.

usage: lab/lab up && .venv/bin/python -m benchmarks.up_against_hand [--pairs 5] [--delay-ms 40] [--json FILE]

The clock starts when the person has typed the last answer (the one-time code) and stops when READY is on the screen.
By hand means by_hand.sh: OpenSSH with one login, tar over ssh, sbatch, then looking every half second. Both sides ship
the same bundle to the same partition; the hand-made side has its bundle and token ready before it logs in, siteannex
makes them on the clock. The pilot's steps are timed by their arrival in its progress file, looked at every 50 ms,
because its own timestamps are whole seconds. --delay-ms makes the login node as far away as a real one is.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pexpect

from benchmarks.help_start import report as report_help
from lab import Lab
from tests.lab.ground import Ground
from tests.lab.person import QUESTIONS, Person

GPUS = "2"
BUNDLE = "/home/alice/by-hand"
HAND = "/opt/siteannex-src/benchmarks/by_hand.sh"
PREPARE = "/opt/siteannex-src/benchmarks/prepare_by_hand.py"
STEPS = ("connect", "ship", "bundle", "submit", "batch job", "EP start", "AP connect", "join", "ready")
"""What each span ends with: see `_up_marks`, `_hand_marks` and PILOT."""
PILOT = {"BATCH_JOB": "batch job", "EP_START": "EP start", "AP_CONNECT": "AP connect", "EP_CONFIG": "join"}
QUIET = 0.35
"""Share of both cores that may be busy before a run; an idle lab by itself takes about 0.1."""
QUIET_WAIT_S = 20


@dataclass(slots=True)
class Run:
    """One way from the last answer to READY. Times are Unix seconds."""

    kind: str
    """`up` or `hand`."""
    first: bool
    """The EP software was not at the site yet."""
    busy_before: float
    answered_at: float = 0.0
    marks: dict[str, float] = field(default_factory=dict)
    facts: dict[str, int] = field(default_factory=dict)
    busy: float = 0.0
    """Share of both cores that was busy from the answer to READY."""

    @property
    def seconds(self) -> float:
        """From the last answer to READY."""
        return self.marks["ready"] - self.answered_at

    @property
    def spans(self) -> dict[str, float]:
        """Seconds of each step that was taken, in order of time."""
        ordered = sorted([("", self.answered_at), *self.marks.items()], key=lambda mark: mark[1])
        return {name: at - before for (_, before), (name, at) in pairwise(ordered)}


class Processors:
    """How busy the whole machine is, from /proc/stat."""

    def __init__(self) -> None:
        self.began = self._read()

    def busy(self) -> float:
        """Busy share since this object was made."""
        total, idle = (now - then for now, then in zip(self._read(), self.began, strict=True))
        return 1 - idle / total if total else 0.0

    @staticmethod
    def _read() -> tuple[int, int]:
        times = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        return sum(times), times[3] + times[4]


def quiet() -> float:
    """Wait for a quiet second, but not for ever; the busy share of the last one."""
    until = time.monotonic() + QUIET_WAIT_S
    while True:
        seen = Processors()
        time.sleep(1)
        if (busy := seen.busy()) < QUIET or time.monotonic() > until:
            return busy


class ProgressWatch(threading.Thread):
    """Notes when each line of a pilot's progress file appears, looking from outside the lab."""

    def __init__(self, lab: Lab) -> None:
        super().__init__(daemon=True)
        self._annexes = lab.root("login1") / "home/alice/.siteannex/annex"
        self._ended = threading.Event()
        self.seen: dict[str, float] = {}

    def run(self) -> None:
        """Look until ended."""
        while not self._ended.wait(0.05):
            for file in self._annexes.glob("*/progress/*.jsonl"):
                for line in file.read_text().splitlines():
                    self.seen.setdefault(PILOT.get(json.loads(line)["stage"], "other"), time.time())

    def end(self) -> dict[str, float]:
        """What was seen."""
        self._ended.set()
        self.join()
        return {name: at for name, at in self.seen.items() if name != "other"}


def timed(person: Person, run: Run, child: pexpect.spawn[str], ready: str) -> str:
    """Answer the login's questions, stop the clock at `ready`, wait for the end; the text shown."""
    watch, shown = ProgressWatch(person.lab), ""
    watch.start()
    kinds = list(QUESTIONS)
    seen = Processors()
    while (index := child.expect([*QUESTIONS.values(), ready, pexpect.EOF])) < len(kinds):
        shown += str(child.before)
        answer = person.answer(kinds[index])
        seen, run.answered_at = Processors(), time.time()
        child.sendline(answer)
    arrived = time.time()
    shown += f"{child.before}{child.after}"
    if index != len(kinds):
        raise SystemExit(f"{run.kind} did not come to READY:\n{shown}")
    run.busy = seen.busy()
    child.expect(pexpect.EOF)
    child.close()
    run.marks = {name: min(at, arrived) for name, at in watch.end().items()} | {"ready": arrived}
    return shown + str(child.before)


def by_siteannex(person: Person, ground: Ground, *, first: bool) -> Run:
    """`siteannex up`, then `down --now`."""
    run, logins = Run("up", first, quiet()), ground.logins()
    timed(person, run, person.start("up", "lab", "--gpus", GPUS), r"[\r\n]ready ")
    run.facts["authentications"] = ground.logins() - logins
    [session] = person.types("sessions", "--json").json()
    run.facts["channels"] = session["channels_opened"]
    run.facts["sent by ssh"] = sent_by_ssh(person)
    newest = "cat $(ls -td ~/.local/state/siteannex/annexes/*/ | head -n 1)/events.jsonl"
    for event in map(json.loads, person.shell(newest).splitlines()):
        at, key = datetime.fromisoformat(event["at"]).timestamp(), (event["stage"], event["what"])
        if name := {("CONNECT", "done"): "connect", ("SUBMIT", "begin"): "bundle", ("SUBMIT", "done"): "submit"}.get(
            key
        ):
            run.marks[name] = at
        if key == ("SHIP", "done"):
            run.marks["ship"] = at
            run.facts["EP bytes"] = event["data"]["bytes_sent"]
        if key == ("SUBMIT", "done"):
            run.facts["bundle bytes"] = event["data"]["bytes_sent"]
    person.types("down", "--all", "--now")
    person.types("logout", "--all")
    ground.nothing_left()
    return run


def by_hand(person: Person, ground: Ground, *, first: bool) -> Run:
    """by_hand.sh start, then its end."""
    person.shell(f"rm -rf {BUNDLE}; /opt/siteannex/bin/python {PREPARE} lab {GPUS} {BUNDLE}")
    run, logins = Run("hand", first, quiet()), ground.logins()
    shown = timed(person, run, person.start("start", "login.lab", BUNDLE, through=(HAND,)), r"mark ready [\d.]+")
    for line in shown.splitlines():
        words = line.split()
        if words[:1] == ["mark"] and words[1] not in ("ready", "running"):
            run.marks[words[1]] = float(words[2])
    run.facts["authentications"] = ground.logins() - logins
    run.facts["sent by ssh"] = sent_by_ssh(person)
    person.shell(f"{HAND} end login.lab {BUNDLE}")
    ground.nothing_left()
    return run


def sent_by_ssh(person: Person) -> int:
    """Bytes sent over the one SSH connection to the login node so far, encryption and all, as the kernel counts."""
    shown = person.shell("ss -tinH state established dst 10.77.2.10:22")
    return int(shown.partition("bytes_sent:")[2].split()[0])


def prepare(lab: Lab, person: Person) -> Ground:
    """Nothing up, nothing at the site, the site's host key known; the EP software packed (that is before any login)."""
    ground = Ground(lab)
    person.types("down", "--all", "--now")
    person.types("logout", "--all")
    ground.at("login1", "scancel --batch --signal=TERM -u alice || true; rm -rf ~alice/.siteannex/annex")
    person.shell("rm -rf ~/.local/state/siteannex/annexes ~/.ssh/config ~/.ssh/by-hand-*")
    lab.exec(
        "ap", ["sh", "-c", "umask 077; mkdir -p ~/.ssh; cat >~/.ssh/known_hosts"], user="alice", input=lab.known_hosts()
    )
    person.types("pack")
    ground.nothing_left()
    return ground


def measure(lab: Lab, pairs: int, delay_ms: int) -> list[Run]:
    """One pair with nothing at the site, then `pairs` with the EP software there."""
    person = Person(lab)
    ground = prepare(lab, person)
    far_away(person, delay_ms)
    runs: list[Run] = []
    for number in range(pairs + 1):
        for one in (by_siteannex, by_hand):
            if number == 0:
                ground.at("login1", "rm -rf ~alice/.siteannex")
            runs.append(one(person, ground, first=number == 0))
            tell(runs[-1], number)
    far_away(person, 0)
    return runs


def tell(run: Run, number: int) -> None:
    """One line a run."""
    where = "first" if run.first else f"{number}"
    spans = ", ".join(f"{name} {seconds:.2f}" for name, seconds in run.spans.items())
    facts = ", ".join(f"{name} {value}" for name, value in run.facts.items())
    load = f"cores busy {run.busy_before:.0%} before, {run.busy:.0%} during"
    print(f"{run.kind:<5}{where:<6}{run.seconds:6.2f} s  [{spans}]  ({load}; {facts})", flush=True)


def summarise(runs: list[Run]) -> None:
    """Medians, ratios pair by pair, and the medians of each step."""
    warm = {kind: [run for run in runs if run.kind == kind and not run.first] for kind in ("up", "hand")}
    first = {run.kind: run for run in runs if run.first}
    print(
        f"\nfirst: up {first['up'].seconds:.2f} s, by hand {first['hand'].seconds:.2f} s, "
        f"ratio {first['up'].seconds / first['hand'].seconds:.2f}"
    )
    for kind, those in warm.items():
        seconds = [run.seconds for run in those]
        print(f"{kind}: median {statistics.median(seconds):.2f} s (from {min(seconds):.2f} to {max(seconds):.2f})")
    pairs = list(zip(warm["up"], warm["hand"], strict=True))
    tell_ratios("up / by hand (the target is 1.3)", [up.seconds / hand.seconds for up, hand in pairs])
    ours = [[run.seconds - run.spans["batch job"] for run in pair] for pair in pairs]
    tell_ratios("the same without Slurm's time from sbatch to the job's start", [up / hand for up, hand in ours])
    print("\nmedian seconds of each step        up   by hand")
    for step in STEPS:
        found = {kind: [run.spans[step] for run in those if step in run.spans] for kind, those in warm.items()}
        cells = "".join(f"{statistics.median(each):10.2f}" if each else f"{'-':>10}" for each in found.values())
        print(f"  {step:<26}{cells}")


def tell_ratios(what: str, ratios: list[float]) -> None:
    """Pair by pair, and their spread."""
    each = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    middle = statistics.median(ratios)
    print(f"{what}: min {min(ratios):.2f}, median {middle:.2f}, max {max(ratios):.2f}; pair by pair {each}")


def far_away(person: Person, delay_ms: int) -> None:
    """Make every round trip of SSH to the login node take so much longer, for both sides; 0 takes it back."""
    line = f"ProxyCommand /opt/siteannex/bin/python /opt/siteannex-src/benchmarks/slow_link.py %h %p {delay_ms}"
    person.shell(f"echo 'Host login.lab\n  {line}' >~/.ssh/config" if delay_ms else "rm -f ~/.ssh/config")


def main() -> int:
    """Measure, print, and keep the raw numbers where asked."""
    parser = argparse.ArgumentParser(description="siteannex up beside the same steps by hand, on a running lab")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--delay-ms", type=int, default=0, help="add this to every round trip of SSH")
    parser.add_argument("--json", type=Path, help="write every run's raw numbers there")
    words = parser.parse_args()
    print(f"{datetime.now().astimezone():%Y-%m-%d %H:%M %Z}, load {Path('/proc/loadavg').read_text().strip()}")
    runs = measure(Lab.attach(), words.pairs, words.delay_ms)
    summarise(runs)
    print()
    helps = report_help()
    print(f"load at the end {Path('/proc/loadavg').read_text().strip()}")
    if words.json:
        words.json.write_text(json.dumps({"runs": [asdict(run) for run in runs], "help": helps}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
