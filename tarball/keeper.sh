#!/bin/sh
# The keeper of a leased annex: one wake. It submits its successor, looks at the access point for waiting work, submits
# at most one pilot within the lease, says so in an ad, and ends. POSIX sh; keep.sh, its batch script, execs it.
#
# In:      ANNEX_DIR and SITEANNEX_HOME from keep.sh; params.sh (the plan), lease.sh (the lease), ep.conf, token in ANNEX_DIR.
# Out:     submit.N marks as `up` makes them; an ad at the collector; one line a wake in SITEANNEX_HOME/logs/ANNEX_ID/keeper.log.
# Status:  always 0: what is to be told is told in the ad and the log.
#
# Everything is in functions, so that the shell has read all of it before any of it runs: `down` may remove the files.

# shellcheck disable=SC2034,SC2153,SC2154  # variables are shared between the parts

set -u
umask 077
LC_ALL=C
export LC_ALL
SILENT_WAKES=96
REFUSED_WAKES=12

: "${ANNEX_DIR:?}"
# shellcheck source=SCRIPTDIR/pilot-report.sh
. "$ANNEX_DIR/pilot-report.sh"
# shellcheck source=SCRIPTDIR/pilot-node.sh
. "$ANNEX_DIR/pilot-node.sh"
# shellcheck source=SCRIPTDIR/keeper-ledger.sh
. "$ANNEX_DIR/keeper-ledger.sh"

main() {
    : "${SITEANNEX_HOME:?}" "${SLURM_JOB_ID:?}"
    JOB=$SLURM_JOB_ID DIR="" EP="" CODE="" TEXT="" SEEN="" STAGE=resting
    NODE=$(timeout 5 hostname -f 2>/dev/null) || NODE=$(hostname)
    cd "$ANNEX_DIR" || exit 0
    [ -r lease.sh ] || exit 0
    set +u # a scratch candidate may name a variable that this site does not set
    # shellcheck source=/dev/null
    . ./params.sh
    # shellcheck source=/dev/null
    . ./lease.sh
    set -u
    trap 'put_away; exit 0' TERM INT
    succeed_me
    alone || exit 0
    check_software
    settle
    write_tools_conf
    ask_slurm
    settle_marks
    count_up
    lease_left
    ask_demand
    act
    advertise
    note
    [ -z "$CODE" ] || end_lease
    put_away
}

# The next wake, before anything that could fail. One is enough: none is submitted while another waits.
succeed_me() {
    others=$(timeout 30 squeue -h --name="$P_ANNEX_ID.keeper" -t PENDING -o %A 2>/dev/null) || others=""
    [ -z "$others" ] || return 0
    timeout -k 5 60 sbatch --parsable --dependency=singleton --begin="now+$L_INTERVAL_S" keep.sh >keeper.next 2>keeper.err
}

# One at a time: a lock that names its job, and is free when Slurm shows that job no more.
alone() {
    if ! mkdir keeper.lock 2>/dev/null; then
        holder=$(cat keeper.lock/job 2>/dev/null)
        if [ "$holder" != "$JOB" ]; then
            living=$(timeout 30 squeue -h --name="$P_ANNEX_ID.keeper" -t RUNNING,COMPLETING -o %A 2>/dev/null) || return 1
            ! printf '%s\n' "$living" | grep -q -x -e "${holder:-none}" || return 1
        fi
    fi
    echo "$JOB" >keeper.lock/job
}

write_tools_conf() {
    mkdir "$DIR/log" "$DIR/run" "$DIR/tokens.d" "$DIR/passwords.d" && cp token "$DIR/tokens.d/siteannex"
    {
        echo "SITEANNEX_DIR = $DIR"
        echo "SITEANNEX_JOB = $JOB"
        echo "SITEANNEX_NODE = $NODE"
        echo "SITEANNEX_CPUS = 1"
        echo "SITEANNEX_MEMORY_MIB = 128"
        sed -e '/^# This site.s own lines/,$d' -e '/^use /d' -e '/SITEANNEX_ENDS_AT/d' -e '/SITEANNEX_START_UNTIL/d' \
            -e '/SITEANNEX_FAST_AT/d' ep.conf
    } >"$DIR/tools.conf"
    CONDOR_CONFIG="$DIR/tools.conf"
    export CONDOR_CONFIG
}

# DEMAND: idle jobs of the owner's for this annex that its slots can hold; "" when the access point did not say. TOO_LARGE:
# those that they cannot.
ask_demand() {
    DEMAND="" TOO_LARGE=0
    if told=$(timeout 60 "$EP/bin/condor_q" -pool "$P_COLLECTOR" -name "$P_SCHEDD" -allusers \
        -constraint "$L_WAITING" -af "ifThenElse(($L_FITS) =?= true, 1, 0)" 2>"$DIR/err"); then
        DEMAND=$(printf '%s\n' "$told" | grep -c -x 1)
        TOO_LARGE=$(printf '%s\n' "$told" | grep -c -x 0)
        rm -f silent
        return 0
    fi
    SEEN="condor_q: $(seen "$DIR/err" 3 | one_line)"
    echo . >>silent
}

