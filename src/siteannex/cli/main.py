"""The `siteannex` command: the verbs, and the one place where a failure becomes words and an exit code.

Nothing heavy is imported here or in the verb files' heads, so that `siteannex --help` stays quick.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Annotated

import typer

from siteannex.cli import (
    budget,
    dag,
    doctor,
    down,
    logs,
    pack,
    plan,
    provenance,
    session,
    sites,
    stage,
    status,
    sweep,
    up,
    why,
)
from siteannex.errors import AnnexError

app = typer.Typer(
    name="siteannex",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _version(asked: bool) -> None:
    if asked:
        from siteannex import __version__

        print(f"siteannex {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Bring HTCondor execution points up at supercomputers you can log in to."""


app.command("up", epilog=up.EXAMPLES)(up.up)
app.command("plan", epilog=plan.EXAMPLES)(plan.plan)
app.command("budget", epilog=budget.EXAMPLES)(budget.budget)
app.command("status", epilog=status.EXAMPLES)(status.status)
app.command("why", epilog=why.EXAMPLES)(why.why)
app.command("logs", epilog=logs.EXAMPLES)(logs.logs)
app.command("down", epilog=down.EXAMPLES)(down.down)
app.command("sweep", epilog=sweep.EXAMPLES)(sweep.sweep)
app.command("stage", epilog=stage.EXAMPLES)(stage.stage)
app.command("login", epilog=session.LOGIN_EXAMPLES)(session.login)
app.command("logout", epilog=session.LOGOUT_EXAMPLES)(session.logout)
app.command("sessions", epilog=session.SESSIONS_EXAMPLES)(session.sessions)
app.command("doctor", epilog=doctor.EXAMPLES)(doctor.doctor)
app.command("pack", epilog=pack.EXAMPLES)(pack.pack)
app.add_typer(sites.app, name="sites")
app.add_typer(dag.app, name="dag")
app.add_typer(provenance.app, name="provenance")


class Stopped(BaseException):
    """Ctrl-C. Not a KeyboardInterrupt, because typer ends the process at those without a word."""


def _stop(_number: int, _frame: object) -> None:
    raise Stopped


def main() -> None:
    """Run the command line; failures end with their stage's exit code (`siteannex --help` never imports their text)."""
    signal.signal(signal.SIGINT, _stop)
    try:
        app()
    except AnnexError as problem:
        from siteannex.cli.failure_view import exit_code, show

        show(problem.failure, as_json="--json" in sys.argv)
        sys.exit(exit_code(problem.failure.stage))
    except BrokenPipeError:  # the reader (head, less) has seen enough
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115
    except Stopped:
        print(
            "\nStopped watching. Whatever was submitted goes on: siteannex status shows it, siteannex down ends it.",
            file=sys.stderr,
        )
        sys.exit(130)
