"""`siteannex sites ...`."""

from __future__ import annotations

from typing import Annotated

import typer

from siteannex.cli import site_check

app = typer.Typer(
    help="Site files: list, show, validate, check, discover.", no_args_is_help=True, rich_markup_mode=None
)

LIST_EXAMPLES = """\b
Examples:
  siteannex sites list
  siteannex sites list --json
"""
SHOW_EXAMPLES = """\b
Examples:
  siteannex sites show expanse
  siteannex sites show delta --json
"""
VALIDATE_EXAMPLES = """\b
Examples:
  siteannex sites validate mycluster.yaml
  siteannex sites validate expanse anvil
"""
SCHEMA_EXAMPLES = """\b
Examples:
  siteannex sites schema
  siteannex sites schema > ~/.config/siteannex/sites/schema.json
"""


@app.command("list", epilog=LIST_EXAMPLES)
def list_sites(json_output: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False) -> None:
    """Every site known, and the file it comes from."""
    import json
    import sys

    from siteannex.cli.settings import site_directories
    from siteannex.cli.tables import print_table
    from siteannex.errors import AnnexError
    from siteannex.site.loader import load_any, site_files
    from siteannex.site.packs import packs

    directories = site_directories()
    rows: list[tuple[str, str, str, str, str]] = []
    for name, path in sorted(site_files(directories).items()):
        try:
            site = load_any(name, directories)
            rows.append((name, site.kind, site.title, str(site.verified), str(path)))
        except AnnexError as problem:
            told = problem.failure
            why = told.evidence[0].text.splitlines()[0] if told.code == "site-invalid" else told.summary
            rows.append((name, "-", f"invalid: {why}", "-", str(path)))
    heads = ("site", "kind", "title", "verified", "file")
    if json_output:
        print(json.dumps([dict(zip(heads, row, strict=True)) for row in rows], indent=1))
    else:
        print_table(tuple(head.upper() for head in heads), rows)
    for pack in packs():
        if pack.problem:
            print(f"site pack {pack.distribution}: {pack.problem}", file=sys.stderr)


@app.command("show", epilog=SHOW_EXAMPLES)
def show_site(
    name: Annotated[str, typer.Argument(help="A site's name.")],
    json_output: Annotated[bool, typer.Option("--json", help="Print every key as JSON; MiB and seconds.")] = False,
) -> None:
    """One site: login, partitions, GPUs, limits, what is doubted, and how old the facts are."""
    from siteannex.cli.settings import site_directories
    from siteannex.cli.site_view import show
    from siteannex.site.loader import load_any

    site = load_any(name, site_directories())
    print(site.model_dump_json(indent=1) if json_output else show(site))


@app.command("validate", epilog=VALIDATE_EXAMPLES)
def validate(
    what: Annotated[list[str] | None, typer.Argument(help="Files or sites' names; none: every site known.")] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Check site files; one that is not valid ends it with status 10."""
    import json

    from siteannex.cli.failure_view import exit_code
    from siteannex.cli.settings import site_directories
    from siteannex.cli.site_view import hints
    from siteannex.errors import AnnexError, Stage
    from siteannex.site.loader import chosen_files, read_any

    verdicts: list[tuple[str, bool, list[str]]] = []
    for path in chosen_files(what or [], site_directories()):
        try:
            verdicts.append((str(path), True, hints(read_any(path, site_directories()))))
        except AnnexError as problem:
            verdicts.append((str(path), False, problem.failure.evidence[0].text.splitlines()))
    if json_output:
        print(json.dumps([dict(zip(("file", "valid", "said"), each, strict=True)) for each in verdicts], indent=1))
    else:
        for path_text, valid, said in verdicts:
            print("\n  ".join([f"{path_text}: {'valid' if valid else 'not valid'}", *said]))
    if not all(valid for _, valid, _ in verdicts):
        raise typer.Exit(exit_code(Stage.PLAN))


@app.command("schema", epilog=SCHEMA_EXAMPLES)
def schema() -> None:
    """The JSON schema of site files, for editors (`# yaml-language-server: $schema=schema.json`)."""
    from siteannex.site.kinds import schema_text

    print(schema_text(), end="")


app.command("check", epilog=site_check.CHECK_EXAMPLES)(site_check.check)
app.command("discover", epilog=site_check.DISCOVER_EXAMPLES)(site_check.discover)
