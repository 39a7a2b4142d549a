import json
import subprocess
import sys
from pathlib import Path

import pytest

from siteannex.training.prune import Keep, Pruned, prune
from tests.unit.epoch_ground import Ground

LOSSES = {"losses": {"0": 3.0, "1": 1.0, "2": 2.0, "3": 1.5}}


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    ground = Ground(tmp_path)
    ground.train(4, toy=LOSSES)
    return ground


def files(ground: Ground) -> list[str]:
    return [name for name in ground.names() if not name.endswith(".provenance.json")]


@pytest.mark.parametrize(
    ("keep", "staying"),
    [
        (Keep(last=1), ["epoch001.ckpt", "epoch003.ckpt"]),
        (Keep(last=2), ["epoch001.ckpt", "epoch002.ckpt", "epoch003.ckpt"]),
        (Keep(last=1, best=False), ["epoch003.ckpt"]),
        (Keep(last=1, mode="max"), ["epoch000.ckpt", "epoch003.ckpt"]),
        (Keep(last=9), ["epoch000.ckpt", "epoch001.ckpt", "epoch002.ckpt", "epoch003.ckpt"]),
    ],
)
def test_the_last_and_the_best_stay_and_every_side_car(ground: Ground, keep: Keep, staying: list[str]) -> None:
    before = {name for name in ground.names() if name.endswith(".provenance.json")}
    done = prune(ground.folder / "run", keep)
    assert (list(done.kept), files(ground), done.has_room) == (staying, staying, True)
    assert {name for name in ground.names() if name.endswith(".provenance.json")} == before
    assert prune(ground.folder / "run", keep).removed == ()


def test_the_chain_goes_on_after_pruning(ground: Ground) -> None:
    prune(ground.folder / "run", Keep(last=1))
    assert ground.attempt(4, toy=LOSSES).status == 0
    assert ground.loaded() == "epoch001.ckpt"


def test_last_ckpt_is_the_newest_epoch_and_takes_no_room(ground: Ground) -> None:
    run = ground.folder / "run"
    for epoch in (3, 4):
        if epoch == 4:
            assert ground.attempt(4).status == 0
        for _ in range(2):
            prune(run, Keep())
            assert (run / "last.ckpt").samefile(ground.checkpoints / f"epoch00{epoch}.ckpt")
    assert sorted(path.name for path in run.iterdir()) == ["attempts", "checkpoints", "last.ckpt"]


def test_nothing_goes_while_the_newest_is_not_whole(ground: Ground) -> None:
    newest = ground.checkpoints / "epoch003.ckpt"
    newest.write_bytes(newest.read_bytes()[:-1])
    done = prune(ground.folder / "run", Keep(last=1))
    assert (done.removed, len(files(ground))) == ((), 4)
    assert "epoch003.ckpt is not whole" in done.note


def test_before_the_first_epoch_there_is_nothing_to_do(tmp_path: Path) -> None:
    assert prune(tmp_path, Keep()) == Pruned(note="no finished epoch yet")


def siteannex(ground: Ground, *words: str) -> "subprocess.CompletedProcess[str]":
    program = Path(sys.executable).with_name("siteannex")
    return subprocess.run([program, *words], cwd=ground.folder, capture_output=True, text=True, check=False)


def test_the_command_says_what_it_removed(ground: Ground) -> None:
    done = siteannex(ground, "dag", "prune", "run", "--keep-last", "1")
    assert (done.returncode, done.stdout.split()[:5]) == (0, ["pruned", "run:", "2", "checkpoints", "removed,"])
    found = json.loads(siteannex(ground, "dag", "prune", "run", "--json").stdout)["run"]
    assert (found["kept"], found["removed"]) == (["epoch001.ckpt", "epoch003.ckpt"], [])


@pytest.mark.parametrize(("status", "left"), [("0", 3), ("86", 4), ("-9", 4)])
def test_as_a_hook_it_works_after_successes_only_and_never_fails_an_epoch(
    ground: Ground, status: str, left: int
) -> None:
    assert siteannex(ground, "dag", "prune", "--hook", "--", "r03-e03", "run", status).returncode == 0
    assert len(files(ground)) == left
    assert siteannex(ground, "dag", "prune", "--hook", "r03-e03", "nowhere", "0").returncode == 0


SMALL_DISK = """
mount -t tmpfs -o size=$1 tiny run
cp -r kept/. run/
dd if=/dev/zero of=run/of-others bs=1k 2>/dev/null || true
"$2" -c '
from pathlib import Path
from siteannex.training.prune import Keep, prune
done = prune(Path("run"), Keep())
newest = Path("run/last.ckpt").samefile("run/checkpoints/epoch003.ckpt")
print(*done.kept, "room" if done.has_room else "no room", "updated" if newest else "old")
'
"""


@pytest.mark.parametrize(
    ("newest_bytes", "told"),
    [
        (200_000, "epoch001.ckpt epoch002.ckpt epoch003.ckpt room updated"),
        (300_000, "epoch001.ckpt epoch003.ckpt room updated"),
        (500_000, "epoch003.ckpt room updated"),
        (900_000, "epoch003.ckpt no room updated"),
    ],
)
def test_on_a_full_disk_fewer_are_kept_and_last_ckpt_is_still_updated(
    ground: Ground, newest_bytes: int, told: str
) -> None:
    for name in files(ground):
        grow(ground, name, newest_bytes if name == "epoch003.ckpt" else 200_000)
    run = ground.folder / "run"
    run.rename(ground.folder / "kept")
    run.mkdir()
    within = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-ec", SMALL_DISK, "sh", "2m", sys.executable]
    done = subprocess.run(within, cwd=ground.folder, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == told, done.stderr


def grow(ground: Ground, name: str, size: int) -> None:
    """Make a checkpoint larger, and its side-car true of it."""
    path = ground.checkpoints / name
    path.write_bytes(b"x" * size)
    sidecar = ground.sidecar(name)
    sidecar["checkpoint"].update(bytes=size, sha256=ground.sha256(name))
    (ground.checkpoints / f"{name}.provenance.json").write_text(json.dumps(sidecar))
