"""`siteannex sites check` and `siteannex sites discover`: site files and the sites themselves."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from datetime import date
    from pathlib import Path

    from siteannex.scheduler.drift import Drift
    from siteannex.site.schema import Site

CHECK_EXAMPLES = """\b
Examples:
  siteannex sites check expanse
  siteannex sites check expanse --write
"""
DISCOVER_EXAMPLES = """\b
Examples:
  siteannex sites discover login.mycluster.edu --name mycluster
  siteannex sites discover hpc.example.org --login alice
"""
DRIFTED = 1
"""Exit code of `check` when the file and the site differ."""


def check(
    name: Annotated[str, typer.Argument(help="A site's name.")],
    write: Annotated[bool, typer.Option("--write", help="Update your copy of the site's file.")] = False,
    login: Annotated[str | None, typer.Option(help="Your user name at the site.")] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Compare a site's file with the live site: partitions, nodes, GPUs, limits, accounts.

    Ends with status 1 when they differ. --write puts what the site says into your own copy, which comes before the
    packaged file, and dates it.
    """
    import json

    from siteannex.annex.check import check_site
    from siteannex.cli.screen import make_screen
    from siteannex.cli.wiring import Wiring

    wiring = Wiring(make_screen(json_output=json_output), user=login)
    site, today = wiring.site(name), wiring.clock.now().date()
    transport = wiring.connect(site)
    try:
        _, found = check_site(site, transport, account=wiring.settings.of(name).account, today=today)
    finally:
        transport.close()
    written = _write(site, found, today) if write else None
    if json_output:
        print(json.dumps({"site": name, "drift": [_as_data(each) for each in found], "written": written}, indent=1))
    else:
        _print(site, found, written)
    if any(not each.change for each in found) or (found and not write):
        raise typer.Exit(DRIFTED)


def _as_data(drift: Drift) -> dict[str, str | bool]:
    return {
        "key": drift.key,
        "here": drift.here,
        "there": drift.there,
        "source": drift.source,
        "writable": bool(drift.change),
    }


def _print(site: Site, found: Sequence[Drift], written: str | None) -> None:
    from siteannex.cli.tables import print_table

    if not found:
        print(f"{site.name}: the file and the site agree on {len(site.partitions)} partitions")
    else:
        rows = [(each.key, each.here, each.there, each.source) for each in found]
        print_table(("KEY", "HERE", "THERE", "SEEN IN"), rows)
    by_hand = [each.key for each in found if not each.change]
    if written is not None:
        print(f"\nwritten: {written}")
        if by_hand:
            print(f"for you to decide: {', '.join(by_hand)}")
    elif found:
        print(f"\nsiteannex sites check {site.name} --write puts this into your copy of the file")


def _write(site: Site, found: Sequence[Drift], today: date) -> str:
    """The user's copy with what the site says, dated."""
    from siteannex.cli.settings import site_directories
    from siteannex.site.rewrite import write_changes

    source = f"siteannex sites check {site.name}"
    change = {place: value for each in found for place, value in each.change.items()}
    undecided = {each.key.split(".")[1] for each in found if not each.change and each.key.startswith("partitions.")}
    gone = {
        place[1] for place, value in change.items() if place[0] == "partitions" and len(place) == 2 and value is None
    }
    for name in site.partitions:
        if name not in gone | undecided:
            change |= {("partitions", name, "verified"): today, ("partitions", name, "source"): source}
    change |= {("verified",): today, ("source",): source}
    return str(write_changes(site.name, change, site_directories()))


def discover(
    host: Annotated[str, typer.Argument(help="A login host.")],
    name: Annotated[str | None, typer.Option(help="The new site's name. Default: the host's first word.")] = None,
    login: Annotated[str | None, typer.Option(help="Your user name there.")] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print the file's keys as JSON; write nothing.")] = False,
) -> None:
    """Log in to a Slurm site that no file knows, and draft its file.

    Partitions, nodes, GPUs, limits and the steps of the login are written down as they were met.
    """
    import json

    from siteannex.annex.check import look_at
    from siteannex.cli.discovery import ListeningPrompter, site_name, stand_in
    from siteannex.cli.screen import make_screen
    from siteannex.cli.settings import site_directories
    from siteannex.cli.wiring import Wiring
    from siteannex.scheduler.draft import LoginSeen, Seen, draft_site
    from siteannex.site.loader import site_files

    if "@" in host:
        raise typer.BadParameter("a host alone; --login says who you are there", param_hint="HOST")
    wiring = Wiring(make_screen(json_output=json_output), user=login)
    title, today = name or site_name(host), wiring.clock.now().date()
    path = site_directories()[0] / f"{title}.yaml"
    _new_name(title, site_files(site_directories()), json_output=json_output)
    site = stand_in(title, host, today)
    listening = ListeningPrompter(wiring.prompter)
    wiring.prompter = listening
    transport = wiring.connect(site)
    try:
        cluster = look_at(transport, title)
    finally:
        transport.close()
    seen = Seen(today, f"siteannex sites discover {host}, {today.isoformat()}")
    data = draft_site(title, cluster.name or host, LoginSeen(host, listening.steps()), cluster, seen)
    if json_output:
        print(json.dumps(data, indent=1, default=str))
        return
    _keep(path, data)
    print(f"written: {path}")
    print(f"{len(data['partitions'])} partitions: {', '.join(data['partitions'])}")
    for line in _to_look_at(data):
        print(f"look at  {line}")
    print(f"next     siteannex sites show {title}; siteannex up {title} --cpus 1 --dry-run")


def _new_name(name: str, known: Mapping[str, Path], *, json_output: bool) -> None:
    """A name that a file can have and none has: a new file would hide the facts of the other without a word."""
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,31}", name):
        words = "a site's name is a small letter, then small letters, digits or '-', 32 at most"
        raise typer.BadParameter(f"{name!r}: {words}", param_hint="--name")
    if name in known and not json_output:
        words = f"{known[name]} is the file of a site {name!r}: siteannex sites check {name} compares it"
        raise typer.BadParameter(f"{words}; or choose another name", param_hint="--name")


def _keep(path: object, data: dict[str, object]) -> None:
    """Write the file, and read it back as every command would."""
    from pathlib import Path

    from siteannex.private import write_private
    from siteannex.site.loader import read_any
    from siteannex.site.rewrite import yaml_text

    assert isinstance(path, Path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_private(path, yaml_text(data))
    read_any(path, [path.parent])


def _to_look_at(data: dict[str, dict[str, dict[str, object]]]) -> list[str]:
    """What no login node tells."""
    unknown = [name for name, kind in data["nodes"].items() if "gpus" in kind]
    charge = "partitions: what a job is charged (charge:); until it is written, ceilings are in GPU-hours only"
    memory = f"nodes {', '.join(unknown)}: the memory of one GPU (gpus: memory_nominal:)"
    return [*([memory] if unknown else []), charge]
