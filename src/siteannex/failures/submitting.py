"""SUBMIT: what a batch system or a cloud answers."""

from __future__ import annotations

from siteannex.errors import Stage
from siteannex.failures.kind import FailureKind

KINDS: dict[str, FailureKind] = {
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
}
