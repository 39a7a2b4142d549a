"""The keeper's arithmetic: the real shell, against a site that keeps the true books and lies as sites do."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from siteannex.resources import data_dir

NAME, WALLTIME_S, PILOT_GPU_S = "sweep1-0a1b2c3d", 3600, 7200
STARTED, INTERVAL_S, LEASE_S = 1_800_000_000, 600, 40 * 3600
SHELLS = [shell for shell in ("dash", "bash") if shutil.which(shell)]

SQUEUE = '#!/bin/sh\ncat "$SITE/squeue" 2>/dev/null\nexit "$(cat "$SITE/squeue.status")"\n'
SACCT = '#!/bin/sh\ncat "$SITE/sacct" 2>/dev/null\nexit "$(cat "$SITE/sacct.status")"\n'
SBATCH = """#!/bin/sh
case $(cat "$SITE/sbatch") in
refuses) echo "sbatch: error: Invalid account" >&2; exit 1 ;;
esac
id=$(($(cat "$SITE/next") + 1)); echo "$id" >"$SITE/next"; echo "$id" >>"$SITE/taken"
case $(cat "$SITE/sbatch") in
loses) echo "sbatch: error: Socket timed out on send/recv operation" >&2; exit 1 ;;
dies) kill -KILL "$KEEPER"; exit 1 ;;
esac
echo "welcome to this site"; echo "$id"
"""
WAKE = """
. "$TARBALL/pilot-report.sh"
. "$TARBALL/keeper-ledger.sh"
now() { cat "$SITE/clock"; }
KEEPER=$$; export KEEPER
DEMAND=$1
ask_slurm; settle_marks; count_up; lease_left; decide
echo "$USED $RESERVED $LIVING $LEFT_S"
echo "$VERDICT"
[ "$VERDICT" != submit ] || submit_pilot
"""

FULL, ENOUGH = "one more pilot could pass the lease's GPU-hours", "as many pilots as the lease allows"

Queue = Literal["true", "fails", "purged", "garbage"]
Accounting = Literal["true", "fails", "empty", "garbage", "lags", "zero lines of others"]


@dataclass
class Books:
    """What is true at the site: each job's seconds, None while it lives."""

    root: Path
    shell: str = SHELLS[0]
    cap_pilots: int = 3
    max_pilots: int = 2
    ran: dict[str, int | None] = field(default_factory=dict)
    shown: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        (self.root / "bin").mkdir()
        (self.root / "annex").mkdir()
        for name, text in (("squeue", SQUEUE), ("sacct", SACCT), ("sbatch", SBATCH)):
            path = self.root / "bin" / name
            path.write_text(text)
            path.chmod(path.stat().st_mode | stat.S_IXUSR)
        (self.root / "next").write_text("100\n")

    @property
    def living(self) -> list[str]:
        return [job for job, ran in self.ran.items() if ran is None]

    @property
    def committed(self) -> float:
        """GPU-seconds that were used, and that living pilots may still use."""
        each = (WALLTIME_S if ran is None else ran for ran in self.ran.values())
        return sum(each) * PILOT_GPU_S / WALLTIME_S

    def wake(
        self,
        *,
        demand: str = "1",
        queue: Queue = "true",
        accounting: Accounting = "true",
        sbatch: str = "takes",
        clock: str = str(STARTED),
    ) -> str:
        """One wake of the keeper; its verdict."""
        alive = "".join(f"{job}|{NAME}|RUNNING\n" for job in self.living)
        told = "".join(
            f"{job}|{NAME}|{'RUNNING' if ran is None or accounting == 'lags' else 'COMPLETED'}|{ran or 0}\n"
            for job, ran in self.ran.items()
        )
        lines = {"true": alive, "fails": "", "purged": "", "garbage": "slurm_load_jobs error: 7\n" + alive}
        books = {
            "true": told,
            "lags": told,
            "fails": told,
            "empty": "",
            "garbage": told.replace("COMPLETED|", "COMPLETED|-") + "x\n",
        }
        self._put("squeue", lines[queue])
        self._put("squeue.status", "1" if queue == "fails" else "0")
        self._put("sacct", books.get(accounting, told.replace(NAME, "other")))
        self._put("sacct.status", "1" if accounting == "fails" else "0")
        self._put("sbatch", sbatch)
        self._put("clock", clock)
        environment = {
            **os.environ,
            "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}",
            "SITE": str(self.root),
            "TARBALL": str(data_dir("tarball")),
            **{"P_ANNEX_ID": NAME, "P_WALLTIME_S": str(WALLTIME_S), "L_PILOT_GPU_S": str(PILOT_GPU_S)},
            **{"L_CAP_GPU_S": str(self.cap_pilots * PILOT_GPU_S), "L_MAX_PILOTS": str(self.max_pilots)},
            **{"L_SINCE": "2026-12-01", "L_ENDS_AT": str(STARTED + LEASE_S), "L_LEASE_S": str(LEASE_S)},
            **{"L_INTERVAL_S": str(INTERVAL_S), "L_UNCERTAIN": "socket timed out"},
        }
        done = subprocess.run(
            [self.shell, "-uc", WAKE, "wake", demand],
            cwd=self.root / "annex",
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        taken = self.root / "taken"
        for job in taken.read_text().split() if taken.exists() else []:
            self.ran.setdefault(job, None)
        numbers, verdict, *_ = [*done.stdout.splitlines(), "", ""]
        self.shown = tuple(numbers.split())
        return verdict

    def _put(self, name: str, text: str) -> None:
        (self.root / name).write_text(text)


@pytest.fixture(params=SHELLS)
def books(request: pytest.FixtureRequest, tmp_path: Path) -> Books:
    return Books(tmp_path, request.param)


STEP = st.fixed_dictionaries(
    {
        "demand": st.sampled_from(["0", "1", "7", ""]),
        "queue": st.sampled_from(["true", "true", "fails", "purged", "garbage"]),
        "accounting": st.sampled_from(["true", "true", "fails", "empty", "garbage", "lags", "zero lines of others"]),
        "sbatch": st.sampled_from(["takes", "takes", "refuses", "loses", "dies"]),
        "clock": st.sampled_from([str(STARTED), "0", "", "junk", str(STARTED + 3600), str(STARTED - 10**6), "9" * 12]),
    }
)
CALM = {"demand": "1", "queue": "true", "accounting": "true", "sbatch": "takes", "clock": str(STARTED)}
END = st.one_of(st.none(), st.integers(0, WALLTIME_S))


@settings(max_examples=30, deadline=None)
@example(steps=[(CALM, None), ({**CALM, "clock": "9" * 12}, None), (CALM, None)], cap=0, most=1)
@example(steps=[(CALM, None), ({**CALM, "clock": "9" * 11}, None), (CALM, None)], cap=0, most=1)
@given(steps=st.lists(st.tuples(STEP, END), max_size=9), cap=st.integers(0, 3), most=st.integers(1, 3))
def test_nothing_that_slurm_or_a_clock_says_lets_a_lease_be_passed(
    steps: list[tuple[dict[str, str], int | None]], cap: int, most: int
) -> None:
    with TemporaryDirectory() as root:
        books = Books(Path(root), cap_pilots=cap, max_pilots=most)
        purged, before = False, LEASE_S + 1
        for look, ends in steps:
            books.wake(**look)  # type: ignore[arg-type]
            purged = purged or look["queue"] == "purged"
            assert books.committed <= cap * PILOT_GPU_S
            assert len(books.living) <= most or purged
            assert int(books.shown[3]) < before, "no clock makes a lease longer"
            before = int(books.shown[3]) + 1
            if ends is not None and books.living:
                books.ran[books.living[0]] = ends


@settings(max_examples=15, deadline=None)
@given(ends=st.lists(st.integers(0, WALLTIME_S), max_size=6), cap=st.integers(1, 4))
def test_believed_books_agree_with_the_true_ones(ends: list[int], cap: int) -> None:
    with TemporaryDirectory() as root:
        books = Books(Path(root), cap_pilots=cap, max_pilots=1)
        for seconds in ends:
            room = books.committed + PILOT_GPU_S <= cap * PILOT_GPU_S
            verdict = books.wake()
            assert (verdict == "submit") is room
            assert int(books.shown[0]) == sum(2 * (ran or 0) for ran in books.ran.values())
            assert int(books.shown[1]) == 0, "at this wake no pilot lived"
            if books.living:
                assert books.wake() == (FULL if books.committed + PILOT_GPU_S > cap * PILOT_GPU_S else ENOUGH)
                books.ran[books.living[0]] = seconds


def test_without_accounting_every_pilot_counts_as_its_whole_walltime(books: Books) -> None:
    for _ in range(12):
        books.wake(accounting="fails")
        for job in books.living:
            books.ran[job] = 1
    assert len(books.ran) == 3
    assert books.wake(accounting="fails") == FULL
    assert books.wake() == "submit", "accounting is back and tells that they ran a second each"


def test_a_keeper_killed_between_mark_and_answer_submits_nothing_twice(books: Books) -> None:
    books.max_pilots = 1
    assert books.wake(sbatch="dies") == "submit"
    assert len(books.living) == 1
    assert books.wake() == ENOUGH
    assert (books.root / "annex/submit.1/answer").read_text() == "101\n"
    assert len(books.ran) == 1


def test_a_lost_answer_counts_and_a_refusal_does_not(books: Books) -> None:
    books.wake(sbatch="refuses")
    assert not list((books.root / "annex").glob("submit.[0-9]*"))
    books.wake(sbatch="loses")
    books.wake(queue="purged", accounting="empty")
    assert books.shown[1:3] == (str(PILOT_GPU_S), "1")


def test_beside_a_running_pilot_only_lasting_work_brings_another(books: Books) -> None:
    books.wake()
    books.wake(demand="0")
    assert books.wake() == "a running pilot may take it"
    assert books.wake() == "submit"


def test_a_clock_that_stands_still_ends_the_lease_by_its_wakes(books: Books) -> None:
    for _ in range(3):
        books.wake(demand="0")
    assert int(books.shown[3]) == LEASE_S - 2 * INTERVAL_S
