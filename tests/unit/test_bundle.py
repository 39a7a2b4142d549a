"""The rendered bundle: against golden files, safe to quote, the same each time, and silent about its token."""

from __future__ import annotations

import io
import re
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siteannex.annex.bundle import (
    BUNDLE_LIMIT_BYTES,
    Bundle,
    bundle_archive,
    drain_notice_s,
    endgame,
    pilot_files,
    render_bundle,
    shell_path,
)
from siteannex.errors import Secret
from siteannex.model import Join, PilotShape, PoolFacts
from siteannex.scheduler.slurm import submit_options
from siteannex.site.partitions import Gpus, NodeKind
from siteannex.site.schema import Directories, EpTweaks, Site
from tests.unit.samples import POOL_FACTS, node, partition, plan, request, site, software

GOLDEN = Path(__file__).parent.parent / "golden"
TOKEN = Secret("eyJhbGciOiJIUzI1NiJ9.eyJpYXQiOjF9.c2VjcmV0LXNpZ25hdHVyZQ")
DIRECT = replace(POOL_FACTS, collector="ap.lab:9618?sock=ap_collector", join=Join.DIRECT)
BUSY_SITE = site(
    ep=EpTweaks(
        config=("GPU_DISCOVERY_EXTRA = -simulate:4,4",),
        environment=("module load singularitypro",),
        network_interface="172.18.*",
    ),
    directories=Directories(home="$HOME/my annex", scratch=("/scratch/$USER/job_$SLURM_JOB_ID", "/tmp")),
)
H100 = node(name="h100", gpus=Gpus(type="h100", model="NVIDIA H100", per_node=4, memory=81559))
OPTIONS = submit_options(plan(), partition(), drain_notice_s=drain_notice_s(plan()))


def rendered(where: Site | None = None, pool: PoolFacts = POOL_FACTS) -> Bundle:
    return render_bundle(plan(), where or site(), pool, software(), TOKEN, OPTIONS)


@pytest.mark.parametrize(
    ("golden", "name", "bundle"),
    [
        ("bundle-pool-batch.sh", "batch.sh", rendered()),
        ("bundle-pool-ep.conf", "ep.conf", rendered()),
        ("bundle-pool-params.sh", "params.sh", rendered()),
        ("bundle-direct-busy-site-batch.sh", "batch.sh", rendered(BUSY_SITE, DIRECT)),
        ("bundle-direct-busy-site-ep.conf", "ep.conf", rendered(BUSY_SITE, DIRECT)),
        ("bundle-direct-busy-site-params.sh", "params.sh", rendered(BUSY_SITE, DIRECT)),
    ],
)
def test_what_goes_to_a_site_is_what_was_reviewed(golden: str, name: str, bundle: Bundle) -> None:
    assert bundle.files[name] == (GOLDEN / golden).read_text()


def test_without_gpus_asked_none_is_looked_for() -> None:
    cpu_plan = plan(shape=PilotShape(0, None, 4, 8192))
    conf = render_bundle(cpu_plan, site(), POOL_FACTS, software(), TOKEN, OPTIONS).files["ep.conf"]
    assert "use feature:GPUs" not in conf
    assert "STARTD_DETECT_GPUS = False" in conf


@pytest.mark.parametrize(("version", "security"), [("23.9.6", "recommended_v9_0"), ("24.0.1", "recommended")])
def test_the_security_recipe_is_one_the_version_knows(version: str, security: str) -> None:
    bundle = render_bundle(plan(), site(), POOL_FACTS, replace(software(), version=version), TOKEN, OPTIONS)
    assert f"use security:{security}\n" in bundle.files["ep.conf"]


def test_the_archive_is_the_same_bytes_small_and_private() -> None:
    first, second = bundle_archive(rendered()), bundle_archive(rendered())
    assert first == second
    assert len(first) < BUNDLE_LIMIT_BYTES
    with tarfile.open(fileobj=io.BytesIO(first)) as tar:
        modes = {member.name: member.mode for member in tar}
        token = tar.extractfile("token")
        assert token is not None
        assert token.read().decode().strip() == TOKEN.reveal()
    assert modes == {
        "batch.sh": 0o700,
        "ep.conf": 0o600,
        "origin": 0o600,
        "params.sh": 0o700,
        **dict.fromkeys(pilot_files(), 0o700),
        "token": 0o600,
    }


def test_a_bundle_never_shows_its_token() -> None:
    bundle = rendered()
    assert TOKEN.reveal() not in repr(bundle) + str(bundle)
    assert all(TOKEN.reveal() not in text for text in bundle.files.values())
    assert "secret-signature" not in repr(bundle)


def test_a_bundle_too_big_to_be_cheap_is_refused() -> None:
    words = " ".join(f"{number:x}" for number in range(1, 10**18, 10**14))
    with pytest.raises(ValueError, match="more than 65536"):
        bundle_archive(Bundle({"ep.conf": words}, TOKEN))


