"""Validate a Workflow Run RO-Crate by the official validator, with nothing from the network.

Runs in `.venv/validator` (scripts/lib.sh). The one remote thing the validator asks for is the context of RO-Crate 1.1:
its cache is given the official one, which travels in the library rocrate 0.10. Exit 1 and the issues, when not valid.

    .venv/validator/bin/python scripts/validate_crate.py CRATE CACHE [RECOMMENDED]
"""

import io
import sys
from pathlib import Path
from typing import Any

import requests
import rocrate
from requests.adapters import HTTPAdapter
from requests_cache import CachedSession
from rocrate_validator.models import Severity, ValidationSettings
from rocrate_validator.services import validate
from urllib3 import HTTPResponse

CONTEXT = "https://w3id.org/ro/crate/1.1/context"


class _Shipped(HTTPAdapter):
    """Answers with the context that the library brings along."""

    def send(self, request: requests.PreparedRequest, *_: Any, **__: Any) -> requests.Response:
        text = (Path(rocrate.__file__).parent / "data" / "ro-crate.jsonld").read_bytes()
        headers = {"Content-Type": "application/ld+json"}
        found = HTTPResponse(io.BytesIO(text), headers, 200, preload_content=False, request_url=CONTEXT)
        return self.build_response(request, found)


def main() -> int:
    """Exit status."""
    crate, cache, *level = sys.argv[1:]
    with CachedSession(cache, expire_after=-1) as session:
        session.mount("https://w3id.org/", _Shipped())
        session.get(CONTEXT)
    settings = ValidationSettings(
        rocrate_uri=crate,
        profile_identifier="workflow-run-crate",
        requirement_severity=Severity[level[0] if level else "REQUIRED"],
        offline=True,
        cache_path=cache,
    )
    result = validate(settings)
    for issue in result.get_issues():
        print(f"{issue.check.identifier} {issue.severity.name}: {issue.message} {issue.violatingEntity or ''}")
    print("validated against " + ", ".join(each.identifier for each in result.context.profiles))
    return 0 if result.passed() else 1


if __name__ == "__main__":
    sys.exit(main())
