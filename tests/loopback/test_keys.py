"""Keys from a real ssh-agent and from files that a real ssh-keygen wrote."""

from __future__ import annotations

import base64
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import paramiko
import pytest

from siteannex.errors import Secret
from siteannex.ports import Command
from siteannex.transport.keys import key_candidates, public_part
from siteannex.transport.places import Places
from siteannex.transport.ssh import connect
from siteannex.transport.sshconfig import resolve
from tests.loopback.people import Person, loopback_site
from tests.loopback.sshd import LoopbackSshd, Script


def make_key(path: Path, *, kind: str = "ed25519", passphrase: str = "", pem: bool = False) -> paramiko.PKey:
    """A key pair by ssh-keygen; returns the public half as the server knows it."""
    path.parent.mkdir(exist_ok=True, parents=True)
    words = ["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-f", str(path), "-C", f"{path.name} of alice"]
    subprocess.run([*words, *(["-m", "PEM"] if pem else [])], check=True)
    kind, blob, *_ = path.with_name(f"{path.name}.pub").read_text().split()
    return paramiko.PKey.from_type_string(kind, base64.b64decode(blob))


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Path]:
    """A running ssh-agent without keys."""
    path = tmp_path / "agent.sock"
    with subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.DEVNULL) as process:
        while not path.exists():
            time.sleep(0.01)
        yield path
        process.terminate()


def agent_add(agent: Path, key: Path) -> None:
    subprocess.run(["ssh-add", "-q", str(key)], check=True, env={"SSH_AUTH_SOCK": str(agent)})


def log_in(sshd: LoopbackSshd, places: Places, person: Person) -> None:
    transport = connect(loopback_site(sshd.port), user=None, prompter=person, places=places)
    assert transport.run([Command("true")])[0].ok
    transport.close()


def test_a_key_in_the_agent(sshd: LoopbackSshd, places: Places, agent: Path, tmp_path: Path) -> None:
    key = make_key(tmp_path / "elsewhere/id")
    agent_add(agent, tmp_path / "elsewhere/id")
    sshd.script = Script(methods=(("publickey",),), keys=[key])
    log_in(sshd, replace(places, agent_socket=agent), Person([]))


def test_an_agent_that_is_gone_is_passed_over(sshd: LoopbackSshd, places: Places, tmp_path: Path) -> None:
    key = make_key(places.home / ".ssh/id_ed25519")
    sshd.script = Script(methods=(("publickey",),), keys=[key])
    log_in(sshd, replace(places, agent_socket=tmp_path / "no-agent"), Person([]))


def test_identities_only_leaves_the_agents_other_keys_out(places: Places, agent: Path, tmp_path: Path) -> None:
    make_key(places.home / ".ssh/named")
    make_key(tmp_path / "other")
    agent_add(agent, places.home / ".ssh/named")
    agent_add(agent, tmp_path / "other")
    config = places.home / ".ssh/config"

    def labels(text: str) -> list[str]:
        config.write_text(text)
        target = resolve("loop", loopback_site(22).login, replace(places, agent_socket=agent))
        with key_candidates(target, lambda _: None) as found:
            return [candidate.label for candidate in found]

    assert labels("IdentityFile ~/.ssh/named\nIdentitiesOnly yes\n") == ["agent: named of alice"]
    assert labels("IdentityFile ~/.ssh/named\n") == ["agent: named of alice", "agent: other of alice"]
    assert labels("") == ["agent: named of alice", "agent: other of alice"]


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
@pytest.mark.parametrize("passphrase", ["", "open sesame"])
def test_files_of_every_kind(sshd: LoopbackSshd, places: Places, kind: str, passphrase: str) -> None:
    key = make_key(places.home / f".ssh/id_{kind}", kind=kind, passphrase=passphrase)
    sshd.script = Script(methods=(("publickey",),), keys=[key])
    person = Person([("Passphrase", passphrase)])
    log_in(sshd, places, person)
    assert len(person.asked) == (1 if passphrase else 0)


@pytest.mark.parametrize("kind", ["ecdsa", "rsa"])
def test_old_pem_files_locked_and_without_their_public_half(sshd: LoopbackSshd, places: Places, kind: str) -> None:
    path = places.home / f".ssh/id_{kind}"
    key = make_key(path, kind=kind, passphrase="open sesame", pem=True)
    path.with_name(f"id_{kind}.pub").unlink()
    sshd.script = Script(methods=(("publickey",),), keys=[key])
    log_in(sshd, places, Person([("Passphrase", "open sesame")]))


def test_a_wrong_passphrase_is_asked_again_and_the_site_never_knows(sshd: LoopbackSshd, places: Places) -> None:
    key = make_key(places.home / ".ssh/id_ed25519", passphrase="open sesame")
    sshd.script = Script(methods=(("publickey",),), keys=[key])
    typed = iter(["wrong", "open sesame"])

    class Forgetful(Person):
        def ask(self, prompt: object) -> Secret:
            return Secret(next(typed))

    log_in(sshd, places, Forgetful())
    assert list(typed) == []


def test_a_certificate_is_offered_before_its_plain_key(places: Places, tmp_path: Path) -> None:
    make_key(tmp_path / "ca")
    make_key(places.home / ".ssh/id_ed25519")
    subprocess.run(
        ["ssh-keygen", "-q", "-s", str(tmp_path / "ca"), "-I", "alice", str(places.home / ".ssh/id_ed25519.pub")],
        check=True,
    )
    target = resolve("loop", loopback_site(22).login, places)
    with key_candidates(target, lambda _: None) as found:
        assert [candidate.key_type for candidate in found] == ["ssh-ed25519-cert-v01@openssh.com", "ssh-ed25519"]


def test_another_keys_certificate_is_not_taken(places: Places, tmp_path: Path) -> None:
    make_key(tmp_path / "ca")
    make_key(tmp_path / "other")
    make_key(places.home / ".ssh/id_ed25519")
    subprocess.run(["ssh-keygen", "-q", "-s", str(tmp_path / "ca"), "-I", "x", str(tmp_path / "other.pub")], check=True)
    (tmp_path / "other-cert.pub").rename(places.home / ".ssh/id_ed25519-cert.pub")
    target = resolve("loop", loopback_site(22).login, places)
    with key_candidates(target, lambda _: None) as found:
        assert [candidate.key_type for candidate in found] == ["ssh-ed25519"]


@pytest.mark.parametrize(
    "text", [b"", b"garbage", b"-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n", b"\xff\xfe PRIVATE KEY"]
)
def test_damaged_key_files_are_passed_over(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(text)
    assert public_part(path) is None
