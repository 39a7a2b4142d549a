"""Annexes on disk: a directory each, holding the plan, an append-only event log and the rendered scripts.

Layout under the state directory: `annexes/<annex id>/{plan.json,events.jsonl,batch.sh,ep.conf}` and `locks/<name>`.
Directories are 0700, files 0600. A torn last line of an event log (a crash while writing) is ignored when read and
closed off before the next write, so that nothing after it is lost.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from siteannex.annex.events import AnnexState, Event, What, failure_to_data, fold, from_line, to_line
from siteannex.annex.marks import origin_of
from siteannex.annex.planning.ledger import Record
from siteannex.errors import AnnexError, Evidence, Stage, StageFailure
from siteannex.failures import fail
from siteannex.locks import Taken, exclusive
from siteannex.model import Deadlines, Join, Lease, PilotShape, Plan, Request
from siteannex.ports import Clock
from siteannex.private import private_dir, write_private


@dataclass(frozen=True, slots=True)
class Annex:
    """One annex's directory. Everything known of it is read from there."""

    path: Path
    plan: Plan
    clock: Clock

    @property
    def name(self) -> str:
        """The name the user gave."""
        return self.plan.request.name

    def events(self) -> list[Event]:
        """Every readable event, in order."""
        try:
            text = (self.path / "events.jsonl").read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return []
        return [event for event in map(from_line, text.splitlines()) if event is not None]

    def state(self) -> AnnexState:
        """The fold over the events."""
        return fold(self.events())

    def created_at(self) -> datetime:
        """When the plan was recorded."""
        events = self.events()
        return events[0].at if events else self.clock.now()

    def record(self, stage: Stage, what: What, **data: Any) -> None:
        """Append an event and make sure it is on disk. AnnexError(state-unwritable) leaves the log as it was."""
        line = to_line(Event(self.clock.now(), stage, what, data)) + "\n"
        with _writing(self.path, self.plan.request.site):
            _append(self.path / "events.jsonl", line.encode())

    def record_failure(self, failure: StageFailure, *, ended: bool) -> None:
        """Append a failure; `ended` says that nothing of the annex is left behind it."""
        self.record(failure.stage, What.FAILED, failure=failure_to_data(failure), ended=ended)

    def keep(self, files: Mapping[str, str]) -> None:
        """Keep rendered files beside the events, for people to read."""
        with _writing(self.path, self.plan.request.site):
            for name, text in files.items():
                write_private(self.path / name, text)


