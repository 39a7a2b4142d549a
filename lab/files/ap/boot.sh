#!/bin/bash
# First process of the access point. What systemd-tmpfiles would do, then condor_master.
set -eu
for dir in /run/condor /var/lock/condor /var/log/condor /var/spool/condor /var/lib/condor/execute; do
    mkdir -p "$dir"
    chown condor:condor "$dir"
done
install -d -m 0700 /etc/condor/passwords.d /etc/condor/tokens.d
cp /lab/files/ap/50-lab.conf /etc/condor/config.d/50-lab.conf
# shellcheck disable=SC2016
echo 'PATH=/opt/siteannex/bin:$PATH' >/etc/profile.d/siteannex.sh
sh /lab/shared/accounts-ap.sh
condor_master
touch /lab/shared/booted-ap
# shellcheck source=SCRIPTDIR/../common/reap.sh
. /lab/files/common/reap.sh
