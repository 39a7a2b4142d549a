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
# Everything is in functions, so that the shell has read the whole file before any of it runs: the file may be
# removed while the pilot lives.

# shellcheck disable=SC2153  # P_* come from params.sh

set -u
umask 077
SEEN_WITHIN_S=120
LC_ALL=C
export LC_ALL

# --- saying what happens -------------------------------------------------------------------------------------------

# One line of printable ASCII, fit for a JSON string.
one_line() {
    awk 'NR > 1 { printf " | " } { printf "%s", $0 }' | tr '\t\r' '  ' | tr -cd '\040-\176' | cut -c 1-1500 |
        sed 's/[\\"]/\\&/g'
}

# report STAGE CODE TEXT
report() {
    line="{\"v\":1,\"at\":\"$(date -u +%Y-%m-%dT%H:%M:%SZ)\",\"job\":\"$JOB\",\"node\":\"$NODE\",\"stage\":\"$1\""
    line="$line,\"code\":\"$2\",\"text\":\"$(printf '%s\n' "$3" | one_line)\"}"
    RECORD="$RECORD$line
"
    printf '%s\n' "$line" >&2
    if [ -d "$ANNEX_DIR/progress" ]; then
        { printf '%s\n' "$line" >>"$ANNEX_DIR/progress/$JOB.jsonl"; } 2>/dev/null
    fi
}

stage_of() {
    case $1 in
    scratch-unusable | ep-unpack-failed | ep-binary-broken | ep-config-invalid | ep-master-exited | ep-startd-crashes)
        echo EP_START ;;
    collector-unresolvable | collector-unreachable | token-rejected | ep-not-seen) echo AP_CONNECT ;;
    gpus-missing | slots-too-small) echo EP_CONFIG ;;
    ep-died) echo READY ;;
    esac
}

# fail CODE TEXT: a broken EP must not hold its allocation.
fail() {
    stage=$(stage_of "$1")
    report "$stage" "$1" "$2"
    FAILED_AS="$stage $1 $2"
    case $stage in
    EP_START) finish "failed: $1" 20 ;;
    AP_CONNECT) finish "failed: $1" 30 ;;
    EP_CONFIG) finish "failed: $1" 40 ;;
    *) finish "failed: $1" 50 ;;
    esac
}

# The last lines of a file, for a report.
seen() {
    [ -r "$1" ] && tail -n "${2:-5}" "$1" | cut -c 1-400
}

# What an HTCondor log says went wrong, or its last lines when it names no error.
complaints() {
    [ -s "$1" ] || return 0
    words=$(grep -E 'ERROR|FAILED|[Ff]atal|exited with status|died due to|SECMAN|AUTHENTICATE' "$1" | tail -n 4 | cut -c 1-400)
    printf '%s: %s' "${1##*/}" "${words:-$(seen "$1" 4)}"
}

# advertise_failure STAGE CODE TEXT: an ad in place of the slot that did not come to be, so that the access point
# learns why without asking the site.
advertise_failure() {
    cat >"$DIR/failed.ad" <<AD
MyType = "Machine"
TargetType = ""
Name = "ep$JOB@$NODE"
Machine = "$NODE"
State = "Drained"
Activity = "Idle"
Start = false
Requirements = false
Cpus = 0
Memory = 0
AnnexName = "$P_NAME"
SiteannexRequestId = "$P_ANNEX_ID"
SiteannexSite = "$P_SITE"
EPSlurmJobId = "$JOB"
SiteannexStage = "$1"
SiteannexCode = "$2"
SiteannexText = "$(printf '%s\n' "$3" | one_line)"
AD
    tell_collector UPDATE_STARTD_AD "$DIR/failed.ad"
}

