"""Errors that name file, line and column, with the line itself and a mark under the spot."""

from __future__ import annotations

from dataclasses import dataclass

from siteannex.errors import AnnexError, Evidence
from siteannex.failures import fail
from siteannex.training.dag.dagfile import Place


@dataclass(frozen=True, slots=True)
class Source:
    """A text and the name of the file it came from."""

    name: str
    text: str

    def spot(self, place: Place) -> str:
        """`file:line:column`, as compilers and editors write it."""
        return f"{self.name}:{place.line}:{place.column}"

    def excerpt(self, place: Place) -> str:
        """The line at a place and a caret under the column."""
        lines = self.text.split("\n")
        line = lines[place.line - 1].rstrip("\r") if place.line <= len(lines) else ""
        under = "".join("\t" if char == "\t" else " " for char in line[: place.column - 1])
        return f"{line}\n{under.ljust(place.column - 1)}^"


def refused(source: Source, place: Place, message: str, hint: str | None = None) -> AnnexError:
    """The dag-invalid failure at a place of a file."""
    return fail(
        "dag-invalid",
        source.name,
        f"{source.spot(place)}: {message}",
        evidence=[Evidence(source.name, source.excerpt(place))],
        hint=hint,
    )
