"""Plain aligned columns, the last one as wide as it is."""

from __future__ import annotations

from collections.abc import Sequence

from siteannex.cli.screen import printable


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their widest cell, two spaces apart."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [header, *rows]
    )


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print them."""
    print(table(header, rows))
