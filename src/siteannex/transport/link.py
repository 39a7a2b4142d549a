"""From a LoginTarget to an SSH connection whose host key is trusted: TCP, ProxyCommand, jump channels, key exchange."""

from __future__ import annotations

import base64
import contextlib
import logging
import socket
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import replace
from typing import IO, cast

from paramiko.channel import Channel
from paramiko.ssh_exception import ChannelException, IncompatiblePeer, SSHException
from paramiko.transport import Transport

from siteannex.errors import AnnexError, Evidence
from siteannex.failures import fail
from siteannex.ports import Prompter
from siteannex.transport import hostkeys
from siteannex.transport.dialogue import LoginConnection
from siteannex.transport.sshconfig import LoginTarget

CONNECT_TIMEOUT_S = 15.0
BANNER_TIMEOUT_S = 20.0
KEEPALIVE_S = 30
DEAD_AFTER_MS = 90_000
"""Unacknowledged data for so long means a dead link (TCP_USER_TIMEOUT, tcp(7))."""
_LOG = "siteannex.transport.ssh"


def open_link(site: str, target: LoginTarget, prompter: Prompter, through: Transport | None) -> LoginConnection:
    """Connect and check the host key. Raises AnnexError: host-unresolvable, host-unreachable, not-ssh, host-key-*."""
    if through is not None:
        stream: socket.socket | Channel = _jump(site, target, through)
    elif target.proxy_command:
        return _through_proxy(site, target, prompter)
    else:
        stream = _tcp(site, target)
    return _closing(stream, lambda: _handshake(site, target, stream, prompter))


def _closing(stream: socket.socket | Channel, then: Callable[[], LoginConnection]) -> LoginConnection:
    try:
        return then()
    except BaseException:
        stream.close()
        raise


def _through_proxy(site: str, target: LoginTarget, prompter: Prompter) -> LoginConnection:
    with tempfile.TemporaryFile() as complaints:
        stream = _proxy(site, target, complaints)
        try:
            return _closing(stream, lambda: _handshake(site, target, stream, prompter))
        except AnnexError as error:
            complaints.seek(0)
            said = complaints.read().decode("utf-8", "replace")
            if not said.strip():
                raise
            seen = Evidence.tail(f"ProxyCommand {target.proxy_command}", said)
            raise AnnexError(replace(error.failure, evidence=(*error.failure.evidence, seen))) from error


def _tcp(site: str, target: LoginTarget) -> socket.socket:
    name = f"{target.host}:{target.port}"
    try:
        found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except OSError as problem:
        raise fail(
            "host-unresolvable",
            site,
            f"the name {target.host} does not resolve",
            evidence=[Evidence.tail(f"resolving {target.host}", str(problem))],
        ) from problem
    tried: list[str] = []
    patience_s, hint = target.connect_timeout_s or CONNECT_TIMEOUT_S, None
    for family, kind, protocol, _, address in found:
        stream = socket.socket(family, kind, protocol)
        try:
            stream.settimeout(patience_s)
            stream.connect(address)
        except OSError as problem:
            stream.close()
            tried.append(f"{' port '.join(map(str, address[:2]))}: {_words(problem, patience_s)}")
            hint = _what_then(problem)
            continue
        _keep_honest(stream)
        return stream
    raise fail(
        "host-unreachable",
        site,
        f"{name} does not answer",
        evidence=[Evidence.tail(f"connecting to {name}", "\n".join(dict.fromkeys(tried)))],
        hint=hint,
    )


def _keep_honest(stream: socket.socket) -> None:
    with contextlib.suppress(OSError):
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_AFTER_MS)


def _words(problem: OSError, patience_s: float) -> str:
    if isinstance(problem, TimeoutError) and problem.errno is None:
        return f"no answer in {patience_s:.0f} s"
    return f"{problem.strerror or problem}" + (f" (errno {problem.errno})" if problem.errno else "")


def _what_then(problem: OSError) -> str:
    if isinstance(problem, ConnectionRefusedError):
        return "The host is up and nothing listens at that port: maintenance, or a wrong port in the site's file."
    if isinstance(problem, TimeoutError):
        return "The host is down, or a firewall drops what you send (a VPN may be needed): see the site's status page."
    return "The host or its network is down: see the site's status page, and check your own network."


def _jump(site: str, target: LoginTarget, through: Transport) -> Channel:
    try:
        return through.open_channel(
            "direct-tcpip", (target.host, target.port), ("127.0.0.1", 0), timeout=CONNECT_TIMEOUT_S
        )
    except (SSHException, OSError, EOFError) as problem:
        words = problem.text if isinstance(problem, ChannelException) else str(problem)
        raise fail(
            "host-unreachable",
            site,
            f"the jump host does not reach {target.host}:{target.port}",
            evidence=[Evidence.tail("jump host, direct-tcpip", words)],
        ) from problem


def _proxy(site: str, target: LoginTarget, complaints: IO[bytes]) -> socket.socket:
    assert target.proxy_command is not None
    ours, theirs = socket.socketpair()
    try:
        # The outer shell ends at once, so that nobody has to wait for the proxy; the proxy ends with its socket.
        # fd 3 because a shell gives /dev/null to what it runs in the background.
        script = 'exec 3<&0; ( exec /bin/sh -c "exec $0" <&3 3<&- ) &'
        subprocess.run(
            ["/bin/sh", "-c", script, target.proxy_command],
            stdin=theirs.fileno(),
            stdout=theirs.fileno(),
            stderr=complaints,
            check=False,
            start_new_session=True,
        )
    except OSError as problem:
        ours.close()
        raise fail("host-unreachable", site, f"ProxyCommand does not start: {problem}") from problem
    finally:
        theirs.close()
    return ours


