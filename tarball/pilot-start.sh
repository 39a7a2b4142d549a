#!/bin/sh
# HTCondor's configuration and start, until the collector shows the EP as it should be.
# A part of pilot.sh, which reads it before anything else; it only defines functions.
# shellcheck disable=SC2034,SC2153,SC2154  # variables are shared between the parts; P_* come from params.sh

write_config() {
    for place in log run spool execute config.d tokens.d passwords.d; do
        mkdir "$DIR/$place" || fail scratch-unusable "$DIR: no directory can be made"
    done
    cp "$ANNEX_DIR/token" "$DIR/tokens.d/siteannex" 2>"$DIR/err" || fail ep-config-invalid "token: $(seen "$DIR/err" 1)"
    chmod 755 "$DIR/execute"
    what_the_node_knows >"$DIR/node.conf"
    # The tools that report a failure read neither the site's own lines nor recipes: those may be what failed.
    { cat "$DIR/node.conf" && sed -e '/^# This site.s own lines/,$d' -e '/^use /d' "$ANNEX_DIR/ep.conf"; } \
        >"$DIR/tools.conf" 2>/dev/null
    CONDOR_CONFIG="$DIR/condor_config"
    export CONDOR_CONFIG
    cat "$DIR/node.conf" "$ANNEX_DIR/ep.conf" >"$CONDOR_CONFIG" 2>"$DIR/err" || fail ep-config-invalid "$(seen "$DIR/err" 2)"
    said=$(timeout 60 "$EP/bin/condor_config_val" -dump 2>&1 >/dev/null)
    status=$?
    if [ "$status" -eq 124 ]; then
        fail ep-config-invalid "condor_config_val gave no answer in 60 s: names do not resolve on this node"
    elif [ "$status" -ne 0 ] || [ -n "$said" ]; then
        fail ep-config-invalid "HTCondor $P_EP_VERSION does not accept its configuration" "condor_config_val: $said"
    fi
}

what_the_node_knows() {
    cat <<NODE
# What only the node knows, written by the pilot.
SITEANNEX_DIR = $DIR
SITEANNEX_JOB = $JOB
SITEANNEX_NODE = $NODE
SITEANNEX_CPUS = $CPUS
SITEANNEX_MEMORY_MIB = $MEMORY_MIB
SITEANNEX_ENDS_AT = $ENDS_AT
SITEANNEX_START_UNTIL = $((ENDS_AT - P_START_UNTIL_S))
SITEANNEX_FAST_AT = $((ENDS_AT - P_FAST_S))
NODE
    [ -z "$CONTAINER_PROGRAM" ] || echo "SINGULARITY = $CONTAINER_PROGRAM"
    echo "SiteannexContainers = \"$CONTAINERS\""
    echo "SiteannexGpuDriver = \"$GPU_DRIVER\""
}

start_master() {
    # A shell starts background programs with SIGINT and SIGQUIT ignored, and jobs would inherit that.
    set -- "$EP/sbin/condor_master" -f
    if env --default-signal=INT true 2>/dev/null; then
        set -- env --default-signal=INT,QUIT,PIPE "$@"
    elif command -v perl >/dev/null 2>&1; then
        # shellcheck disable=SC2016  # perl's variables
        set -- perl -e '$SIG{INT} = $SIG{QUIT} = $SIG{PIPE} = "DEFAULT"; exec @ARGV' -- "$@"
    fi
    "$@" >"$DIR/log/master.out" 2>&1 &
    MASTER=$!
    EP_ADVERTISED=1
    STARTED_AT=$(now)
    guard &
    GUARD=$!
}

# Where Slurm does not track processes by cgroup, HTCondor would outlive a pilot that was killed (kill -9, out of
# memory). This child does then what the pilot would have done.
guard() {
    trap '' USR1 TERM INT HUP
    while kill -0 "$$" 2>/dev/null; do sleep 2; done
    [ -r "$ANNEX_DIR/progress/$JOB.jsonl" ] && RECORD="$(cat "$ANNEX_DIR/progress/$JOB.jsonl")
"
    fail ep-died "the pilot's own process was killed"
}

alive() { [ -n "$MASTER" ] && kill -0 "$MASTER" 2>/dev/null; }

# What the collector shows of this EP: one line `cpus memory gpus`, empty while it shows nothing.
seen_by_collector() {
    timeout 20 "$EP/bin/condor_status" -pool "$P_COLLECTOR" \
        -constraint "SiteannexRequestId == \"$P_ANNEX_ID\" && EPSlurmJobId == \"$JOB\" && PartitionableSlot" \
        -af TotalSlotCpus TotalSlotMemory TotalSlotGPUs 2>/dev/null | head -n 1
}

await_ep() {
    slot=""
    deadline=$((STARTED_AT + SEEN_WITHIN_S))
    while [ -z "$slot" ]; do
        pause 0.4
        heed
        if ! alive; then
            wait "$MASTER"
            status=$?
            MASTER=""
            fail ep-master-exited "condor_master ended with status $status right after its start" \
                "$(seen "$DIR/log/master.out" 3)
$(complaints "$DIR/log/MasterLog")"
        fi
        crashes=$(grep -c 'STARTD.*\(exited with status\|died due to signal\)' "$DIR/log/MasterLog" 2>/dev/null)
        [ "${crashes:-0}" -lt 2 ] || fail ep-startd-crashes "condor_startd ended $crashes times" \
            "$(complaints "$DIR/log/MasterLog")
$(complaints "$DIR/log/StartLog")"
        [ -s "$DIR/log/StartLog" ] && slot=$(seen_by_collector)
        if [ -z "$slot" ] && [ "$(now)" -gt "$deadline" ]; then
            fail ep-not-seen "no ad in $P_COLLECTOR after $(spell_s "$SEEN_WITHIN_S")" "$(complaints "$DIR/log/MasterLog")
$(complaints "$DIR/log/StartLog")"
        fi
    done
}

# The checks before the start have told nearly everything; the collector's ad is what jobs will be matched against.
check_slot() {
    # shellcheck disable=SC2086  # a line of words
    set -- $slot
    cpus=${1:-0} memory=${2:-0} gpus=${3:-0}
    is_number "$gpus" || gpus=0
    if [ "$gpus" -ne "$GPUS" ]; then
        fail gpus-missing "Slurm granted $GPUS GPUs (CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-}), HTCondor found $gpus" \
            "$(grep -E 'GPUs|Gpus' "$DIR/log/StartLog" | tail -n 4)"
    fi
    [ "$cpus" -eq "$CPUS" ] || fail cpus-missing "granted $CPUS CPUs; the slot has $cpus"
    if [ "$memory" -lt $((MEMORY_MIB * 9 / 10)) ]; then
        fail memory-missing "granted $(spell_mib "$MEMORY_MIB"); the slot has $(spell_mib "$memory")"
    fi
    report EP_CONFIG ok "$cpus CPUs, $(spell_mib "$memory")$GPU_WORDS"
}
