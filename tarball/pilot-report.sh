#!/bin/sh
# How a pilot says what happens: progress lines, failures, ads, time and signals.
# A part of pilot.sh, which reads it before anything else; it only defines functions.
# shellcheck disable=SC2034,SC2153,SC2154  # variables are shared between the parts; P_* come from params.sh

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
