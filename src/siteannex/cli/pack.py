"""`siteannex pack`."""

from __future__ import annotations

from typing import Annotated

import typer

EXAMPLES = """\b
Examples:
  siteannex pack
  siteannex pack --from condor-25.14.1-aarch64.tar.gz --sha256 0f3c...
"""


def pack(
    source: Annotated[str | None, typer.Option("--from", help="An HTCondor release tarball: file or URL.")] = None,
    sha256: Annotated[str | None, typer.Option(help="Its checksum; required with --from.")] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Pack the EP software that is shipped to sites.

    It is this AP's HTCondor, or a release tarball.

    What was packed last is what `up` ships to sites of its architecture.
    """
    import json
    from dataclasses import asdict

    from siteannex.annex.pack import choose, pack_installed, pack_release
    from siteannex.transport.places import Places
    from siteannex.units import format_bytes

    if source is not None and sha256 is None:
        raise typer.BadParameter("give the tarball's checksum: --sha256 SUM", param_hint="--sha256")
    cache = Places.from_environment().state / "ep"
    software = pack_release(source, sha256, cache) if source and sha256 else pack_installed(cache)
    choose(software if source else None, software.arch, cache)
    if json_output:
        print(json.dumps(asdict(software), indent=1))
    else:
        print(f"EP {software.version} {software.arch}, {format_bytes(software.size_bytes)}, sha256 {software.sha256}")
        print(software.path)
