"""The boot script of an EC2 instance: its end comes first, it holds no secret, and each failing step is told and ends
the instance. It really runs here, under dash and bash, with the instance's programs as stand-ins."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import subprocess
import tarfile
from pathlib import Path

import pytest

from siteannex.cloud.boot import SHOWN, USER_DATA_LIMIT_BYTES, Download, user_data
from siteannex.cloud.plan import plan_cloud
from siteannex.errors import AnnexError
from siteannex.failures import FAILURES
from tests.unit.test_cloud_plan import ASKED, AWS

PLAN = plan_cloud(ASKED, AWS)


def script(software: Download = SHOWN, bundle: Download = SHOWN, *, gpus: int = 1, annex_id: str = "aws-1") -> str:
    return user_data(PLAN, annex_id, gpus=gpus, scratch="/opt/dlami/nvme", software=software, bundle=bundle)


STANDINS = {
    "systemd-run": "",
    "shutdown": "",
    "systemctl": "",
    "useradd": "",
    "chown": "",
    "iptables": "",
    "mountpoint": "exit 1",
    "lsblk": "",
    "nvidia-smi": "echo 'GPU 0: NVIDIA L40S (UUID: GPU-1)'",
    "runuser": 'shift 3; exec "$@"',
    "aws": """case "$*" in *get-parameter*) echo the-token ;; esac""",
    "sleep": """[ "$(grep -c '^sleep' "$CALLS")" -lt 16 ] || kill "$PPID" """,
    "curl": """
case "$*" in
*api/token) echo session ;;
*instance-id) cat >>"$CALLS"; echo i-0abc ;;
*instance-action) exit 22 ;;
*meta-data/*) echo known ;;
*-K*) while [ "$1" != -o ]; do shift; done
      case $(cat) in *software*) printf software >"$2" ;; *) cp "$HERE/bundle.tar.gz" "$2" ;; esac ;;
esac""",
}


class Instance:
    """A directory where the script runs; `change` replaces a stand-in."""

    def __init__(self, root: Path) -> None:
        self.root, self.bin = root, root / "bin"
        self.bin.mkdir()
        for name, text in STANDINS.items():
            self.change(name, text)
        with tarfile.open(root / "bundle.tar.gz", "w:gz") as tar:
            tar.addfile(tarfile.TarInfo("pilot.sh"), io.BytesIO())
        bundle = hashlib.sha256((root / "bundle.tar.gz").read_bytes()).hexdigest()
        self.downloads = (
            Download("https://x.example/software", hashlib.sha256(b"software").hexdigest()),
            Download("https://x.example/bundle", bundle),
        )

    def change(self, name: str, text: str) -> None:
        stand_in = self.bin / name
        stand_in.write_text(f'#!/bin/sh\nprintf "%s\\n" "${{0##*/}} $*" >>"$CALLS"\n{text}\n')
        stand_in.chmod(0o755)

    def boot(self, shell: str, *, gpus: int = 1) -> list[dict[str, str]]:
        text = script(*self.downloads, gpus=gpus)
        for name, value in {"UNITS": self.root, "CONSOLE": self.root / "console", "BASE": self.root / "base"}.items():
            text, changed = re.subn(rf"^{name}=.*$", f"{name}={value}", text, flags=re.MULTILINE)
            assert changed == 1
        environment = {"PATH": f"{self.bin}:{os.environ['PATH']}", "CALLS": str(self.root / "calls")}
        subprocess.run(
            [shell, "-c", text], env={**environment, "HERE": str(self.root)}, check=False, timeout=120, text=True
        )
        lines = (self.root / "console").read_text().splitlines()
        return [json.loads(line.removeprefix("siteannex ")) for line in lines]

    @property
    def calls(self) -> list[str]:
        return (self.root / "calls").read_text().splitlines()


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    return Instance(tmp_path)


def test_the_first_act_is_the_end_and_it_is_poweroff() -> None:
    acts = [line for line in script().splitlines() if line and not line.startswith("#")]
    assert acts[0].startswith("systemd-run --unit=siteannex-ttl --on-active=21600 --timer-property=AccuracySec=1s")
    assert acts[0].endswith("systemctl poweroff ||")
    assert not re.search(r"^[^#]*\bhalt\b", script(), re.MULTILINE)


