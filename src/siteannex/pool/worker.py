"""The one place that imports HTCondor's bindings: a child process that answers questions in JSON, one line each.

A process of its own because the bindings cannot be bounded in time from within: with a name server that does not
answer, even `import htcondor2` sits in C code for minutes. Here the kernel's alarm ends the process, whatever it is
doing, and the asking side (link.py) goes on. It also keeps the bindings' start-up time and their debug output, which
has the real reason of a failure ("Connection refused"), apart from the command line.

Run as a file, with nothing of siteannex imported. Protocol, on stdin and a duplicate of stdout:
    {"op": "query", "limit_s": 15, ...}  ->  {"ok": [...]}  or  {"error": "text"}
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

Answer = Any
"""What JSON can carry."""


def main() -> None:
    """Answer until stdin closes."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever the bindings print must not mix with the answers
    for line in sys.stdin:
        question = json.loads(line)
        signal.alarm(int(question.pop("limit_s")))
        answers.write(json.dumps(answer(question)) + "\n")
        answers.flush()
        signal.alarm(0)


def answer(question: dict[str, Any]) -> dict[str, Answer]:
    """Do one operation; any error of the bindings becomes text."""
    try:
        import htcondor2

        htcondor2.enable_debug("D_ALWAYS D_FAILURE")
        operation = _OPERATIONS[question.pop("op")]
        return {"ok": operation(htcondor2, **question)}
    except Exception as error:  # the bindings raise many kinds; all are answers here
        return {"error": f"{type(error).__name__}: {error}"}


def _config(condor: Any, *, names: list[str]) -> Answer:
    found = {}
    for name in names:
        try:
            found[name] = str(condor.param[name])
        except KeyError:
            found[name] = ""
    return {"params": found, "bindings": condor.version()}


def _schedd(condor: Any, *, keep: list[str]) -> Answer:
    return _kept(_plain(condor.Collector().locate(condor.DaemonType.Schedd)), keep)


def _ping(condor: Any, *, address: str, level: str) -> Answer:
    return _plain(condor.ping(address, level))


def _query(condor: Any, *, pool: str, kind: str, constraint: str, keep: list[str]) -> Answer:
    """Ads of a collector (`pool` "" is the configured one); `keep` names attributes, `X*` all that begin with X."""
    collector = condor.Collector(pool or None)
    ads = collector.query(getattr(condor.AdType, kind), constraint or None)
    return [_kept(_plain(ad), keep) for ad in ads]


def _withdraw(condor: Any, *, pool: str, constraint: str) -> Answer:
    """Ask a collector to forget ads: those of slots, of startds (apart since HTCondor 23) and of masters."""
    import classad2

    for kind, target in (("STARTD", "Machine"), ("STARTD", "StartD"), ("MASTER", "DaemonMaster")):
        asked = classad2.ClassAd({"MyType": "Query", "TargetType": target})
        asked["Requirements"] = classad2.ExprTree(constraint)
        condor.Collector(pool or None).advertise([asked], f"INVALIDATE_{kind}_ADS")
    return True


def _jobs(condor: Any, *, schedd: dict[str, str], constraint: str, projection: list[str]) -> Answer:
    return [_kept(_plain(ad), projection) for ad in _at(condor, schedd).query(constraint, projection)]


def _job_ads(condor: Any, *, schedd: dict[str, str], constraint: str, limit: int) -> Answer:
    return [_full(ad) for ad in _at(condor, schedd).query(constraint, [], limit=limit)]


def _demand(
    condor: Any, *, schedd: dict[str, str], constraint: str, alike: list[str], limit: int, projection: list[str]
) -> Answer:
    """Jobs, those that are `alike` in these attributes (`X*`: all that begin with X) counted as one."""
    groups: dict[str, dict[str, Answer]] = {}
    for ad in _at(condor, schedd).query(constraint, projection, limit=limit):
        mark = json.dumps(sorted((key.lower(), str(ad.lookup(key))) for key in ad if _kept({key: 0}, alike)))
        group = groups.setdefault(mark, {"count": 0, "job": None})
        group["count"] += 1
        group["job"] = group["job"] or _full(ad)
    return list(groups.values())


