#!/bin/sh
# The way to the access point: name, port, clock, token, and whether jobs could come that way. AP_CONNECT, EP_CONFIG.
# A part of pilot.sh, which reads it before anything else; it only defines functions.
# shellcheck disable=SC2034,SC2153,SC2154  # variables are shared between the parts; P_* come from params.sh

probe_ap() {
    probe_name
    probe_tcp
    probe_clock
    probe_token
    # A collector that talks to nobody unauthenticated has told its time only now.
    [ -n "$AP_AHEAD_S" ] || read_clock "$said"
    judge_clock
    AP_REACHED=1
    probe_way_back
}

# --- name and port -------------------------------------------------------------------------------------------------

probe_name() {
    address=""
    for wait_s in 0 2 4; do
        pause "$wait_s"
        heed
        said=$(timeout 10 getent ahosts "$P_COLLECTOR_HOST" 2>&1)
        status=$?
        address=$(printf '%s\n' "$said" | awk 'NR == 1 && NF >= 2 { print $1 }')
        [ -n "$address" ] && return 0
    done
    [ "$status" -ne 124 ] || said="no answer within 10 s"
    fail collector-unresolvable "$P_COLLECTOR_HOST does not resolve on $NODE (asked 3 times)" \
        "getent ahosts $P_COLLECTOR_HOST: ${said:-not found}
/etc/resolv.conf: $(grep -s '^nameserver' /etc/resolv.conf | tr '\n' ' ')"
}

# TCP as bash does it; on a node without bash the token probe has to tell.
probe_tcp() {
    command -v bash >/dev/null 2>&1 || return 0
    words=""
    for wait_s in 0 2 4; do
        pause "$wait_s"
        heed
        # shellcheck disable=SC2016  # bash expands them
        words=$(timeout 5 bash -c 'exec 3<>"/dev/tcp/$0/$1"' "$P_COLLECTOR_HOST" "$P_COLLECTOR_PORT" 2>&1) && return 0
        words=$(printf '%s\n' "${words:-no answer within 5 s}" | tail -n 1 | sed 's/^.*: //')
    done
    case $words in
    *refused*) code=collector-refused ;;
    *"No route"* | *unreachable*) code=collector-no-route ;;
    *) code=collector-unreachable ;;
    esac
    fail "$code" "$NODE cannot reach $P_COLLECTOR_HOST:$P_COLLECTOR_PORT: $words" \
        "pilot probe: DNS ok ($address$(private_words "$address")), TCP $P_COLLECTOR_PORT tried 3 times: $words"
}

private_words() {
    case $1 in
    10.* | 192.168.* | 172.1[6-9].* | 172.2[0-9].* | 172.3[01].* | 169.254.*) printf ', a private address' ;;
    127.* | ::1) printf ', this node itself' ;;
    esac
}

# --- clock ---------------------------------------------------------------------------------------------------------

# ping_ap DAEMON ARGUMENTS...
ping_ap() {
    daemon=$1
    shift
    timeout 25 "$EP/bin/condor_ping" -pool "$P_COLLECTOR" -type "$daemon" -verbose "$@" 2>&1
}

# The collector names each session after the second it began in (host:pid:second:number): so it tells its time to
# anybody who says hello, also to those whose token it will not take.
probe_clock() {
    AP_AHEAD_S=""
    _CONDOR_SEC_CLIENT_AUTHENTICATION=OPTIONAL
    export _CONDOR_SEC_CLIENT_AUTHENTICATION
    said=$(ping_ap collector ALLOW)
    unset _CONDOR_SEC_CLIENT_AUTHENTICATION
    read_clock "$said"
}

# Seconds that the AP's clock is ahead of this node's.
read_clock() {
    second=$(printf '%s\n' "$1" | sed -n 's/^Session ID: .*:\([0-9]\{9,11\}\):[0-9]*$/\1/p' | head -n 1)
    [ -z "$second" ] || AP_AHEAD_S=$((second - $(now)))
}

ap_now() { echo $(($(now) + ${AP_AHEAD_S:-0})); }

clock_words() {
    if [ "$AP_AHEAD_S" -lt 0 ]; then
        echo "this node's clock is $(spell_s $((-AP_AHEAD_S))) ahead of $P_COLLECTOR_HOST's"
    else
        echo "this node's clock is $(spell_s "$AP_AHEAD_S") behind $P_COLLECTOR_HOST's"
    fi
}

