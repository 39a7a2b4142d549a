"""Asks the worker process (worker.py) and never waits longer than it was told."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

_GRACE_S = 2.0
"""How much longer than the worker's own alarm we wait: only a worker that cannot even die needs it."""
_LOG_TAIL_BYTES = 4000


class CondorError(Exception):
    """HTCondor said no, or nothing. `log` is what the bindings wrote meanwhile: the real reason, usually."""

    def __init__(self, text: str, *, log: str = "", timed_out: bool = False) -> None:
        super().__init__(text)
        self.text = text
        self.log = log
        self.timed_out = timed_out


@dataclass(slots=True)
class _Worker:
    process: subprocess.Popen[bytes]
    log: IO[bytes]


class CondorLink:
    """One worker process, started by the first question and ended with this object; one question at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._worker: _Worker | None = None
        self._finalizer: weakref.finalize[[_Worker], CondorLink] | None = None

    def ask(self, op: str, *, limit_s: int = 15, **arguments: object) -> Any:
        """The worker's answer. CondorError when HTCondor refuses, or gives no answer within `limit_s`."""
        with self._lock:
            worker = self._start()
            log_start = os.fstat(worker.log.fileno()).st_size
            question = json.dumps({"op": op, "limit_s": limit_s, **arguments}) + "\n"
            line = self._exchange(worker, question.encode(), limit_s + _GRACE_S)
            log = _tail(worker.log, log_start)
            if line is None:
                self._stop()
                raise CondorError(f"no answer within {limit_s} s", log=log, timed_out=True)
            if not line.endswith(b"\n"):
                status = self._stop()
                raise _ended(status, limit_s, log)
            answer = json.loads(line)
            if "error" in answer:
                raise CondorError(str(answer["error"]), log=log)
            return answer["ok"]

    def close(self) -> None:
        """End the worker. The next question starts another."""
        with self._lock:
            self._stop()

    def _start(self) -> _Worker:
        if self._worker is not None and self._worker.process.poll() is None:
            return self._worker
        self._stop()
        # A session of its own: Ctrl-C is for the command line, which may still have a question to ask.
        log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the worker
        process = subprocess.Popen(
            [sys.executable, "-P", str(Path(__file__).with_name("worker.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env={"_CONDOR_QUERY_TIMEOUT": "8", **os.environ},
            start_new_session=True,
        )
        self._worker = _Worker(process, log)
        self._finalizer = weakref.finalize(self, _end, self._worker)
        return self._worker

    def _stop(self) -> int | None:
        if self._worker is None:
            return None
        worker, self._worker = self._worker, None
        if self._finalizer is not None:
            self._finalizer.detach()
            self._finalizer = None
        return _end(worker)

    @staticmethod
    def _exchange(worker: _Worker, question: bytes, limit_s: float) -> bytes | None:
        """One line out, one line back. None when time is up; a line without its end when the worker ended."""
        stdin, stdout = worker.process.stdin, worker.process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(question)
            stdin.flush()
        except BrokenPipeError:
            return b""
        deadline = time.monotonic() + limit_s
        line = b""
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    return None
                chunk = os.read(stdout.fileno(), 1 << 16)
                if not chunk:
                    return line
                line += chunk
        return line


def _end(worker: _Worker) -> int | None:
    """Close the pipes, which ends an idle worker; kill one that is stuck."""
    process = worker.process
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            try:
                pipe.close()
            except BrokenPipeError:
                continue
    try:
        process.wait(0.5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    worker.log.close()
    return process.returncode


def _ended(status: int | None, limit_s: int, log: str) -> CondorError:
    if status == -14:  # SIGALRM: the bound that the worker set for itself
        return CondorError(f"no answer within {limit_s} s", log=log, timed_out=True)
    return CondorError(f"HTCondor's bindings ended with status {status}", log=log)


def _tail(log: IO[bytes], start: int) -> str:
    size = os.fstat(log.fileno()).st_size
    start = max(start, size - _LOG_TAIL_BYTES)
    return os.pread(log.fileno(), size - start, start).decode("utf-8", "replace").strip()
