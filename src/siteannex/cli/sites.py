"""`siteannex sites ...`."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(help="Site files: list and show.", no_args_is_help=True, rich_markup_mode=None)

LIST_EXAMPLES = """\b
Examples:
  siteannex sites list
  siteannex sites list --json
"""
SHOW_EXAMPLES = """\b
Examples:
  siteannex sites show lab
  siteannex sites show expanse --json
"""


@app.command("list", epilog=LIST_EXAMPLES)
def list_sites(json_output: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False) -> None:
    """Every site known, and the file it comes from."""
    import json

    from siteannex.cli.settings import site_directories
    from siteannex.cli.tables import print_table
    from siteannex.errors import AnnexError
    from siteannex.site.loader import read_site, site_files

    rows: list[tuple[str, str, str, str]] = []
    for name, path in sorted(site_files(site_directories()).items()):
        try:
            site = read_site(path)
            rows.append((name, site.title, str(site.verified), str(path)))
        except AnnexError as problem:
            rows.append((name, f"invalid: {problem.failure.evidence[0].text.splitlines()[0]}", "-", str(path)))
    if json_output:
        print(
            json.dumps([dict(zip(("name", "title", "verified", "file"), row, strict=True)) for row in rows], indent=1)
        )
    else:
        print_table(("SITE", "TITLE", "VERIFIED", "FILE"), rows)


@app.command("show", epilog=SHOW_EXAMPLES)
def show_site(
    name: Annotated[str, typer.Argument(help="A site's name.")],
    json_output: Annotated[bool, typer.Option("--json", help="Print every key as JSON.")] = False,
) -> None:
    """One site: login, partitions, GPUs, limits, and how old the facts are."""
    from siteannex.cli.settings import site_directories
    from siteannex.cli.tables import print_table
    from siteannex.site.loader import load_site
    from siteannex.units import format_duration, format_memory

    site = load_site(name, site_directories())
    if json_output:
        print(site.model_dump_json(indent=1))
        return
    print(f"{site.name}: {site.title}\nlogin {site.login.host}:{site.login.port}, keys {site.login.keys}\n")
    rows = [
        (
            partition,
            facts.sharing,
            f"{facts.gpus.per_node} x {facts.gpus.type}" if facts.gpus else "-",
            format_memory(facts.gpus.memory) if facts.gpus and facts.gpus.memory else "-",
            str(facts.cores_per_node),
            format_memory(facts.memory_per_node),
            format_duration(facts.max_walltime),
            str(facts.verified),
        )
        for partition, facts in site.partitions.items()
    ]
    print_table(("PARTITION", "SHARING", "GPUS/NODE", "GPU MEMORY", "CORES", "MEMORY", "WALLTIME", "VERIFIED"), rows)