# The two clocks meet in START (the AP must think there is time left when the node does), in the token and in how long
# the annex is said to live. Up to a quarter of the walltime that only makes its end inexact; it is told, no more.
judge_clock() {
    CLOCK_WORDS=""
    [ -n "$AP_AHEAD_S" ] || return 0
    off=${AP_AHEAD_S#-}
    limit=$((P_WALLTIME_S / 4))
    [ "$limit" -ge 300 ] || limit=300
    [ "$limit" -le 3600 ] || limit=3600
    [ "$off" -le 60 ] || CLOCK_WORDS="; $(clock_words)"
    if [ "$off" -gt "$limit" ]; then
        AP_REACHED=1
        fail clock-skew "$(clock_words)" "node $NODE: $(date -u +%Y-%m-%dT%H:%M:%SZ)
$P_COLLECTOR (condor_ping, session's second): $(utc "$(ap_now)")"
    fi
}

utc() { date -u -d "@$1" +%Y-%m-%dT%H:%M:%SZ 2>/dev/null || echo "$1 s since 1970"; }

# --- token ---------------------------------------------------------------------------------------------------------

probe_token() {
    for wait_s in 0 3; do
        pause "$wait_s"
        heed
        if said=$(ping_ap collector READ ADVERTISE_STARTD ADVERTISE_MASTER); then break; fi
        [ "$wait_s" = 3 ] && refused "$P_COLLECTOR" "$said"
    done
    MAPPED_TO=$(printf '%s\n' "$said" | sed -n 's/^Remote Mapping: *//p' | head -n 1)
    [ "$P_JOIN" = direct ] || return 0
    at_schedd=$(ping_ap schedd -name "$P_SCHEDD" WRITE) || refused "schedd $P_SCHEDD" "$at_schedd"
}

# refused WHO WORDS: why a token was not taken. The AP answers an expired token, a forged one and a stranger's in the
# same words, so the token's own claims are read here.
refused() {
    words="condor_ping: $(printf '%s\n' "$2" | grep -E '(failed|denied|DENIED|rror|SECMAN|AUTHENTICATE)' | awk '!told[$0]++' | head -n 8)"
    case $2 in
    *DENIED*) not_allowed "$1" "$2" ;;
    *AUTHENTICATE:* | *"security policy is invalid"*) not_believed "$1" ;;
    "" | *SECMAN:200[3-9]* | *SECMAN:2011*)
        fail collector-silent "what answers at $P_COLLECTOR does not speak to HTCondor" "${words#condor_ping: }
condor_ping: ${2:-no answer within 25 s}" ;;
    esac
    fail token-rejected "$1 does not accept the token" "$words"
}

not_allowed() {
    lacking=""
    for level in $(printf '%s\n' "$2" | sed -n 's/^\([A-Z_]*\) failed!.*/\1/p'); do
        if [ -n "$(claim scope)" ] && ! claim scope | grep -q -w "$level"; then lacking="$lacking $level"; fi
    done
    who=$(printf '%s\n' "$2" | sed -n 's/.*DENIED.* for user \([^ ]*\) using.*/\1/p' | head -n 1)
    if [ -n "$lacking" ]; then
        fail token-scope-missing "the token lacks$lacking" "$words
token: scope $(claim scope)"
    fi
    fail token-not-authorized "$1 knows ${who:-its bearer} and does not allow this" "$words"
}

not_believed() {
    issuer=$(claim iss) expires=$(claim exp) issued=$(claim iat) from=$(claim nbf) time=$(ap_now)
    is_number "$issued" || issued=0
    is_number "$from" || from=$issued
    words="$words
token: issuer ${issuer:-unreadable}, key $(header kid), from $(utc "$from"), until $(utc "${expires:-0}")"
    [ -n "$issuer" ] || fail token-rejected "the file in its place is not a token" "$words"
    if is_number "$expires" && [ "$time" -ge "$expires" ]; then
        fail token-expired "the token expired $(spell_s $((time - expires))) ago" "$words"
    elif [ "$from" -gt $((time + 60)) ]; then
        fail token-not-yet-valid "the token is valid only in $(spell_s $((from - time)))" "$words"
    elif [ "$issuer" != "$P_TRUST_DOMAIN" ]; then
        fail token-wrong-issuer "the token is from $issuer; $P_COLLECTOR_HOST takes those of $P_TRUST_DOMAIN" "$words"
    fi
    fail token-wrong-key "issuer and times are right, so $1 has no key $(header kid) that signed it" "$words"
}

