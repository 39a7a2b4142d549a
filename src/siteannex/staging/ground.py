"""Where staged copies lie at a site and what is there: one script, and the reading of its answer. Pure.

A copy is `<place>/<sha256>`, its name at home in `<sha256>.name` beside it. Under that name is only what was verified;
what a cut upload left is `<sha256>.part`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from siteannex.model import StagedCopy
from siteannex.site.schema import Directories
from siteannex.transport.frames import quote

SHA256 = re.compile(r"[0-9a-f]{64}")
FOLDER = ".siteannex/data"


@dataclass(frozen=True, slots=True)
class Place:
    """A directory at the site that takes copies."""

    path: str
    free_bytes: int | None
    """None when df does not say. Quotas are not seen here."""
    scratch: bool


@dataclass(frozen=True, slots=True)
class Ground:
    """What the site showed. `places` in order of preference."""

    places: tuple[Place, ...]
    copies: tuple[StagedCopy, ...]
    parts: tuple[StagedCopy, ...]
    """Beginnings of uploads that were cut."""

    def copy(self, sha256: str) -> StagedCopy | None:
        """The copy with that content."""
        return next((each for each in self.copies if each.sha256 == sha256), None)


def look_script(directories: Directories) -> str:
    """Shell that makes the places where that is possible and lists them. Scratch first: homes are small."""
    known = [path for path in directories.shared_scratch if "<" not in path]
    tries = "".join(f'look scratch "{_safe(path)}" "{_safe(path)}/{FOLDER}"\n' for path in known)
    home = _safe(directories.home)
    return f"""LC_ALL=C; export LC_ALL; umask 077
look() {{
  [ -d "$2" ] && mkdir -p "$3" && [ -w "$3" ] || return 0
  printf '@place\\t%s\\t%s\\t%s\\n' "$1" "$(df -Pk "$3" 2>/dev/null | awk 'NR == 2 {{ print $4 }}')" "$3"
  for file in "$3"/*; do
    case $file in *.name) continue ;; esac
    [ -f "$file" ] && printf '@file\\t%s\\t%s\\t%s\\n' "$(wc -c <"$file" | tr -d ' ')" "$file" \\
      "$(head -n 1 "${{file%.part}}.name" 2>/dev/null | tr -d '\\t')"
  done
}}
{tries}mkdir -p "{home}"
look home "{home}" "{home}/data"
true"""


def _safe(path: str) -> str:
    """Variables of the site's file are expanded there; nothing else of it is shell."""
    return re.sub(r'[`"\\]|\$\(', "", path)


def read_look(text: str) -> Ground:
    """Read the answer. Foreign lines are passed over."""
    places: list[Place] = []
    copies: list[StagedCopy] = []
    parts: list[StagedCopy] = []
    for line in text.splitlines():
        match line.split("\t"):
            case ["@place", kind, free, path] if path.startswith("/"):
                size = int(free) * 1024 if free.isascii() and free.isdecimal() else None
                places.append(Place(path, size, scratch=kind == "scratch"))
            case ["@file", size_text, path, name] if size_text.isascii() and size_text.isdecimal():
                base = path.rpartition("/")[2]
                sha256 = base.removesuffix(".part")
                if SHA256.fullmatch(sha256):
                    found = StagedCopy(sha256, int(size_text), path, name or sha256[:12])
                    (parts if base.endswith(".part") else copies).append(found)
            case _:
                continue
    return Ground(tuple(places), tuple(copies), tuple(parts))


def verify_script(copy: StagedCopy) -> str:
    """Prints the copy's sha256."""
    path = quote(copy.path)
    return f"""if command -v sha256sum >/dev/null 2>&1; then sum=$(sha256sum <{path})
elif command -v openssl >/dev/null 2>&1; then sum=$(openssl dgst -sha256 -r <{path})
else sum=$(shasum -a 256 <{path}); fi
printf '%s\\n' "${{sum%%[ *]*}}\""""


def settle_script(copy: StagedCopy) -> str:
    """Gives a copy that has arrived its name, and keeps it from being written to."""
    return f"printf '%s\\n' {quote(copy.name)} >{quote(copy.path + '.name')} && chmod 400 {quote(copy.path)}"


def remove_script(copy: StagedCopy) -> str:
    """Removes a copy or the beginning of one."""
    base = copy.path.removesuffix(".part")
    return f"rm -f {quote(base)} {quote(base + '.part')} {quote(base + '.name')}"
