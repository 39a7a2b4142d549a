"""ClassAd expressions as text: the conditions that must all hold, and the attributes they name. Pure.

The bindings give an expression only whole, so it is taken apart here: at every `&&` that stands at the top, through
parentheses. Syntax: https://htcondor.readthedocs.io/en/latest/classads/classad-mechanism.html
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

_TOKEN = re.compile(
    r"""
      "(?:\\.|[^"\\])*"          # a string
    | '(?:\\.|[^'\\])*'          # a quoted attribute name
    | =\?= | =!= | && | \|\| | \?: | [][(){}?]
    """,
    re.VERBOSE | re.DOTALL,
)
_OPEN, _CLOSE = {"(": ")", "[": "]", "{": "}"}, frozenset(")]}")
_NAME = re.compile(r"(?:\b(MY|TARGET)\s*\.\s*)?\b([A-Za-z_]\w*)\b(\s*\()?", re.IGNORECASE)
_STRING = re.compile(r'"(?:\\.|[^"\\])*"', re.DOTALL)
_WORDS = frozenset({"true", "false", "undefined", "error", "is", "isnt", "my", "target", "parent"})
_BARE = re.compile(r"(?:MY\s*\.\s*)?([A-Za-z_]\w*)", re.IGNORECASE)
_DEEPEST = 50


def conjuncts(text: str) -> list[str]:
    """The conditions of which all must hold, in order. What is not a conjunction, or not balanced, is one of its own.

    Joined again by `&&`, each in parentheses, they mean the same as the whole.
    """
    return _conjuncts(text.strip(), _DEEPEST)


def _conjuncts(text: str, depth: int) -> list[str]:
    inner = _without_parentheses(text)
    cuts = _top_level_ands(inner)
    if cuts is None or depth == 0 or (not cuts and inner == text):
        return [text]
    parts: list[str] = []
    start = 0
    for cut in [*cuts, len(inner)]:
        parts.append(inner[start:cut].strip())
        start = cut + 2
    if not all(parts):
        return [text]
    return [piece for part in parts for piece in _conjuncts(part, depth - 1)]


def _top_level_ands(text: str) -> list[int] | None:
    """Where `&&` stands outside every bracket; None where `||` or `?` binds looser, or brackets do not pair."""
    pending: list[str] = []
    cuts: list[int] = []
    for match in _TOKEN.finditer(text):
        word = match.group()
        if word in _OPEN:
            pending.append(_OPEN[word])
        elif word in _CLOSE:
            if not pending or pending.pop() != word:
                return None
        elif pending or word[0] in "\"'=":
            continue
        elif word == "&&":
            cuts.append(match.start())
        else:
            return None
    return None if pending else cuts


def _without_parentheses(text: str) -> str:
    while text.startswith("(") and text.endswith(")") and _closes_at_end(text):
        text = text[1:-1].strip()
    return text


def _closes_at_end(text: str) -> bool:
    depth = 0
    for match in _TOKEN.finditer(text):
        word = match.group()
        depth += word in _OPEN
        depth -= word in _CLOSE
        if depth == 0:
            return match.end() == len(text)
    return False


def expanded(text: str, sources: Mapping[str, str], depth: int = 4) -> list[str]:
    """The conjuncts of an expression, those that only name another attribute replaced by that one's conjuncts.

    `sources` has the ad's own expressions by attribute name: `Requirements = Start && WithinResourceLimits` says
    nothing yet.
    """
    known = {name.lower(): source for name, source in sources.items()}
    found: list[str] = []
    for part in conjuncts(text):
        bare = _BARE.fullmatch(part)
        source = known.get(bare.group(1).lower()) if bare else None
        found += [part] if source is None or depth == 0 else expanded(source, sources, depth - 1)
    return found


def names(text: str) -> frozenset[str]:
    """Attribute names an expression mentions, lower case, whichever ad they are looked up in."""
    found = (match.group(2).lower() for match in _NAME.finditer(_STRING.sub('""', text)) if not match.group(3))
    return frozenset(found) - _WORDS


def mentions(*wanted: str) -> Callable[[str], bool]:
    """A test whether an expression mentions one of these attributes."""
    lower = frozenset(name.lower() for name in wanted)
    return lambda text: bool(names(text) & lower)
