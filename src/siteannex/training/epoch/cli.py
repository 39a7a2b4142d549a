"""The command line."""

from __future__ import annotations

import argparse
import os
import sys

from .attempt import Attempt
from .files import say
from .task import MISUSED, Refusal, read_task


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options and the command; Refusal(MISUSED) without a command."""
    parser = argparse.ArgumentParser(
        prog="siteannex-epoch",
        usage="siteannex-epoch [options] -- COMMAND [ARGUMENT...]",
        description="Run one training job's epochs. What it must do comes from SITEANNEX_* variables.",
    )
    parser.add_argument(
        "--grace",
        type=float,
        default=120.0,
        help="seconds to wait for a last checkpoint (120; less where HTCondor gives less)",
    )
    parser.add_argument(
        "--ask", default="SIGTERM", choices=["SIGTERM", "SIGUSR1", "SIGUSR2", "SIGINT"], help="the signal to ask for it"
    )
    parser.add_argument("--unpack", action="append", default=[], metavar="TAR", help="unpack this first, and time it")
    parser.add_argument("--gpu-every", type=float, default=30.0, help="seconds between looks at the GPUs; 0: never")
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    options = parser.parse_args(arguments[:cut])
    options.command = arguments[cut + 1 :]
    if not options.command:
        raise Refusal(MISUSED, "no command: siteannex-epoch [options] -- COMMAND [ARGUMENT...]")
    return options


def main(arguments: list[str] | None = None) -> int:
    """Do one job's work and return its exit status."""
    try:
        options = parse(sys.argv[1:] if arguments is None else arguments)
        return Attempt(read_task(os.environ), options, dict(os.environ)).run()
    except Refusal as refusal:
        say(str(refusal))
        return refusal.status


if __name__ == "__main__":
    sys.exit(main())
