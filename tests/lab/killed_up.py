"""Run on the AP: `siteannex ...`, killed with SIGKILL by itself right before or after it records an event.

python killed_up.py after SUBMIT begin -- up lab --gpus 1
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from siteannex.annex.events import What
from siteannex.annex.store import Annex
from siteannex.cli.main import main
from siteannex.errors import Stage


def die_at(moment: str, stage: Stage, what: What) -> None:
    """Make the process end, as by `kill -9`, at one event."""
    record = Annex.record

    def recording(annex: Annex, at: Stage, event: What, **data: Any) -> None:
        hit = at is stage and event is what
        if hit and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        record(annex, at, event, **data)
        if hit:
            os.kill(os.getpid(), signal.SIGKILL)

    setattr(Annex, "record", recording)  # noqa: B010  (mypy rightly refuses the plain assignment)


if __name__ == "__main__":
    cut = sys.argv.index("--")
    when, stage_name, what_name = sys.argv[1:cut]
    die_at(when, Stage(stage_name), What(what_name))
    sys.argv = ["siteannex", *sys.argv[cut + 1 :]]
    main()
