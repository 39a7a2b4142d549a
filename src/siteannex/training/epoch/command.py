"""The user's command as a process, and the warnings that reach us meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess


class Warned:
    """Remembers the first signal that told us to end."""

    def __init__(self) -> None:
        self.name = ""
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, self._note)

    def _note(self, number: int, _: object) -> None:
        if not self.name:
            self.name = signal.Signals(number).name


def wait(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether the process ended within so many seconds."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def tell(process: subprocess.Popen[bytes], name: str) -> None:
    """Send a signal to the command itself (not to its helpers, which would die before it could save)."""
    if process.poll() is None:
        process.send_signal(signal.Signals[name])


def end(process: subprocess.Popen[bytes]) -> None:
    """Nothing of the command's group goes on after this."""
    try:
        os.killpg(process.pid, signal.SIGTERM if process.poll() is None else signal.SIGKILL)
        if not wait(process, 5):
            os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
