"""Write docs/provenance-sidecar.schema.json from siteannex.training.sidecar, or `--check` that it is so."""

import json
import sys
from pathlib import Path

from siteannex.training.sidecar import schema

TARGET = Path(__file__).resolve().parent.parent / "docs" / "provenance-sidecar.schema.json"


def main() -> int:
    """Exit status."""
    text = json.dumps(schema(), indent=2) + "\n"
    if "--check" not in sys.argv:
        TARGET.write_text(text, encoding="utf-8")
        return 0
    if TARGET.is_file() and TARGET.read_text(encoding="utf-8") == text:
        return 0
    sys.stderr.write(f"{TARGET.name} is not what the code says: run python scripts/sidecar_schema.py\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
