"""The catalogue of failure codes: each code's stage, what it means, what to do, and whether trying again can help.

`docs/failures.md` is written from this table by `scripts/failures-doc`; a test keeps both and every use in step.
Codes are stable: scripts may match on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from siteannex.errors import AnnexError, Evidence, Stage, StageFailure


@dataclass(frozen=True, slots=True)
class FailureKind:
    """What is true of every failure with this code."""

    stage: Stage
    meaning: str
    hint: str
    retryable: bool = False


FAILURES: dict[str, FailureKind] = {
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
    # PACK: the EP software
    "ep-source-missing": FailureKind(
        Stage.PACK,
        "There is no HTCondor to pack.",
        "Install HTCondor on the AP, or give a release tarball: siteannex pack --from FILE --sha256 SUM.",
    ),
    "ep-source-corrupt": FailureKind(
        Stage.PACK,
        "The HTCondor tarball is not what its checksum says.",
        "Download it again and check the sha256.",
    ),
    "ep-newer-than-cm": FailureKind(
        Stage.PACK,
        "The EP software is newer than the pool's central manager; its slots would register and never match.",
        "Pack an HTCondor no newer than the central manager's.",
    ),
    "ep-arch-mismatch": FailureKind(
        Stage.PACK,
        "The EP software is for another processor than the site's.",
        "Give a release tarball for the site's architecture: siteannex pack --from FILE --sha256 SUM.",
    ),
    "ep-not-selfcontained": FailureKind(
        Stage.PACK,
        "A library that the EP software needs was not found.",
        "Install the library on the AP, or pack a release tarball.",
    ),
    # CONNECT: SSH and the login
    "ssh-config-invalid": FailureKind(
        Stage.CONNECT,
        "Your SSH configuration says something about this host that siteannex cannot follow.",
        "Mend ~/.ssh/config, or set transport: openssh for this site.",
    ),
    "host-unresolvable": FailureKind(
        Stage.CONNECT, "The login host's name does not resolve.", "Check the name and your network."
    ),
    "host-unreachable": FailureKind(
        Stage.CONNECT,
        "The login host does not answer.",
        "Check the site's status page and your network.",
        retryable=True,
    ),
    "not-ssh": FailureKind(
        Stage.CONNECT, "What answers at the login host is not an SSH server.", "Check host and port."
    ),
    "host-key-unknown": FailureKind(
        Stage.CONNECT,
        "The login host's key is not known and was not accepted.",
        "Compare the fingerprint with the one the site publishes, then accept it.",
    ),
    "host-key-changed": FailureKind(
        Stage.CONNECT,
        "The login host's key differs from the one in known_hosts.",
        "Ask the site whether it changed its keys; only then remove the old line from known_hosts.",
    ),
    "key-refused": FailureKind(
        Stage.CONNECT,
        "The site wants an SSH key and accepted none of yours.",
        "Upload your public key at the site, or name the key in ~/.ssh/config (IdentityFile).",
    ),
    "password-refused": FailureKind(
        Stage.CONNECT,
        "The site refused the password.",
        "Check the password; do not try often, sites lock accounts for that.",
    ),
    "code-refused": FailureKind(
        Stage.CONNECT,
        "The site refused the one-time code.",
        "Wait for the next code and check the phone's clock; a code works once.",
    ),
    "account-locked": FailureKind(
        Stage.CONNECT, "The site says the account is locked or expired.", "Ask the site's help desk."
    ),
    "password-expired": FailureKind(
        Stage.CONNECT,
        "The password at the site has expired; siteannex never changes one.",
        "Change it with plain ssh or on the site's web page, then log in again.",
    ),
    "site-maintenance": FailureKind(
        Stage.CONNECT,
        "The site takes no logins now; nothing is wrong with yours.",
        "Read what the site wrote; log in again when it is open.",
        retryable=True,
    ),
    "login-refused": FailureKind(
        Stage.CONNECT,
        "The site refused the login without saying which step failed.",
        "Read what the site wrote; then try once more.",
    ),
    "login-method-unsupported": FailureKind(
        Stage.CONNECT,
        "The site asks for a login method siteannex does not speak.",
        "Set transport: openssh for this site.",
    ),
    "channel-refused": FailureKind(
        Stage.CONNECT,
        "The site accepted the login and opens no channel for commands.",
        "The site allows few sessions per connection (MaxSessions): siteannex logout SITE, then log in again.",
        retryable=True,
    ),
    "no-terminal": FailureKind(
        Stage.CONNECT,
        "The login asks a question and nobody is at a terminal to answer.",
        "Run siteannex login SITE in a terminal first; the session is kept.",
    ),
    "link-broken": FailureKind(
        Stage.CONNECT,
        "The connection to the site broke.",
        "Run the command again; siteannex finds what was left.",
        retryable=True,
    ),
    "remote-timeout": FailureKind(
        Stage.CONNECT,
        "A command at the site gave no answer in time.",
        "The site may be slow; run the command again.",
        retryable=True,
    ),
    "session-needed": FailureKind(
        Stage.CONNECT, "This needs a login and no session is held.", "Run siteannex login SITE first."
    ),
    "session-holder-lost": FailureKind(
        Stage.CONNECT,
        "The session holder does not answer.",
        "Run siteannex logout, then log in again.",
        retryable=True,
    ),
    "cloud-session-expired": FailureKind(
        Stage.CONNECT,
        "The cloud no longer accepts your session (or this machine's clock is wrong).",
        "Log in again (aws sso login), then run the command again: nothing recorded is lost.",
    ),
    "cloud-unreachable": FailureKind(
        Stage.CONNECT,
        "The cloud's address does not answer from here.",
        "Check your network and the region's name in the site's file.",
        retryable=True,
    ),
    "cloud-login-needed": FailureKind(
        Stage.CONNECT,
        "There are no usable credentials for the cloud on this machine.",
        "Log in: aws sso login, or aws configure for keys.",
    ),
    "cloud-credentials-refused": FailureKind(
        Stage.CONNECT,
        "The cloud does not accept your credentials: wrong keys, a wrong clock, or a region not opted in to.",
        "aws sts get-caller-identity tells which; date -u shows the clock.",
    ),
    "cloud-mfa-refused": FailureKind(
        Stage.CONNECT,
        "The cloud refused the one-time code.",
        "Wait for the next code and check the phone's clock; a code works once.",
    ),
    # SHIP: files to the site
    "ship-failed": FailureKind(
        Stage.SHIP,
        "A file could not be written at the site.",
        "Read the site's words above; siteannex sites show SITE --json names the directory (directories.home).",
    ),
    "quota-exceeded": FailureKind(
        Stage.SHIP,
        "Your quota at the site is used up; the file system itself may have room.",
        "Remove files of yours there, or set directories.home in the site's YAML to a place where you have room.",
    ),
    "site-disk-full": FailureKind(
        Stage.SHIP,
        "The file system at the site is full, whatever your quota.",
        "Tell the site's help desk, or set directories.home in the site's YAML to another file system.",
        retryable=True,
    ),
    "home-unwritable": FailureKind(
        Stage.SHIP,
        "siteannex's directory at the site is read-only or belongs to another.",
        "Mend its permissions, or set directories.home in the site's YAML to a directory that you may write.",
    ),
    "site-arch-differs": FailureKind(
        Stage.SHIP,
        "The login node has another processor than the site's file says, so the EP software would not run there.",
        "Mend arch: in the site's YAML, or log in at the host of the right processor.",
    ),
    "upload-cut": FailureKind(
        Stage.SHIP,
        "The connection broke or stood still while a file was on its way; nothing of it is used.",
        "Run the command again; it sends the file anew.",
        retryable=True,
    ),
    "ship-corrupt": FailureKind(
        Stage.SHIP,
        "What arrived at the site is not what was sent; it was removed.",
        "Run the command again.",
        retryable=True,
    ),
    "file-unreadable": FailureKind(
        Stage.SHIP,
        "A file at the site exists and cannot be read.",
        "Mend its permissions at the site.",
    ),
    "slurm-missing": FailureKind(
        Stage.SHIP,
        "There is no Slurm on the PATH of your account at the login host.",
        "Check that sbatch works there in a login shell; the login host may be a data transfer node.",
    ),
    # SUBMIT: the batch system's answer
    "submit-refused": FailureKind(Stage.SUBMIT, "The batch system refused the job.", "Read its words above."),
    "account-invalid": FailureKind(
        Stage.SUBMIT,
        "The batch system does not accept the account for this partition.",
        "Name your allocation: --account NAME.",
    ),
    "partition-invalid": FailureKind(
        Stage.SUBMIT,
        "The batch system does not know the partition.",
        "Site facts may be stale; name another --partition.",
    ),
    "qos-invalid": FailureKind(
        Stage.SUBMIT, "The batch system does not accept the QOS.", "Ask the site which QOS you may use."
    ),
    "nodes-unavailable": FailureKind(
        Stage.SUBMIT,
        "No node of the partition can ever fit the job.",
        "Ask for fewer GPUs, CPUs or less memory per pilot.",
    ),
    "walltime-invalid": FailureKind(
        Stage.SUBMIT, "The batch system does not accept the walltime.", "Ask for a shorter --lifetime."
    ),
    "limits-exceeded": FailureKind(
        Stage.SUBMIT,
        "A limit of your account or of the QOS does not allow the job: its size, its time or how many you have.",
        "Ask for less, or end other jobs of yours there.",
    ),
    "gres-invalid": FailureKind(
        Stage.SUBMIT,
        "The batch system does not take GPUs asked for in this way.",
        "Mend gpu_request: of the partition in the site's YAML (sinfo -o %G at the site shows Slurm's names).",
    ),
    "memory-request-refused": FailureKind(
        Stage.SUBMIT,
        "The site refuses jobs that ask for memory.",
        "Write memory_request: null for this partition in the site's YAML, then run up again.",
    ),
    "slurm-unreachable": FailureKind(
        Stage.SUBMIT,
        "Slurm's controller at the site does not answer; nothing was submitted by this attempt.",
        "See the site's status page; run the command again when Slurm is back.",
        retryable=True,
    ),
    "submit-uncertain": FailureKind(
        Stage.SUBMIT,
        "The batch system did not say whether it took the job, and no job of that name is seen.",
        "Run siteannex status --remote in a minute; if it shows nothing, siteannex down it and run up again.",
        retryable=True,
    ),
    # SUBMIT: a cloud's answer
    "cloud-no-capacity": FailureKind(
        Stage.SUBMIT,
        "The cloud has no free instance of that type there now; it is not your quota.",
        "Run up again later, name another type (--partition), or let spot instances be taken (--preemptible).",
        retryable=True,
    ),
    "type-not-offered": FailureKind(
        Stage.SUBMIT,
        "The instance type is not offered there, or does not go with the image.",
        "Name another type (--partition), or another region in the site's file.",
    ),
    "subnet-full": FailureKind(
        Stage.SUBMIT, "The subnet has no free address.", "Use another subnet, or free addresses in it."
    ),
    "vcpu-quota-exceeded": FailureKind(
        Stage.SUBMIT,
        "Your account's quota of vCPUs for that family of instances does not allow it; other zones would not help.",
        "Have the quota raised (Service Quotas in the console), ask for less, or use another region.",
    ),
    "spot-quota-exceeded": FailureKind(
        Stage.SUBMIT,
        "Your account's quota for spot instances does not allow it; the one for on-demand instances is another.",
        "Leave out --preemptible, or have the spot quota raised.",
    ),
    "cloud-limit-exceeded": FailureKind(
        Stage.SUBMIT,
        "A limit of your cloud account, other than the vCPUs, does not allow it.",
        "Have the limit named above raised, or remove what uses it.",
    ),
    "spot-price-too-low": FailureKind(
        Stage.SUBMIT,
        "The highest price bid for spot instances is below what they cost now.",
        "Leave the highest price out: then it is that of on-demand instances.",
        retryable=True,
    ),
    "spot-role-missing": FailureKind(
        Stage.SUBMIT,
        "Your cloud account has never used spot instances, and you may not set that up.",
        "An administrator runs once: aws iam create-service-linked-role --aws-service-name spot.amazonaws.com",
    ),
    "cloud-permission-missing": FailureKind(
        Stage.SUBMIT,
        "Your cloud account's rules do not let you do this.",
        "Show what is above to the account's administrator; often iam:PassRole or ec2:CreateTags is missing.",
    ),
    "cloud-account-not-ready": FailureKind(
        Stage.SUBMIT,
        "The cloud account itself may not launch this: not signed up, not verified yet, or blocked.",
        "Read the cloud's words above; the account's owner settles it in the console or with support.",
    ),
    "image-missing": FailureKind(
        Stage.SUBMIT,
        "The machine image is not there; images belong to one region.",
        "Check region and images: in the site's file.",
    ),
    "cloud-request-invalid": FailureKind(
        Stage.SUBMIT,
        "The cloud does not accept something the site's file says: a subnet, a group, a key, a disk.",
        "Mend the value named above in the site's file.",
    ),
    "user-data-too-large": FailureKind(
        Stage.SUBMIT,
        "The instance's boot script is larger than the cloud takes; that is siteannex's fault.",
        "Shorten the ep: lines of the site's file, and report it.",
    ),
    "cloud-busy": FailureKind(
        Stage.SUBMIT,
        "The cloud is too busy to answer, or failed inside.",
        "Run the command again in a minute; what was taken is not launched twice.",
        retryable=True,
    ),
    "launch-uncertain": FailureKind(
        Stage.SUBMIT,
        "The cloud did not say whether it launched; what it may have launched bears our tags and ends by itself.",
        "Run the command again: the same launch is asked for under the same mark, so nothing is launched twice.",
        retryable=True,
    ),
    "launch-token-reused": FailureKind(
        Stage.SUBMIT,
        "A launch was repeated with other parameters under its old mark; that is siteannex's fault.",
        "siteannex down it, up again, and report it.",
    ),
    "launch-refused": FailureKind(
        Stage.SUBMIT, "The cloud refused, with a code that siteannex does not know.", "Read its words above."
    ),
    # BATCH_JOB: the pilot's batch job
    "pending-forever": FailureKind(
        Stage.BATCH_JOB,
        "The batch job waits for something that cannot come.",
        "Take it down and ask for less.",
    ),
    "batch-job-failed": FailureKind(
        Stage.BATCH_JOB, "The batch job ended before the EP was up.", "siteannex logs NAME shows its output."
    ),
    "pending-held": FailureKind(
        Stage.BATCH_JOB,
        "The batch job waits and is held; only an administrator of the site can release it.",
        "Ask the site's help desk why; they hold jobs for a reason. Other sites are not affected.",
    ),
    "batch-job-cancelled": FailureKind(
        Stage.BATCH_JOB,
        "The batch job was cancelled at the site, by your own account or without a name.",
        "If it was not you (scancel, or siteannex down elsewhere), ask the help desk; else up again.",
    ),
    "batch-job-cancelled-by-other": FailureKind(
        Stage.BATCH_JOB,
        "Somebody else cancelled the batch job at the site: an administrator, or a coordinator of your account.",
        "Ask them, or the site's help desk, before you bring it up again.",
    ),
    "batch-job-launch-failed": FailureKind(
        Stage.BATCH_JOB,
        "The node could not start the batch job: its prologue, its disk or its slurmd is broken.",
        "Up again: Slurm may choose another node. When it fails twice, tell the help desk the node's name.",
        retryable=True,
    ),
    "batch-job-timeout": FailureKind(
        Stage.BATCH_JOB, "The batch job reached its walltime.", "Ask for a longer --lifetime."
    ),
    "batch-job-node-failed": FailureKind(
        Stage.BATCH_JOB,
        "The node under the batch job failed.",
        "Run up again; Slurm will choose another node.",
        retryable=True,
    ),
    "batch-job-out-of-memory": FailureKind(Stage.BATCH_JOB, "The batch job ran out of memory.", "Ask for more --mem."),
    "batch-job-preempted": FailureKind(
        Stage.BATCH_JOB,
        "The batch job was preempted.",
        "Run up again, or use a partition without preemption.",
        retryable=True,
    ),
    "batch-job-lost": FailureKind(
        Stage.BATCH_JOB,
        "The batch system no longer knows the job.",
        "It ended; siteannex logs NAME may say why.",
    ),
    # BATCH_JOB: a cloud's instance
    "instance-unknown": FailureKind(
        Stage.BATCH_JOB,
        "The cloud does not know the instance; just after a launch that is for a minute usual.",
        "siteannex status in a minute.",
        retryable=True,
    ),
    "instance-launch-failed": FailureKind(
        Stage.BATCH_JOB,
        "The instance died while it was launched: its disk's key, its image or a quota of volumes.",
        "Read the cloud's words above: a grant for the KMS key, another image, or a higher quota is needed.",
    ),
    "instance-interrupted": FailureKind(
        Stage.BATCH_JOB,
        "The cloud took the spot instance back; nothing failed.",
        "Run up again, or without --preemptible.",
        retryable=True,
    ),
    "instance-ended": FailureKind(
        Stage.BATCH_JOB,
        "The instance switched itself off, as it does at the end of its lifetime, when idle or when a step fails.",
        "Its last report says why.",
    ),
    # EP_START: HTCondor at the node
    "scratch-unusable": FailureKind(
        Stage.EP_START,
        "The node has no scratch directory that is writable and executable.",
        "Name one in the site's file (directories: scratch:); its documentation says where node-local scratch is.",
    ),
    "scratch-full": FailureKind(
        Stage.EP_START,
        "The node's scratch has no room for the EP: too few bytes, inodes, or your quota.",
        "Free what you have there, name another directory in the site's file (directories: scratch:), or run up again: "
        "another node may have room.",
        retryable=True,
    ),
    "ep-software-damaged": FailureKind(
        Stage.EP_START,
        "The EP software at the site is damaged or gone.",
        "Run up again: it ships the software anew.",
        retryable=True,
    ),
    "ep-unpack-failed": FailureKind(
        Stage.EP_START,
        "The EP software did not unpack on the node.",
        "Read tar's words above; a slow or broken file system there is the site's help desk's.",
    ),
    "ep-library-missing": FailureKind(
        Stage.EP_START,
        "A program of the EP needs a library that it was not packed with.",
        "Install that library on the AP and siteannex pack again, or pack a release tarball.",
    ),
    "ep-loader-too-old": FailureKind(
        Stage.EP_START,
        "The EP's programs are built for a newer C library or kernel than the node's.",
        "siteannex pack on the AP packs its C library too; or pack a release tarball built for the site's system.",
    ),
    "ep-binary-broken": FailureKind(
        Stage.EP_START,
        "HTCondor's programs do not run on the node.",
        "Pack again, for the site's processor: siteannex pack --from FILE --sha256 SUM.",
    ),
    "ep-config-invalid": FailureKind(
        Stage.EP_START,
        "HTCondor does not accept the EP's configuration.",
        "Check the ep: lines of the site's YAML.",
    ),
    "ep-master-exited": FailureKind(
        Stage.EP_START, "HTCondor ended right after its start.", "siteannex logs NAME --file MasterLog."
    ),
    "ep-startd-crashes": FailureKind(
        Stage.EP_START,
        "HTCondor's startd crashes again and again on the node.",
        "siteannex logs NAME --file StartLog; pack another HTCondor version.",
    ),
    "ep-start-silent": FailureKind(
        Stage.EP_START,
        "The batch job runs and the pilot has reported nothing.",
        "siteannex logs NAME shows the batch output.",
    ),
    "instance-metadata-silent": FailureKind(
        Stage.EP_START,
        "The instance got no answer from the cloud's metadata service (IMDSv2).",
        "Launch with HttpEndpoint enabled and HttpTokens required; up again.",
        retryable=True,
    ),
    "instance-metadata-open": FailureKind(
        Stage.EP_START,
        "Jobs on the instance could have read its credentials: the firewall rule against that could not be set.",
        "Use an image that has iptables (the Deep Learning AMIs do).",
    ),
    "ep-fetch-failed": FailureKind(
        Stage.EP_START,
        "The instance could not download the EP's software or its bundle.",
        "Has its subnet a way out (a public address or a NAT)? Does the address still hold?",
    ),
    "ep-token-missing": FailureKind(
        Stage.EP_START,
        "The instance could not read its token.",
        "Does its instance profile allow ssm:GetParameter on the annex's parameter?",
    ),
    # AP_CONNECT: from the node to the AP
    "collector-unresolvable": FailureKind(
        Stage.AP_CONNECT,
        "The node cannot resolve the collector's name.",
        "Have the AP advertise an address that resolves at the site (COLLECTOR_HOST, TCP_FORWARDING_HOST), or ask the "
        "site's help desk about DNS on compute nodes.",
    ),
    "collector-unreachable": FailureKind(
        Stage.AP_CONNECT,
        "The batch job and the EP are healthy; the network from the node to the collector is not.",
        "Ask the site's help desk whether compute nodes may open that port outwards; and the AP's admin whether its "
        "firewall lets the site in.",
    ),
    "collector-no-route": FailureKind(
        Stage.AP_CONNECT,
        "The collector's address leads nowhere from the node.",
        "Is it the address that the world knows the AP by? siteannex doctor shows what it advertises; "
        "TCP_FORWARDING_HOST sets it.",
    ),
    "collector-refused": FailureKind(
        Stage.AP_CONNECT,
        "The collector's port refuses connections: nothing listens there, or a firewall says no.",
        "Check on the AP that HTCondor listens on that port (siteannex doctor); then its firewall and the site's.",
        retryable=True,
    ),
    "collector-silent": FailureKind(
        Stage.AP_CONNECT,
        "The collector's port is open, but no HTCondor answers there.",
        "Is host and port the AP's collector's? siteannex doctor shows them; an overloaded collector needs a minute.",
        retryable=True,
    ),
    "clock-skew": FailureKind(
        Stage.AP_CONNECT,
        "The clocks of node and AP are so far apart that jobs would not start, or not end, when they should.",
        "Compare both with the true time (date -u); tell the admin of the wrong one.",
    ),
    "token-expired": FailureKind(
        Stage.AP_CONNECT,
        "The EP's token has expired.",
        "It waited longer in the queue than its token lives: run up again, it issues a new one.",
        retryable=True,
    ),
    "token-not-yet-valid": FailureKind(
        Stage.AP_CONNECT,
        "The EP's token is valid only later: the clock that issued it was ahead.",
        "Compare the AP's clock with the true time (date -u), then run up again.",
    ),
    "token-wrong-issuer": FailureKind(
        Stage.AP_CONNECT,
        "The EP's token was issued by another pool than the one it is for.",
        "Was the AP's TRUST_DOMAIN changed? Run siteannex doctor, then up again: it issues a new token.",
    ),
    "token-wrong-key": FailureKind(
        Stage.AP_CONNECT,
        "The collector does not have the key that signed the EP's token.",
        "Was the AP's signing key replaced? Run up again, it issues a new token; if that fails too, show this to the "
        "AP's admin.",
    ),
    "token-scope-missing": FailureKind(
        Stage.AP_CONNECT,
        "The EP's token lacks an authorization that it needs.",
        "Run up again, it issues a new token; if that fails too, show siteannex doctor to the AP's admin.",
    ),
    "token-not-authorized": FailureKind(
        Stage.AP_CONNECT,
        "The AP accepts the EP's token but does not let its owner bring EPs.",
        "Ask the AP's admin to allow you: ALLOW_ADVERTISE_STARTD, ALLOW_ADVERTISE_MASTER.",
    ),
    "token-rejected": FailureKind(
        Stage.AP_CONNECT,
        "The collector does not accept the EP's token.",
        "Run siteannex doctor, then up again.",
    ),
    "ccb-missing": FailureKind(
        Stage.AP_CONNECT,
        "The EP would join and no job could ever reach it: it keeps no connection to the AP's CCB.",
        "Remove CCB_ADDRESS from the ep: config: lines of the site's file.",
    ),
    "ep-not-seen": FailureKind(
        Stage.AP_CONNECT,
        "The EP runs and the collector has not seen it.",
        "siteannex logs NAME --file StartLog.",
    ),
    # EP_CONFIG: what came up is not what was asked
    "gpus-missing": FailureKind(
        Stage.EP_CONFIG,
        "The EP has fewer GPUs than asked.",
        "siteannex logs NAME; tell the site which node, with what was seen there.",
    ),
    "gpus-none": FailureKind(
        Stage.EP_CONFIG,
        "The node shows no GPU at all.",
        "Its GPUs or their driver may be broken: tell the site which node; up again may get another one.",
        retryable=True,
    ),
    "gpu-model-differs": FailureKind(
        Stage.EP_CONFIG,
        "The GPUs are of another model than the plan's.",
        "If the site has new GPUs, correct gpus: model: in its file; else name the partition or GPU type you need.",
    ),
    "gpu-memory-small": FailureKind(
        Stage.EP_CONFIG,
        "A GPU has less memory than the plan's: a smaller model, or a slice (MIG) of one.",
        "Correct gpus: memory: in the site's file if it is wrong, or name another partition or GPU type.",
    ),
    "cpus-missing": FailureKind(
        Stage.EP_CONFIG,
        "The EP has fewer CPUs than asked.",
        "Check the partition's options and the ep: config: lines in the site's file; some sites tie CPUs to GPUs.",
    ),
    "memory-missing": FailureKind(
        Stage.EP_CONFIG,
        "The EP has less memory than asked.",
        "Check memory_request and the ep: config: lines in the site's file; some sites tie memory to CPUs or GPUs.",
    ),
    "start-never": FailureKind(
        Stage.EP_CONFIG,
        "The EP's START expression is false for every job of yours: none would ever run.",
        "Check START among the ep: config: lines of the site's file.",
    ),
    "owner-mismatch": FailureKind(
        Stage.EP_CONFIG,
        "The collector takes the EP for somebody else's: your jobs would not match it.",
        "Run siteannex doctor and compare its identity; the AP's admin knows how tokens are mapped to users.",
    ),
    "direct-attach-unsupported": FailureKind(
        Stage.EP_CONFIG,
        "The EP's HTCondor is too old to attach to a schedd directly.",
        "Pack a newer HTCondor (siteannex pack), or join through the collector: --join pool.",
    ),
    # READY and after: an EP that was right
    "ep-died": FailureKind(
        Stage.READY,
        "HTCondor ended at the node before its time.",
        "siteannex logs NAME --file MasterLog; up again.",
        retryable=True,
    ),
    "ep-vanished": FailureKind(
        Stage.READY,
        "The EP was ready, its batch job still runs, and the collector hears nothing of it: the node, its network or "
        "HTCondor there is gone. Jobs that ran there start again elsewhere when their lease is over.",
        "siteannex down NAME --now, then up again; when the network comes back the EP is READY by itself.",
        retryable=True,
    ),
    # DRAIN: on its way out
    "annex-draining": FailureKind(
        Stage.DRAIN,
        "The annex of that name takes no new jobs and ends when its running ones do.",
        "Wait until it has ended, or siteannex down NAME --now, then up again.",
        retryable=True,
    ),
    # RELEASED: the end
    "release-incomplete": FailureKind(
        Stage.RELEASED,
        "Something of the annex is still at the site.",
        "Run siteannex down NAME again; siteannex sweep SITE finds what no annex here knows.",
        retryable=True,
    ),
}


def failure(
    code: str,
    site: str,
    summary: str,
    *,
    evidence: Sequence[Evidence] = (),
    hint: str | None = None,
    stage: Stage | None = None,
) -> StageFailure:
    """Build a StageFailure from the catalogue; `hint` replaces the general one when more is known."""
    kind = FAILURES[code]
    return StageFailure(
        stage=stage or kind.stage,
        code=code,
        site=site,
        summary=summary,
        evidence=tuple(evidence),
        hint=kind.hint if hint is None else hint,
        retryable=kind.retryable,
    )


def fail(
    code: str,
    site: str,
    summary: str,
    *,
    evidence: Sequence[Evidence] = (),
    hint: str | None = None,
    stage: Stage | None = None,
) -> AnnexError:
    """The exception for `raise fail("collector-unreachable", site, ...)`."""
    return AnnexError(failure(code, site, summary, evidence=evidence, hint=hint, stage=stage))
