"""Write docs/experiment.schema.json from the model of experiment files, or check (`--check`) that it is up to date."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from siteannex.training.experiment.model import Experiment

TARGET = Path(__file__).resolve().parent.parent / "docs" / "experiment.schema.json"


def page() -> str:
    """The whole file: what an editor checks an experiment file with."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Experiment.model_json_schema(mode="validation"),
        "title": "siteannex experiment file",
    }
    return json.dumps(schema, indent=1) + "\n"


def main() -> int:
    """Write or check; the exit status."""
    if "--check" not in sys.argv:
        TARGET.write_text(page(), encoding="utf-8")
        return 0
    if TARGET.is_file() and TARGET.read_text(encoding="utf-8") == page():
        return 0
    print(
        "docs/experiment.schema.json is not what the model says; run: python scripts/experiment_schema.py",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
