"""The session holder: one process a user, which owns the SSH connections so that one login serves many commands.

Started by the first login, ends itself about a minute after its last session. It asks every question through the
client that wants the login; it keeps no answer and logs none.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import signal
import socket
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from siteannex.errors import AnnexError, Secret, StageFailure
from siteannex.failures import failure
from siteannex.locks import Taken, exclusive
from siteannex.ports import Prompt
from siteannex.transport import messages as m
from siteannex.transport.places import Places
from siteannex.transport.vault import Vault
from siteannex.transport.wire import PeerGone, Wire, peer_is_me, private_directory

GRACE_S = 60.0
"""How long a holder without sessions and clients waits for work."""
_TICK_S = 1.0
_LOG_LIMIT_BYTES = 256 * 1024
_PROGRESS_EVERY_S = 0.1


class WirePrompter:
    """The person at a client's terminal, asked over the socket."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def ask(self, prompt: Prompt) -> Secret:
        """Forward a question, wait for the answer."""
        self._wire.send(m.Ask(prompt))
        reply = self._reply()
        if isinstance(reply, m.Answer):
            return reply.secret
        raise m.BadMessage(f"{type(reply).__name__} in place of an answer")

    def confirm_host_key(self, host: str, key_type: str, fingerprint: str) -> bool:
        """Forward the host key question."""
        self._wire.send(m.Confirm(host, key_type, fingerprint))
        reply = self._reply()
        return isinstance(reply, m.Confirmed) and reply.yes

    def tell(self, text: str) -> None:
        """Forward a text."""
        self._wire.send(m.Tell(text))

    def _reply(self) -> m.Message:
        reply = self._wire.receive()
        if isinstance(reply, m.Declined):
            raise AnnexError(reply.failure)
        return reply


