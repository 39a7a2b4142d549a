"""Why HTCondor holds a job, by HoldReasonCode: the meaning in plain words, and what usually helps.

Codes: https://htcondor.readthedocs.io/en/latest/codes-other-values/hold-reason-codes.html
"""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hold:
    """One code's meaning. `errno` says that the subcode is a Unix error number."""

    meaning: str
    todo: str = ""
    errno: bool = False


_RELEASE = "Mend the cause, then condor_release JOB."
_PATHS = "Check that the file and its directory exist and that you may read and write there, then condor_release JOB."

HOLDS: dict[int, Hold] = {
    1: Hold("you (or the AP's admin) held it with condor_hold", "condor_release JOB when it may run."),
    3: Hold(
        "a hold expression of the job itself became true (periodic_hold or on_exit_hold)",
        "Read the reason; the expression is in your submit file.",
    ),
    4: Hold("its credentials are not valid", "Renew the credential, then condor_release JOB."),
    5: Hold("a policy expression of the job has no value (undefined)", "Mend the expression in the submit file."),
    6: Hold(
        "the node could not start the executable",
        "Check that it is executable, transferred, and built for the node's processor and libraries.",
        errno=True,
    ),
    7: Hold("its standard output file could not be opened", _PATHS, errno=True),
    8: Hold("its standard input file could not be opened", _PATHS, errno=True),
    9: Hold("its standard output stream could not be opened", _PATHS, errno=True),
    10: Hold("its standard input stream could not be opened", _PATHS, errno=True),
    11: Hold("file transfer ended in a protocol error inside HTCondor", "condor_release JOB tries again."),
    12: Hold(
        "its output files (or checkpoint) could not be transferred back",
        "Check transfer_output_files: a file the job did not write, or no room at the other end. " + _RELEASE,
        errno=True,
    ),
    13: Hold(
        "its input files could not be transferred to the node",
        "Check transfer_input_files: a name that does not exist, a URL that does not answer. " + _RELEASE,
        errno=True,
    ),
    14: Hold("its initial directory cannot be used", "Check that initialdir exists and is writable.", errno=True),
    15: Hold("it was submitted on hold (hold = true)", "condor_release JOB when it may run."),
    16: Hold("its input files are still being spooled", "Wait; it is released by itself when they have arrived."),
    17: Hold("the AP's shadow does not fit the job's universe", "Ask the AP's admin."),
    18: Hold("file transfer ended in a protocol error inside HTCondor", "condor_release JOB tries again."),
    19: Hold("a prepare hook of the EP failed", "Read the reason; ask whoever runs that hook."),
    20: Hold("it missed its deferred start time", "Set a new deferral_time and submit again."),
    21: Hold("the EP's policy held it (WANT_HOLD)", "Read the reason: usually it used more than it had asked for."),
    22: Hold("its event log cannot be written", "Check that the directory of `log` is writable. " + _RELEASE),
    23: Hold("the account it runs under cannot be used", "Ask the AP's admin."),
    24: Hold("the AP has no shadow for it", "Ask the AP's admin."),
    25: Hold("its cron settings are not valid", "Mend cron_* in the submit file."),
    26: Hold("a rule of this access point held it (SYSTEM_PERIODIC_HOLD)", "Read the reason; ask the AP's admin."),
    27: Hold("a rule of this access point has no value for it (undefined)", "Ask the AP's admin."),
    32: Hold(
        "its input is larger than allowed (MAX_TRANSFER_INPUT_MB)", "Transfer less, or raise max_transfer_input_mb."
    ),
    33: Hold(
        "its output is larger than allowed (MAX_TRANSFER_OUTPUT_MB)", "Transfer less, or raise max_transfer_output_mb."
    ),
    34: Hold(
        "it used more memory or disk than it had asked for",
        "Raise it (condor_qedit JOB RequestMemory MB; RequestDisk is in KiB), then condor_release JOB.",
    ),
    35: Hold("its container image is not valid", "Check the image's name; try it with apptainer or docker by hand."),
    36: Hold("it failed when asked to write a checkpoint", "Check how the job treats its checkpoint signal."),
    43: Hold("its pre-script failed", "Read the script's output."),
    44: Hold("its post-script failed", "Read the script's output."),
    45: Hold("the node's container runtime failed its test", "Ask the site, or exclude that node; condor_release JOB."),
    46: Hold("it ran longer than allowed_job_duration", "Raise allowed_job_duration, then condor_release JOB."),
    47: Hold("it ran longer than allowed_execute_duration", "Raise allowed_execute_duration, then condor_release JOB."),
    48: Hold("a hook of the AP's shadow held it", "Ask the AP's admin."),
}
_OUT_OF = {102: "memory", 104: "disk"}
"""Subcodes of code 34."""


def hold_meaning(code: int, subcode: int) -> Hold:
    """The meaning of a hold, its subcode included. Codes without an entry say so."""
    known = HOLDS.get(code)
    if known is None:
        return Hold(f"HTCondor's hold code {code} has no entry here", "Read the reason; " + _RELEASE)
    if code == 34 and subcode in _OUT_OF:
        return Hold(f"it used more {_OUT_OF[subcode]} than it had asked for", known.todo)
    if known.errno and 0 < subcode < 256:
        return Hold(f"{known.meaning} ({os.strerror(subcode)})", known.todo, errno=True)
    return known
