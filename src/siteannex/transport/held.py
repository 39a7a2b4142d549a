"""The client's side of the session holder: start it, log in through it, use a held session as a Transport."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import siteannex
from siteannex.errors import AnnexError, Evidence, Secret
from siteannex.failures import fail
from siteannex.ports import Command, CommandResult, Progress, Prompter
from siteannex.transport import messages as m
from siteannex.transport.places import Places
from siteannex.transport.wire import PeerGone, Wire, check_length, dial, private_directory

if TYPE_CHECKING:
    from siteannex.site.schema import Site

START_TIMEOUT_S = 10.0
QUICK_S = 30.0
_SLACK_S = 90.0
"""How much longer than the far side's own limit a client waits for the holder."""


class HolderClient:
    """One connection to the holder, for one request after another."""

    def __init__(self, wire: Wire, site: str) -> None:
        self._wire = wire
        self._site = site
        self.heard = False
        """True once the holder has said anything: until then a request can be sent again to a new holder."""

    def request(
        self,
        message: m.FromClient,
        *,
        timeout_s: float | None,
        prompter: Prompter | None = None,
        progress: Progress | None = None,
    ) -> m.Message:
        """Send a request, serve the questions it brings, return its answer.

        Raises AnnexError: the failure the holder reports, or session-holder-lost. After anything raised but a
        reported failure the connection is closed, so that a late answer cannot meet the next request.
        """
        try:
            self._wire.send(message)
            while True:
                reply = self._wire.receive(timeout_s)
                self.heard = True
                if isinstance(reply, m.Failed):
                    break
                if not self._served(reply, prompter, progress):
                    return reply
        except (PeerGone, TimeoutError, m.BadMessage) as problem:
            self.close()
            raise self._lost(problem) from problem
        except BaseException:
            self.close()
            raise
        raise AnnexError(replace(reply.failure, site=reply.failure.site or self._site))

    def _served(self, reply: m.Message, prompter: Prompter | None, progress: Progress | None) -> bool:
        if isinstance(reply, m.Progress):
            if progress is not None:
                progress(reply.done, reply.total)
            return True
        if prompter is None:
            return False
        try:
            match reply:
                case m.Tell():
                    prompter.tell(reply.text)
                case m.Ask():
                    self._wire.send(m.Answer(prompter.ask(reply.prompt)))
                case m.Confirm():
                    yes = prompter.confirm_host_key(reply.host, reply.key_type, reply.fingerprint)
                    self._wire.send(m.Confirmed(yes))
                case _:
                    return False
        except AnnexError as error:
            self._wire.send(m.Declined(error.failure))
        return True

    def _lost(self, problem: Exception) -> AnnexError:
        words = str(problem) or type(problem).__name__
        return fail(
            "session-holder-lost",
            self._site,
            "the session holder did not answer",
            evidence=[Evidence.tail("session holder", words)],
        )

    def close(self) -> None:
        """Close the connection; sessions stay."""
        with contextlib.suppress(OSError):
            self._wire.close()