# Daemons that were killed leave their ads standing; an EP that has ended must not look alive. (A startd has an ad of
# its own, StartD, beside those of its slots, since HTCondor 23.)
withdraw_ads() {
    for kind in STARTD:Machine STARTD:StartD MASTER:DaemonMaster; do
        cat >"$DIR/withdraw.ad" <<AD
MyType = "Query"
TargetType = "${kind#*:}"
Requirements = SiteannexRequestId == "$P_ANNEX_ID" && EPSlurmJobId == "$JOB"
AD
        tell_collector "INVALIDATE_${kind%:*}_ADS" "$DIR/withdraw.ad"
    done
}

tell_collector() {
    timeout 10 "$EP/sbin/condor_advertise" -pool "$P_COLLECTOR" "$1" "$2" >/dev/null 2>&1
}

# --- time and signals ----------------------------------------------------------------------------------------------

now() { date +%s; }

# Sleep that a signal ends. Parts of a second where this system's sleep knows them.
pause() {
    { sleep "$1" 2>/dev/null || sleep 1; } &
    wait "$!"
}

# Between steps: a signal that came before HTCondor ran ends the pilot here.
heed() {
    case $SIGNAL in
    stop) finish "cancelled" 0 ;;
    drain) finish "asked to end before it was up" 0 ;;
    esac
}

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

free_mib() { df -Pk "$1" 2>/dev/null | awk 'NR == 2 { print int($4 / 1024) }'; }

unpack() {
    archive="$SITEANNEX_HOME/ep/$P_EP_SHA256.tar.gz"
    [ -r "$archive" ] || fail ep-unpack-failed "$archive is not there"
    if command -v sha256sum >/dev/null 2>&1; then
        sum=$(sha256sum <"$archive" | cut -c 1-64)
        [ "$sum" = "$P_EP_SHA256" ] || fail ep-unpack-failed "$archive is damaged: its sha256 is $sum"
    fi
    EP="$DIR/ep"
    if ! mkdir "$EP" 2>"$DIR/err" || ! tar -xzf "$archive" -C "$EP" 2>"$DIR/err"; then
        fail ep-unpack-failed "tar: $(seen "$DIR/err" 3)"
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

# --- the end -------------------------------------------------------------------------------------------------------

# Take no more jobs: START becomes false, every claim ends with its job, and without claims HTCondor ends.
drain() {
    DRAINING=1
    REASON=$1
    printf 'SITEANNEX_DRAINING = True\nCLAIM_WORKLIFE = 0\nSTARTD_NOCLAIM_SHUTDOWN = 3\n' >"$DIR/config.d/90-drain.conf"
    kill -HUP "$MASTER" 2>/dev/null
    report DRAIN ok "$1: no new jobs, running ones may end"
}

# Every running job has a sandbox in EXECUTE.
jobs_run() {
    set -- "$DIR"/execute/dir_*
    [ -e "$1" ]
}

# Drained and nothing runs, seen three times in a row (a job may just be arriving): HTCondor itself would look again
# only at its next update.
end_when_drained() {
    if jobs_run; then
        EMPTY=0
        return
    fi
    EMPTY=$((EMPTY + 1))
    [ "$EMPTY" -ne 3 ] || kill -TERM "$MASTER" 2>/dev/null
}

# Kill what still runs in this job; what it wrote is cleaned up by finish.
stop_fast() {
    FAST_AT=$(now)
    kill -QUIT "$MASTER" 2>/dev/null
}

# Evict jobs at once but let the startd outlive them for a moment. A job that is evicted in its first second tells
# nobody; its shadow at the access point then asks the startd, and only if nobody answers waits for the job's lease
# (40 minutes by default).
evict_now() {
    jobs_run || return 0
    cat >"$DIR/config.d/91-evict.conf" <<'CONF'
SITEANNEX_DRAINING = True
CLAIM_WORKLIFE = 0
PREEMPT = True
WANT_VACATE = False
KILL = True
POLLING_INTERVAL = 1
CONF
    kill -HUP "$MASTER" 2>/dev/null
    tries=0
    while alive && jobs_run && [ "$tries" -lt 8 ]; do
        pause 1
        tries=$((tries + 1))
    done
    pause 2
}

# From READY to the end of HTCondor, whatever ends it.
watch() {
    DRAINING=0 EVICTING=0 FAST_AT=0 EMPTY=0
    while alive; do
        left=$((ENDS_AT - $(now)))
        got=$SIGNAL
        SIGNAL=""
        case $got in
        stop)
            REASON="cancelled"
            if [ "$FAST_AT" = 0 ]; then
                evict_now
                stop_fast
            fi
            ;;
        drain)
            if [ "$DRAINING" = 0 ] && [ "$left" -le $((P_NOTICE_S + 75)) ]; then drain "walltime"; fi
            if [ "$DRAINING" = 0 ]; then drain "asked to end"; fi
            ;;
        esac
        if [ "$DRAINING" = 0 ] && [ "$left" -le "$P_NOTICE_S" ]; then drain "walltime"; fi
        [ "$DRAINING" = 1 ] && end_when_drained
        if [ "$EVICTING" = 0 ] && [ "$FAST_AT" = 0 ] && [ "$left" -le "$P_EVICT_S" ]; then
            EVICTING=1
            report DRAIN ok "walltime in $left s: jobs have $P_VACATE_S s to end"
            kill -TERM "$MASTER" 2>/dev/null
        fi
        if [ "$FAST_AT" = 0 ] && [ "$left" -le "$P_FAST_S" ]; then stop_fast; fi
        if [ "$FAST_AT" != 0 ] && [ "$(now)" -gt $((FAST_AT + 10)) ]; then kill -KILL "$MASTER" 2>/dev/null; fi
        if [ "$FAST_AT" != 0 ]; then pause 0.2; elif [ "$DRAINING" = 1 ]; then pause 1; else pause 3; fi
    done
}

