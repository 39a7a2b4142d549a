"""One login serves everything that follows, over few channels."""

from __future__ import annotations

from tests.lab.ground import Ground
from tests.lab.person import Person


def _channels(person: Person) -> int:
    [session] = person.types("sessions", "--json").json()
    return int(session["channels_opened"])


def test_one_authentication_and_few_channels(alice: Person, ground: Ground) -> None:
    ground.at("login1", "rm -rf ~alice/.siteannex")
    before = ground.logins()
    first = alice.types("up", "lab", "--gpus", "1")
    assert first.status == 0, first.text
    assert "EP software already" not in first.text
    assert ground.logins() == before + 1
    assert _channels(alice) <= 6

    for command, expected in {
        ("status", "lab", "--remote"): "RUNNING",
        ("logs", "lab", "--file", "StartLog"): "STARTING UP",  # of a living EP, from its node
        ("down", "lab", "--now"): "released",
    }.items():
        done = alice.types(*command)
        assert done.status == 0, done.text
        assert expected in done.text
        assert done.answers == ()
    assert ground.logins() == before + 1

    alice.types("logout", "lab")
    second = alice.types("up", "lab", "--gpus", "1")
    assert second.status == 0, second.text
    assert "EP software already" in second.text
    assert ground.logins() == before + 2
    assert _channels(alice) <= 4


def test_logout_ends_the_session_and_nothing_else(alice: Person, ground: Ground) -> None:
    assert alice.types("login", "lab").answers == ("known", "password", "code")
    assert "alice@login.lab" in alice.types("sessions").text
    assert "ended: lab" in alice.types("logout", "lab").text
    assert alice.types("sessions").text.startswith("No session is held")
    alice.types("logout", "--all")
    holders = ground.wait_for(
        lambda: ground.at("ap", "pgrep -u alice -f holder || true"), lambda seen: not seen, within_s=10
    )
    assert holders == ""


def test_secrets_are_nowhere(alice: Person, ground: Ground) -> None:
    """Neither the password nor the token is in an argument list, a log, an event or the screen."""
    password = alice.lab.password("alice")
    child = alice.start("up", "lab", "--gpus", "1")
    arguments = ""
    shown = ""
    while True:
        index = child.expect([r"\(yes/no\) ", r"Password: ", r"Verification code: ", r"ready ", r"\r\n"])
        shown += str(child.before)
        arguments += ground.at("ap", "ps -eo args=")
        if index == 3:
            break
        if index < 3:
            child.sendline(alice.answer(("known", "password", "code")[index]))
    child.expect_exact("new jobs")
    child.close()
    token = ground.at("login1", "cat ~alice/.siteannex/annex/*/token")
    arguments += "".join(ground.at(host, "ps -eo args=") for host in ("login1", "c1", "c2"))
    state = ground.at("ap", "find ~alice/.local/state/siteannex -type f -name '*' ! -name '*.tar.gz' -exec cat {} +")
    for place, text in {"arguments": arguments, "state": state, "screen": shown}.items():
        assert password not in text, f"the password is in {place}"
        assert token not in text, f"the token is in {place}"
        assert token.split(".")[-1] not in text, f"the token's signature is in {place}"
    modes = ground.at("ap", "find ~alice/.local/state/siteannex ! -type s -printf '%m %y %p\\n'").splitlines()
    assert {line.split()[0] for line in modes if " f " in line} == {"600"}
    assert {line.split()[0] for line in modes if " d " in line} == {"700"}
    assert ground.at("login1", "stat -c %a ~alice/.siteannex/annex/*/token") == "600"
