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
    from siteannex.site.loader import read_any, site_files

    rows: list[tuple[str, str, str, str, str]] = []
    for name, path in sorted(site_files(site_directories()).items()):
        try:
            site = read_any(path, site_directories())
            rows.append((name, site.kind, site.title, str(site.verified), str(path)))
        except AnnexError as problem:
            rows.append((name, "-", f"invalid: {problem.failure.evidence[0].text.splitlines()[0]}", "-", str(path)))
    if json_output:
        print(
            json.dumps(
                [dict(zip(("name", "kind", "title", "verified", "file"), row, strict=True)) for row in rows], indent=1
            )
        )
    else:
        print_table(("SITE", "KIND", "TITLE", "VERIFIED", "FILE"), rows)


@app.command("show", epilog=SHOW_EXAMPLES)
def show_site(
    name: Annotated[str, typer.Argument(help="A site's name.")],
    json_output: Annotated[bool, typer.Option("--json", help="Print every key as JSON.")] = False,
) -> None:
    """One site: login, partitions, GPUs, limits, and how old the facts are."""
    from siteannex.cli.settings import site_directories
    from siteannex.cli.tables import print_table
    from siteannex.site.loader import load_any, with_pilots
    from siteannex.units import format_duration, format_memory

    any_kind = load_any(name, site_directories())
    if json_output:
        print(any_kind.model_dump_json(indent=1))
        return
    site = with_pilots(any_kind)
    print(f"{site.name}: {site.title}\nlogin {site.login.host}:{site.login.port}, keys {site.login.keys}\n")
    rows = [
        (
            partition,
            facts.sharing,
            f"{kind.gpus.per_node} x {kind.gpus.type}" if kind.gpus else "-",
            format_memory(memory) if kind.gpus and (memory := kind.gpus.memory or kind.gpus.memory_nominal) else "-",
            str(kind.cores or "?"),
            format_memory(whole) if (whole := kind.memory or kind.memory_nominal) else "?",
            format_duration(facts.max_walltime) if facts.max_walltime else "?",
            str(facts.verified),
        )
        for partition, facts in site.partitions.items()
        for kind in facts.nodes
    ]
    print_table(("PARTITION", "SHARING", "GPUS/NODE", "GPU MEMORY", "CORES", "MEMORY", "WALLTIME", "VERIFIED"), rows)
