"""The verbs over several annexes and over what a site says, as a person runs them; the world is the tests' own."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest
import typer

from siteannex.annex.events import What
from siteannex.annex.slurm_site import SlurmSite
from siteannex.annex.store import Annex
from siteannex.cli.failure_view import exit_code, show
from siteannex.cli.main import app
from siteannex.cli.screen import Screen
from siteannex.cli.settings import Settings
from siteannex.errors import AnnexError, Evidence, Stage, StageFailure
from siteannex.failures import failure
from siteannex.site.schema import Defaults, Site
from siteannex.transport.places import Places
from tests.unit.paper_queue import JOB, PaperQueue, ad
from tests.unit.samples import plan, report, request, site, slot
from tests.unit.world import World


class WorldWiring:
    """In place of the command line's own wiring: the same names, over a World."""

    def __init__(self, world: World, screen: Screen) -> None:
        self.screen = screen
        self.store, self.pool, self.clock = world.store, world.pool, world.clock
        self.world = world
        self.settings = Settings({})
        root = world.store.root
        self.places = Places(home=root, user="alice", state=root, runtime=root)

    def queue(self) -> PaperQueue:
        return PaperQueue(self.world.jobs)

    def site(self, name: str) -> Site:
        return self.world.site

    def access(self, annex: Annex) -> SlurmSite:
        return SlurmSite(self.world.site, self.world.transport)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path)
    monkeypatch.setattr("siteannex.cli.wiring.Wiring", lambda screen, user=None: WorldWiring(made, screen))
    return made


def run(*words: str) -> None:
    app(list(words), standalone_mode=False)


def failing(*words: str) -> StageFailure:
    with pytest.raises(AnnexError) as raised:
        run(*words)
    return raised.value.failure


def home(world: World) -> Path:
    return world.transport.home / ".siteannex"


# --- down


