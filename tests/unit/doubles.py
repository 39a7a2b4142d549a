"""Small honest stand-ins for the ports: they keep the Protocols' promises and remember what was asked of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

from siteannex.errors import Secret
from siteannex.failures import fail
from siteannex.model import JobCounts, Join, KeeperAd, MarkedAd, PoolFacts, Slot
from siteannex.ports import AdBoard, Clock, Command, CommandResult, Pool, Progress, Transport, View
from tests.unit.samples import NOW, POOL_FACTS
from tests.unit.stub_slurm import StubSlurm, run_shell


class FakeClock:
    """Time that moves only when somebody sleeps; `on_sleep` lets the world move with it."""

    def __init__(self, start: datetime = NOW) -> None:
        self.moment = start
        self.slept: list[float] = []
        self.on_sleep: Callable[[], None] = lambda: None

    def now(self) -> datetime:
        return self.moment

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        assert len(self.slept) < 2000, "somebody waits for ever"
        self.moment += timedelta(seconds=seconds)
        self.on_sleep()


@dataclass
class FakePool:
    """An AP that shows the slots a test puts there and issues a token each time it is asked."""

    ads: list[Slot] = field(default_factory=list)
    counts: dict[str, JobCounts] = field(default_factory=dict)
    answers: bool = True
    tokens: list[tuple[Join, int]] = field(default_factory=list)
    on_token: Callable[[], None] = lambda: None
    board: list[MarkedAd] = field(default_factory=list)
    told: list[KeeperAd] = field(default_factory=list)

    def schedd_name(self) -> str:
        self._ask()
        return POOL_FACTS.schedd

    def marked_ads(self) -> list[MarkedAd]:
        self._ask()
        return list(self.board)

    def withdraw_ads(self, annex_id: str) -> None:
        self._ask()
        self.board = [ad for ad in self.board if ad.annex_id != annex_id]

    def facts(self, join: Join) -> PoolFacts:
        self._ask()
        return POOL_FACTS if join is Join.AUTO else replace(POOL_FACTS, join=join)

    def slots(self, annex_id: str | None = None) -> list[Slot]:
        self._ask()
        return [slot for slot in self.ads if annex_id in (None, slot.annex_id)]

    def keepers(self) -> list[KeeperAd]:
        self._ask()
        return list(self.told)

    def job_counts(self, names: Sequence[str]) -> dict[str, JobCounts]:
        self._ask()
        return {name: self.counts.get(name, JobCounts()) for name in names}

    def issue_token(self, join: Join, lifetime_s: int) -> Secret:
        self._ask()
        self.on_token()
        self.tokens.append((join, lifetime_s))
        return Secret(f"token-{len(self.tokens)}")

    def _ask(self) -> None:
        if not self.answers:
            raise fail("ap-unreachable", "", "the collector does not answer")


Answer = CommandResult | Exception


@dataclass
class ScriptedTransport:
    """Answers each script by the first rule whose words occur in it; an exception is a broken link."""

    rules: list[tuple[str, Answer]] = field(default_factory=list)
    site: str = "lab"
    login: str = "alice@login.lab"
    scripts: list[str] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)

    def run(self, commands: Sequence[Command], *, timeout_s: float = 60.0) -> list[CommandResult]:
        return [self._answer(command) for command in commands]

    def put(self, source: Path, target: str, *, progress: Progress | None = None, sha256: str = "") -> int:
        self.files[target] = source.read_bytes()
        return len(self.files[target])

    def get(self, path: str, *, limit_bytes: int) -> bytes | None:
        data = self.files.get(path)
        return None if data is None else data[-limit_bytes:]

    def close(self) -> None:
        return None

    def _answer(self, command: Command) -> CommandResult:
        self.scripts.append(command.script)
        for words, answer in self.rules:
            if words in command.script:
                if isinstance(answer, Exception):
                    raise answer
                return answer
        return CommandResult(0, "", "")


class ShellTransport:
    """A login node on this machine: scripts are really run by /bin/sh, in a home of its own, beside a stub Slurm.

    `before` and `after` are called with each script's text, so that a test can break the link at that point;
    `environment` is what the user's own start-up files set there.
    """

    def __init__(self, home: Path, slurm: StubSlurm, *, site: str = "lab") -> None:
        self.site, self.login, self.home, self.slurm = site, f"alice@login.{site}", home, slurm
        self.before: Callable[[str], None] = lambda _: None
        self.after: Callable[[str], None] = lambda _: None
        self.puts: list[str] = []
        self.environment: dict[str, str] = {}
        home.mkdir(parents=True, exist_ok=True)

    def run(self, commands: Sequence[Command], *, timeout_s: float = 60.0) -> list[CommandResult]:
        return [self._run(command) for command in commands]

    def put(self, source: Path, target: str, *, progress: Progress | None = None, sha256: str = "") -> int:
        self.before(f"put {target}")
        data = source.read_bytes()
        Path(target).write_bytes(data)
        self.puts.append(hashlib.sha256(data).hexdigest())
        if progress is not None:
            progress(len(data), len(data))
        self.after(f"put {target}")
        return len(data)

    def get(self, path: str, *, limit_bytes: int) -> bytes | None:
        file = Path(path)
        return file.read_bytes()[-limit_bytes:] if file.is_file() else None

    def close(self) -> None:
        return None

    def _run(self, command: Command) -> CommandResult:
        self.before(command.script)
        result = run_shell(
            "/bin/sh",
            command.script,
            stub=self.slurm,
            home=self.home,
            stdin=command.stdin,
            environment=self.environment,
        )
        self.after(command.script)
        return result


@dataclass
class RecordingView:
    """A screen that keeps what it was shown."""

    lines: list[tuple[str, str]] = field(default_factory=list)
    lives: list[tuple[str, str]] = field(default_factory=list)
    bars: list[tuple[int, int]] = field(default_factory=list)

    def line(self, label: str, text: str) -> None:
        self.lines.append((label, text))

    def live(self, label: str, text: str) -> None:
        self.lives.append((label, text))

    def progress(self, label: str, text: str, done: int, total: int) -> None:
        self.bars.append((done, total))

    @property
    def text(self) -> str:
        """Everything that stayed, a line each."""
        return "\n".join(f"{label} {text}" for label, text in self.lines)


def _doubles_are_ports(stub: StubSlurm, home: Path) -> tuple[Clock, Pool, AdBoard, Transport, Transport, View]:
    """Never called: mypy checks here that each stand-in is what it stands in for."""
    return FakeClock(), FakePool(), FakePool(), ScriptedTransport(), ShellTransport(home, stub), RecordingView()
