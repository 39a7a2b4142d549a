# shellcheck shell=bash
# Sourced as the last act of a host's first process. bash collects every orphan while it waits.
while :; do
    sleep 3600 &
    wait $!
done
