#!/bin/sh
# The pilot of a siteannex annex: turns a batch job on one node into an HTCondor execution point (EP), watches it,
# and leaves nothing behind but a small log archive. POSIX sh; batch.sh execs it.
#
# In:      ANNEX_DIR and SITEANNEX_HOME from batch.sh; params.sh, ep.conf and token in ANNEX_DIR; Slurm's variables.
# Out:     one JSON line a step in ANNEX_DIR/progress/JOB.jsonl; SITEANNEX_HOME/logs/ANNEX_ID/JOB.{jsonl,out,tar.gz}.
# Signals: USR1 drains (no new job, let running ones end, then end); TERM and INT end at once.
# Status:  0 ended as it should (idle, drained, walltime, cancelled); otherwise a failure reported in the progress
#          file, by its stage: 10 BATCH_JOB, 20 EP_START, 30 AP_CONNECT, 40 EP_CONFIG, 50 after READY.
#
# Everything is in functions, so that the shell has read all of it before any of it runs: the files may be removed
# while the pilot lives. The parts:
#   pilot-report.sh  progress lines, failures, ads; time and signals
#   pilot-node.sh    the node: scratch, EP software, programs that run, what Slurm granted, containers, GPUs
#   pilot-join.sh    the way to the access point: name, port, clock, token, and whether jobs could come that way
#   pilot-start.sh   HTCondor's configuration and start, until the collector shows the EP
#   pilot-end.sh     from READY to nothing left

# shellcheck disable=SC2034,SC2153,SC2154  # variables are shared between the parts; P_* come from params.sh

set -u
umask 077
SEEN_WITHIN_S=120
LC_ALL=C
export LC_ALL

: "${ANNEX_DIR:?}"
# shellcheck source=SCRIPTDIR/pilot-report.sh
. "$ANNEX_DIR/pilot-report.sh"
# shellcheck source=SCRIPTDIR/pilot-node.sh
. "$ANNEX_DIR/pilot-node.sh"
# shellcheck source=SCRIPTDIR/pilot-join.sh
. "$ANNEX_DIR/pilot-join.sh"
# shellcheck source=SCRIPTDIR/pilot-start.sh
. "$ANNEX_DIR/pilot-start.sh"
# shellcheck source=SCRIPTDIR/pilot-end.sh
. "$ANNEX_DIR/pilot-end.sh"

main() {
    : "${SITEANNEX_HOME:?}" "${SLURM_JOB_ID:?}"
    JOB=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID:-0}}
    JOB=${JOB:-$SLURM_JOB_ID}
    NODE=$(timeout 5 hostname -f 2>/dev/null) || NODE=${SLURMD_NODENAME:-$(hostname)}
    RECORD="" DIR="" EP="" MASTER="" GUARD="" SIGNAL="" REASON="" AP_REACHED=0 EP_ADVERTISED=0
    FAILED_CODE="" FAILED_STAGE="" FAILED_TEXT="" FAILED_SEEN=""
    trap 'SIGNAL=drain' USR1
    trap 'SIGNAL=stop' TERM INT
    if [ ! -r "$ANNEX_DIR/params.sh" ]; then
        echo "siteannex: $ANNEX_DIR/params.sh cannot be read" >&2
        exit 10
    fi
    set +u # a scratch candidate may name a variable that this site does not set
    # shellcheck source=/dev/null
    . "$ANNEX_DIR/params.sh"
    set -u
    LOGS="$SITEANNEX_HOME/logs/$P_ANNEX_ID"
    rm -f "$ANNEX_DIR/pilots/$JOB"
    OUTPUT_BEFORE=$(wc -c 2>/dev/null <"$ANNEX_DIR/slurm-$SLURM_JOB_ID.out") || OUTPUT_BEFORE=0 # an earlier start's
    ENDS_AT=${SLURM_JOB_END_TIME:-}
    is_number "$ENDS_AT" || ENDS_AT=$(($(now) + P_WALLTIME_S))
    report BATCH_JOB ok "batch job $JOB runs on $NODE, $(spell_s "$(seconds_left)") left"

    check_software
    settle
    heed
    check_programs
    read_grants
    probe_containers
    write_config
    report EP_START ok "HTCondor $P_EP_VERSION runs in $DIR ($(spell_mib "$FREE_MIB") free); granted $CPUS CPUs, $(spell_mib "$MEMORY_MIB"), $GPUS GPUs; $CONTAINERS"
    heed
    probe_ap
    report AP_CONNECT ok "$P_COLLECTOR_HOST is $address, port $P_COLLECTOR_PORT answers, token accepted$CLOCK_WORDS"
    check_grants
    probe_gpus
    check_matching
    heed
    start_master
    await_ep
    check_slot
    report READY ok "seen by the collector after $(($(now) - STARTED_AT)) s"
    watch
    conclude
}

main
