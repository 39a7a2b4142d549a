"""Write the schemas of side-cars and of events in docs/ from the code, or `--check` that they are so."""

import json
import sys
from pathlib import Path

from siteannex.training import sidecar
from siteannex.training.provenance import ap_events, events

DOCS = Path(__file__).resolve().parent.parent / "docs"
SCHEMAS = {
    "provenance-sidecar.schema.json": sidecar.schema,
    "provenance-event.schema.json": events.schema,
    "provenance-ap-event.schema.json": ap_events.schema,
}


def main() -> int:
    """Exit status."""
    status = 0
    for name, schema in SCHEMAS.items():
        target, text = DOCS / name, json.dumps(schema(), indent=2) + "\n"
        if "--check" not in sys.argv:
            target.write_text(text, encoding="utf-8")
        elif not target.is_file() or target.read_text(encoding="utf-8") != text:
            sys.stderr.write(f"{name} is not what the code says: run python scripts/sidecar_schema.py\n")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
