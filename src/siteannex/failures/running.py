"""BATCH_JOB to RELEASED: the pilot's job, its EP, and its end."""

from __future__ import annotations

from siteannex.errors import Stage
from siteannex.failures.kind import FailureKind

KINDS: dict[str, FailureKind] = {
    # a keeper's own ends
    "lease-over": FailureKind(
        Stage.RELEASED, "The lease has ended; its keeper is gone.", "siteannex down it, then up with a new --lease."
    ),
    "lease-spent": FailureKind(
        Stage.RELEASED,
        "What is left of the lease's GPU-hours is less than one pilot could use; its keeper is gone.",
        "siteannex down it, then up with more --max-gpu-hours, or a shorter --lifetime.",
    ),
    "lease-ap-silent": FailureKind(
        Stage.RELEASED,
        "The access point did not answer the keeper for many wakes, or did not take its token; the keeper is gone.",
        "siteannex doctor; then down and up again.",
    ),
    "lease-refused": FailureKind(
        Stage.RELEASED,
        "Slurm refused the keeper's pilots many times in a row; the keeper is gone.",
        "Read Slurm's words above; then down and up again.",
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
