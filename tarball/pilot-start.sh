#!/bin/sh
# From a batch job to an EP the collector shows: EP_START, AP_CONNECT, EP_CONFIG.
# A part of pilot.sh, which reads it before anything else; it only defines functions.
# shellcheck disable=SC2034,SC2153,SC2154  # variables are shared between the parts; P_* come from params.sh

# --- EP_START ------------------------------------------------------------------------------------------------------

find_scratch() {
    tried=""
    while IFS= read -r place; do
        [ -n "$place" ] || continue
        why=$(usable "$place" 2>&1)
        if [ -z "$why" ] && DIR=$(mktemp -d "$place/siteannex.$JOB.XXXXXX" 2>&1); then
            SCRATCH_FREE_MIB=$(free_mib "$DIR")
            return 0
        fi
        tried="$tried$place: ${why:-$DIR}; "
        DIR=""
    done <<PLACES
$P_SCRATCH
PLACES
    return 1
}

# Prints why a directory cannot hold the EP; prints nothing when it can.
usable() {
    if [ ! -d "$1" ]; then echo "no such directory"; return; fi
    probe="$1/siteannex.$JOB.probe.$$"
    if ! printf '#!/bin/sh\nexit 0\n' 2>/dev/null >"$probe"; then echo "not writable"; return; fi
    chmod 700 "$probe"
    "$probe" >/dev/null 2>&1 || echo "programs cannot run there (noexec)"
    rm -f "$probe"
    mib=$(free_mib "$1")
    if [ "${mib:-999999}" -lt 200 ]; then echo "only $mib MiB free"; fi
}

free_mib() { timeout 30 df -Pk "$1" 2>/dev/null | awk 'NR == 2 { print int($4 / 1024) }'; }

unpack() {
    archive="$SITEANNEX_HOME/ep/$P_EP_SHA256.tar.gz"
    [ -r "$archive" ] || fail ep-unpack-failed "$archive is not there"
    if command -v sha256sum >/dev/null 2>&1; then
        # Bounded: a shared file system that hangs must not hold the allocation until its walltime.
        sum=$(timeout 300 sha256sum <"$archive" | cut -c 1-64)
        [ "$sum" = "$P_EP_SHA256" ] || fail ep-unpack-failed "$archive is damaged: its sha256 is $sum"
    fi
    EP="$DIR/ep"
    if ! mkdir "$EP" 2>"$DIR/err" || ! timeout 300 tar -xzf "$archive" -C "$EP" 2>"$DIR/err"; then
        fail ep-unpack-failed "tar: $(seen "$DIR/err" 3) (it has 300 s)"
    fi
    # What some sites preload into every program is built for their glibc, not for the one packed with the EP.
    unset LD_PRELOAD LD_AUDIT
    said=$(timeout 30 "$EP/bin/condor_config_val" -version 2>&1) || fail ep-binary-broken "condor_config_val -version: $said"
    said=$(timeout 30 "$EP/sbin/condor_master" -version 2>&1) || fail ep-binary-broken "condor_master -version: $said"
}

is_number() {
    case $1 in
    "" | *[!0-9]*) return 1 ;;
    esac
}

# What Slurm granted this job on this node; never more.
read_grants() {
    CPUS=${SLURM_CPUS_ON_NODE:-$P_CPUS}
    is_number "$CPUS" || CPUS=$P_CPUS
    GPUS=0
    [ "$P_GPUS" -gt 0 ] && read_gpus
    MEMORY_MIB=0
    if is_number "${SLURM_MEM_PER_NODE:-}"; then
        MEMORY_MIB=$SLURM_MEM_PER_NODE
    elif is_number "${SLURM_MEM_PER_CPU:-}"; then
        MEMORY_MIB=$((SLURM_MEM_PER_CPU * CPUS))
    elif is_number "${SLURM_MEM_PER_GPU:-}" && [ "$GPUS" -gt 0 ]; then
        MEMORY_MIB=$((SLURM_MEM_PER_GPU * GPUS))
    fi
    [ "$MEMORY_MIB" -gt 0 ] || MEMORY_MIB=$P_MEMORY_MIB
}

