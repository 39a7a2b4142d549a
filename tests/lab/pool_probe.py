"""Runs on the AP as its user, from tests/lab/test_pool.py: asks the pool adapter and prints what it said as JSON."""

import json
import sys
from collections.abc import Callable
from dataclasses import asdict

from siteannex.errors import AnnexError
from siteannex.model import Join
from siteannex.pool import tokens
from siteannex.pool.condor import CondorPool
from siteannex.pool.doctor import run_doctor


def stand_in(pool: CondorPool, join: Join, mark: str) -> str:
    """Advertise (and later take away) a slot ad with nothing but an issued token. Returns the ad's name."""
    import classad2
    import htcondor2

    facts = pool.facts(join)
    where = htcondor2.Collector(facts.collector, htcondor2.SecurityContext(pool.issue_token(join, 60).reveal()))
    ad = classad2.ClassAd()
    ad.update(
        {
            "MyType": "Machine",
            "Name": f"slot1@{mark}-{join}",
            "Machine": "stand-in.lab",
            "MyAddress": "<192.0.2.1:9618>",
            "State": "Drained",
            "Activity": "Retiring",
            "Start": False,
            "AnnexName": mark,
            "SiteannexRequestId": mark,
            "Cpus": 4,
            "TotalSlotGPUs": 2,
        }
    )
    where.advertise([ad], "UPDATE_STARTD_AD")
    return str(ad["Name"])


def take_away(pool: CondorPool, join: Join, name: str) -> None:
    """Invalidate a stand-in ad."""
    import classad2
    import htcondor2

    facts = pool.facts(join)
    where = htcondor2.Collector(facts.collector, htcondor2.SecurityContext(pool.issue_token(join, 60).reveal()))
    query = classad2.ClassAd()
    query.update({"MyType": "Query", "TargetType": "Machine", "Name": name})
    query["Requirements"] = classad2.ExprTree(f'Name == "{name}"')
    where.advertise([query], "INVALIDATE_STARTD_ADS")


def main() -> None:
    """pool_probe.py QUESTION [ARGUMENT...]"""
    question, *arguments = sys.argv[1:]
    pool = CondorPool()
    questions: dict[str, Callable[..., object]] = {
        "facts": lambda join: asdict(pool.facts(Join(join))),
        "token": lambda join, lifetime: asdict(tokens.decode(pool.issue_token(Join(join), int(lifetime)))),
        "slots": lambda *annex_id: [asdict(slot) for slot in pool.slots(*annex_id)],
        "counts": lambda *names: {name: asdict(count) for name, count in pool.job_counts(names).items()},
        "doctor": lambda: [asdict(check) for check in run_doctor(pool)],
        "stand-in": lambda join, mark: stand_in(pool, Join(join), mark),
        "take-away": lambda join, name: take_away(pool, Join(join), name),
    }
    try:
        answer = questions[question](*arguments)
    except AnnexError as error:
        answer = {"failure": asdict(error.failure)}
    finally:
        pool.close()
    print(json.dumps(answer, default=str))


if __name__ == "__main__":
    main()