class Holder:
    """The server. `serve` runs until there is nothing left to hold."""

    def __init__(self, places: Places, *, grace_s: float = GRACE_S) -> None:
        self._places = places
        self._grace_s = grace_s
        self._vault = Vault(self._log)
        self._stopping = threading.Event()
        self._last_request = threading.Event()
        self._wake, self._waker = socket.socketpair()
        self._clients = 0
        self._count_lock = threading.Lock()
        self._login_locks: dict[str, threading.Lock] = defaultdict(threading.Lock)

    def serve(self) -> None:
        """Listen until stopped or idle. Returns at once when another holder lives. Raises OSError."""
        private_directory(self._places.runtime)
        private_directory(self._places.state)
        with contextlib.suppress(Taken), exclusive(self._places.holder_lock):
            with self._listening() as listener:
                self._log(f"holder started, pid {os.getpid()}")
                self._accept_loop(listener)
            self._vault.end(None)
            self._log("holder ended")

    @contextlib.contextmanager
    def _listening(self) -> Iterator[socket.socket]:
        path = self._places.holder_socket
        path.unlink(missing_ok=True)
        mask = os.umask(0o177)
        try:
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listener.bind(str(path))
        finally:
            os.umask(mask)
        mine = path.stat().st_ino
        try:
            listener.listen(64)
            yield listener
        finally:
            listener.close()
            with contextlib.suppress(OSError):
                if path.stat().st_ino == mine:
                    path.unlink()

    def _accept_loop(self, listener: socket.socket) -> None:
        busy = time.monotonic()
        while not self._stopping.is_set():
            ready, _, _ = select.select([listener, self._wake], [], [], _TICK_S)
            stream = listener.accept()[0] if listener in ready else None
            self._vault.sweep()
            if stream is not None:
                self._admit(stream)
            if self._clients or not self._vault.empty:
                busy = time.monotonic()
            if time.monotonic() - busy > self._grace_s or not self._places.holder_socket.exists():
                return

    def _admit(self, stream: socket.socket) -> None:
        if not peer_is_me(stream):
            self._log("a client of another user was turned away")
            stream.close()
            return
        with self._count_lock:
            self._clients += 1
        threading.Thread(target=self._client, args=(Wire(stream),), daemon=True).start()

    def _client(self, wire: Wire) -> None:
        try:
            while True:
                self._request(wire)
        except PeerGone:
            pass
        finally:
            wire.close()
            with self._count_lock:
                self._clients -= 1

    def _request(self, wire: Wire) -> None:
        try:
            request = wire.receive()
            reply = self._answer(request, wire)
        except AnnexError as error:
            reply = m.Failed(error.failure)
        except m.BadMessage as problem:
            reply = m.Failed(_lost(f"the session holder did not understand: {problem}"))
        except PeerGone:
            raise
        except Exception as problem:  # a bug must cost one request, not the sessions
            self._log(f"unexpected {type(problem).__name__} in a request")
            reply = m.Failed(_lost(f"the session holder failed with {type(problem).__name__}"))
        try:
            wire.send(reply)
        finally:
            if self._last_request.is_set():  # not before its answer is on the way
                self.stop()
        if self._stopping.is_set():
            raise PeerGone("stopping")

    def _answer(self, request: m.Message, wire: Wire) -> m.FromHolder:
        match request:
            case m.Ping():
                return m.Pong(os.getpid())
            case m.LoginRequest():
                return self._log_in(request, wire)
            case m.RunRequest():
                with self._vault.use(request.site, request.login) as transport:
                    return m.Results(tuple(transport.run(request.commands, timeout_s=request.timeout_s)))
            case m.PutRequest():
                with self._vault.use(request.site, request.login) as transport:
                    progress = _throttled(lambda done, total: wire.send(m.Progress(done, total)))
                    sent = transport.put(Path(request.source), request.target, progress=progress, sha256=request.sha256)
                    return m.Sent(sent)
            case m.GetRequest():
                with self._vault.use(request.site, request.login) as transport:
                    return m.Content(transport.get(request.path, limit_bytes=request.limit_bytes))
            case m.SessionsRequest():
                return m.SessionList(self._vault.infos())
            case m.LogoutRequest():
                return self._log_out(request.site)
            case _:
                raise m.BadMessage(f"{type(request).__name__} is not a request")

    def _log_in(self, request: m.LoginRequest, wire: Wire) -> m.LoggedIn:
        from siteannex.site.schema import Site
        from siteannex.transport.ssh import connect

        site = Site.model_validate_json(request.site_json)
        prompter = WirePrompter(wire)
        lock = self._login_locks[site.name]
        if not lock.acquire(blocking=False):
            prompter.tell(f"Another siteannex command is logging in to {site.name}; waiting for it.\n")
            lock.acquire()
        try:
            if held := self._vault.find(site, request.user):
                return m.LoggedIn(held)
            for other in self._vault.infos():
                if other.site == site.name:
                    prompter.tell(f"Your session at {site.name} as {other.login} ends when this login succeeds.\n")
            agent = Path(request.agent_socket) if request.agent_socket else None
            transport = connect(
                site,
                user=request.user,
                prompter=prompter,
                stored_password=request.stored_password,
                places=replace(self._places, agent_socket=agent),
            )
            info = self._vault.add(transport, site)
        except AnnexError as error:
            self._log(f"login refused: {site.name}: {error.failure.code}")
            raise
        except PeerGone:
            self._log(f"login given up by the client: {site.name}")
            raise
        finally:
            lock.release()
        self._log(f"login: {site.name} as {info.login}")
        return m.LoggedIn(info)

    def _log_out(self, site: str | None) -> m.LoggedOut:
        if site is None:
            self._last_request.set()
        return m.LoggedOut(self._vault.end(site))

    def stop(self, *_: object) -> None:
        """End all sessions and the process (SIGTERM, `logout --all`)."""
        self._stopping.set()
        self._waker.send(b"!")

    def _log(self, line: str) -> None:
        path = self._places.holder_log
        stamp = datetime.now().astimezone().isoformat(timespec="seconds")
        with contextlib.suppress(OSError):
            if path.exists() and path.stat().st_size > _LOG_LIMIT_BYTES:
                path.replace(path.with_suffix(".log.1"))
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                stream.write(f"{stamp} {line}\n")


def _lost(summary: str) -> StageFailure:
    return failure("session-holder-lost", "", summary)


def _throttled(send: Callable[[int, int], None]) -> Callable[[int, int], None]:
    last = [0.0]

    def progress(done: int, total: int) -> None:
        now = time.monotonic()
        if done >= total or now - last[0] > _PROGRESS_EVERY_S:
            last[0] = now
            send(done, total)

    return progress


def _detach() -> None:
    """Leave the starter: a new session, no terminal, nothing of its files."""
    if os.fork():
        os._exit(0)
    os.setsid()
    os.chdir("/")
    silence = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(silence, descriptor)


def main(arguments: Sequence[str] | None = None) -> int:
    """`python -m siteannex.transport.holder`: started by a client, never by hand."""
    parser = argparse.ArgumentParser(description="siteannex session holder")
    for name in ("home", "user", "state", "runtime", "system-ssh"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--grace-s", type=float, default=GRACE_S)
    words = parser.parse_args(arguments)
    _detach()
    places = Places(
        home=Path(words.home),
        user=words.user,
        state=Path(words.state),
        runtime=Path(words.runtime),
        system_ssh=Path(words.system_ssh),
    )
    holder = Holder(places, grace_s=words.grace_s)
    signal.signal(signal.SIGTERM, holder.stop)
    holder.serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