def test_it_is_small_and_passes_shellcheck_for_dash_and_bash(tmp_path: Path) -> None:
    assert len(script().encode()) < USER_DATA_LIMIT_BYTES
    file = tmp_path / "boot.sh"
    file.write_text(script())
    for shell in ("dash", "bash"):
        checked = subprocess.run(["shellcheck", "-s", shell, str(file)], capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stdout


def test_a_script_that_would_be_too_large_is_refused_before_anything_is_launched() -> None:
    with pytest.raises(AnnexError) as raised:
        script(Download(f"https://x.example/{'a' * USER_DATA_LIMIT_BYTES}", "0" * 64))
    assert raised.value.failure.code == "user-data-too-large"


@pytest.mark.parametrize(
    ("software", "annex_id"),
    [
        (SHOWN, "a b"),
        (SHOWN, "$(reboot)"),
        (Download("http://plain.example/x", "0" * 64), "aws-1"),
        (Download("https://x.example/'; reboot '", "0" * 64), "aws-1"),
        (Download("https://x.example/x", "short"), "aws-1"),
    ],
)
def test_what_does_not_belong_in_a_script_is_not_written_into_one(software: Download, annex_id: str) -> None:
    with pytest.raises(ValueError, match="cannot be written"):
        script(software, annex_id=annex_id)


def test_every_code_it_reports_is_in_the_catalogue_under_the_stage_it_reports() -> None:
    codes = set(re.findall(r"\bfail ([a-z]+(?:-[a-z]+)+)", script()))
    assert len(codes) > 6
    assert {code: str(FAILURES[code].stage) for code in codes} == {
        code: "EP_CONFIG" if code.startswith("gpus-") else "EP_START" for code in codes
    }


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_a_healthy_instance_starts_the_ep_and_sends_its_pilots_lines_on(instance: Instance, shell: str) -> None:
    line = '{"stage":"READY","code":"ok"}'
    progress = instance.root / "base" / "annex" / "aws-1" / "progress" / "i-0abc.jsonl"
    instance.change("systemctl", f"""case "$*" in "start siteannex-ep"*) echo '{line}' >>{progress} ;; esac""")
    reports = instance.boot(shell)
    assert [(each["stage"], each["code"]) for each in reports] == [("BATCH_JOB", "ok"), ("READY", "ok")]
    assert reports[0]["job"] == "i-0abc"
    assert instance.calls[0].startswith("systemd-run --unit=siteannex-ttl")
    assert "X-aws-ec2-metadata-token: session" in instance.calls, "IMDSv2, by stdin"
    assert not any("session" in call for call in instance.calls if call.startswith("curl"))
    fence = instance.calls.index(
        "iptables -w 10 -I OUTPUT -d 169.254.169.254 -m owner ! --uid-owner 0 -j REJECT"
    )  # before the token comes, and before anything of the user's runs
    assert fence < next(n for n, call in enumerate(instance.calls) if "get-parameter" in call)
    token = instance.root / "base" / "annex" / "aws-1" / "token"
    assert token.read_text() == "the-token\n"
    assert token.stat().st_mode & 0o077 == 0
    unit = (instance.root / "siteannex-ep.service").read_text()
    assert "User=siteannex" in unit
    assert "Restart=no" in unit
    assert re.search(r"ExecStopPost=\+/bin/sh -c 'sleep \d+; systemctl poweroff'", unit)
    assert (instance.root / "siteannex-rebooted.service").exists()


@pytest.mark.parametrize(
    ("program", "text", "code"),
    [
        ("curl", "exit 7", "instance-metadata-silent"),
        ("nvidia-smi", "echo 'NVIDIA-SMI has failed'; exit 9", "gpus-none"),
        ("nvidia-smi", "echo 'No devices were found'", "gpus-none"),
        ("iptables", "echo 'No such file'; exit 3", "instance-metadata-open"),
        ("aws", "echo ParameterNotFound >&2; exit 254", "ep-token-missing"),
        (
            "lsblk",
            'case "$*" in -dnpo*) echo "/dev/none Amazon EC2 NVMe Instance Storage" ;; *NAME*) echo none ;; esac',
            "scratch-unusable",
        ),
        ("systemctl", 'case "$*" in "start siteannex-ep"*) exit 1 ;; esac', "ep-binary-broken"),
        ("curl", STANDINS["curl"].replace("printf software", "printf damaged"), "ep-software-damaged"),
        ("curl", STANDINS["curl"].replace("*-K*)", "*-K*) echo 404 >&2; exit 22 ;;\n*-K*)"), "ep-fetch-failed"),
    ],
)
def test_a_step_that_fails_is_told_and_ends_the_instance(
    instance: Instance, program: str, text: str, code: str
) -> None:
    instance.change(program, text)
    instance.change("blkid", "exit 2")
    instance.change("mkfs.ext4", "exit 1")
    last = instance.boot("dash")[-1]
    assert (last["code"], last["stage"]) == (code, FAILURES[code].stage)
    assert instance.calls[-1] == "systemctl poweroff"
    assert "start siteannex-ep" not in " ".join(instance.calls) or code == "ep-binary-broken"


def test_fewer_gpus_than_planned_are_told(instance: Instance) -> None:
    last = instance.boot("dash", gpus=4)[-1]
    assert last["code"] == "gpus-missing"
    assert last["text"].startswith("1 of 4 GPUs")


def test_an_interruption_notice_drains_the_ep_once(instance: Instance) -> None:
    instance.change("curl", STANDINS["curl"].replace("exit 22", "echo action"))
    reports = instance.boot("dash")
    assert [each["stage"] for each in reports].count("DRAIN") == 1
    assert "systemctl kill --kill-who=main --signal=USR1 siteannex-ep.service" in instance.calls


def test_a_disk_that_is_in_use_is_never_formatted(instance: Instance) -> None:
    disk = 'case "$*" in -dnpo*) echo "/dev/none Amazon EC2 NVMe Instance Storage" ;; *NAME*) echo none ;;'
    instance.change("lsblk", f"{disk} *) echo '/data ext4' ;; esac")
    instance.change("mkfs.ext4", "")
    instance.boot("dash")
    assert not any(call.startswith("mkfs") for call in instance.calls)
