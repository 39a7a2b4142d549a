"""Runs on the AP: log in at the site over SSH and print what was asked, as JSON.

``python3 login.py USER PASSWORD ANSWER KEYFILE``; ANSWER goes to any prompt that does not ask for the password.
"""

import json
import sys

import paramiko


def main(user: str, password: str, answer: str, keyfile: str) -> None:
    """Drive one login by key and then keyboard-interactive, whichever the server still wants."""
    asked: list[tuple[str, bool]] = []

    def respond(_title: str, _instructions: str, prompts: list[tuple[str, bool]]) -> list[str]:
        asked.extend(prompts)
        return [password if prompt.startswith("Password") else answer for prompt, _echo in prompts]

    transport = paramiko.Transport(("login.lab", 22))
    transport.start_client()
    said: dict[str, object] = {}
    try:
        if keyfile:
            transport.auth_publickey(user, paramiko.Ed25519Key.from_private_key_file(keyfile))
        if not transport.is_authenticated():
            transport.auth_interactive(user, respond)
        channel = transport.open_session()
        channel.exec_command("id -un")
        said["out"] = channel.makefile().read().decode()
        said["err"] = channel.makefile_stderr().read().decode()
    except paramiko.AuthenticationException as error:
        said["refused"] = str(error)
    banner = transport.get_banner()
    said |= {"asked": asked, "banner": banner.decode() if banner else ""}
    transport.close()
    print(json.dumps(said))


main(*sys.argv[1:5])
