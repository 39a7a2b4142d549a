"""known_hosts as OpenSSH writes and reads it."""

import base64
import stat
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siteannex.transport.hostkeys import (
    Trust,
    fingerprint,
    host_name,
    judge,
    names_host,
    parse_known,
    preferred_algorithms,
    read_known,
    remember,
)

ED = base64.b64encode(b"\0\0\0\x0bssh-ed25519 one").decode()
OTHER = base64.b64encode(b"\0\0\0\x0bssh-ed25519 two").decode()
SOURCE = Path("/home/alice/.ssh/known_hosts")


@pytest.fixture(scope="session")
def key_pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "host"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return path


def test_the_fingerprint_is_the_one_ssh_keygen_prints(key_pair: Path) -> None:
    printed = subprocess.run(
        ["ssh-keygen", "-lf", f"{key_pair}.pub"], check=True, capture_output=True, text=True
    ).stdout
    blob = base64.b64decode(Path(f"{key_pair}.pub").read_text().split()[1])
    assert fingerprint(blob) == printed.split()[1]


def test_a_name_hashed_by_ssh_keygen_is_found(tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.write_text(f"[login.lab]:2222 ssh-ed25519 {ED}\n")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(known)], check=True, capture_output=True)
    assert "login.lab" not in known.read_text()
    verdict = judge(read_known([known]), "[login.lab]:2222", "ssh-ed25519", ED)
    assert verdict.trust is Trust.KNOWN


def test_a_key_we_remember_is_found_by_ssh_keygen(tmp_path: Path, key_pair: Path) -> None:
    known = tmp_path / "ssh" / "known_hosts"
    kind, text, *_ = Path(f"{key_pair}.pub").read_text().split()
    remember(known, "[login.lab]:2222", kind, text)
    found = subprocess.run(
        ["ssh-keygen", "-F", "[login.lab]:2222", "-f", str(known)], check=True, capture_output=True, text=True
    )
    assert text in found.stdout
    assert stat.S_IMODE(known.stat().st_mode) == 0o600
    assert stat.S_IMODE(known.parent.stat().st_mode) == 0o700


def test_remembering_does_not_glue_lines_together(tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.write_text(f"a ssh-ed25519 {ED}")
    remember(known, "b", "ssh-ed25519", OTHER)
    assert known.read_text() == f"a ssh-ed25519 {ED}\nb ssh-ed25519 {OTHER}\n"


@pytest.mark.parametrize(
    ("hosts", "name", "hit"),
    [
        ("login.lab", "login.lab", True),
        ("LOGIN.lab,10.0.0.1", "login.lab", True),
        ("*.sdsc.edu,!bad.sdsc.edu", "login.sdsc.edu", True),
        ("*.sdsc.edu,!bad.sdsc.edu", "bad.sdsc.edu", False),
        ("[login.lab]:2222", "[login.lab]:2222", True),
        ("[login.lab]:2222", "login.lab", False),
        ("login.lab", "[login.lab]:2222", False),
        ("l?gin.lab", "login.lab", True),
        ("|1|damaged", "login.lab", False),
        ("|1|!!!|???", "login.lab", False),
    ],
)
def test_first_fields(hosts: str, name: str, hit: bool) -> None:
    assert names_host(hosts, name) is hit


def test_names_off_port_22_carry_the_port() -> None:
    assert host_name("Login.Lab", 22) == "login.lab"
    assert host_name("login.lab", 2222) == "[login.lab]:2222"


@pytest.mark.parametrize(
    ("text", "trust"),
    [
        (f"login.lab ssh-ed25519 {ED}", Trust.KNOWN),
        (f"login.lab ssh-ed25519 {ED} alice@laptop", Trust.KNOWN),
        (f"login.lab ssh-ed25519 {OTHER}", Trust.CHANGED),
        (f"login.lab ssh-ed25519 {OTHER}\nlogin.lab ssh-ed25519 {ED}", Trust.KNOWN),
        (f"login.lab ecdsa-sha2-nistp256 {OTHER}", Trust.UNKNOWN),
        (f"other.lab ssh-ed25519 {ED}", Trust.UNKNOWN),
        (f"@revoked login.lab ssh-ed25519 {ED}", Trust.REVOKED),
        (f"@revoked * ssh-ed25519 {ED}\nlogin.lab ssh-ed25519 {ED}", Trust.REVOKED),
        (f"@cert-authority *.lab ssh-ed25519 {OTHER}", Trust.UNKNOWN),
        (f"# login.lab ssh-ed25519 {OTHER}", Trust.UNKNOWN),
        ("login.lab ssh-ed25519 not-base64!", Trust.UNKNOWN),
        ("", Trust.UNKNOWN),
    ],
)
def test_verdicts(text: str, trust: Trust) -> None:
    assert judge(parse_known(text, SOURCE), "login.lab", "ssh-ed25519", ED).trust is trust


def test_a_changed_key_points_at_its_line() -> None:
    known = parse_known(f"# head\n\nlogin.lab ssh-ed25519 {OTHER}\n", SOURCE)
    (line,) = judge(known, "login.lab", "ssh-ed25519", ED).lines
    assert line.where == f"{SOURCE}:3"
    assert line.fingerprint.startswith("SHA256:")


def test_known_key_types_are_negotiated_first() -> None:
    offered = ("ssh-ed25519", "ecdsa-sha2-nistp256", "rsa-sha2-512", "rsa-sha2-256")
    known = parse_known(f"login.lab ssh-rsa {OTHER}\nlogin.lab ecdsa-sha2-nistp256 {ED}", SOURCE)
    assert preferred_algorithms(known, "login.lab", offered) == (
        "rsa-sha2-512",
        "rsa-sha2-256",
        "ecdsa-sha2-nistp256",
        "ssh-ed25519",
    )
    assert preferred_algorithms(known, "elsewhere", offered) == offered


@given(st.text())
def test_any_text_can_be_a_known_hosts_file(text: str) -> None:
    judge(parse_known(text, SOURCE), "login.lab", "ssh-ed25519", ED)


def test_unreadable_files_count_as_empty(tmp_path: Path) -> None:
    assert read_known([tmp_path / "absent", tmp_path]) == []
