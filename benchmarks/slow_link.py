"""A ProxyCommand that makes a login node as far away as a real one: every byte arrives late, in both directions.

usage, in ~/.ssh/config:  ProxyCommand python3 slow_link.py %h %p ROUND_TRIP_MS
"""

from __future__ import annotations

import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable

CHUNK = 1 << 18


def carry(read: Callable[[], bytes], write: Callable[[bytes], object], delay_s: float) -> threading.Thread:
    """Start moving bytes from `read` to `write`, each piece `delay_s` after it came; ends after the last piece."""
    pieces: queue.Queue[tuple[float, bytes]] = queue.Queue(maxsize=1024)

    def deliver() -> None:
        while True:
            due, piece = pieces.get()
            time.sleep(max(0.0, due - time.monotonic()))
            if not piece:
                return
            write(piece)

    def take() -> None:
        piece = b"-"
        while piece:
            try:
                piece = read()
            except OSError:  # closed with something unread
                piece = b""
            pieces.put((time.monotonic() + delay_s, piece))

    threading.Thread(target=take, daemon=True).start()
    thread = threading.Thread(target=deliver, daemon=True)
    thread.start()
    return thread


def main(host: str, port: str, round_trip_ms: str) -> None:
    """Join standard input and output to host:port until either side ends."""
    delay_s = float(round_trip_ms) / 2000
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a ControlMaster outlives its terminal, and so must its link
    with socket.create_connection((host, int(port))) as link:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ways = (
            carry(lambda: os.read(0, CHUNK), link.sendall, delay_s),
            carry(lambda: link.recv(CHUNK), lambda data: os.write(1, data), delay_s),
        )
        while all(way.is_alive() for way in ways):
            time.sleep(0.05)


if __name__ == "__main__":
    main(*sys.argv[1:])