def _history(condor: Any, *, schedd: dict[str, str], constraint: str, keep: list[str]) -> Answer:
    return [_kept(_plain(ad), keep) for ad in _at(condor, schedd).history(constraint, keep, 1)]


def _slot_ads(condor: Any, *, pool: str, constraint: str) -> Answer:
    ads = condor.Collector(pool or None).query(condor.AdType.Startd, constraint or None)
    return [_full(ad) for ad in ads]


def _parse(_: Any, *, ads: list[str]) -> Answer:
    import classad2

    return [_full(classad2.ClassAd(text)) for text in ads]


def _full(ad: Any) -> dict[str, Answer]:
    """An ad to be read (`values`), taken apart (`sources`: what is an expression) and sent back (`text`)."""
    import classad2

    sources = {key: str(ad[key]) for key in ad if isinstance(ad[key], classad2.ExprTree)}
    return {"text": str(ad), "values": _plain(ad), "sources": sources}


def _evaluate(_: Any, *, job: str, cases: list[dict[str, Any]]) -> Answer:
    """For each case (a slot with attributes set anew, and questions), an answer to each question.

    `side` says whose expression it is: the job's, the slot's, or a job's condition on each `gpu`, whose answer is how
    many of the slot's GPUs meet it. `missing` names what it looks up in the other ad and does not find there.
    """
    import classad2

    asking = classad2.ClassAd(job)
    answers = []
    for case in cases:
        slot = classad2.ClassAd(case["slot"])
        for name, text in case["set"].items():
            slot[name] = classad2.ExprTree(text)
        answers.append([_answered(asking, slot, question) for question in case["questions"]])
    return answers


def _answered(job: Any, slot: Any, question: dict[str, str]) -> dict[str, Answer]:
    import classad2

    asked = classad2.ExprTree(question["expr"])
    mine, other = (slot, job) if question["side"] == "slot" else (job, slot)
    outside = [name.split(".")[1] if "." in name else name for name in mine.externalRefs(asked)]
    if question["side"] != "gpu":
        there = {name.lower() for name in other}
        value = asked.eval(mine, other)
    else:
        mine = classad2.ClassAd(str(job))
        mine["RequireGPUs"] = asked
        there = {name.lower() for gpu in _kept(_plain(slot), ["GPUs_GPU_*"]).values() for name in gpu or {}}
        value = classad2.ExprTree("countMatches(MY.RequireGPUs, TARGET.AvailableGPUs)").eval(mine, slot)
    return {"value": _plain_value(value), "missing": [name for name in outside if name.lower() not in there]}


def _at(condor: Any, schedd: dict[str, str]) -> Any:
    import classad2

    place = classad2.ClassAd()
    place.update(schedd)
    return condor.Schedd(place)


def _kept(ad: dict[str, Answer], keep: list[str]) -> dict[str, Answer]:
    names = {name.lower() for name in keep}
    prefixes = tuple(name[:-1].lower() for name in keep if name.endswith("*")) or ("*",)
    return {key: value for key, value in ad.items() if key.lower() in names or key.lower().startswith(prefixes)}


def _plain(ad: Any) -> dict[str, Answer]:
    """An ad with every attribute evaluated; what is undefined or an error becomes None."""
    read: dict[str, Answer] = {}
    for key in ad:
        try:
            read[key] = _plain_value(ad.eval(key))
        except Exception:  # one unreadable attribute must not hide the ad
            read[key] = None
    return read


def _plain_value(value: Any) -> Answer:
    if isinstance(value, list | tuple):
        return [_plain_value(item) for item in value]
    if hasattr(value, "eval") and hasattr(value, "keys"):
        return _plain(value)
    # Value.Undefined and Value.Error are integers by type
    if isinstance(value, bool | float | str) or type(value) is int:
        return value
    return None


_OPERATIONS: dict[str, Callable[..., Answer]] = {
    "config": _config,
    "schedd": _schedd,
    "ping": _ping,
    "query": _query,
    "withdraw": _withdraw,
    "jobs": _jobs,
    "job_ads": _job_ads,
    "demand": _demand,
    "history": _history,
    "slot_ads": _slot_ads,
    "parse": _parse,
    "evaluate": _evaluate,
}


if __name__ == "__main__":
    main()
