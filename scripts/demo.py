"""The story `scripts/demo` tells, once the lab runs: up, a training job, status, its result, down."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pexpect

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO))

from lab import Lab  # noqa: E402  (the lab is this repository's, not an installed package)

ANSWERS = {r"\(yes/no\) ": "known", r"Password: ": "password", r"Verification code: ": "code"}
JOB_LIMIT_S = 180


class Demo:
    """One run of the story."""

    def __init__(self, lab: Lab, *, answers_itself: bool) -> None:
        self.lab, self.answers_itself = lab, answers_itself

    def tell(self) -> int:
        """All of it; the exit status."""
        say("bring up two GPUs at the site `lab`, as alice on the access point")
        if not self.answers_itself:
            print(f"   password: {self.lab.password('alice')}")
            print(f"   one-time code: in another terminal, SITEANNEX_LAB_STATE={self.lab.folder} lab/lab code alice")
            print(f"   host key: {self._fingerprint()}")
        if status := self.siteannex("up", "lab", "--gpus", "2", "--lifetime", "30m"):
            return status
        try:
            return self._train()
        finally:
            say("take everything down")
            self.siteannex("down", "lab", "--now")
            self.siteannex("logout", "--all")

    def _train(self) -> int:
        say("submit the example training job to it")
        self.shell("rm -rf demo && cp -r /opt/siteannex-src/examples/train demo")
        self.shell("cd demo && condor_submit annex=lab epochs=5 train.sub")
        deadline = time.monotonic() + JOB_LIMIT_S
        shown = False
        while time.monotonic() < deadline:
            left = self.shell("condor_q -af JobStatus", quiet=True).split()
            if not left:
                say("the job is done; what it returned")
                self.shell("cd demo && cat seed1.out seed1-metrics.json && ls -l *.npz")
                say("that was it. Next: README.md, lab/README.md, sites/lab.yaml; on your own AP: siteannex doctor")
                return 0
            if "2" in left and not shown:
                shown = True
                self.siteannex("status", "lab")
            time.sleep(1)
        self.shell("condor_q -better-analyze; tail -n 20 demo/*.log")
        print(f"the job did not finish within {JOB_LIMIT_S} s", file=sys.stderr)
        return 1

    def siteannex(self, *arguments: str) -> int:
        """Run siteannex in a terminal on the AP; its exit status."""
        print(f"$ siteannex {' '.join(arguments)}", flush=True)
        argv = self.lab.argv("ap", ["siteannex", *arguments], user="alice", tty=True)
        child = pexpect.spawn(argv[0], argv[1:], encoding="utf-8", timeout=180, dimensions=(40, 120))
        if not self.answers_itself:
            child.interact()
        else:
            child.logfile_read = sys.stdout
            patterns = list(ANSWERS)
            while (index := child.expect([*patterns, pexpect.EOF])) < len(patterns):
                child.sendline(self._answer(ANSWERS[patterns[index]]))
        child.close()
        return child.exitstatus if child.exitstatus is not None else 1

    def _answer(self, kind: str) -> str:
        if kind == "password":
            return self.lab.password("alice")
        return self.lab.code("alice", fresh=True) if kind == "code" else "yes"

    def _fingerprint(self) -> str:
        keys = self.lab.exec("login1", ["sh", "-c", "for k in /etc/ssh/ssh_host_*.pub; do ssh-keygen -lf $k; done"])
        return keys.stdout.strip().replace("\n", "\n             ")

    def shell(self, script: str, *, quiet: bool = False) -> str:
        """Run a script as alice on the AP and show it with its output."""
        done = self.lab.exec("ap", ["sh", "-c", script], user="alice")
        if not quiet:
            print(f"$ {script}\n{done.stdout}{done.stderr}", end="", flush=True)
        return done.stdout


def say(text: str) -> None:
    """A heading of the story."""
    print(f"\n== {text}", flush=True)


if __name__ == "__main__":
    sys.exit(Demo(Lab.attach(), answers_itself="--yes" in sys.argv[1:]).tell())