@pytest.mark.parametrize(
    "change",
    [
        {"request": request(name="two words")},
        {"request": request(name='a"b')},
        {"request": request(name="-n")},
        {"request": request(name="x" * 64)},
        {"annex_id": "../../etc"},
        {"annex_id": "a;b"},
        {"annex_id": ""},
    ],
)
def test_names_that_could_do_harm_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="cannot be written"):
        render_bundle(plan(**change), site(), POOL_FACTS, software(), TOKEN, OPTIONS)


@pytest.mark.parametrize(
    "facts",
    [
        replace(POOL_FACTS, identity='alice" || true || "'),
        replace(POOL_FACTS, identity="alice"),
        replace(POOL_FACTS, collector="ap.lab:9618\nALLOW_WRITE = *"),
        replace(POOL_FACTS, collector="$(touch x)"),
        replace(POOL_FACTS, schedd="a b"),
        replace(POOL_FACTS, join=Join.AUTO),
    ],
)
def test_facts_that_could_do_harm_are_refused(facts: PoolFacts) -> None:
    with pytest.raises(ValueError, match=r"cannot be written|must be decided"):
        render_bundle(plan(), site(), facts, software(), TOKEN, OPTIONS)


@pytest.mark.parametrize("option", ["--time=1:00\n#SBATCH --mail-user=x", "rm", ""])
def test_an_option_is_one_line_and_an_option(option: str) -> None:
    with pytest.raises(ValueError, match="not one sbatch option"):
        render_bundle(plan(), site(), POOL_FACTS, software(), TOKEN, [option])


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=60))
def test_a_path_is_one_word_to_a_shell_and_only_plain_variables_expand(text: str) -> None:
    script = f"printf %s {shell_path(text)}"
    answer = subprocess.run(
        ["/bin/sh", "-c", script], env={"HOME": "/home/alice"}, capture_output=True, check=True
    ).stdout.decode()
    expected = re.sub(
        r"\$([A-Za-z_][A-Za-z0-9_]*)|\$\{([A-Za-z_][A-Za-z0-9_]*)\}",
        lambda found: {"HOME": "/home/alice"}.get(found[1] or found[2], "?"),
        text,
    )
    assert answer == expected or "?" in expected


def test_a_path_expands_what_the_site_sets_and_runs_nothing() -> None:
    text = shell_path('$HOME/a "b" `id` $(id) ${HOME}x')
    answer = subprocess.run(
        ["/bin/sh", "-c", f"printf %s {text}"], env={"HOME": "/h"}, capture_output=True, text=True, check=True
    )
    assert answer.stdout == '/h/a "b" `id` $(id) /hx'


@given(st.integers(60, 30 * 86400))
def test_the_end_comes_in_order_and_leaves_time_to_work(walltime_s: int) -> None:
    end = endgame(walltime_s)
    assert walltime_s > end.start_until_s > end.notice_s > end.evict_s > end.fast_s >= 6
    assert 0 < end.vacate_s <= end.evict_s - end.fast_s
    assert drain_notice_s(plan(walltime_s=walltime_s)) == end.notice_s
    assert end.start_until_s <= max(36, walltime_s * 0.15)


@pytest.mark.parametrize(
    ("nodes", "gpu_request", "promised"),
    [
        ((node(),), "--gres=gpu:{type}:{count}", ("'NVIDIA A100-SXM4-40GB'", 40536)),
        ((node(), H100), "--gres=gpu:{type}:{count}", ("'NVIDIA A100-SXM4-40GB'", 40536)),
        ((node(), H100), "--gpus={count}", ("''", 0)),
    ],
)
def test_a_gpu_model_is_promised_only_where_slurm_is_asked_for_it(
    nodes: tuple[NodeKind, ...], gpu_request: str, promised: tuple[str, int]
) -> None:
    where = site(partitions={"gpu-shared": partition(nodes=nodes, gpu_request=gpu_request)})
    params = rendered(where).files["params.sh"]
    assert f"P_GPU_MODEL={promised[0]}\nP_GPU_MEMORY_MIB={promised[1]}\n" in params


@pytest.mark.parametrize("bundle", [rendered(), rendered(BUSY_SITE, DIRECT)])
def test_rendered_shell_passes_shellcheck(bundle: Bundle, tmp_path: Path) -> None:
    for name in ("batch.sh", "params.sh"):
        (tmp_path / name).write_text(bundle.files[name])
        shell = "sh" if name == "params.sh" else None
        words = ["shellcheck", "-e", "SC2034", *(["-s", shell] if shell else []), str(tmp_path / name)]
        checked = subprocess.run(words, capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stdout


def test_whose_annex_it_is_stands_in_the_directory_and_in_the_ads() -> None:
    bundle = render_bundle(plan(), site(), POOL_FACTS, software(), TOKEN, OPTIONS, origin="ap.lab/0123abcd")
    assert bundle.files["origin"] == "ap.lab/0123abcd\n"
    assert 'SiteannexOrigin = "ap.lab/0123abcd"\n' in bundle.files["ep.conf"]
    with pytest.raises(ValueError, match="origin"):
        render_bundle(plan(), site(), POOL_FACTS, software(), TOKEN, OPTIONS, origin='ap"\nlab/0123abcd')