class HeldTransport:
    """A Transport over a session of the holder. `close` lets the session live on."""

    def __init__(self, session: m.SessionInfo, places: Places) -> None:
        self.site = session.site
        self.login = session.login
        self._places = places
        self._client: HolderClient | None = None
        self._lock = threading.Lock()

    @property
    def opened_channels(self) -> int:
        """Channels the session has opened since its login, for every command that used it."""
        reply = self._request(m.SessionsRequest(), _SLACK_S)
        assert isinstance(reply, m.SessionList)
        return sum(one.channels_opened for one in reply.sessions if one.site == self.site)

    def run(self, commands: Sequence[Command], *, timeout_s: float = 60.0) -> list[CommandResult]:
        """Run the commands in order in one round trip, one result each. AnnexError when the link breaks."""
        message = m.RunRequest(self.site, self.login, tuple(commands), float(timeout_s))
        reply = self._request(message, timeout_s + _SLACK_S)
        assert isinstance(reply, m.Results)
        return list(reply.results)

    def put(self, source: Path, target: str, *, progress: Progress | None = None, sha256: str = "") -> int:
        """Upload a file, verified by sha256 and moved into place atomically, mode 0600; returns bytes sent."""
        message = m.PutRequest(self.site, self.login, str(source.absolute()), target, sha256)
        size = source.stat().st_size if source.is_file() else 0
        # Sums are taken in silence: of what was sent before, and of the whole at the site.
        reply = self._request(message, 60 + size / 50e6 + _SLACK_S, progress)
        assert isinstance(reply, m.Sent)
        return reply.size

    def get(self, path: str, *, limit_bytes: int) -> bytes | None:
        """The last `limit_bytes` of a remote file, or None when it does not exist."""
        message = m.GetRequest(self.site, self.login, path, limit_bytes)
        reply = self._request(message, 60 + limit_bytes / 1e6 + _SLACK_S)
        assert isinstance(reply, m.Content)
        return reply.data

    def close(self) -> None:
        """End this use of the session."""
        with self._lock:
            self._give_up()

    def _request(self, message: m.FromClient, timeout_s: float, progress: Progress | None = None) -> m.Message:
        with self._lock:
            if self._client is None:
                self._client = existing_holder(self._places, self.site)
            if self._client is None:
                raise fail("session-needed", self.site, f"the session at {self.site} has ended with its holder")
            try:
                return self._client.request(message, timeout_s=timeout_s, progress=progress)
            except AnnexError as error:
                if error.failure.code == "session-holder-lost":
                    self._give_up()
                raise
            except BaseException:
                self._give_up()
                raise

    def _give_up(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()


def existing_holder(places: Places, site: str = "") -> HolderClient | None:
    """A connection to the living holder, or None. Raises AnnexError when the socket is not to be trusted."""
    try:
        return HolderClient(dial(places.holder_socket), site)
    except PermissionError as problem:
        raise fail("session-holder-lost", site, f"the session socket is not usable: {problem}") from problem
    except OSError:
        return None


def holder(places: Places, site: str) -> HolderClient:
    """A connection to the holder, which is started when there is none. Raises AnnexError(session-holder-lost)."""
    if (client := existing_holder(places, site)) is not None:
        return client
    check_length(site, places.holder_socket)
    try:
        private_directory(places.runtime)
        private_directory(places.state)
        client = _started(places, site)
    except (OSError, subprocess.SubprocessError) as problem:
        raise fail(
            "session-holder-lost",
            site,
            "the session holder does not start",
            evidence=[Evidence.tail("starting the session holder", str(problem))],
            hint=f"Check {places.runtime} and {places.state}.",
        ) from problem
    if client is not None:
        return client
    raise fail(
        "session-holder-lost",
        site,
        f"the session holder was started and did not listen within {START_TIMEOUT_S:.0f} s",
        hint=f"Read {places.holder_log}.",
    )


def _started(places: Places, site: str) -> HolderClient | None:
    """Start a holder until one listens: a first one may give way to an old one that is just ending."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        start_holder(places)
        again = time.monotonic() + 2.0
        while time.monotonic() < again:
            if (client := existing_holder(places, site)) is not None:
                return client
            time.sleep(0.02)
    return None


def start_holder(places: Places, *, grace_s: float | None = None) -> None:
    """Start the holder process; it leaves our session and terminal at once. Raises OSError, SubprocessError."""
    words = {
        "--home": places.home,
        "--user": places.user,
        "--state": places.state,
        "--runtime": places.runtime,
        "--system-ssh": places.system_ssh,
    }
    argv = [sys.executable, "-P", "-m", "siteannex.transport.holder"]
    argv += [str(word) for pair in words.items() for word in pair]
    if grace_s is not None:
        argv += ["--grace-s", str(grace_s)]
    package = str(Path(siteannex.__file__).resolve().parent.parent)
    inherited = os.environ.get("PYTHONPATH")
    subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={**os.environ, "PYTHONPATH": f"{package}{os.pathsep}{inherited}" if inherited else package},
        check=True,
        timeout=START_TIMEOUT_S,
    )


def log_in(
    site: Site, *, user: str | None, prompter: Prompter, stored_password: Secret | None, places: Places
) -> HeldTransport:
    """Open a session through the holder, asking this client's person. Raises AnnexError naming the failed step."""
    client = holder(places, site.name)
    agent = str(places.agent_socket) if places.agent_socket else None
    message = m.LoginRequest(site.model_dump_json(), user, stored_password, agent)
    try:
        try:
            reply = client.request(message, timeout_s=None, prompter=prompter)
        except AnnexError as error:
            if client.heard or error.failure.code != "session-holder-lost":
                raise
            client = holder(places, site.name)  # the first was just ending
            reply = client.request(message, timeout_s=None, prompter=prompter)
    finally:
        client.close()
    assert isinstance(reply, m.LoggedIn)
    return HeldTransport(reply.session, places)


def ask_holder(message: m.FromClient, places: Places, site: str = "") -> m.Message | None:
    """One quick question to the holder, or None when there is none (or it ended while it was asked)."""
    for _ in range(3):
        client = existing_holder(places, site)
        if client is None:
            return None
        try:
            return client.request(message, timeout_s=QUICK_S)
        except AnnexError as error:
            if client.heard or isinstance(error.__cause__, TimeoutError):
                raise
            lost = error
        finally:
            client.close()
        time.sleep(0.1)
    raise lost
