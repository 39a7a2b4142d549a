"""The same request at many sites: those that fit first, the others with what came closest."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from siteannex.annex.compare import as_data, offer, table, with_trial
from siteannex.scheduler.starts import Trial
from siteannex.site.schema import Caps, Scheduler, Site
from tests.unit.samples import NOW, TODAY, partition, request, site


def test_a_site_that_fits_says_what_it_brings_and_one_that_does_not_says_what_would() -> None:
    small = site(name="small", partitions={"gpu": partition(caps=Caps(gpus_per_user=2))})
    rows = table([offer(request(gpus=4), each, TODAY) for each in (small, site())], NOW)
    assert rows == [
        ("lab", "gpu-shared: 1 x 4 a100 (39.6 GB)", "4 GPU-h", "-"),
        ("small", "no: gpu: at most 2 GPUs a user, 4 needed (--gpus 2 fits)", "-", "-"),
    ]


def test_what_starts_first_stands_first_and_a_schedulers_refusal_is_its_own_words() -> None:
    plain = offer(request(), site(), TODAY)
    soon = with_trial(plain, Trial(NOW + timedelta(minutes=5)))
    refused = with_trial(plain, Trial(None, "Invalid account"))
    rows = table([refused, with_trial(plain, Trial(NOW)), soon], NOW)
    assert [row[3].partition(" (")[0].partition(" ")[0] for row in rows] == ["now", "about", "refused:"]
    assert rows[2][3] == "refused: Invalid account"
    assert as_data(soon)["start"] == (NOW + timedelta(minutes=5)).isoformat()


def test_no_account_is_needed_to_compare() -> None:
    assert offer(request(), replace_account(None), TODAY).plan is not None


def test_a_site_without_gpus_says_so() -> None:
    plain = site(partitions={"cpu": site().partitions["debug"]})
    [row] = table([offer(request(), plain, TODAY)], NOW)
    assert row[1] == "no: cpu: no GPUs here"
    assert as_data(offer(replace(request(), partition="nowhere"), plain, TODAY))["reason"].startswith("no partition")


def replace_account(account: str | None) -> Site:
    return site(account=account, scheduler=Scheduler(account_required=True))
