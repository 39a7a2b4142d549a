#!/bin/sh
# From READY to nothing left: drain, eviction, walltime, archive, removal.
# A part of pilot.sh, which reads it before anything else; it only defines functions.
# shellcheck disable=SC2034,SC2153,SC2154  # variables are shared between the parts; P_* come from params.sh

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

# Why Slurm stops this start of the job: slurmstepd writes it into the job's output before it signals.
stopped_by() {
    case $(tail -c "+$((OUTPUT_BEFORE + 1))" "$ANNEX_DIR/slurm-$SLURM_JOB_ID.out" 2>/dev/null | grep -a 'CANCELLED AT' | tail -n 1) in
    *'DUE TO PREEMPTION'*) echo "preempted" ;;
    *'DUE TO JOB REQUEUE'*) echo "requeued" ;;
    *'DUE TO TIME LIMIT'*) echo "walltime" ;;
    *) echo "cancelled" ;;
    esac
}

# Slurm starts a requeued job again under the same id. It counts the new start when it stops the old one.
starts_again() {
    case $1 in
    preempted | requeued) ;;
    *) return 1 ;;
    esac
    starts=$(timeout 20 squeue -h -j "$SLURM_JOB_ID" -O RestartCnt 2>/dev/null | tr -cd '0-9')
    is_number "$starts" && [ "$starts" -gt "${SLURM_RESTART_COUNT:-0}" ]
}

# True when the daemons were told to end behind our back: a plain scancel signals every process of the batch job,
# and the batch system's kill follows in seconds. Then there is no time for more than cleaning up.
struck() {
    pause 0.2
    grep -q 'Got SIGTERM' "$DIR/log/MasterLog" 2>/dev/null
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
    while alive && jobs_run && [ "$tries" -lt 40 ]; do
        pause 0.2
        tries=$((tries + 1))
    done
    pause 2
}

# An annex whose directory is gone was taken down (or forgotten by a command that failed): nobody waits for this EP.
# Seen three times in a row, because a network file system may blink.
heed_removal() {
    if [ -d "$ANNEX_DIR" ]; then
        GONE=0
        return
    fi
    GONE=$((GONE + 1))
    [ "$GONE" -ne 3 ] || SIGNAL=stop
}

# From READY to the end of HTCondor, whatever ends it.
watch() {
    DRAINING=0 EVICTING=0 FAST_AT=0 EMPTY=0 GONE=0
    while alive; do
        heed_removal
        left=$((ENDS_AT - $(now)))
        got=$SIGNAL
        SIGNAL=""
        case $got in
        stop)
            REASON=$(stopped_by)
            if [ "$FAST_AT" = 0 ]; then
                struck || evict_now
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
        [ -e "$ANNEX_DIR/logs.wanted" ] && answer_for_logs
        if [ "$EVICTING" = 0 ] && [ "$FAST_AT" = 0 ] && [ "$left" -le "$P_EVICT_S" ]; then
            EVICTING=1
            report DRAIN ok "walltime in $(spell_s "$left"): jobs have $P_VACATE_S s to end"
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
        finish "idle $(spell_s "$P_IDLE_S")" 0
    elif [ "$status" -eq 0 ] || [ "$status" -eq 99 ]; then
        finish "HTCondor was asked to end" 0
    fi
    fail ep-died "condor_master ended with status $status" "$(complaints "$DIR/log/MasterLog")"
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
        if [ -n "$FAILED_CODE" ] && can_be_heard; then advertise_failure; fi
        pack_logs "$LOGS/$JOB.tar.gz"
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

# pack_logs TARGET: logs, bounded, never the token, as one archive that is there whole or not at all.
pack_logs() {
    rm -rf "$DIR/out"
    mkdir -p "${1%/*}" "$DIR/out" 2>/dev/null || return 0
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
        tar -czf "$1.new" -C "$DIR/out" . 2>/dev/null || break
        [ "$(wc -c <"$1.new")" -le 1000000 ] && break
    done
    mv -f "$1.new" "$1" 2>/dev/null
}

# `siteannex logs` asks for the logs of a living EP, which lie on this node's own disk, by touching a file.
answer_for_logs() {
    given="$ANNEX_DIR/live/$JOB.tar.gz"
    if [ -e "$given" ] && [ -z "$(find "$ANNEX_DIR/logs.wanted" -newer "$given" 2>/dev/null)" ]; then return 0; fi
    pack_logs "$given"
}

# No other pilot can still need the annex's directory: all have left their mark, or Slurm knows of no other (one that
# was cancelled in the queue, or died with its node, leaves no mark). Slurm knows at least this job: an answer without
# it is of no worth.
is_last() {
    set -- "$ANNEX_DIR"/pilots/*
    [ -e "$1" ] && [ ! -e "$ANNEX_DIR/keep.sh" ] && [ "$#" -ge "$P_PILOTS" ] && return 0
    others=$(timeout 20 squeue -h -r --name="$P_ANNEX_ID" -o %A 2>/dev/null) || return 1
    printf '%s\n' "$others" | grep -q -x -e "$SLURM_JOB_ID" || return 1
    ! printf '%s\n' "$others" | grep -q -v -x -e "$SLURM_JOB_ID" -e ''
}

# The record stays in the log directory; what a job that starts again needs stays whole. Else the last pilot of the annex takes the annex's directory away, token included.
leave() {
    mkdir -p "$LOGS" 2>/dev/null
    { printf '%s' "$RECORD" >>"$LOGS/$JOB.jsonl"; } 2>/dev/null
    [ -d "$ANNEX_DIR" ] && [ -n "${P_ANNEX_ID:-}" ] || return 0
    if starts_again "$1"; then return 0; fi
    mkdir -p "$ANNEX_DIR/pilots" 2>/dev/null
    { : >"$ANNEX_DIR/pilots/$JOB"; } 2>/dev/null
    # Moved, not removed: on NFS an open file that is removed keeps its directory from going.
    mv -f "$ANNEX_DIR/slurm-${SLURM_JOB_ID:-0}.out" "$LOGS/$JOB.out" 2>/dev/null
    # While a lease lives its keeper may bring another pilot; the directory is the keeper's to remove.
    if [ -e "$ANNEX_DIR/lease.sh" ]; then return 0; fi
    if is_last; then
        case $ANNEX_DIR in
        */annex/"$P_ANNEX_ID") rm -rf "$ANNEX_DIR" 2>/dev/null ;;
        esac
    fi
}
