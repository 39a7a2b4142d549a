#!/bin/sh
# An annex brought up by hand, as an expert would script it: log in once (ControlMaster), ship what is missing, sbatch,
# look every half second until the slot is in the collector. up_against_hand.py runs it on the access point.
#
# usage: by_hand.sh start LOGIN BUNDLE_DIR     (asks what the site asks; prints a line `mark STEP UNIX_SECONDS` a step)
#        by_hand.sh end LOGIN BUNDLE_DIR       (over the same connection)
#
# BUNDLE_DIR is what prepare_by_hand.py made: annex/ (the bundle), id, ep (path of the EP software's tarball).
set -eu
what=$1 login=$2 bundle=$3
id=$(cat "$bundle/id")
ep=$(cat "$bundle/ep")

at_site() {
    ssh -o ControlPath="$HOME/.ssh/by-hand-%C" -o ControlMaster=auto -o ControlPersist=10m "$login" "$@"
}
mark() { echo "mark $1 $(date +%s.%N)"; }

start() {
    at_site true
    mark connect
    if ! at_site "mkdir -p -m 700 .siteannex/ep && test -s .siteannex/ep/${ep##*/}"; then
        scp -q -o ControlPath="$HOME/.ssh/by-hand-%C" "$ep" "$login:.siteannex/ep/${ep##*/}"
        mark ship
    fi
    tar -czf - -C "$bundle/annex" . |
        at_site "umask 077; mkdir -p .siteannex/annex/$id/progress && tar -xzf - -C .siteannex/annex/$id"
    mark bundle
    job=$(at_site "cd .siteannex/annex/$id && sbatch --parsable batch.sh")
    mark submit
    echo "$job" >"$bundle/job"
    until [ "$(at_site "squeue -h -j $job -o %T")" = RUNNING ]; do sleep 0.5; done
    mark running
    until [ -n "$(condor_status -const "SiteannexRequestId == \"$id\"" -af Name)" ]; do sleep 0.5; done
    mark ready
}

end() {
    job=$(cat "$bundle/job")
    at_site "scancel --batch --signal=TERM $job"
    while [ -n "$(at_site "squeue -h -j $job -o %T")" ]; do sleep 0.5; done
    at_site "rm -rf .siteannex/annex/$id"
    ssh -o ControlPath="$HOME/.ssh/by-hand-%C" -O exit "$login"
}

"$what"
