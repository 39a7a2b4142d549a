"""`why` as lines: about a job a small table of what it asks, about an annex its story; then `so`, then `do`. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from siteannex.annex.explaining.why_annex import AnnexStory
from siteannex.annex.explaining.why_job import JobStory
from siteannex.pool.matching import Says
from siteannex.pool.words import AP, SUBMIT, Cell, Row

_ALWAYS = frozenset({"annex", "gpus", "memory"})
"""Rows that are shown even when every annex says yes: what people ask first."""
_MOST_COLUMNS = 4
_WIDTH = 96
_STATUS_WORDS = {
    "1": "idle",
    "2": "running",
    "3": "removed",
    "4": "completed",
    "5": "held",
    "6": "transferring output",
    "7": "suspended",
}


def job_lines(story: JobStory) -> list[str]:
    """The answer about one job."""
    end = story.conclusion
    lines = [end.head]
    if story.others:
        counts = ", ".join(f"{count} {_STATUS_WORDS.get(status, status)}" for status, count in story.others.items())
        lines.append(f"  (one of several: {counts}; this is about {story.job_id})")
    lines += _table(story)
    lines += [f"  seen {each.source}: {each.text}" for each in end.seen]
    lines += _labelled("so", end.so)
    lines += _labelled("do", end.do)
    return lines


def _labelled(label: str, texts: Sequence[str]) -> list[str]:
    """Sentences are folded to a readable width; what is to be pasted (`do`) is not."""
    lines = [line for text in texts for line in ([text] if label == "do" else _folded(text))]
    return [f"  {label if not at else '':<4} {line}" for at, line in enumerate(lines)]


def _folded(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _table(story: JobStory) -> list[str]:
    if not story.matches or not story.rows:
        return []
    columns = range(min(len(story.matches), _MOST_COLUMNS))
    shown = [row for row in story.rows if row.failing or (row.kind in _ALWAYS and row.asks != "0 GPUs")]
    cells = [(f"  {_asks(row)}", *(_cell(row.cells[at]) for at in columns)) for row in shown]
    titles = [f"{match.candidate.annex} ({match.candidate.state})" for match in story.matches[:_MOST_COLUMNS]]
    lines = _aligned([("  it asks", *titles), *cells])
    more = [f"{len(story.rows) - len(shown)} more conditions, all met"] if len(shown) < len(story.rows) else []
    left = len(story.matches) - _MOST_COLUMNS
    more += [f"{left} more annexes: --json"] if left > 0 else []
    return [*lines, *([f"  ({'; '.join(more)})"] if more else [])]


def _asks(row: Row) -> str:
    note = {AP: " (your AP adds this)", SUBMIT: " (condor_submit adds this)"}.get(row.by, "") if row.failing else ""
    return f"{row.asks}{note}"


def _cell(cell: Cell | None) -> str:
    if cell is None:
        return "-"
    return "yes" if cell.says is Says.YES else cell.text


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def annex_lines(told: AnnexStory) -> list[str]:
    """The answer about one annex: how it got here, what each witness says, then `so` and `do`."""
    lines = [told.head]
    day = None
    for line in told.told:
        at = line.at.astimezone()
        if at.date() != day:
            day = at.date()
            lines.append(f"  {at:%a %d %b %Y}")
        first, *rest = _folded(_one_line(line.text)) or [""]
        lines.append(f"  {at:%H:%M:%S}  {line.label:<9}{first}")
        lines += [f"{'':<21}{each}" for each in rest]
        lines += [f"{'':<12}seen   {each.source}: {text}" for each in line.evidence for text in _seen(each.text)]
    lines += _labelled("now", told.now)
    lines += _labelled("so", told.so)
    lines += _labelled("do", told.do)
    return lines


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _seen(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()][-8:]
