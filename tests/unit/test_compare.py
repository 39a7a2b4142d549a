"""The same request at many sites: those that fit first, the others with what came closest."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from siteannex.annex.planning.compare import as_data, offer, offers_for_job, table, with_trial
from siteannex.annex.planning.suiting import try_everywhere
from siteannex.scheduler.starts import Trial
from siteannex.site.schema import Caps, Preemption, Scheduler, Site
from tests.unit.paper_queue import JOB, PaperQueue, ad
from tests.unit.samples import NOW, TODAY, partition, plain_partition, request, site


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


def test_a_cheaper_site_stands_before_a_dearer_one_without_gpus_too() -> None:
    whole = site(name="a-whole", partitions={"cpu": plain_partition(sharing="exclusive")})
    shared = site(name="shared", partitions={"cpu": plain_partition()})
    rows = table([offer(request(gpus=0), each, TODAY) for each in (whole, shared)], NOW)
    assert [(row[0], row[2]) for row in rows] == [("shared", "1 core-h"), ("a-whole", "16 core-h")]


def test_a_refused_site_stands_behind_one_that_was_not_asked() -> None:
    refused = with_trial(offer(request(), site(name="a"), TODAY), Trial(None, "Invalid account"))
    assert [row[0] for row in table([refused, offer(request(), site(name="b"), TODAY)], NOW)] == ["b", "a"]


def test_the_reason_is_not_the_short_walltime_of_a_partition_for_tests() -> None:
    parts = {"debug": plain_partition(max_walltime=1800), "cpu": plain_partition(max_walltime=2 * 86400)}
    [row] = table([offer(request(gpus=0, memory_mib=10**6), site(partitions=parts), TODAY)], NOW)
    assert row[1] == "no: cpu: at most 64 GB a node, 976.6 GB asked (--mem 64GB fits)"


def test_a_jobs_offer_of_a_site_is_no_debug_or_preemptible_queue_while_another_fits() -> None:
    parts = {
        "debug": plain_partition(max_walltime=1800),
        "scavenge": plain_partition(preemption=Preemption()),
        "members": plain_partition(restricted="members"),
        "gpu": partition(max_walltime=2 * 86400),
        "cpu": plain_partition(max_walltime=2 * 86400),
    }
    queue = PaperQueue([ad(JOB)], [])
    [found] = offers_for_job(queue.by_id(4711, 0)[0], queue, [site(partitions=parts)], TODAY)
    assert found.plan is not None
    assert found.plan.partition == "cpu"
    tried = try_everywhere(queue.by_id(4711, 0)[0], queue, [site(partitions=parts)], TODAY)
    assert [each.plan.partition for each in tried] == ["cpu", "scavenge", "debug", "gpu"]
