"""A campaign made by the real runner is proved sound; each tampering with it is caught and named first."""

import hashlib
import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from siteannex.cli.provenance import app
from siteannex.errors import AnnexError
from siteannex.training.epoch.files import canonical
from siteannex.training.prune import Keep, prune
from tests.unit.epoch_ground import RUN_ID, Ground

OTHER = "6ba7b811-9dad-51d1-80b4-00c04fd430c8"
SIDECAR = ".provenance.json"
Tamper = Callable[[Path], object]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs; the first evicted in the middle of epoch 2, and pruned to its newest checkpoint."""
    folder = tmp_path_factory.mktemp("campaign")
    for name, run_id, epochs in (("r00", RUN_ID, 4), ("r01", OTHER, 2)):
        (folder / name).mkdir()
        env = {"SITEANNEX_RUN_DIR": f"toy/{name}", "SITEANNEX_RUN_NAME": name, "SITEANNEX_RUN_ID": run_id}
        ground = Ground(folder / name)
        code = (ground.folder / "train.py").read_text()
        (ground.folder / "train.py").write_text(code.replace('{"steps": [],', f'{{"run": "{name}", "steps": [],'))
        for epoch in range(epochs):
            toy: dict[str, Any] = {"losses": {"0": 3.0 + epochs, "1": 2.0, "2": 1.0, "3": 0.5}}
            if (name, epoch) == ("r00", 2):
                ended = ground.interrupt(epoch, signal.SIGTERM, {**toy, "pause": [2, 3]}, env=env)
                assert ended.status == 85, ended.output
            assert ground.attempt(epoch, env=env, toy=toy).status == 0
        shutil.copytree(folder / name / "toy" / name, folder / "toy" / name)
    prune(folder / "toy" / "r00", Keep(last=1))
    return folder / "toy"


@pytest.fixture
def toy(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "toy"))


def ask(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def verified(toy: Path) -> dict[str, Any]:
    answer = ask("verify", toy, "--json")
    found: dict[str, Any] = json.loads(answer.stdout)
    assert answer.exit_code == (0 if found["sound"] else 1)
    return found


def first(toy: Path) -> tuple[str, str, str]:
    """Run, kind and place of the first break."""
    broken = [(run["run"], run["breaks"][0]) for run in verified(toy)["runs"] if run["breaks"]]
    return broken[0][0], broken[0][1]["kind"], broken[0][1]["where"]


def sidecar(toy: Path, which: int, /, **changes: Any) -> None:
    """Edit a side-car of r00; names with a dot for nested values."""
    path = toy / f"r00/checkpoints/epoch00{which}.ckpt{SIDECAR}"
    value = json.loads(path.read_text())
    for name, new in changes.items():
        *within, last = name.split("__")
        inner = value
        for each in within:
            inner = inner[each]
        inner[last] = new
    path.write_text(json.dumps(value, indent=1, sort_keys=True) + "\n")


def events(toy: Path, epoch: int, change: Callable[[list[str]], list[str]], number: int = 0) -> None:
    path = toy / f"r00/attempts/r03-train-e{epoch}.0.0.{number}.ndjson"
    path.write_text("".join(change(path.read_text().splitlines(keepends=True))))


def rehashed(lines: list[str]) -> list[str]:
    """A forger who knows the format: numbers and hashes are right again."""
    previous, made = "", []
    for number, line in enumerate(lines):
        event = {**json.loads(line), "seq": number, "prev_hash": previous}
        del event["hash"]
        previous = event["hash"] = hashlib.sha256(canonical(event)).hexdigest()
        made.append(json.dumps(event, sort_keys=True) + "\n")
    return made


def test_a_pruned_campaign_with_an_eviction_is_sound(toy: Path) -> None:
    answer = ask("verify", toy)
    assert answer.exit_code == 0, answer.output
    told = "r00: sound (epochs 4, attempts 5, side-cars 5, checkpoints compared byte for byte 1, pruned 3, merged 0)"
    assert told in answer.output
    assert "r01: sound" in answer.output
    assert not [run["doubts"] for run in verified(toy)["runs"] if run["doubts"]]
    assert ask("verify", toy / "r00").exit_code == 0


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def swap_epochs(toy: Path) -> None:
    folder = toy / "r00/checkpoints"
    one, other = (folder / f"epoch00{epoch}.ckpt{SIDECAR}" for epoch in (0, 1))
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


def duplicate_epoch(toy: Path) -> None:
    folder = toy / "r00/checkpoints"
    value = json.loads((folder / f"epoch001.ckpt{SIDECAR}").read_text())
    value["checkpoint"]["file"] = "again.ckpt"
    (folder / f"again.ckpt{SIDECAR}").write_text(json.dumps(value))


def foreign(toy: Path, *, with_sidecar: bool) -> None:
    for name in ["epoch001.ckpt", f"epoch001.ckpt{SIDECAR}"][: 2 if with_sidecar else 1]:
        shutil.copy(toy / "r01/checkpoints" / name, toy / "r00/checkpoints" / name)


def metrics_line(toy: Path) -> None:
    path = next((toy / "r00/attempts").glob("*-e1.*.metrics.jsonl"))
    path.write_text(path.read_text().replace('"val_loss": 2.0', '"val_loss": 1.0'))


def without(number: int) -> Callable[[list[str]], list[str]]:
    return lambda lines: lines[:number] + lines[number + 1 :]


def exchanged(lines: list[str]) -> list[str]:
    return [lines[0], lines[2], lines[1], *lines[3:]]


E1 = "attempts/r03-train-e1.0.0.0.ndjson"


@pytest.mark.parametrize(
    ("tamper", "kind", "where"),
    [
        (lambda toy: flip(toy / "r00/checkpoints/epoch003.ckpt"), "checkpoint-changed", "checkpoints/epoch003.ckpt"),
        (lambda toy: sidecar(toy, 1, where__site="anvil"), "sidecar-edited", "checkpoints/epoch001.ckpt" + SIDECAR),
        (lambda toy: sidecar(toy, 1, run__seed=18), "sidecar-edited", "checkpoints/epoch001.ckpt" + SIDECAR),
        (lambda toy: sidecar(toy, 1, epoch="1"), "sidecar-invalid", "checkpoints/epoch001.ckpt" + SIDECAR),
        (
            lambda toy: sidecar(toy, 1, training__metrics={"val_loss": 0.1}),
            "sidecar-edited",
            "checkpoints/epoch001.ckpt" + SIDECAR,
        ),
        (
            lambda toy: sidecar(toy, 1, checkpoint__sha256="0" * 64),
            "sidecar-edited",
            "checkpoints/epoch001.ckpt" + SIDECAR,
        ),
        (
            lambda toy: sidecar(toy, 3, parent__sha256="0" * 64),
            "parent-swapped",
            "checkpoints/epoch003.ckpt" + SIDECAR,
        ),
        (
            lambda toy: (toy / f"r00/checkpoints/epoch001.ckpt{SIDECAR}").unlink(),
            "sidecar-missing",
            "checkpoints/epoch001.ckpt" + SIDECAR,
        ),
        (swap_epochs, "sidecar-misnamed", "checkpoints/epoch000.ckpt" + SIDECAR),
        (duplicate_epoch, "sidecar-edited", "checkpoints/again.ckpt" + SIDECAR),
        (lambda toy: events(toy, 1, without(2)), "event-missing", E1 + ":3"),
        (lambda toy: events(toy, 1, exchanged), "event-out-of-order", E1 + ":2"),
        (lambda toy: events(toy, 1, lambda lines: [*lines[:-1], lines[-1][:50]]), "event-cut-short", E1 + ":8"),
        (lambda toy: events(toy, 1, lambda lines: lines[:-1]), "event-cut-short", E1),
        (lambda toy: events(toy, 1, lambda lines: lines[:3]), "event-missing", "checkpoints/epoch001.ckpt" + SIDECAR),
        (lambda toy: events(toy, 1, lambda lines: [*lines[:3], lines[2], *lines[3:]]), "event-repeated", E1 + ":4"),
        (
            lambda toy: events(toy, 1, lambda lines: [line.replace("2.0", "1.0") for line in lines]),
            "event-edited",
            E1 + ":7",
        ),
        (
            lambda toy: events(toy, 1, lambda lines: rehashed([line.replace("2.0", "1.0") for line in lines])),
            "sidecar-edited",
            "checkpoints/epoch001.ckpt" + SIDECAR,
        ),
        (
            lambda toy: events(
                toy, 1, lambda lines: [*rehashed([lines[0].replace('"slot": null', '"slot": 1')]), *lines[1:]]
            ),
            "event-edited",
            E1 + ":2",
        ),
        (lambda toy: foreign(toy, with_sidecar=False), "checkpoint-changed", "checkpoints/epoch001.ckpt"),
        (lambda toy: foreign(toy, with_sidecar=True), "foreign-run", "checkpoints/epoch001.ckpt" + SIDECAR),
        (
            lambda toy: shutil.copy(toy / "r01/checkpoints/epoch001.ckpt", toy / "r00/last.ckpt"),
            "checkpoint-changed",
            "last.ckpt",
        ),
        (metrics_line, "metrics-edited", "attempts/r03-train-e1.0.0.0.metrics.jsonl"),
        (lambda toy: (toy / "r00" / E1).unlink(), "attempt-missing", "checkpoints/epoch001.ckpt" + SIDECAR),
        (
            lambda toy: shutil.copy(toy / "r00" / E1, toy / "r00" / E1.replace("0.ndjson", "1.ndjson")),
            "attempt-repeated",
            E1.replace("0.ndjson", "1.ndjson"),
        ),
        (
            lambda toy: (toy / "r00/attempts/r03-train-e2.0.0.0.ndjson").unlink(),
            "attempt-missing",
            "attempts/r03-train-e2.0.0.0.ndjson",
        ),
    ],
)
def test_a_tampering_is_caught_and_named(toy: Path, tamper: Tamper, kind: str, where: str) -> None:
    tamper(toy)
    assert first(toy) == ("r00", kind, where), ask("verify", toy).output
    assert [run["run"] for run in verified(toy)["runs"] if run["breaks"]] == ["r00"]


def test_lineage_goes_back_through_pruned_checkpoints_and_the_eviction(toy: Path) -> None:
    answer = ask("lineage", toy / "r00/last.ckpt", "--json")
    assert answer.exit_code == 0, answer.output
    chain = json.loads(answer.stdout)
    told = [(link["epoch"], link["complete"], link["value"], link["present"]) for link in chain["links"]]
    assert told == [(3, True, 0.5, True), (2, True, 1.0, False), (2, False, None, False), (1, True, 2.0, False),
                    (0, True, 7.0, False)]  # fmt: skip
    assert (chain["origin"], chain["lost"]) == ("trained from nothing", "")
    lines = ask("lineage", toy / "r00/last.ckpt").stdout.splitlines()
    assert lines[1].split()[:3] == ["epoch003.ckpt", "3", "?"]
    assert lines[3].split()[:3] == ["time.ckpt", "2", "(part)"]
    assert lines[-1] == "begin    trained from nothing"


def test_lineage_says_where_it_is_lost(toy: Path) -> None:
    (toy / f"r00/checkpoints/epoch001.ckpt{SIDECAR}").unlink()
    answer = ask("lineage", toy / "r00/checkpoints/epoch002.ckpt")
    assert answer.exit_code == 1
    assert "lost     no side-car here is of its parent epoch001.ckpt (sha256" in answer.stdout


def test_show_tells_a_pruned_checkpoint_in_words_and_as_it_was_written(toy: Path) -> None:
    pruned = toy / "r00/checkpoints/epoch002.ckpt"
    words = ask("show", pruned).stdout
    assert "end of epoch 2 of train" in words
    assert "not here any more" in words
    assert "from     time.ckpt (time)" in words
    assert "metrics  val_loss 1.0" in words
    written = json.loads(Path(f"{pruned}{SIDECAR}").read_text())
    assert json.loads(ask("show", f"{pruned}{SIDECAR}", "--json").stdout) == {**written, "present": False}


@pytest.mark.parametrize("words", [("show", "r00/checkpoints/epoch009.ckpt"), ("verify", "r00/attempts")])
def test_what_is_no_checkpoint_and_no_run_is_refused_in_words(toy: Path, words: tuple[str, str]) -> None:
    problem = ask(words[0], toy / words[1]).exception
    assert isinstance(problem, AnnexError)
    assert problem.failure.code == "checkpoint-unknown"


def test_epochs_trained_again_because_their_checkpoints_were_lost_are_sound(toy: Path, tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    ground.train(3, env={"SITEANNEX_RESUME_FROM": "last"})
    (ground.checkpoints / "epoch001.ckpt").write_text("{")
    (ground.checkpoints / "epoch002.ckpt").unlink()
    ended = ground.attempt(3, env={"SITEANNEX_RESUME_FROM": "last"}, toy={"losses": {"1": 0.4}})
    assert ended.status == 0, ended.output
    assert ground.loaded() == "epoch000.ckpt"
    answer = ask("verify", tmp_path / "run")
    assert answer.exit_code == 0, answer.output


def test_an_attempt_without_an_end_that_nothing_contradicts_is_a_doubt(toy: Path) -> None:
    events(toy, 3, lambda lines: lines[:-1])
    run = verified(toy)["runs"][0]
    assert (run["breaks"], [each["kind"] for each in run["doubts"]]) == ([], ["attempt-unended"])


def deleted_attempt(toy: Path) -> None:
    (toy / "r00/attempts/r03-train-e0.0.0.0.ndjson").unlink()


def merged_lines(toy: Path, change: Callable[[list[str]], list[str]]) -> None:
    path = toy / "r00/provenance.ndjson"
    path.write_text("".join(change(path.read_text().splitlines(keepends=True))))


@pytest.mark.parametrize(
    ("tamper", "kind", "where"),
    [
        (deleted_attempt, "attempt-missing", "attempts/r03-train-e0.0.0.0.ndjson"),
        (lambda toy: events(toy, 3, lambda lines: lines[:-1]), "event-missing", "attempts/r03-train-e3.0.0.0.ndjson"),
        (
            lambda toy: events(toy, 3, lambda lines: rehashed([line.replace("0.5", "0.1") for line in lines])),
            "event-edited",
            "attempts/r03-train-e3.0.0.0.ndjson",
        ),
        (lambda toy: sidecar(toy, 1, software__code="v2"), "sidecar-edited", "checkpoints/epoch001.ckpt" + SIDECAR),
        (metrics_line, "metrics-edited", "attempts/r03-train-e1.0.0.0.metrics.jsonl"),
        (
            lambda toy: (toy / "r00/attempts/r03-train-e1.0.0.0.metrics.jsonl").unlink(),
            "metrics-missing",
            "attempts/r03-train-e1.0.0.0.metrics.jsonl",
        ),
        (lambda toy: merged_lines(toy, without(5)), "merged-edited", "provenance.ndjson:6"),
        (lambda toy: merged_lines(toy, exchanged), "merged-edited", "provenance.ndjson:2"),
        (lambda toy: merged_lines(toy, lambda lines: [*lines[:-1], lines[-1][:-9]]), "merged-cut-short", ""),
    ],
)
def test_after_a_merge_what_nothing_else_tells_of_is_caught_too(
    toy: Path, tamper: Tamper, kind: str, where: str
) -> None:
    assert ask("merge", toy).exit_code == 0
    assert verified(toy)["sound"]
    tamper(toy)
    run, seen, place = first(toy)
    assert (run, seen) == ("r00", kind), ask("verify", toy).output
    assert place == where or kind == "merged-cut-short"
    before = (toy / "r00/provenance.ndjson").read_bytes()
    assert ask("merge", toy).exit_code == 1
    assert (toy / "r00/provenance.ndjson").read_bytes() == before


def test_a_merge_adds_only_what_is_new_and_its_old_head_stays_true(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    ground.train(1)
    run = tmp_path / "run"
    head = json.loads(ask("merge", run, "--json").stdout)["runs"][0]["head"]
    old = (run / "provenance.ndjson").read_bytes()
    assert json.loads(ask("merge", run, "--json").stdout)["runs"][0]["added"] == 0
    ground.interrupt(1, signal.SIGTERM, {"pause": [1, 3]})
    assert ask("merge", run).exit_code == 0
    ground.train(3)
    assert ask("merge", run).exit_code == 0
    assert (run / "provenance.ndjson").read_bytes().startswith(old)
    assert ask("verify", run, "--head", head).exit_code == 0
    merged = (run / "provenance.ndjson").read_text().splitlines(keepends=True)
    (run / "provenance.ndjson").unlink()
    answer = ask("verify", run, "--head", head)
    assert answer.exit_code == 1
    assert "merged-replaced run/provenance.ndjson" in answer.stdout
    assert len(merged) > 20


@pytest.mark.parametrize("nonsense", [None, "x", [], {}, -1, 10**18])
def test_events_that_a_forger_filled_with_nonsense_are_told(toy: Path, nonsense: object) -> None:
    def filled(lines: list[str]) -> list[str]:
        made = [json.loads(line) for line in lines]
        for event in made:
            event["payload"] = dict.fromkeys(event["payload"], nonsense)
        aside = {**made[0], "type": "checkpoint.set_aside", "payload": {"expected": nonsense}}
        again = {**made[0], "type": "epoch.repeated", "payload": {"first": nonsense, "before": nonsense}}
        return rehashed([json.dumps(event) for event in (*made[:-1], aside, again, made[0])])

    events(toy, 1, filled)
    assert first(toy)[0] == "r00"


def test_an_epoch_far_beyond_the_others_is_one_break_of_its_kind(toy: Path) -> None:
    sidecar(toy, 3, epoch=10**12)
    kinds = [each["kind"] for each in verified(toy)["runs"][0]["breaks"]]
    assert kinds.count("epoch-missing") == 1
