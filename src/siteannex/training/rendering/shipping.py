"""The epoch runner as the one file that travels with every job."""

import io
import zipfile
from importlib import resources

NAME = "siteannex-epoch"
_PACKAGE = "siteannex_epoch"
_MAIN = f"import sys\n\nfrom {_PACKAGE}.cli import main\n\nsys.exit(main())\n"


def epoch_runner() -> bytes:
    """An executable Python archive (3.8 or newer, standard library only); the same bytes for the same siteannex."""
    modules = resources.files("siteannex.training.epoch")
    texts = {"__main__.py": _MAIN}
    texts |= {f"{_PACKAGE}/{one.name}": one.read_text() for one in modules.iterdir() if one.name.endswith(".py")}
    made = io.BytesIO()
    # Stored, not deflated: compressed bytes differ from one zlib to the next.
    with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as archive:
        for name, text in sorted(texts.items()):
            archive.writestr(zipfile.ZipInfo(name), text)
    return b"#!/usr/bin/env python3\n" + made.getvalue()
