"""The user's SSH keys, as candidates: agent first, then files; private parts are opened only when a site wants them."""

from __future__ import annotations

import base64
import contextlib
import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from paramiko.agent import AgentKey, AgentSSH
from paramiko.ecdsakey import ECDSAKey
from paramiko.ed25519key import Ed25519Key
from paramiko.pkey import PKey
from paramiko.rsakey import RSAKey
from paramiko.ssh_exception import SSHException

from siteannex.errors import Secret
from siteannex.transport.dialogue import KeyCandidate
from siteannex.transport.sshconfig import LoginTarget

AskPassphrase = Callable[[Path], Secret | None]
_PASSPHRASE_TRIES = 3
_MAGIC = b"openssh-key-v1\0"


@dataclass(frozen=True, slots=True)
class AgentCandidate:
    """A key in ssh-agent."""

    label: str
    key_type: str
    blob: bytes
    key: AgentKey

    def unlock(self) -> PKey | None:
        """The agent signs."""
        return self.key


@dataclass(frozen=True, slots=True)
class FileCandidate:
    """A key file, perhaps with a certificate and perhaps locked by a passphrase."""

    path: Path
    key_type: str
    blob: bytes
    ask: AskPassphrase

    @property
    def label(self) -> str:
        """The file's path."""
        return str(self.path)

    def unlock(self) -> PKey | None:
        """Open the file; a wrong passphrase is asked again a few times (nothing of it reaches the site)."""
        if (key := self._opened(None)) is not None:
            return key
        for _ in range(_PASSPHRASE_TRIES):
            passphrase = self.ask(self.path)
            if passphrase is None or not passphrase.reveal():
                return None
            if (key := self._opened(passphrase.reveal())) is not None:
                return key
        return None

    def _opened(self, passphrase: str | None) -> PKey | None:
        for kind in _classes_for(self.key_type):
            with contextlib.suppress(OSError, SSHException, ValueError, TypeError):
                return kind.from_private_key_file(str(self.path), passphrase)
        return None


class Agent(AgentSSH):
    """The ssh-agent at one socket (paramiko's own looks only at this process's environment)."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(30)
        try:
            self._socket.connect(str(path))
            self._connect(self._socket)  # type: ignore[attr-defined]  # there is no public way in
        except BaseException:
            self._socket.close()
            raise

    def close(self) -> None:
        """Let the agent go."""
        self._socket.close()


@contextlib.contextmanager
def key_candidates(target: LoginTarget, ask: AskPassphrase) -> Iterator[list[KeyCandidate]]:
    """The keys to offer, best first: named files' keys that the agent holds, other agent keys, then files."""
    files = list(_file_candidates(target, ask))
    agent = None
    if target.agent_socket is not None:
        with contextlib.suppress(OSError, SSHException):
            agent = Agent(target.agent_socket)
    try:
        yield _ordered(target, _agent_candidates(agent), files)
    finally:
        if agent is not None:
            agent.close()


def _ordered(target: LoginTarget, held: list[AgentCandidate], files: list[FileCandidate]) -> list[KeyCandidate]:
    named = {candidate.blob for candidate in files}
    matching = [key for key in held if key.blob in named]
    others = [] if target.identities_only else [key for key in held if key.blob not in named]
    in_agent = {key.blob for key in matching}
    rest = [candidate for candidate in files if candidate.blob not in in_agent]
    if target.identities_named:
        return [*matching, *rest, *others]
    return [*matching, *others, *rest]


def _agent_candidates(agent: Agent | None) -> list[AgentCandidate]:
    if agent is None:
        return []
    return [
        AgentCandidate(f"agent: {key.comment or key.name}", key.name, bytes(key.blob), key) for key in agent.get_keys()
    ]


def _file_candidates(target: LoginTarget, ask: AskPassphrase) -> Iterator[FileCandidate]:
    for path in target.identity_files:
        if not path.is_file():
            continue
        public = public_part(path)
        if public is None:
            if b"ENCRYPTED" in path.read_bytes()[:400]:
                yield FileCandidate(path, "", b"", ask)
            continue
        certificates = (Path(f"{path}-cert.pub"), *target.certificate_files)
        for certificate in certificates:
            found = _public_line(certificate)
            if found is not None and _certifies(found, public):
                yield FileCandidate(path, *found, ask)
        yield FileCandidate(path, *public, ask)


def public_part(path: Path) -> tuple[str, bytes] | None:
    """Key type and public blob of a private key file, without its passphrase; None when there is no usable key."""
    try:
        text = path.read_bytes()
    except OSError:
        return None
    if b"BEGIN OPENSSH PRIVATE KEY" in text:
        return _openssh_public(text)
    if b"PRIVATE KEY" not in text:
        return None
    with contextlib.suppress(OSError, SSHException, ValueError, TypeError):
        key = PKey.from_path(path)
        return key.get_name(), key.asbytes()
    return _public_line(Path(f"{path}.pub"))


def _openssh_public(text: bytes) -> tuple[str, bytes] | None:
    """PROTOCOL.key of OpenSSH: magic, cipher, kdf, kdf options, number of keys, then the public key, in the clear."""
    try:
        body = base64.b64decode(b"".join(line for line in text.splitlines() if not line.startswith(b"-")))
        if not body.startswith(_MAGIC):
            return None
        rest = body[len(_MAGIC) :]
        for _ in range(3):
            _, rest = _string(rest)
        blob, _ = _string(rest[4:])
        kind, _ = _string(blob)
        return kind.decode("ascii"), blob
    except (ValueError, struct.error):
        return None


def _public_line(path: Path) -> tuple[str, bytes] | None:
    try:
        kind, text, *_ = path.read_text(encoding="utf-8", errors="replace").split()
        return kind, base64.b64decode(text)
    except (OSError, ValueError):
        return None


def _certifies(certificate: tuple[str, bytes], public: tuple[str, bytes]) -> bool:
    """A certificate holds, after its name and a nonce, the fields of the plain key."""
    kind, blob = certificate
    if not kind.endswith("-cert-v01@openssh.com") or not kind.startswith(public[0]):
        return False
    try:
        _, rest = _string(blob)
        _, rest = _string(rest)
        _, fields = _string(public[1])
    except struct.error:
        return False
    return rest.startswith(fields)


def _string(data: bytes) -> tuple[bytes, bytes]:
    (length,) = struct.unpack_from(">I", data)
    if length > len(data) - 4:
        raise struct.error("string runs past the end")
    return data[4 : 4 + length], data[4 + length :]


def _classes_for(key_type: str) -> tuple[type[PKey], ...]:
    every: dict[str, type[PKey]] = {"ed25519": Ed25519Key, "ecdsa": ECDSAKey, "rsa": RSAKey}
    fitting = tuple(kind for name, kind in every.items() if name in key_type)
    return fitting or tuple(every.values())
