#!/bin/sh
# What a lease has cost and may still cost, and whether one more pilot fits in it.
# A part of keeper.sh, which reads it before anything else; it only defines functions. Runs in the annex's directory.
# shellcheck disable=SC2034,SC2153,SC2154  # variables are shared between the parts; P_* come from params.sh, L_* from lease.sh
#
# The ledger is the annex's own marks. submit.N is made before each sbatch, ours and that of `up`, and goes only when
# sbatch refused. It counts as a pilot's whole walltime until Slurm's accounting has told how long its job ran:
#   submit.N/answer  what sbatch said    submit.N/ran   seconds that its job ran
#   submit.N/gone    one line for each look in a row at which squeue did not show it
# No clock takes part, and silence or nonsense of Slurm's never lowers the sum.

# Ask Slurm about this annex's pilots. QUEUE: lines `ID STATE` of those that live; QUEUE_KNOWN: 1 when squeue could be
# believed. ENDED: lines `ID SECONDS` of jobs that accounting says are over.
ask_slurm() {
    QUEUE="" QUEUE_KNOWN=0 ENDED=""
    if said=$(timeout 60 squeue -h -r -t all --name="$P_ANNEX_ID" -o '%A|%j|%T' 2>/dev/null) &&
        lines=$(printf '%s\n' "$said" | read_queue); then
        QUEUE=$lines QUEUE_KNOWN=1
    fi
    if said=$(timeout 60 sacct -n -P -X -D --name="$P_ANNEX_ID" -S "$L_SINCE" -o JobIDRaw,JobName,State,ElapsedRaw 2>/dev/null) &&
        lines=$(printf '%s\n' "$said" | read_accounting); then
        ENDED=$lines
    fi
}

# Both readers fail on a single line that is not as it should be: then nothing of that answer is believed.
read_queue() {
    awk -F '|' -v name="$P_ANNEX_ID" '
        $0 == "" { next }
        NF != 3 || $1 !~ /^[0-9]+$/ || length($1) > 18 || $2 != name || $3 !~ /^[A-Z_]+$/ { bad = 1; exit }
        $3 !~ /^(COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL|OUT_OF_MEMORY|PREEMPTED|BOOT_FAIL|DEADLINE|REVOKED)$/ { print $1, $3 }
        END { exit bad }'
}

# A job that was started again has several records, and all of its time was charged.
read_accounting() {
    awk -F '|' -v name="$P_ANNEX_ID" '
        $0 == "" { next }
        NF != 4 || $1 !~ /^[0-9]+$/ || length($1) > 18 || $2 != name || $4 !~ /^[0-9]+$/ || length($4) > 8 { bad = 1; exit }
        $3 !~ /^(COMPLETED|FAILED|CANCELLED( by [0-9]+)?|TIMEOUT|NODE_FAIL|OUT_OF_MEMORY|PREEMPTED|BOOT_FAIL|DEADLINE|REVOKED)$/ { lives[$1] = 1 }
        { seconds[$1] += $4 }
        END { if (bad) exit 1; for (id in seconds) if (!(id in lives)) print id, seconds[id] }'
}

job_of() { sed -n 's/^\(Submitted batch job \)\{0,1\}\([0-9]\{1,18\}\)\([^0-9].*\)\{0,1\}$/\2/p' "$1/answer" 2>/dev/null | tail -n 1; }

is_in() { printf '%s\n' "$2" | grep -q "^$1 "; }

# Bring the marks up to what Slurm says. A mark whose sbatch gave no answer (the keeper was killed there) takes the job
# that bears the annex's name and no mark knows.
settle_marks() {
    claimed=" "
    for mark in submit.[0-9]*; do
        [ -d "$mark" ] && claimed="$claimed$(job_of "$mark") "
    done
    for mark in submit.[0-9]*; do
        [ -d "$mark" ] || continue
        id=$(job_of "$mark")
        if [ -z "$id" ] && id=$(unclaimed | head -n 1) && [ -n "$id" ]; then
            keep "$id" "$mark/answer"
            claimed="$claimed$id "
        fi
        settle_mark "$mark" "$id"
    done
}

settle_mark() {
    [ "$QUEUE_KNOWN" = 1 ] || return 0
    if [ -n "$2" ] && is_in "$2" "$QUEUE"; then
        rm -f "$1/gone"
        return 0
    fi
    ran_of "$1" >/dev/null && return 0
    if [ -n "$2" ] && is_in "$2" "$ENDED"; then
        keep "$(printf '%s\n' "$ENDED" | sed -n "s/^$2 //p")" "$1/ran"
    else
        echo . >>"$1/gone"
    fi
}

# Jobs of the annex's name that no mark knows.
unclaimed() {
    for job in $(printf '%s\n%s\n' "$QUEUE" "$ENDED" | sed 's/ .*//' | sort -un); do
        case $claimed in *" $job "*) ;; *) echo "$job" ;; esac
    done
}

ran_of() { grep -x '[0-9]\{1,9\}' "$1/ran" 2>/dev/null | head -n 1 | grep .; }

# A file that is there whole or not at all.
keep() { printf '%s\n' "$1" >"$2.new" && mv -f "$2.new" "$2"; }

