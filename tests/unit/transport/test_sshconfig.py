"""~/.ssh/config and a site's login facts become one target."""

from pathlib import Path

import pytest

from siteannex.errors import AnnexError
from siteannex.site.schema import Login
from siteannex.transport.places import Places
from siteannex.transport.sshconfig import LoginTarget, parse_jump, resolve


@pytest.fixture
def places(tmp_path: Path) -> Places:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / "etc").mkdir()
    return Places(
        home=tmp_path,
        user="local",
        state=tmp_path / "state",
        runtime=tmp_path / "run",
        agent_socket=Path("/agent.sock"),
        system_ssh=tmp_path / "etc",
    )


def target(
    places: Places, config: str, host: str = "login.lab", *, user: str | None = None, port: int = 22
) -> LoginTarget:
    (places.home / ".ssh/config").write_text(config)
    return resolve("lab", Login(host=host, port=port), places, user=user)


def test_without_a_configuration_the_site_file_and_the_local_user_count(places: Places) -> None:
    found = resolve("lab", Login(host="login.lab", port=2222), places)
    assert (found.host, found.port, found.user) == ("login.lab", 2222, "local")
    assert found.login == "local@login.lab:2222"
    assert found.known_hosts[0] == places.home / ".ssh/known_hosts"
    assert places.home / ".ssh/id_ed25519" in found.identity_files
    assert not found.identities_named
    assert found.agent_socket == Path("/agent.sock")


def test_the_configuration_refines_the_site_file(places: Places) -> None:
    found = target(
        places,
        """
Host login.lab
  HostName real.lab
  User alice
  Port 2200
  IdentityFile ~/.ssh/lab key
  IdentityFile %d/.ssh/second
  CertificateFile ~/.ssh/lab-cert.pub
  IdentitiesOnly yes
  UserKnownHostsFile ~/.ssh/lab_hosts /dev/null
  HostKeyAlias lab-nodes
Host *
  User nobody
""",
    )
    assert (found.host, found.port, found.user) == ("real.lab", 2200, "alice")
    assert found.identity_files == (places.home / ".ssh/lab key", places.home / ".ssh/second")
    assert found.identities_named
    assert found.certificate_files == (places.home / ".ssh/lab-cert.pub",)
    assert found.identities_only
    assert found.known_hosts == (places.home / ".ssh/lab_hosts", Path("/dev/null"))
    assert found.host_key_name == "lab-nodes"


def test_an_explicit_user_wins(places: Places) -> None:
    assert target(places, "Host *\n  User alice\n", user="bob").user == "bob"


def test_the_users_file_wins_over_the_systems(places: Places) -> None:
    (places.system_ssh / "ssh_config").write_text("Host *\n  User system\n  Port 99\n")
    found = target(places, "Host login.lab\n  User mine\n")
    assert (found.user, found.port) == ("mine", 99)


def test_includes_are_followed_and_do_not_leak_their_last_block(places: Places) -> None:
    (places.home / ".ssh/conf.d").mkdir()
    (places.home / ".ssh/conf.d/a").write_text("Host login.lab\n  User included\nHost elsewhere\n")
    found = target(places, "Include conf.d/*\nPort 2201\nHost other\n  Port 1\n")
    assert (found.user, found.port) == ("included", 2201)


def test_an_include_of_itself_ends(places: Places) -> None:
    assert target(places, "Include config\nHost *\n  User loop\n").user == "loop"


def test_jumps_are_resolved_in_their_own_right(places: Places) -> None:
    found = target(
        places,
        """
Host login.lab
  ProxyJump carol@gate:8822,inner
Host gate
  HostName gate.example.org
  IdentityFile ~/.ssh/gate
Host inner
  User dave
""",
        user="bob",
    )
    assert [jump.login for jump in found.jumps] == ["carol@gate.example.org:8822", "dave@inner"]
    assert found.jumps[0].identity_files == (places.home / ".ssh/gate",)
    assert found.user == "bob"


def test_a_jump_host_may_be_behind_a_jump_host(places: Places) -> None:
    found = target(places, "Host login.lab\n  ProxyJump b\nHost b\n  ProxyJump a\n")
    assert [jump.host for jump in found.jumps] == ["a", "b"]


def test_jumps_in_circles_are_named(places: Places) -> None:
    with pytest.raises(AnnexError) as raised:
        target(places, "Host login.lab\n  ProxyJump b\nHost b\n  ProxyJump login.lab\n")
    assert raised.value.failure.code == "ssh-config-invalid"
    assert "login.lab -> b -> login.lab" in raised.value.failure.summary


def test_proxy_commands_have_their_words_filled_in(places: Places) -> None:
    found = target(places, "Host login.lab\n  ProxyCommand nc %h %p\n  Port 2222\n")
    assert found.proxy_command == "nc login.lab 2222"


@pytest.mark.parametrize("config", ["Host *\n  ProxyJump none\n", "Host *\n  ProxyCommand none\n"])
def test_none_means_no_proxy(places: Places, config: str) -> None:
    found = target(places, config)
    assert found.jumps == ()
    assert found.proxy_command is None


def test_an_agent_can_be_named_or_forbidden(places: Places) -> None:
    assert target(places, "Host *\n  IdentityAgent none\n").agent_socket is None
    named = target(places, "Host *\n  IdentityAgent ~/.agent\n")
    assert named.agent_socket == places.home / ".agent"


@pytest.mark.parametrize("config", ["Host *\n  ???\n", "CanonicalizeHostname yes\n"])
def test_what_is_not_understood_is_said(places: Places, config: str) -> None:
    with pytest.raises(AnnexError) as raised:
        target(places, config)
    assert raised.value.failure.code == "ssh-config-invalid"
    assert raised.value.failure.evidence


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("gate", (None, "gate", None)),
        ("me@gate:8822", ("me", "gate", 8822)),
        ("ssh://me@gate:22/", ("me", "gate", 22)),
        ("[::1]:22", (None, "::1", 22)),
        ("::1", (None, "::1", None)),
        ("a@b@gate", ("a@b", "gate", None)),
    ],
)
def test_hops(text: str, parts: tuple[str | None, str, int | None]) -> None:
    assert parse_jump(text) == parts


def jumps(places: Places, config: str, jump: str, *, user: str | None = None) -> list[str]:
    (places.home / ".ssh/config").write_text(config)
    found = resolve("lab", Login(host="login.lab", jump=jump), places, user=user)
    return [hop.login for hop in found.jumps]


def test_a_site_file_may_name_the_host_on_the_way(places: Places) -> None:
    assert jumps(places, "", "gate.lab:8822") == ["local@gate.lab:8822"]
    assert jumps(places, "", "gate.lab", user="u.ab1") == ["u.ab1@gate.lab"]
    assert jumps(places, "", "guest@gate.lab", user="u.ab1") == ["guest@gate.lab"]
    assert jumps(places, "Host gate.lab\n  Port 2200\n", "gate.lab") == ["local@gate.lab:2200"]


def test_the_configurations_way_wins_over_the_site_files(places: Places) -> None:
    assert jumps(places, "Host login.lab\n  ProxyJump mine.lab\n", "gate.lab") == ["local@mine.lab"]
    assert jumps(places, "Host login.lab\n  ProxyJump none\n", "gate.lab") == []
    assert jumps(places, "Host login.lab\n  ProxyCommand nc %h %p\n", "gate.lab") == []
