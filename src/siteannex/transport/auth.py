"""The login: follows the server's list of methods, asks the person what the server asks, says which step failed.

Nothing is tried twice: a refused password or code ends the login with a failure, because sites lock accounts and
ban addresses for repeated attempts. Only the server itself may ask again within one conversation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import NoReturn, Protocol

from siteannex.errors import AnnexError, Evidence, Secret
from siteannex.failures import fail
from siteannex.ports import Prompt, Prompter
from siteannex.site.schema import Login
from siteannex.transport.dialogue import Answerer, KeyCandidate, LinkLost, NewPasswordWanted, Questions, Reply
from siteannex.transport.prompts import (
    PASSWORD_EXPIRED,
    Trouble,
    account_trouble,
    classify,
    closing_words,
    wants_new_password,
)

KEY_OFFERS = 4
"""sshd ends a connection at the sixth refusal (MaxAuthTries); password and code must still fit in."""
_MENU = re.compile(r"option \(\d+-\d+\)", re.IGNORECASE)
"""The last line of Duo's menu: `Passcode or option (1-3):`."""
_METHODS = ("publickey", "keyboard-interactive", "password")
_REDACT_FROM_CHARS = 4
"""Answers shorter than this are menu options; blanking each "1" would spoil the evidence and hide nothing."""


class LoginDialogue(Protocol):
    """One authentication conversation with a server (`dialogue.Dialogue`, or a script in tests)."""

    def none(self) -> Reply:
        """Ask for nothing, to learn the methods."""

    def offer(self, candidate: KeyCandidate) -> Reply:
        """Offer one key."""

    def password_login(self, password: Secret) -> Reply:
        """Method `password`."""

    def interactive(self, answer: Answerer) -> Reply:
        """Method `keyboard-interactive`."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A question that was answered: its last line, its kind, which round of the conversation it came in."""

    text: str
    kind: str
    round: int
    stored: bool


@dataclass(slots=True)
class Record:
    """What happened so far, in words; never an answer."""

    steps: list[str] = field(default_factory=list)
    banners: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    """What the server wrote after the login began in earnest: instructions, later banners."""
    asked: list[_Asked] = field(default_factory=list)
    """Questions answered in the conversation under way."""
    answers: list[Secret] = field(default_factory=list)

    def evidence(self) -> list[Evidence]:
        """The steps, the server's notices and its banner, with every answer blanked."""
        hide = tuple(secret for secret in self.answers if len(secret.reveal()) >= _REDACT_FROM_CHARS)
        pieces = (
            ("login steps", "; ".join(self.steps)),
            ("the site wrote", "\n".join(self.notices)),
            ("login banner", "\n".join(self.banners)),
        )
        return [Evidence.tail(source, text, hide) for source, text in pieces if text.strip()]