@dataclass(frozen=True, slots=True)
class Store:
    """All annexes of this user."""

    root: Path
    clock: Clock
    tell: Callable[[str], None] = lambda _: None
    """Says what the user should know of the state directory itself."""

    def origin(self, schedd: str) -> str:
        """The mark of the annexes that are kept here (marks.py)."""
        return origin_of(schedd, self.root)

    def create(self, plan: Plan) -> Annex:
        """Record a plan; the annex exists from here on."""
        path = self.root / "annexes" / plan.annex_id
        with _writing(path, plan.request.site):
            private_dir(path, new=True)
        annex = Annex(path, plan, self.clock)
        try:
            annex.keep({"plan.json": json.dumps(asdict(plan), indent=1)})
            annex.record(Stage.PLAN, What.DONE)
        except AnnexError:
            shutil.rmtree(path, ignore_errors=True)  # nothing was done yet: half an annex would only puzzle
            raise
        return annex

    def annexes(self) -> list[Annex]:
        """Every annex ever made here whose plan can be read, oldest first."""
        base = self.root / "annexes"
        found = [self._open(path) for path in sorted(base.iterdir())] if base.is_dir() else []
        return sorted((annex for annex in found if annex is not None), key=lambda annex: annex.created_at())

    def living(self, name: str) -> Annex | None:
        """The annex of that name that has not ended. Letter case is ignored, as the AP ignores it in AnnexName."""
        return next(
            (
                annex
                for annex in reversed(self.annexes())
                if annex.name.lower() == name.lower() and not annex.state().ended
            ),
            None,
        )

    def latest(self, name: str) -> Annex | None:
        """The newest annex of that name, ended or not."""
        return next((annex for annex in reversed(self.annexes()) if annex.name.lower() == name.lower()), None)

    def _open(self, path: Path) -> Annex | None:
        """The annex in a directory; None when there cannot be one. AnnexError(state-unreadable) is never passed over:
        an annex that looks as if it did not exist would be submitted a second time."""
        if not (path / "events.jsonl").exists():
            return None  # the plan is written first, and nothing is done before the first event
        try:
            plan = plan_from_data(json.loads((path / "plan.json").read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError) as problem:
            seen = Evidence(str(path / "plan.json"), f"{type(problem).__name__}: {problem}")
            raise fail("state-unreadable", "", f"{path.name}: its plan cannot be read", evidence=[seen]) from problem
        return Annex(path, plan, self.clock)

    def records(self) -> list[Record]:
        """Every annex as the ledger counts it."""
        found = ((annex, annex.state()) for annex in self.annexes())
        return [
            Record(annex.plan, state, busy=not state.submit_begun and not state.ended and self.busy(annex.name))
            for annex, state in found
        ]

    def unbegun(self) -> list[Path]:
        """Annex directories in which nothing was ever recorded: `up` was killed while it made them, or is at it."""
        base = self.root / "annexes"
        return (
            [path for path in sorted(base.iterdir()) if not (path / "events.jsonl").exists()] if base.is_dir() else []
        )

    def busy(self, name: str) -> bool:
        """True while another command is at work on this name."""
        try:
            with self.lock(name, ""):
                return False
        except AnnexError:
            return True

    @contextmanager
    def lock(self, name: str, site: str) -> Iterator[None]:
        """Hold an annex name for one command. AnnexError(annex-busy) when another command has it."""
        with ExitStack() as held:
            with _writing(self.root / "locks", site):
                private_dir(self.root / "locks")
                try:
                    weakness = held.enter_context(exclusive(self.lock_file(name)))
                except Taken as taken:
                    raise fail("annex-busy", site, f"another command is at work on {name!r}") from taken
            if weakness:
                self.tell(f"{weakness}: use siteannex on one host at a time; commands on this host wait for each other")
            yield

    def lock_file(self, name: str) -> Path:
        """What a command holds while it is at work on an annex of that name."""
        return self.root / "locks" / name.lower()


def plan_from_data(data: Any) -> Plan:  # JSON we wrote: errors are the caller's to catch
    """Read back what `asdict(plan)` wrote, now or by another version: keys we do not know are passed over.

    KeyError, TypeError or ValueError when it is something else.
    """
    asked = {**data["request"]}
    lease = Lease(**_known(Lease, asked["lease"])) if asked.get("lease") else None
    request = Request(**_known(Request, {**asked, "join": Join(asked["join"]), "lease": lease}))
    shape = PilotShape(**_known(PilotShape, data["shape"]))
    deadlines = Deadlines(**_known(Deadlines, data.get("deadlines", {})))
    lists = {"notes": tuple(data["notes"]), "passed_over": tuple(data.get("passed_over", ()))}
    return Plan(**_known(Plan, {**data, **lists, "request": request, "shape": shape, "deadlines": deadlines}))


def _known(kind: type, data: dict[str, Any]) -> dict[str, Any]:
    names = {field.name for field in fields(kind)}
    return {key: value for key, value in data.items() if key in names}


@contextmanager
def _writing(path: Path, site: str) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise fail(
            "state-unwritable",
            site,
            f"cannot write under {path}",
            evidence=[Evidence(str(path), f"{problem.strerror} (errno {problem.errno})")],
        ) from problem


def _append(path: Path, line: bytes) -> None:
    """Add a line, whole and on disk, or leave the file as it was. Raises OSError."""
    # `status` appends beside `up`: neither may take the other's half line for torn.
    with exclusive(path, wait=True):
        handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        try:
            size = os.fstat(handle).st_size
            torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
            _write_whole(handle, (b"\n" if torn else b"") + line, size)
        finally:
            os.close(handle)


def _write_whole(handle: int, data: bytes, size: int) -> None:
    try:
        if os.write(handle, data) != len(data):  # the disk filled half way
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(handle)
    except OSError:
        with suppress(OSError):  # a half line that cannot be taken back is torn: passed over, and closed off later
            os.ftruncate(handle, size)
        raise