def _handshake(site: str, target: LoginTarget, stream: socket.socket | Channel, prompter: Prompter) -> LoginConnection:
    known = hostkeys.read_known((*target.known_hosts, *target.system_known_hosts))
    name = hostkeys.host_name(target.host_key_name, target.port)
    connection = LoginConnection(cast("socket.socket", stream))
    _silence(connection)
    connection.banner_timeout = BANNER_TIMEOUT_S
    options = connection.get_security_options()
    options.key_types = hostkeys.preferred_algorithms(known, name, options.key_types)
    try:
        connection.start_client(timeout=BANNER_TIMEOUT_S + 15)
        key = connection.get_remote_server_key()
    except (SSHException, OSError, EOFError) as problem:
        connection.close()
        raise _no_ssh(site, target, connection, problem) from problem
    try:
        check_host_key(site, target, (key.get_name(), key.asbytes()), prompter)
    except BaseException:
        connection.close()
        raise
    connection.set_keepalive(KEEPALIVE_S)
    return connection


def _silence(connection: LoginConnection) -> None:
    """paramiko logs tracebacks of its reading thread; what matters of them is in our failures."""
    logger = logging.getLogger(_LOG)
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    connection.set_log_channel(_LOG)


def _no_ssh(site: str, target: LoginTarget, connection: LoginConnection, problem: Exception) -> AnnexError:
    name = f"{target.host}:{target.port}"
    words = connection.disconnect_words or str(problem) or type(problem).__name__
    evidence = [Evidence.tail(f"SSH handshake with {name}", words)]
    if isinstance(problem, IncompatiblePeer):
        return fail(
            "login-method-unsupported",
            site,
            f"{name} and siteannex share no SSH algorithm",
            evidence=evidence,
        )
    if connection.remote_version:
        return fail("link-broken", site, f"{name} ended the connection during the key exchange", evidence=evidence)
    if connection.foreign_greeting:
        evidence.append(Evidence.tail(f"{name} said", connection.foreign_greeting))
        return fail("not-ssh", site, f"what answers at {name} does not speak SSH", evidence=evidence)
    if connection.kept_silent:
        return fail(
            "not-ssh",
            site,
            f"{name} accepts connections and does not greet as SSH within {BANNER_TIMEOUT_S:.0f} s",
            evidence=evidence,
        )
    return fail(
        "host-unreachable",
        site,
        f"{name} closes the connection before it greets",
        evidence=evidence,
        hint="The host is overloaded or shuts out your address for a while (after refused logins): try later.",
    )


def check_host_key(site: str, target: LoginTarget, key: tuple[str, bytes], prompter: Prompter) -> None:
    """Trust a known key, ask about an unknown one, refuse a changed or revoked one. `key` is (type, wire form)."""
    kind, blob = key
    text = base64.b64encode(blob).decode()
    name = hostkeys.host_name(target.host_key_name, target.port)
    known = hostkeys.read_known((*target.known_hosts, *target.system_known_hosts))
    verdict = hostkeys.judge(known, name, kind, text)
    print_now = hostkeys.fingerprint(blob)
    if verdict.trust is hostkeys.Trust.KNOWN:
        return
    if verdict.trust is not hostkeys.Trust.UNKNOWN:
        raise _untrusted(site, name, kind, print_now, verdict)
    if verdict.lines:
        others = ", ".join(f"{line.key_type} ({line.where})" for line in verdict.lines)
        prompter.tell(f"{name} is known by keys of another type: {others}. It now shows only {kind}.")
    for family, published in target.published_keys.items():
        if family in kind:
            prompter.tell(_compared(family, published, print_now))
    if not prompter.confirm_host_key(name, kind, print_now):
        raise fail(
            "host-key-unknown",
            site,
            f"the {kind} key of {name} is not in known_hosts and was not accepted",
            evidence=[Evidence.tail(f"host key of {name}", f"{kind} {print_now}")],
        )
    _remember(target, name, kind, text, prompter)


def _compared(family: str, published: str, shown: str) -> str:
    if published == shown:
        return f"The site file has this {family} key: {published}"
    return f"The site file has another {family} key: {published}. It may be old; ask the site before you say yes."


def _remember(target: LoginTarget, name: str, kind: str, text: str, prompter: Prompter) -> None:
    if not target.known_hosts:
        return
    try:
        hostkeys.remember(target.known_hosts[0], name, kind, text)
    except OSError as problem:
        prompter.tell(f"The key could not be written to {target.known_hosts[0]}: {problem}")


def _untrusted(site: str, name: str, kind: str, print_now: str, verdict: hostkeys.Verdict) -> AnnexError:
    recorded = "\n".join(f"{line.where}: {line.key_type} {line.fingerprint}" for line in verdict.lines)
    revoked = verdict.trust is hostkeys.Trust.REVOKED
    what = "is marked revoked in known_hosts" if revoked else "is not the one in known_hosts"
    first = verdict.lines[0]
    return fail(
        "host-key-changed",
        site,
        f"the {kind} key of {name} {what}",
        evidence=[
            Evidence.tail(f"host key of {name} now", f"{kind} {print_now}"),
            Evidence.tail("known_hosts", recorded),
        ],
        hint=None
        if revoked
        else (
            "Ask the site whether it changed its keys. Only if it did: "
            f"ssh-keygen -f {first.source} -R '{name}', then log in again."
        ),
    )