# A token is header.claims.signature, the first two base64url of JSON (RFC 7519). The signature is not touched.
token_part() {
    part=$(cut -d . -f "$1" "$DIR/tokens.d/siteannex" 2>/dev/null | head -n 1 | tr '_-' '/+')
    while [ $((${#part} % 4)) -ne 0 ]; do part="$part="; done
    printf '%s' "$part" | base64 -d 2>/dev/null | tr -d '\\\000'
}

claim() { token_part 2 | json_value "$1"; }

header() { token_part 1 | json_value "$1"; }

json_value() { sed -n "s/.*\"$1\": *\"\{0,1\}\([^\",}]*\).*/\1/p"; }

# --- the way back --------------------------------------------------------------------------------------------------

# The AP reaches an EP behind NAT or a firewall only through the connection that the EP keeps to CCB.
probe_way_back() {
    ccb=$(timeout 30 "$EP/bin/condor_config_val" CCB_ADDRESS 2>/dev/null) || ccb=""
    if [ -z "$ccb" ]; then
        fail ccb-missing "this EP would not keep a connection open for jobs to come by (CCB)" \
            "$CONDOR_CONFIG: CCB_ADDRESS is empty: $(grep -n 'CCB_ADDRESS' "$CONDOR_CONFIG" | tail -n 1)"
    fi
}

# --- would a job of the owner's match? -------------------------------------------------------------------------------

check_matching() {
    if [ -n "$MAPPED_TO" ] && [ "$MAPPED_TO" != "$P_IDENTITY" ]; then
        fail owner-mismatch "$P_COLLECTOR_HOST takes this EP for $MAPPED_TO's; the annex is $P_IDENTITY's" \
            "condor_ping: Remote Mapping: $MAPPED_TO"
    fi
    if [ "$P_JOIN" = direct ] && ! knows_direct_attach; then
        fail direct-attach-unsupported "HTCondor $P_EP_VERSION cannot attach to a schedd directly" \
            "condor_startd does not know STARTD_DIRECT_ATTACH_SCHEDD_NAME"
    fi
    cpus=$(configured NUM_CPUS)
    if is_number "$cpus" && [ "$cpus" -lt "$CPUS" ]; then
        fail cpus-missing "granted $CPUS CPUs; the slot would have $cpus" "$CONDOR_CONFIG: NUM_CPUS = $cpus"
    fi
    memory=$(configured MEMORY)
    if is_number "$memory" && [ "$memory" -lt $((MEMORY_MIB * 9 / 10)) ]; then
        fail memory-missing "granted $(spell_mib "$MEMORY_MIB"); the slot would have $(spell_mib "$memory")" \
            "$CONDOR_CONFIG: MEMORY = $memory"
    fi
    check_start
}

configured() { timeout 30 "$EP/bin/condor_config_val" "$1" 2>/dev/null; }

knows_direct_attach() {
    cat "$EP/real/condor_startd" "$EP/sbin/condor_startd" 2>/dev/null | grep -q STARTD_DIRECT_ATTACH_SCHEDD_NAME
}

# START against a plain job of the owner's for this annex, evaluated by HTCondor itself. Undefined is no failure: it
# may depend on what a job says of itself.
check_start() {
    start=$(configured START) || return 0
    cat >"$DIR/start.ad" <<AD
MyType = "Machine"
AnnexName = "$P_NAME"
SiteannexSite = "$P_SITE"
SiteannexRequestId = "$P_ANNEX_ID"
EPSlurmJobId = "$JOB"
Cpus = $CPUS
Memory = $MEMORY_MIB
GPUs = $GPUS
SiteannexJob = [ User = "$P_IDENTITY"; Owner = "${P_IDENTITY%%@*}"; TargetAnnexName = "$P_NAME"; RequestCpus = 1; RequestMemory = 128; RequestGPUs = $GPUS; RequestDisk = 1024; JobUniverse = 5 ]
AD
    asked=$(printf '%s\n' "$start" | sed 's/[Tt][Aa][Rr][Gg][Ee][Tt]\./SiteannexJob./g')
    verdict=$(timeout 30 "$EP/bin/condor_status" -ads "$DIR/start.ad" -af "$asked" 2>/dev/null | head -n 1)
    [ "$verdict" = false ] || return 0
    fail start-never "START is false for a plain job of $P_IDENTITY's with TargetAnnexName = \"$P_NAME\"" \
        "$CONDOR_CONFIG: START = $start"
}