read_gpus() {
    visible=${CUDA_VISIBLE_DEVICES:-${ROCR_VISIBLE_DEVICES:-${SLURM_JOB_GPUS:-}}}
    [ "$visible" = NoDevFiles ] && visible=""
    if [ -z "$visible" ] && is_number "${SLURM_GPUS_ON_NODE:-}"; then
        visible=$(first_devices "$SLURM_GPUS_ON_NODE")
    elif [ -z "$visible" ] && [ "$P_SHARING" = exclusive ]; then
        # The node is ours and Slurm does not count its GPUs: as many as the plan says, checked when the EP is up.
        visible=$(first_devices "$P_GPUS")
    fi
    GPUS=$(printf '%s' "$visible" | awk -F, '{ print NF } END { if (NR == 0) print 0 }')
    if [ "$GPUS" -lt "$P_GPUS" ]; then
        fail gpus-missing "Slurm granted $GPUS of $P_GPUS GPUs (CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-})"
    fi
    CUDA_VISIBLE_DEVICES=$visible
    export CUDA_VISIBLE_DEVICES
}

first_devices() { awk -v n="$1" 'BEGIN { for (i = 0; i < n; i++) printf "%s%d", (i ? "," : ""), i }'; }

write_config() {
    for place in log run spool execute config.d tokens.d passwords.d; do
        mkdir "$DIR/$place" || fail scratch-unusable "$DIR: no directory can be made"
    done
    cp "$ANNEX_DIR/token" "$DIR/tokens.d/siteannex" 2>"$DIR/err" || fail ep-config-invalid "token: $(seen "$DIR/err" 1)"
    chmod 755 "$DIR/execute"
    CONDOR_CONFIG="$DIR/condor_config"
    export CONDOR_CONFIG
    {
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
        container=$(command -v apptainer || command -v singularity) && echo "SINGULARITY = $container"
        cat "$ANNEX_DIR/ep.conf"
    } >"$CONDOR_CONFIG" 2>"$DIR/err" || fail ep-config-invalid "$(seen "$DIR/err" 2)"
    said=$(timeout 60 "$EP/bin/condor_config_val" -dump 2>&1 >/dev/null)
    status=$?
    if [ "$status" -eq 124 ]; then
        fail ep-config-invalid "condor_config_val gave no answer in 60 s: names do not resolve on this node"
    elif [ "$status" -ne 0 ] || [ -n "$said" ]; then
        fail ep-config-invalid "$said"
    fi
}

# --- AP_CONNECT ----------------------------------------------------------------------------------------------------

probe_ap() {
    address=""
    for wait_s in 0 2 5; do
        pause "$wait_s"
        heed
        address=$(timeout 10 getent ahosts "$P_COLLECTOR_HOST" 2>/dev/null | awk 'NR == 1 { print $1 }')
        [ -n "$address" ] && break
    done
    [ -n "$address" ] || fail collector-unresolvable "$P_COLLECTOR_HOST does not resolve on $NODE (asked 3 times)"
    probe_tcp
    probe_token
    AP_REACHED=1
}

# TCP as bash does it; on a node without bash the token probe has to tell.
probe_tcp() {
    command -v bash >/dev/null 2>&1 || return 0
    words=""
    for wait_s in 0 2 5; do
        pause "$wait_s"
        heed
        # shellcheck disable=SC2016  # bash expands them
        words=$(timeout 8 bash -c 'exec 3<>"/dev/tcp/$0/$1"' "$P_COLLECTOR_HOST" "$P_COLLECTOR_PORT" 2>&1) && return 0
        words=$(printf '%s\n' "${words:-no answer within 8 s}" | tail -n 1 | sed 's/^.*: //')
    done
    fail collector-unreachable \
        "DNS ok ($address), TCP $P_COLLECTOR_PORT to $P_COLLECTOR_HOST failed 3 times: $words"
}