lines_of() { grep -c . "$1" 2>/dev/null || :; }

# Decide and act; an ending sets CODE.
act() {
    decide
    TEXT=$VERDICT
    [ "$TOO_LARGE" -eq 0 ] || TEXT="$VERDICT; $TOO_LARGE too large for its pilots: siteannex why JOB"
    if [ "$LEFT_S" -eq 0 ]; then
        CODE=lease-over TEXT="the lease has ended"
    elif [ "$LIVING" -eq 0 ] && [ "$QUEUE_KNOWN" = 1 ] && [ $((USED + RESERVED + L_PILOT_GPU_S)) -gt "$L_CAP_GPU_S" ]; then
        CODE=lease-spent TEXT="what is left of the lease's GPU-hours is less than one pilot could use"
    elif [ "$(lines_of silent)" -ge "$SILENT_WAKES" ] 2>/dev/null; then
        CODE=lease-ap-silent TEXT="the access point has not answered for $SILENT_WAKES wakes"
    elif [ "$VERDICT" = submit ]; then
        try_to_submit
    fi
    [ "$LIVING" -eq 0 ] || STAGE=working
}

try_to_submit() {
    submit_pilot
    if [ -z "$REFUSED" ]; then
        rm -f refused
        TEXT="submitted job $SUBMITTED" STAGE=working LIVING=$((LIVING + 1)) RESERVED=$((RESERVED + L_PILOT_GPU_S))
        return 0
    fi
    echo . >>refused
    TEXT="sbatch refused: $REFUSED"
    [ "$(lines_of refused)" -lt "$REFUSED_WAKES" ] || CODE=lease-refused
}

# The word to the access point, heard by whoever asks `status` there.
advertise() {
    [ -z "$CODE" ] || STAGE=ended
    keeps=$((L_INTERVAL_S * 3 + 600))
    [ -z "$CODE" ] || keeps=604800
    cat >"$DIR/keeper.ad" <<AD
MyType = "Machine"
TargetType = ""
Name = "keeper@$P_ANNEX_ID"
Machine = "$NODE"
State = "Drained"
Activity = "Idle"
Start = false
Requirements = false
Cpus = 0
Memory = 0
ClassAdLifetime = $keeps
AnnexName = "$P_NAME"
SiteannexRequestId = "$P_ANNEX_ID"
SiteannexSite = "$P_SITE"
SiteannexKeeper = true
SiteannexStage = "$STAGE"
SiteannexCode = "$CODE"
SiteannexText = "$(printf '%s\n' "$TEXT" | one_line)"
SiteannexUsedGpuS = $USED
SiteannexReservedGpuS = $RESERVED
SiteannexCapGpuS = $L_CAP_GPU_S
SiteannexPilots = $LIVING
SiteannexWaiting = ${DEMAND:-0}
SiteannexLeaseLeftS = $LEFT_S
SiteannexNextWakeS = $L_INTERVAL_S
AD
    tell_collector UPDATE_STARTD_AD "$DIR/keeper.ad"
}

note() {
    mkdir -p "$SITEANNEX_HOME/logs/$P_ANNEX_ID" 2>/dev/null
    log="$SITEANNEX_HOME/logs/$P_ANNEX_ID/keeper.log"
    { tail -n 500 "$log" 2>/dev/null; echo "$(date -u +%Y-%m-%dT%H:%M:%SZ) job $JOB: ${CODE:-$STAGE}: $TEXT; used $USED, reserved $RESERVED of $L_CAP_GPU_S GPU-s; waiting ${DEMAND:-not known}; $LEFT_S s left $SEEN"; } >"$log.new" 2>/dev/null &&
        mv -f "$log.new" "$log"
}

# The lease is over: nobody is kept, the token goes, and the directory with the last pilot.
end_lease() {
    timeout 30 scancel --name="$P_ANNEX_ID.keeper" --state=PENDING 2>/dev/null
    timeout 30 scancel --name="$P_ANNEX_ID" --state=PENDING 2>/dev/null
    rm -f lease.sh token
    [ "$LIVING" -eq 0 ] || return 0
    case $ANNEX_DIR in
    */annex/"$P_ANNEX_ID") cd / && rm -rf "$ANNEX_DIR" ;;
    esac
}

put_away() {
    [ -z "$DIR" ] || rm -rf "$DIR"
    rm -rf "$ANNEX_DIR/keeper.lock" 2>/dev/null
}

# The node's own troubles (pilot-node.sh): this wake can do nothing, the next may come to another node.
fail() {
    TEXT="$1: $2" USED=0 RESERVED=0 LEFT_S=0 DEMAND=""
    note
    put_away
    exit 0
}

main
