"""`siteannex stage SITE FILE...`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from siteannex.cli.wiring import Wiring
    from siteannex.model import StagedCopy
    from siteannex.site.schema import Site
    from siteannex.staging.ground import Ground

EXAMPLES = """\b
Examples:
  siteannex stage expanse data.tar.gz
  siteannex stage expanse --list
  siteannex stage expanse --remove data.tar.gz
"""


def stage(
    site: Annotated[str, typer.Argument(help="A site's name.")],
    files: Annotated[
        list[str] | None, typer.Argument(help="Files; with --remove, names or sums as --list shows them.")
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="Show what is staged there.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Remove these there.")] = False,
    login: Annotated[str | None, typer.Option(help="Your user name at the site.")] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Put big inputs once at a site, where jobs of experiments read them (staged: in the experiment file).

    Sent over the held session, verified by sha256 there; what is there already is not sent again, and after a cut
    connection the same command goes on where it ended.
    """
    from siteannex.cli.screen import make_screen
    from siteannex.cli.wiring import Wiring

    words = list(files or ())
    if show == bool(words):
        raise typer.BadParameter("name files, or say --list", param_hint="FILES")
    if not (show or remove):
        _check_files(words)
    wiring = Wiring(make_screen(json_output=json_output), user=login)
    facts = wiring.site(site)
    if show or remove:
        _look(wiring, facts, words, json_output=json_output)
    else:
        _ship(wiring, facts, words, json_output=json_output)


def _check_files(words: list[str]) -> None:
    for word in words:
        if Path(word).is_dir():
            raise typer.BadParameter(f"{word} is a directory; pack it first: tar -czf {Path(word).name}.tar.gz {word}")
        if not Path(word).is_file():
            raise typer.BadParameter(f"{word} is no file here")


def _ship(wiring: Wiring, facts: Site, words: list[str], *, json_output: bool) -> None:
    import json

    from siteannex.staging.record import Record
    from siteannex.staging.stage import stage as put

    record = Record.under(wiring.places.state)
    transport = wiring.connect(facts)
    try:
        waits = f"another command stages at {facts.name}; this one goes on after it"
        with record.lock(facts.name, lambda: wiring.screen.line("stage", waits)):
            done = put([Path(word) for word in words], facts, transport, record, wiring.screen)
    finally:
        transport.close()
    if json_output:
        told = [{"file": each.file, **_copy_data(each.copy), "sent_bytes": each.sent_bytes} for each in done]
        print(json.dumps({"site": facts.name, "staged": told}, indent=1))
    else:
        wiring.screen.line("next", f"staged: [{', '.join(words)}] in an experiment file (docs/experiment.md)")


def _look(wiring: Wiring, facts: Site, words: list[str], *, json_output: bool) -> None:
    import json

    from siteannex.staging.record import Record
    from siteannex.staging.stage import look
    from siteannex.staging.stage import remove as take_away

    record = Record.under(wiring.places.state)
    transport = wiring.connect(facts)
    gone: list[StagedCopy] = []
    try:
        ground = look(facts, transport)
        record.replace(facts.name, ground.copies)
        if words:
            gone, unknown = take_away(words, ground, facts, transport, record)
            if unknown:
                told = f"{', '.join(unknown)}: nothing of that name is staged at {facts.name}"
                raise typer.BadParameter(f"{told}; siteannex stage {facts.name} --list", param_hint="FILES")
    finally:
        transport.close()
    if json_output:
        print(
            json.dumps({**_ground_data(facts.name, ground), "removed": [_copy_data(each) for each in gone]}, indent=1)
        )
    elif words:
        for each in gone:
            wiring.screen.line("removed", f"{each.name}: {each.path}")
    else:
        _show(facts, ground)


def _show(facts: Site, ground: Ground) -> None:
    from siteannex.cli.tables import print_table
    from siteannex.units import format_bytes

    rows = [(each.name, format_bytes(each.size_bytes), each.sha256[:12], each.path) for each in ground.copies]
    rows += [
        (each.name, f"{format_bytes(each.size_bytes)} so far", each.sha256[:12], each.path) for each in ground.parts
    ]
    if rows:
        print_table(("NAME", "SIZE", "SHA256", "AT"), rows)
    else:
        print(f"Nothing is staged at {facts.name}. siteannex stage {facts.name} FILE puts a file there.")
    for place in ground.places:
        if place.free_bytes is not None:
            print(f"{format_bytes(place.free_bytes)} free at {place.path} (your quota may be smaller)")


def _ground_data(site: str, ground: Ground) -> dict[str, Any]:
    return {
        "site": site,
        "staged": [_copy_data(each) for each in ground.copies],
        "unfinished": [_copy_data(each) for each in ground.parts],
        "places": [{"path": each.path, "free_bytes": each.free_bytes} for each in ground.places],
    }


def _copy_data(copy: StagedCopy) -> dict[str, Any]:
    return {"name": copy.name, "sha256": copy.sha256, "size_bytes": copy.size_bytes, "path": copy.path}