probe_token() {
    for wait_s in 0 3; do
        pause "$wait_s"
        heed
        if said=$(ping_ap collector READ ADVERTISE_STARTD ADVERTISE_MASTER); then break; fi
        [ "$wait_s" = 3 ] && fail token-rejected "$P_COLLECTOR: $(refusal "$said")"
    done
    [ "$P_JOIN" = direct ] || return 0
    said=$(ping_ap schedd -name "$P_SCHEDD" WRITE) || fail token-rejected "schedd $P_SCHEDD: $(refusal "$said")"
}

# ping_ap DAEMON ARGUMENTS...
ping_ap() {
    daemon=$1
    shift
    timeout 25 "$EP/bin/condor_ping" -pool "$P_COLLECTOR" -type "$daemon" -verbose "$@" 2>&1
}

# Why a token was not taken, from what condor_ping printed and from the token's own times.
refusal() {
    time=$(now)
    if [ "$P_TOKEN_EXPIRES" -gt 0 ] && [ "$time" -ge "$P_TOKEN_EXPIRES" ]; then
        printf 'the token expired %s s ago by this node'\''s clock; ' $((time - P_TOKEN_EXPIRES))
    elif [ "$time" -lt $((P_TOKEN_ISSUED - 60)) ]; then
        printf 'this node'\''s clock is %s s before the token was issued; ' $((P_TOKEN_ISSUED - time))
    fi
    words=$(printf '%s\n' "$1" | grep -E '(failed|denied|DENIED|rror|SECMAN|AUTHENTICATE)' | awk '!told[$0]++' | head -n 8)
    printf '%s' "${words:-no answer within 25 s}"
}

# --- HTCondor ------------------------------------------------------------------------------------------------------

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

# What the collector shows of this EP: one line `cpus memory gpus model`, empty while it shows nothing.
seen_by_collector() {
    timeout 20 "$EP/bin/condor_status" -pool "$P_COLLECTOR" \
        -constraint "SiteannexRequestId == \"$P_ANNEX_ID\" && EPSlurmJobId == \"$JOB\" && PartitionableSlot" \
        -af TotalSlotCpus TotalSlotMemory TotalSlotGPUs GPUs_DeviceName 2>/dev/null | head -n 1
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
            fail ep-master-exited "status $status; $(seen "$DIR/log/master.out" 3) $(complaints "$DIR/log/MasterLog")"
        fi
        crashes=$(grep -c 'STARTD.*\(exited with status\|died due to signal\)' "$DIR/log/MasterLog" 2>/dev/null)
        [ "${crashes:-0}" -lt 2 ] || fail ep-startd-crashes "$(complaints "$DIR/log/MasterLog"); $(complaints "$DIR/log/StartLog")"
        [ -s "$DIR/log/StartLog" ] && slot=$(seen_by_collector)
        if [ -z "$slot" ] && [ "$(now)" -gt "$deadline" ]; then
            fail ep-not-seen "no ad in $P_COLLECTOR after $SEEN_WITHIN_S s; $(complaints "$DIR/log/StartLog")"
        fi
    done
}

check_slot() {
    # shellcheck disable=SC2086  # a line of words
    set -- $slot
    cpus=${1:-0} memory=${2:-0} gpus=${3:-0}
    is_number "$gpus" || gpus=0
    [ $# -ge 4 ] && shift 3 && model="$*"
    if [ "$gpus" -ne "$GPUS" ]; then
        fail gpus-missing "Slurm granted $GPUS GPUs (CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-}), HTCondor found $gpus"
    fi
    if [ "$cpus" -ne "$CPUS" ] || [ "$memory" -lt $((MEMORY_MIB * 9 / 10)) ]; then
        fail slots-too-small "granted $CPUS CPUs and $MEMORY_MIB MiB; the slot has $cpus CPUs and $memory MiB"
    fi
    text="$cpus CPUs, $memory MiB"
    [ "$gpus" -gt 0 ] && text="$text, $gpus x ${model:-GPU}"
    report EP_CONFIG ok "$text"
}