# How HTCondor ended, in words; a failure when nobody wanted it to.
conclude() {
    wait "$MASTER"
    status=$?
    MASTER=""
    # 99: ended by its own DAEMON_SHUTDOWN_FAST, which is as asked.
    if [ -n "$REASON" ]; then
        finish "$REASON" 0
    elif grep -q 'No resources have been claimed for' "$DIR/log/StartLog" 2>/dev/null; then
        finish "idle $P_IDLE_S s" 0
    elif [ "$status" -eq 0 ] || [ "$status" -eq 99 ]; then
        finish "HTCondor was asked to end" 0
    fi
    fail ep-died "condor_master ended with status $status; $(complaints "$DIR/log/MasterLog")"
}

# finish TEXT STATUS: stop, archive, remove, say so, exit.
finish() {
    trap '' USR1 TERM INT HUP
    # In the pilot: the guard is no longer needed. In the guard itself GUARD is not set.
    [ -z "$GUARD" ] || { kill -KILL "$GUARD" && wait "$GUARD"; } 2>/dev/null
    if alive; then
        kill -QUIT "$MASTER" 2>/dev/null
        tries=0
        while alive && [ "$tries" -lt 40 ]; do
            pause 0.2
            tries=$((tries + 1))
        done
        alive && kill -KILL "$MASTER" 2>/dev/null
    fi
    if [ -n "$DIR" ]; then
        sweep_processes
        [ "$EP_ADVERTISED" = 0 ] || withdraw_ads
        if [ "$AP_REACHED" = 1 ] && [ -n "$FAILED_AS" ]; then
            rest=${FAILED_AS#* }
            advertise_failure "${FAILED_AS%% *}" "${rest%% *}" "${rest#* }"
        fi
        archive_logs
        cd /
        rm -rf "$DIR" 2>/dev/null || { sleep 1 && sweep_processes && rm -rf "$DIR"; }
    fi
    report RELEASED ok "$1"
    leave "$1"
    exit "$2"
}

# Anything still running out of our scratch directory: its path is in the environment of daemons and of jobs.
sweep_processes() {
    # shellcheck disable=SC2013  # no spaces in these paths
    for entry in $(grep -l -s -F -e "$DIR/" /proc/[0-9]*/environ 2>/dev/null); do
        entry=${entry#/proc/}
        pid=${entry%/environ}
        [ "$pid" = "$$" ] || kill -KILL "$pid" 2>/dev/null
    done
}

# Logs, bounded, never the token, into the annex's log directory.
archive_logs() {
    mkdir -p "$LOGS" 2>/dev/null && mkdir "$DIR/out" 2>/dev/null || return 0
    for limit in 262144 32768; do
        for file in "$DIR"/log/MasterLog "$DIR"/log/StartLog "$DIR"/log/StarterLog* "$DIR"/log/SharedPortLog \
            "$DIR"/log/ProcLog "$DIR"/log/master.out "$DIR"/condor_config; do
            [ -s "$file" ] && tail -c "$limit" "$file" >"$DIR/out/${file##*/}"
        done
        if [ -s "$DIR/tokens.d/siteannex" ]; then
            for file in "$DIR"/out/*; do
                [ -f "$file" ] && grep -q -F -f "$DIR/tokens.d/siteannex" "$file" && rm -f "$file"
            done
        fi
        tar -czf "$LOGS/.$JOB.tar.gz.new" -C "$DIR/out" . 2>/dev/null || break
        [ "$(wc -c <"$LOGS/.$JOB.tar.gz.new")" -le 1000000 ] && break
    done
    mv -f "$LOGS/.$JOB.tar.gz.new" "$LOGS/$JOB.tar.gz" 2>/dev/null
}

# The record stays in the log directory. The last pilot of the annex takes the annex's directory away, token included.
leave() {
    mkdir -p "$LOGS" 2>/dev/null
    { printf '%s' "$RECORD" >"$LOGS/$JOB.jsonl"; } 2>/dev/null
    [ -d "$ANNEX_DIR" ] && [ -n "${P_ANNEX_ID:-}" ] || return 0
    mkdir -p "$ANNEX_DIR/pilots" 2>/dev/null
    { : >"$ANNEX_DIR/pilots/$JOB"; } 2>/dev/null
    # Moved, not removed: on NFS an open file that is removed keeps its directory from going.
    mv -f "$ANNEX_DIR/slurm-${SLURM_JOB_ID:-0}.out" "$LOGS/$JOB.out" 2>/dev/null
    set -- "$ANNEX_DIR"/pilots/*
    if [ -e "$1" ] && [ "$#" -ge "$P_PILOTS" ]; then
        case $ANNEX_DIR in
        */annex/"$P_ANNEX_ID") rm -rf "$ANNEX_DIR" 2>/dev/null ;;
        esac
    fi
}

main() {
    : "${ANNEX_DIR:?}" "${SITEANNEX_HOME:?}" "${SLURM_JOB_ID:?}"
    JOB=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID:-0}}
    JOB=${JOB:-$SLURM_JOB_ID}
    NODE=$(timeout 5 hostname -f 2>/dev/null) || NODE=${SLURMD_NODENAME:-$(hostname)}
    RECORD="" DIR="" EP="" MASTER="" GUARD="" SIGNAL="" REASON="" AP_REACHED=0 EP_ADVERTISED=0 FAILED_AS=""
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
    ENDS_AT=${SLURM_JOB_END_TIME:-}
    is_number "$ENDS_AT" || ENDS_AT=$(($(now) + P_WALLTIME_S))
    report BATCH_JOB ok "batch job $JOB runs on $NODE, $((ENDS_AT - $(now))) s left"

    find_scratch || fail scratch-unusable "${tried:-no candidate is set on this node}"
    heed
    unpack
    heed
    read_grants
    write_config
    report EP_START ok "HTCondor $P_EP_VERSION runs in $DIR ($SCRATCH_FREE_MIB MiB free); granted $CPUS CPUs, $MEMORY_MIB MiB, $GPUS GPUs"
    heed
    probe_ap
    report AP_CONNECT ok "$P_COLLECTOR_HOST is $address, port $P_COLLECTOR_PORT answers, token accepted"
    start_master
    await_ep
    check_slot
    report READY ok "seen by the collector after $(($(now) - STARTED_AT)) s"
    watch
    conclude
}

main