class SiteLogin:
    """One login at one host. `run()` once; afterwards `record` tells the steps."""

    def __init__(
        self,
        site: str,
        login: str,
        facts: Login,
        prompter: Prompter,
        keys: Callable[[], AbstractContextManager[list[KeyCandidate]]],
        stored_password: Secret | None = None,
    ) -> None:
        self._site = site
        self._login = login
        self._facts = facts
        self._prompter = prompter
        self._keys = keys
        self._stored = stored_password
        self._spent: set[str] = set()
        self._offered: list[str] = []
        self._earnest = False
        self.record = Record()

    def on_banner(self, text: str) -> None:
        """Show what the server sends outside a question, and keep it as evidence."""
        (self.record.notices if self._earnest else self.record.banners).append(text.strip())
        self._prompter.tell(text)

    def run(self, dialogue: LoginDialogue) -> None:
        """Log in. Raises AnnexError naming the step that failed."""
        try:
            reply = dialogue.none()
            self._earnest = True
            while not reply.accepted:
                reply = self._step(dialogue, reply)
        except LinkLost as lost:
            self._lost(lost)
        except NewPasswordWanted as wanted:
            self._locked(PASSWORD_EXPIRED, str(wanted))

    def _step(self, dialogue: LoginDialogue, last: Reply) -> Reply:
        method = self._choose(last.allowed)
        if method == "publickey":
            reply = self._offer_keys(dialogue, last)
        elif method == "keyboard-interactive":
            reply = self._converse(dialogue)
        else:
            reply = self._give_password(dialogue)
        if reply.partial:
            self._spent.clear()
            self.record.asked.clear()
            self.record.steps[-1] += ", accepted; the site wants more"
        elif not reply.accepted:
            self._spent.add(method)
            self.record.steps[-1] += ", refused"
            if self.record.asked:
                self._answer_refused()
            if method == "publickey" and self._facts.keys == "required":
                self._keys_refused()
        return reply

    def _choose(self, allowed: Sequence[str]) -> str:
        ours = [method for method in _METHODS if method in allowed]
        if self._facts.keys == "forbidden" and "publickey" in ours:
            ours.remove("publickey")
        left = [method for method in ours if method not in self._spent]
        if left:
            return left[0]
        if "publickey" in self._spent and ours == ["publickey"]:
            self._keys_refused()
        if not ours:
            self._unsupported(allowed)
        self._closed(with_banner=True)
        raise fail(
            "login-refused",
            self._site,
            f"{self._site} refused the login of {self._login} without a question",
            evidence=self.record.evidence(),
        )

    # publickey

    def _offer_keys(self, dialogue: LoginDialogue, last: Reply) -> Reply:
        """Offer keys until one is welcome. When nothing was asked of the server, its last list holds."""
        refused = Reply(accepted=False, allowed=last.allowed)
        with self._keys() as candidates:
            new = [candidate for candidate in candidates if candidate.label not in self._offered]
            self.record.steps.append(f"publickey: {len(new)} keys to offer")
            for candidate in new[:KEY_OFFERS]:
                self._offered.append(candidate.label)
                self.record.steps[-1] = f"publickey: offered {', '.join(self._offered)}"
                reply = dialogue.offer(candidate)
                if reply.accepted or reply.partial:
                    return reply
                if reply.allowed:
                    refused = reply
        return refused

    def _keys_refused(self) -> NoReturn:
        self._closed()
        offered = ", ".join(self._offered)
        summary = (
            f"{self._site} accepted none of your SSH keys for {self._login}: {offered}"
            if offered
            else f"{self._site} wants an SSH key for {self._login}, and none was found in ssh-agent or ~/.ssh"
        )
        raise fail("key-refused", self._site, summary, evidence=self.record.evidence())

    # keyboard-interactive

    def _converse(self, dialogue: LoginDialogue) -> Reply:
        self.record.steps.append("keyboard-interactive")
        self.record.asked.clear()
        rounds = 0

        def answer(questions: Questions) -> list[Secret]:
            nonlocal rounds
            rounds += 1
            return self._answer(questions, rounds)

        return dialogue.interactive(answer)

    def _answer(self, questions: Questions, number: int) -> list[Secret]:
        said = "\n".join(text.strip() for text in (questions.name, questions.instructions) if text.strip())
        if said:
            self.record.notices.append(said)
        if trouble := account_trouble(said):
            self._locked(trouble)
        if not questions.prompts and said:
            self._prompter.tell(said)
        answers = []
        for index, (text, echo) in enumerate(questions.prompts):
            if wants_new_password(text):
                self._locked(PASSWORD_EXPIRED, text)
            before = text.strip().rpartition("\n")[0]  # sshd puts PAM's words (pam_faillock) before the next question
            if trouble := account_trouble(before):
                self._locked(trouble, before)
            answers.append(self._ask(text, echo, said if index == 0 else "", number))
        return answers

    def _ask(self, text: str, echo: bool, instructions: str, number: int) -> Secret:
        kind = classify(text, self._facts.prompts)
        last_line = text.strip().rpartition("\n")[2]
        stored = self._stored if kind == "password" and not echo else None
        if stored is not None:
            self._stored = None
            secret = stored
        else:
            prompt = Prompt(self._site, self._login, text, echo, kind, instructions)
            secret = self._prompter.ask(prompt)
        self.record.answers.append(secret)
        self.record.asked.append(_Asked(last_line, kind, number, stored is not None))
        self.record.steps[-1] += f", answered {last_line!r}" + (" from the keyring" if stored else "")
        return secret

    # password

    def _give_password(self, dialogue: LoginDialogue) -> Reply:
        self.record.steps.append("password")
        self.record.asked.clear()
        secret = self._ask(f"{self._login}'s password: ", False, "", 1)
        return dialogue.password_login(secret)

    # verdicts

    def _answer_refused(self) -> NoReturn:
        """The server judged what a person (or the keyring) answered, and said no."""
        asked = self.record.asked
        if trouble := account_trouble("\n".join(self.record.notices)):
            self._locked(trouble)
        self._closed()
        last = asked[-1]
        passwords = [question for question in asked if question.kind == "password"]
        if last.kind == "password" and not any(question.kind == "otp" for question in asked):
            which = "the password from the keyring" if last.stored else "the password"
            raise self._no("password-refused", which)
        if _MENU.search(last.text):
            no = self._no("code-refused", f"the answer to {last.text!r}")
            raise AnnexError(replace(no.failure, hint="Answer with a number of its menu, or with a passcode."))
        if "otp" in {last.kind, *(q.kind for q in asked if q.round == last.round)}:
            if any(question.round == last.round for question in passwords):
                raise self._no("code-refused", "the password or the code: it judges both together")
            if passwords:
                raise self._no("code-refused", "the code (or the password, if it judges both at the end)")
            raise self._no("code-refused", "the code")
        raise self._no("login-refused", f"the answer to {last.text!r}")

    def _no(self, code: str, what: str) -> AnnexError:
        # `what` names a step, never an answer.
        return fail(code, self._site, f"{self._site} refused {what} of {self._login}", evidence=self.record.evidence())

    def _locked(self, trouble: Trouble, text: str = "") -> NoReturn:
        if text:
            self.record.notices.append(text.strip())
        raise fail(
            trouble.code,
            self._site,
            f"{self._site} says of {self._login}: {trouble.meaning}",
            evidence=self.record.evidence(),
            hint=f"Change it with plain ssh ({_ssh(self._login)}) or on the site's web page, then log in again."
            if trouble is PASSWORD_EXPIRED
            else None,
        )

    def _closed(self, *, with_banner: bool = False, words: str = "") -> None:
        """Raise when the site said that it takes no logins; its banner counts only where nothing else was judged."""
        said = [*self.record.notices, words, *(self.record.banners if with_banner else ())]
        if closed := closing_words("\n".join(said)):
            raise fail(
                "site-maintenance",
                self._site,
                f"{self._site} takes no logins now: {closed}",
                evidence=self.record.evidence(),
            )

    def _lost(self, lost: LinkLost) -> NoReturn:
        if trouble := account_trouble("\n".join([*self.record.notices, lost.words])):
            self._locked(trouble)
        if "too many authentication failures" in lost.words.lower():
            self.record.steps.append(lost.words)
            if self.record.asked:
                self._answer_refused()
            self._keys_refused()
        self._closed(with_banner=not self.record.answers, words=lost.words)
        last = f" after {self.record.steps[-1]}" if self.record.steps else ""
        raise fail(
            "link-broken",
            self._site,
            f"the connection to {self._site} ended in the middle of the login{last}",
            evidence=[Evidence.tail("connection", lost.words), *self.record.evidence()],
            hint="Read what the site wrote: maintenance, or a full login node. Log in again later.",
        )

    def _unsupported(self, allowed: Sequence[str]) -> NoReturn:
        names = ", ".join(allowed) or "nothing"
        summary = (
            f"{self._site} offers only publickey, and its site file says keys: forbidden"
            if "publickey" in allowed
            else f"{self._site} offers {names}, none of which siteannex speaks"
        )
        raise fail("login-method-unsupported", self._site, summary, evidence=self.record.evidence())


def _ssh(login: str) -> str:
    """The plain ssh command for `user@host:port`."""
    host, _, port = login.partition(":")
    return f"ssh -p {port} {host}" if port else f"ssh {host}"