# USED and RESERVED in GPU-seconds, LIVING and WAITING_PILOTS in pilots.
count_up() {
    USED=0 RESERVED=0 LIVING=0 WAITING_PILOTS=0
    for mark in submit.[0-9]*; do
        [ -d "$mark" ] || continue
        if ran=$(ran_of "$mark"); then
            USED=$((USED + (ran * L_PILOT_GPU_S + P_WALLTIME_S - 1) / P_WALLTIME_S))
            continue
        fi
        RESERVED=$((RESERVED + L_PILOT_GPU_S))
        lives "$mark" "$(job_of "$mark")" && LIVING=$((LIVING + 1))
    done
    for job in $(unclaimed); do
        RESERVED=$((RESERVED + L_PILOT_GPU_S))
        ! is_in "$job" "$QUEUE" || LIVING=$((LIVING + 1))
    done
    [ "$QUEUE_KNOWN" = 0 ] || WAITING_PILOTS=$(printf '%s\n' "$QUEUE" | grep -c -E ' (PENDING|CONFIGURING)$')
}

# A pilot that has left its own mark is over; so is one that squeue has not shown twice in a row. One look proves
# nothing: a job just taken may show a moment later.
lives() {
    if [ -n "$2" ] && is_in "$2" "$QUEUE"; then return 0; fi
    if [ -n "$2" ] && [ -e "pilots/$2" ]; then return 1; fi
    [ "$(grep -c . "$1/gone" 2>/dev/null)" -lt 2 ] 2>/dev/null || [ ! -e "$1/gone" ]
}

# Seconds of the lease that are left. Neither a clock that goes back nor one that stands makes a lease longer: the
# latest time ever seen counts, and each wake came an interval after the one before it.
lease_left() {
    seen=$(grep -x '[0-9]\{1,11\}' clock 2>/dev/null | head -n 1)
    wakes=$(grep -x '[0-9]\{1,9\}' wakes 2>/dev/null | head -n 1)
    time=$(now | grep -x '[0-9]\{1,11\}') || time=${seen:-$L_ENDS_AT}
    [ "$time" -ge "${seen:-0}" ] || time=$seen
    keep "$time" clock
    keep $((${wakes:-0} + 1)) wakes
    left=$((L_ENDS_AT - time))
    least=$((L_LEASE_S - ${wakes:-0} * L_INTERVAL_S))
    [ "$left" -le "$least" ] || left=$least
    if [ "$left" -gt 0 ]; then LEFT_S=$left; else LEFT_S=0; fi
}

# Whether to submit one pilot now: VERDICT is `submit`, or the reason why not. DEMAND: jobs that wait, "" when the
# access point did not say. One pilot a wake, none while another waits in the queue; and beside a running one only for
# work that waited at the last wake already, because a pilot that is up may just be taking it.
decide() {
    before=$(cat demand 2>/dev/null)
    keep "$DEMAND" demand
    if [ "$QUEUE_KNOWN" = 0 ]; then
        VERDICT="Slurm does not say what runs"
    elif [ -z "$DEMAND" ]; then
        VERDICT="the access point does not answer"
    elif [ "$DEMAND" -eq 0 ]; then
        VERDICT="nothing waits"
    elif [ $((USED + RESERVED + L_PILOT_GPU_S)) -gt "$L_CAP_GPU_S" ]; then
        VERDICT="one more pilot could pass the lease's GPU-hours"
    elif [ "$LIVING" -ge "$L_MAX_PILOTS" ]; then
        VERDICT="as many pilots as the lease allows"
    elif [ "$LEFT_S" -lt "$P_WALLTIME_S" ]; then
        VERDICT="the lease ends before a pilot would"
    elif [ "$WAITING_PILOTS" -gt 0 ]; then
        VERDICT="a pilot waits in the queue"
    elif [ "$LIVING" -gt 0 ] && [ "${before:-0}" -eq 0 ]; then
        VERDICT="a running pilot may take it"
    else
        VERDICT="submit"
    fi
}

# Submit one pilot. SUBMITTED: its job id; REFUSED: what sbatch said. The mark comes first and goes only when Slurm
# surely took nothing, so that a keeper killed at any point submits nothing twice.
submit_pilot() {
    SUBMITTED="" REFUSED=""
    number=1
    while ! mkdir "submit.$number" 2>/dev/null; do
        [ -d "submit.$number" ] || { REFUSED="$PWD cannot be written"; return 0; }
        number=$((number + 1))
    done
    out=$(timeout -k 5 60 sbatch --parsable --deadline="now+$LEFT_S" batch.sh 2>submit.err)
    status=$?
    if [ "$status" -eq 0 ]; then
        keep "$out" "submit.$number/answer"
        SUBMITTED=$(job_of "submit.$number")
        return 0
    fi
    REFUSED="status $status: $(head -c 300 submit.err | tr '\n' ' ')"
    if [ "$status" -eq 124 ] || [ "$status" -eq 137 ] || grep -qiE "$L_UNCERTAIN" submit.err; then return 0; fi
    rmdir "submit.$number" 2>/dev/null
}