def test_down_all_goes_on_after_one_annex_cannot_be_taken_down(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    first, _ = world.up(request(name="one"))
    second, _ = world.up(request(name="two"))
    third = world.store.create(plan(request=request(name="three"), annex_id="three-00000009"))
    third.record(Stage.CONNECT, What.BEGIN)

    def first_is_silent(script: str) -> None:
        if "one-00000001" in script and "squeue" in script:
            world.slurm.set("squeue.down", "slurm_load_jobs error: Unable to contact slurm controller")

    world.transport.before = first_is_silent
    world.transport.after = lambda script: (world.slurm.root / "squeue.down").unlink(missing_ok=True)
    problem = failing("down", "--all", "--now")
    assert problem.code == "release-incomplete"
    assert exit_code(problem.stage) == 21
    assert [annex.state().ended for annex in (first, second, third)] == [False, True, True]
    assert "one: release-incomplete: " in capsys.readouterr().out
    world.transport.before = lambda _: None
    run("down", "--all", "--now")
    assert first.state().ended


def test_of_several_names_an_unknown_one_is_told_and_the_others_are_taken_down(world: World) -> None:
    annex, _ = world.up()
    assert failing("down", "nobody", "sweep1", "--now").code == "annex-unknown"
    assert annex.state().ended


def test_purge_keeps_the_ep_software_while_another_annex_is_there(world: World) -> None:
    one, _ = world.up(request(name="one"))
    two, _ = world.up(request(name="two"))
    for annex in (one, two):
        (home(world) / "logs" / annex.plan.annex_id).mkdir(parents=True)
    run("down", "one", "--now", "--purge")
    assert not (home(world) / "logs" / one.plan.annex_id).exists()
    assert list((home(world) / "ep").iterdir())
    run("down", "two", "--now", "--purge")
    assert not (home(world) / "ep").exists()
    assert not (home(world) / "logs" / two.plan.annex_id).exists()


def test_an_annex_that_has_ended_can_still_be_purged(world: World) -> None:
    annex, _ = world.up()
    world.down(annex, now=True)
    (home(world) / "logs" / annex.plan.annex_id).mkdir(parents=True)
    run("down", "sweep1", "--purge")
    assert not (home(world) / "logs" / annex.plan.annex_id).exists()
    assert not (home(world) / "ep").exists()


# --- status


def row_of(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, object]:
    capsys.readouterr()
    run("status", "sweep1", "--json", *options)
    [row] = json.loads(capsys.readouterr().out)
    return dict(row)


def test_after_a_failed_up_and_a_good_down_the_annex_is_released_not_failed(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.slurm.set("scancel.down", "scancel: error: Unable to contact slurm controller")
    world.clock.on_sleep = lambda: world.slurm.job("71", "sweep1-00000001", "PENDING", reason="InvalidAccount")
    world.failing_up()
    assert row_of(capsys, "--remote")["failure"] is not None
    world.clock.on_sleep = lambda: None
    world.slurm.unset("scancel.down")
    run("down", "sweep1", "--now")
    row = row_of(capsys)
    assert (row["stage"], row["failure"], row["text"]) == ("RELEASED", None, "taken down")
    run("status")
    assert "FAILED" not in capsys.readouterr().out


def test_status_beside_an_up_that_waits_for_its_login_says_so_and_no_more_once_it_is_gone(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    annex = world.store.create(plan())
    annex.record(Stage.CONNECT, What.BEGIN)
    with world.store.lock("sweep1", "lab"):
        assert row_of(capsys)["text"] == "a siteannex command is at work on it"
    assert str(row_of(capsys)["text"]).startswith("interrupted at CONNECT")


def test_one_failed_pilot_of_two_is_shown_with_its_code_beside_the_ready_one(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.up(request(gpus=8), wait=False)
    world.start("71")
    world.slurm.job("72", "sweep1-00000001", "RUNNING", node="c2")
    world.reports(report("EP_START", "scratch-unusable", job_id="72"))
    run("status", "sweep1", "--remote")
    shown = capsys.readouterr().out
    assert "READY" in shown.splitlines()[1]
    assert "1 failed" in shown.splitlines()[1]
    assert "72" in shown
    assert "scratch" in shown


# --- what a site writes


EVIL = "\x1b]0;owned\x07\x1b[2Jhello\x9b31m\r\x08"


def assert_harmless(shown: str) -> None:
    assert "hello" in shown, "or this test would prove nothing"
    assert not [char for char in shown if not char.isprintable() and char != "\n"]


def test_a_sites_control_characters_do_not_reach_the_terminal_by_status(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.up(wait=False)
    world.slurm.job("71", "sweep1-00000001", "PENDING", reason=EVIL.replace("\r", ""))
    capsys.readouterr()
    run("status", "sweep1", "--remote")
    assert_harmless(capsys.readouterr().out)
    world.slurm.job("71", "sweep1-00000001", "RUNNING", node=EVIL.replace("\r", ""))
    world.reports(report("EP_START", text=EVIL))
    world.pool.ads.append(slot("71", annex_id="sweep1-00000001", gpu_model=EVIL, name=EVIL, machine=EVIL))
    run("status", "--remote")
    run("status", "sweep1", "--remote")
    assert_harmless(capsys.readouterr().out)


def test_a_sites_control_characters_do_not_reach_the_terminal_by_logs(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    annex, _ = world.up(wait=False)
    (world.directory(annex) / "slurm-71.out").write_text(EVIL, encoding="utf-8")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        member = tarfile.TarInfo(f"log/Start{EVIL.strip()}Log")
        member.size = len(EVIL.encode())
        tar.addfile(member, io.BytesIO(EVIL.encode()))
    logs = home(world) / "logs" / annex.plan.annex_id
    logs.mkdir(parents=True)
    (logs / "71.tar.gz").write_bytes(buffer.getvalue())
    capsys.readouterr()
    run("logs", "sweep1")
    shown = capsys.readouterr().out
    assert shown.count("hello") == 3
    assert_harmless(shown)


def test_a_sites_control_characters_do_not_reach_the_terminal_by_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    show(failure("submit-refused", "lab", EVIL, evidence=[Evidence(EVIL, f"{EVIL}\n{EVIL}")]), as_json=False)
    assert_harmless(capsys.readouterr().err)


def test_a_sites_control_characters_do_not_reach_the_terminal_by_the_watch() -> None:
    stream = io.StringIO()
    screen = Screen(stream, terminal=False)
    screen.line("ep", EVIL)
    screen.live("queue", f"PENDING, {EVIL} [2 s]")
    assert_harmless(stream.getvalue())


# --- what waits


def test_status_says_what_waits_and_up_pending_what_it_would_do(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.jobs = [ad(JOB, TargetAnnexName='"lab"', RequestMemory="900", ProcId=str(at)) for at in range(3)]
    world.jobs += [ad(JOB, TargetAnnexName='"nowhere"')]
    run("status")
    shown = capsys.readouterr().out
    assert "3 jobs wait for lab, which is not up: siteannex up --pending" in shown
    run("status", "--json")
    rows = json.loads(capsys.readouterr().out)
    assert [(row["annex"], row["stage"], row["jobs"]["waiting"]) for row in rows] == [
        ("lab", "WANTED", 3),
        ("nowhere", "WANTED", 1),
    ]
    run("up", "--pending", "--dry-run")
    shown = capsys.readouterr().out
    assert "plan     lab, partition debug: 1 pilot (3 cores, 3 GB), 30 m, account abc123" in shown
    assert "3 jobs wait, 3 at once; ceiling 1.5 core-h" in shown
    assert "not      nowhere: 1 job waits; no annex or site has that name" in shown
    run("up", "--pending", "--dry-run", "--json")
    planned = json.loads(capsys.readouterr().out)
    assert [(each["annex"], each["at_once"]) for each in planned] == [("lab", 3), ("nowhere", 0)]
    assert world.logins == 0


def test_nothing_is_brought_up_without_a_yes(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.jobs = [ad(JOB, TargetAnnexName='"lab"')]
    with pytest.raises(SystemExit) as ended:
        run("up", "--pending")
    assert ended.value.code == 1
    assert "nothing is brought up: say --yes" in capsys.readouterr().out
    assert (world.store.annexes(), world.logins) == ([], 0)


def test_an_annex_that_is_there_is_left_alone(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.up(request(name="lab"))
    world.jobs = [ad(JOB, TargetAnnexName='"lab"')]
    run("up", "--pending")
    assert capsys.readouterr().out == "there    lab is up\npending  nothing else is waited for\n"


def test_the_budget_of_a_site_is_shared_with_what_lives_there(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.site = site(defaults=Defaults(budget=4))
    world.up(request(name="other", gpus=2))
    world.jobs = [ad(JOB, TargetAnnexName='"lab"', RequestGPUs="1", ProcId=str(at)) for at in range(4)]
    run("up", "--pending", "--dry-run")
    assert "4 jobs wait, 2 at once; ceiling 2 GPU-h" in capsys.readouterr().out
    run("up", "--pending", "--dry-run", "--budget", "1")
    assert "4 jobs wait, 1 at once; ceiling 1 GPU-h" in capsys.readouterr().out


@pytest.mark.parametrize("words", [("--gpus", "2"), ("--name", "x"), ("lab",)])
def test_the_jobs_say_where_and_how_large(world: World, words: tuple[str, ...]) -> None:
    with pytest.raises(typer.BadParameter, match="the jobs say where and how large"):
        run("up", "--pending", *words)
