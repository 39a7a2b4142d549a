"""PLAN: the request, the site's facts, this AP, experiment files and DAGs."""

from __future__ import annotations

from siteannex.errors import Stage
from siteannex.failures.kind import FailureKind

KINDS: dict[str, FailureKind] = {
    "keeper-unavailable": FailureKind(
        Stage.PLAN,
        "A lease was asked for at a site where no keeper may live.",
        "up without --lease; siteannex up --pending brings back what jobs wait for, with one login a site.",
    ),
    "lease-impossible": FailureKind(
        Stage.PLAN, "The lease and what was asked for contradict each other.", "Change what is named above."
    ),
    # PLAN: the request, the site's facts, this AP
    "site-unknown": FailureKind(Stage.PLAN, "No site of that name is known.", "siteannex sites list shows the names."),
    "site-invalid": FailureKind(
        Stage.PLAN,
        "A site's YAML file breaks the schema.",
        "Mend the file at the line shown, then run the command again.",
    ),
    "no-annex-here": FailureKind(
        Stage.PLAN,
        "The site is of a kind where no annex can be brought up.",
        "siteannex sites show NAME prints what is known of it.",
    ),
    "site-name-taken": FailureKind(
        Stage.PLAN,
        "Two installed packages bring a site of the same name.",
        "Uninstall one of them, or copy the file you mean to ~/.config/siteannex/sites, which goes first.",
    ),
    "request-impossible": FailureKind(
        Stage.PLAN,
        "No partition or instance type of the site can give what was asked.",
        "Ask for less; siteannex plan with the same options shows which sites would do.",
    ),
    "budget-exceeded": FailureKind(
        Stage.PLAN,
        "What this could cost is more than the budget allows; nothing was submitted.",
        "Ask for less or a shorter --lifetime, take annexes down, or raise the site's budget: in your config.yaml.",
    ),
    "site-not-understood": FailureKind(
        Stage.PLAN,
        "The site did not describe its partitions: it runs no Slurm, or its answer was cut off.",
        "Log in by hand and run scontrol show partition; siteannex brings annexes up at Slurm sites only.",
    ),
    "account-missing": FailureKind(
        Stage.PLAN,
        "The site takes no job without an allocation to charge, and none was given.",
        "Add --account NAME, or write account: NAME for the site in your config.yaml.",
    ),
    "request-differs": FailureKind(
        Stage.PLAN,
        "An annex of that name lives and was asked for differently.",
        "Use another --name, or siteannex down it first.",
    ),
    "annex-unknown": FailureKind(Stage.PLAN, "No annex of that name is known.", "siteannex status shows the names."),
    "state-unreadable": FailureKind(
        Stage.PLAN,
        "What is recorded of an annex cannot be read, so nobody can tell whether it lives.",
        "Mend or move away the directory shown; look at the site for what it may have left.",
    ),
    "job-unknown": FailureKind(
        Stage.PLAN,
        "No job of that id is in this access point's queue or history.",
        "condor_q shows your jobs; a job submitted at another access point is only known there.",
    ),
    "annex-busy": FailureKind(
        Stage.PLAN,
        "Another siteannex command is at work on this annex.",
        "Wait for it, or end it.",
        retryable=True,
    ),
    "state-unwritable": FailureKind(
        Stage.PLAN,
        "The state directory cannot be written.",
        "Free space or mend permissions; nothing was lost.",
    ),
    "ap-unreachable": FailureKind(
        Stage.PLAN, "HTCondor on this access point does not answer.", "Run siteannex doctor.", retryable=True
    ),
    "token-refused": FailureKind(
        Stage.PLAN,
        "The access point did not issue a token.",
        "Run siteannex doctor; your admin may need to allow it.",
    ),
    "join-unavailable": FailureKind(
        Stage.PLAN,
        "This access point offers no way for an EP to join.",
        "Run siteannex doctor and show it to your admin.",
    ),
    "dag-invalid": FailureKind(
        Stage.PLAN,
        "A DAG file says something that cannot be compiled.",
        "Mend the file at the place shown; docs/gen-subdag.md has the grammar.",
    ),
    "import-invalid": FailureKind(
        Stage.PLAN,
        "A file of another tool is not what that tool reads, so it cannot be imported.",
        "Mend the file at the place shown.",
    ),
    # PLAN: experiment files and DAGs
    "experiment-invalid": FailureKind(
        Stage.PLAN,
        "The experiment file breaks its schema or contradicts itself.",
        "Mend the file at the line shown (docs/experiment.md), then run the command again.",
    ),
    "submit-invalid": FailureKind(
        Stage.PLAN,
        "A line of submit language would be refused by condor_submit, or would silently not do what it says.",
        "Mend the line shown.",
    ),
    "submit-command-unknown": FailureKind(
        Stage.PLAN,
        "HTCondor has no such submit command and would ignore it in silence.",
        "Mend the name; a custom job attribute is written +Name = value.",
    ),
    "variable-unknown": FailureKind(
        Stage.PLAN,
        "A name is used that nothing defines; the job would get an empty text in its place.",
        "Mend the name; docs/experiment.md lists what every job gets.",
    ),
    "quoting-impossible": FailureKind(
        Stage.PLAN,
        "A text has quotes that do not close, or characters that cannot reach the job unchanged.",
        "Close the quotes; put such a text into an input file.",
    ),
    "unit-missing": FailureKind(
        Stage.PLAN,
        "A size has no unit, and programs disagree about what it then means.",
        "Write the unit: 64GB.",
    ),
    "secret-exposed": FailureKind(
        Stage.PLAN,
        "A secret stands in the experiment file; it would be readable in the DAG, the queue and every log.",
        "Put it into a file only you can read, write environment: {NAME: {secret_file: PATH}}, and renew the secret.",
    ),
    "range-invalid": FailureKind(
        Stage.PLAN,
        "A range or a sample of numbers has no values, or no end.",
        "Write START to STOP by STEP, times FACTOR or log COUNT; both ends are included.",
    ),
    "sweep-empty": FailureKind(Stage.PLAN, "A sweep has no points.", "Give every swept parameter at least one value."),
    "sweep-too-large": FailureKind(
        Stage.PLAN,
        "The experiment has more DAG nodes than its ceiling allows; nothing was expanded or written.",
        "Sweep less, or raise max_nodes: in the experiment file.",
    ),
    "epochs-indivisible": FailureKind(
        Stage.PLAN,
        "The epochs do not divide evenly into jobs.",
        "Choose epochs_per_job that divides epochs.",
    ),
    "dag-duplicate-node": FailureKind(
        Stage.PLAN, "Two DAG nodes would have one name.", "Give every run a name of its own."
    ),
    "dag-cycle": FailureKind(
        Stage.PLAN, "Nodes of the DAG wait for each other in a circle; none of them could start.", "Remove an edge."
    ),
    "experiment-changed": FailureKind(
        Stage.PLAN,
        "A run of that name has results already, and would now have another seed or other parameters.",
        "Give the experiment a new name:, or move NAME/ and NAME.* away.",
    ),
    "inputs-missing": FailureKind(
        Stage.PLAN,
        "Files that the jobs bring along are not there; every job would be held.",
        "Put the files where the experiment file says, or mend the names.",
    ),
    "checkpoint-unknown": FailureKind(
        Stage.PLAN,
        "No side-car that can be read describes that checkpoint, or the directory is no training run's.",
        "Name a file of RUN/checkpoints, there or pruned; for verify the directory of a run or an experiment.",
    ),
    "export-not-installed": FailureKind(
        Stage.PLAN,
        "The library that writes this format is not installed; most users never need it.",
        "pip install 'siteannex[export]', into the environment that siteannex runs in.",
    ),
    "dag-refused": FailureKind(
        Stage.SUBMIT,
        "condor_submit_dag did not take the DAG.",
        "Read its words above.",
    ),
    "dag-running": FailureKind(
        Stage.SUBMIT,
        "This experiment's DAG is in the queue already; a second one would train the same runs twice.",
        "condor_q shows it; wait for its end, or condor_rm it first: its rescue file keeps what is done.",
    ),
    "archive-impossible": FailureKind(
        Stage.PLAN,
        "These runs cannot be archived there; nothing was copied or removed.",
        "Read what was seen above; the archive must be a place of its own for this experiment.",
    ),
    "archive-differs": FailureKind(
        Stage.PLAN,
        "A file in the archive is not what was copied; nothing of its run was removed.",
        "Run the command again; if it happens again, distrust the archive's disk.",
        retryable=True,
    ),
}
