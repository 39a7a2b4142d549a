#!/bin/sh
# How a pilot says what happens: progress lines, failures, ads, time and signals.
# A part of pilot.sh, which reads it before anything else; it only defines functions.
# shellcheck disable=SC2034,SC2153,SC2154  # variables are shared between the parts; P_* come from params.sh

# One line of printable ASCII, fit for a JSON string.
one_line() {
    awk 'NR > 1 { printf " | " } { printf "%s", $0 }' | tr '\t\r' '  ' | tr -cd '\040-\176' | cut -c 1-1500 |
        sed 's/[\\"]/\\&/g'
}

# report STAGE CODE TEXT [SEEN]: SEEN is what logs and programs said, one line each.
report() {
    line="{\"v\":1,\"at\":\"$(date -u +%Y-%m-%dT%H:%M:%SZ)\",\"job\":\"$JOB\",\"node\":\"$NODE\",\"stage\":\"$1\""
    line="$line,\"code\":\"$2\",\"text\":\"$(printf '%s\n' "$3" | one_line)\""
    [ -z "${4:-}" ] || line="$line,\"seen\":\"$(printf '%s\n' "$4" | one_line)\""
    line="$line}"
    RECORD="$RECORD$line
"
    printf '%s\n' "$line" >&2
    if [ -d "$ANNEX_DIR/progress" ]; then
        { printf '%s\n' "$line" >>"$ANNEX_DIR/progress/$JOB.jsonl"; } 2>/dev/null
    fi
}

stage_of() {
    case $1 in
    scratch-unusable | scratch-full | ep-software-damaged | ep-unpack-failed) echo EP_START ;;
    ep-binary-broken | ep-library-missing | ep-loader-too-old | ep-config-invalid) echo EP_START ;;
    ep-master-exited | ep-startd-crashes) echo EP_START ;;
    collector-unresolvable | collector-unreachable | collector-no-route | collector-refused) echo AP_CONNECT ;;
    collector-silent | clock-skew | token-rejected | token-expired | token-not-yet-valid) echo AP_CONNECT ;;
    token-wrong-issuer | token-wrong-key | token-scope-missing | token-not-authorized) echo AP_CONNECT ;;
    ccb-missing | ep-not-seen) echo AP_CONNECT ;;
    gpus-missing | gpus-none | gpu-model-differs | gpu-memory-small) echo EP_CONFIG ;;
    cpus-missing | memory-missing | start-never | owner-mismatch | direct-attach-unsupported) echo EP_CONFIG ;;
    ep-died) echo READY ;;
    esac
}

# fail CODE TEXT [SEEN]: a broken EP must not hold its allocation.
fail() {
    stage=$(stage_of "$1")
    FAILED_STAGE=$stage FAILED_CODE=$1 FAILED_TEXT=$2 FAILED_SEEN=${3:-}
    report "$stage" "$1" "$2" "$FAILED_SEEN"
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

# What an HTCondor log says went wrong, or its last lines when it names no error; with the archive it can be read in
# when this node's disk is out of reach.
complaints() {
    [ -s "$1" ] || return 0
    words=$(grep -E "ERROR|FAILED|[Ff]atal|exited with status|died due to|SECMAN|AUTHENTICATE|CCB|$LOG_WORDS" "$1" |
        tail -n 4 | cut -c 1-300)
    printf '%s\n' "${words:-$(seen "$1" 4)}" | sed "s|^|${1##*/} ($LOGS/$JOB.tar.gz): |"
}
LOG_WORDS="Can't|[Cc]annot|[Ff]ailed to"

# What people read: 1800 is "30 m", 11959 MiB are "11.7 GB"; the same words as siteannex.units.
spell_s() {
    if [ "$1" -lt 60 ]; then
        echo "$1 s"
    elif [ "$1" -lt 3600 ]; then
        two_units "$1" 60 m 1 s
    elif [ "$1" -lt 86400 ]; then
        two_units "$1" 3600 h 60 m
    else
        two_units "$1" 86400 d 3600 h
    fi
}

two_units() {
    rest=$(($1 % $2 / $4))
    if [ "$rest" -gt 0 ]; then echo "$(($1 / $2)) $3 $rest $5"; else echo "$(($1 / $2)) $3"; fi
}

spell_mib() {
    printf '%s\n' "$1" | awk '
        $1 >= 1048576 { text = sprintf("%.1f", $1 / 1048576); unit = "TB" }
        $1 >= 1024 && $1 < 1048576 { text = sprintf("%.1f", $1 / 1024); unit = "GB" }
        $1 < 1024 { text = $1; unit = "MB" }
        { sub(/\.0$/, "", text); print text " " unit }'
}

# An ad in place of the slot that did not come to be, so that the access point learns why without asking the site.
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
SiteannexStage = "$FAILED_STAGE"
SiteannexCode = "$FAILED_CODE"
SiteannexText = "$(printf '%s\n' "$FAILED_TEXT" | one_line)"
SiteannexSeen = "$(printf '%s\n' "$FAILED_SEEN" | one_line)"
AD
    tell_collector UPDATE_STARTD_AD "$DIR/failed.ad"
}

# Where a failed pilot can hope to be heard: the AP was reached, or nobody has tried yet and HTCondor's tools run. Under
# somebody else's name nobody would look for its ad, nor be allowed to remove it.
can_be_heard() {
    [ "$FAILED_CODE" != owner-mismatch ] || return 1
    [ "$AP_REACHED" = 1 ] || { [ "$FAILED_STAGE" = EP_START ] && [ -r "$DIR/tools.conf" ]; }
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
    CONDOR_CONFIG="$DIR/tools.conf" timeout 10 "$EP/sbin/condor_advertise" -pool "$P_COLLECTOR" "$1" "$2" >/dev/null 2>&1
}

# --- time and signals ----------------------------------------------------------------------------------------------

now() { date +%s; }

seconds_left() {
    left=$((ENDS_AT - $(now)))
    if [ "$left" -gt 0 ]; then echo "$left"; else echo 0; fi
}

# Sleep that a signal ends. Parts of a second where this system's sleep knows them.
pause() {
    { sleep "$1" 2>/dev/null || sleep 1; } &
    wait "$!"
}

# Between steps: a signal that came before HTCondor ran ends the pilot here.
heed() {
    case $SIGNAL in
    stop) finish "$(stopped_by)" 0 ;;
    drain) finish "asked to end before it was up" 0 ;;
    esac
}
