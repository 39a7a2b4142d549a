"""`siteannex why JOB|DAG-NODE|ANNEX`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from siteannex.annex.explaining.why_annex import AnnexStory
    from siteannex.annex.explaining.why_job import Desk, JobStory
    from siteannex.annex.store import Annex
    from siteannex.cli.wiring import Wiring

EXAMPLES = """\b
Examples:
  siteannex why 4711.0
  siteannex why expanse --remote
"""


def why(
    what: Annotated[str, typer.Argument(help="A job (4711.0 or 4711), a DAG node's name, or an annex.")],
    remote: Annotated[bool, typer.Option("--remote", help="Ask the batch system too (may need a login).")] = False,
    login: Annotated[str | None, typer.Option(help="Your user name at the site.")] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Say why a job does not run, or where an annex stands and what comes next."""
    from siteannex.annex.explaining.why_job import is_job_id, why_job, why_node
    from siteannex.cli.screen import make_screen
    from siteannex.cli.wiring import Wiring
    from siteannex.failures import fail

    wiring = Wiring(make_screen(json_output=json_output), user=login)
    if is_job_id(what):
        _show_job(why_job(what, desk_of(wiring)), json_output=json_output)
        return
    annex = wiring.store.latest(what)
    if annex is not None:
        _show_annex(_annex_story(wiring, annex, remote=remote), json_output=json_output)
        return
    desk = desk_of(wiring)
    story = why_node(what, desk) or _unsubmitted_node(what, desk)
    if story is None:
        raise fail("annex-unknown", "", f"no annex and no node of a DAG in the queue is named {what!r}")
    _show_job(story, json_output=json_output)


def _unsubmitted_node(name: str, desk: Desk) -> JobStory | None:
    """A node that DAGMan has no job of in the queue: its DAG's files say why."""
    from siteannex.annex.explaining.why_job import JobStory
    from siteannex.annex.explaining.why_words import Conclusion
    from siteannex.training.dag.dagwhy import explain_node, find_node

    dag = find_node(name, desk.queue.dagmans())
    if dag is None:
        return None
    told = explain_node(name, dag)
    return JobStory(name, Conclusion(told.verdict, told.head, told.so, told.do))


def desk_of(wiring: Wiring) -> Desk:
    """What explaining a job needs."""
    from siteannex.annex.explaining.why_job import Desk
    from siteannex.pool.job_queue import JobQueue

    return Desk(JobQueue(wiring.pool), wiring.store, wiring.clock, wiring.sites)


def _annex_story(wiring: Wiring, annex: Annex, *, remote: bool) -> AnnexStory:
    """The site is asked over a held session; without one only --remote logs in."""
    from siteannex.annex.explaining.why_annex import why_annex
    from siteannex.annex.slurm_site import SlurmSite
    from siteannex.errors import AnnexError

    access, trouble = None, f"no session is held; siteannex why {annex.name} --remote logs in"
    try:
        site = wiring.site(annex.plan.request.site)
        held = wiring.held(site, annex.state().login.rpartition("@")[0] or None)
        if held is not None:
            access = SlurmSite(site, held)
        elif remote and not annex.state().ended:
            access = wiring.access(annex)
    except AnnexError as problem:
        trouble = problem.failure.summary
    return why_annex(annex, wiring.pool, wiring.clock, access, asked_why_not=trouble)


def _show_annex(told: AnnexStory, *, json_output: bool) -> None:
    import json

    from siteannex.annex.explaining.why_annex import as_data
    from siteannex.annex.explaining.why_view import annex_lines
    from siteannex.cli.screen import printable

    if json_output:
        print(json.dumps(as_data(told), indent=1))
        return
    for line in annex_lines(told):
        print(printable(line))


def _show_job(story: JobStory, *, json_output: bool) -> None:
    import json

    from siteannex.annex.explaining.why_job import as_data
    from siteannex.annex.explaining.why_view import job_lines
    from siteannex.cli.screen import printable

    if json_output:
        print(json.dumps(as_data(story), indent=1))
        return
    for line in job_lines(story):
        print(printable(line))
