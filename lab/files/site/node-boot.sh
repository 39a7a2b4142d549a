#!/bin/bash
# First process of a compute node: munge and slurmd. Its log is the node's own, /home is the site's.
set -eu
conf=${LAB_CONF:-/lab/files/site}
cp "$conf"/{slurm,gres}.conf /lab/files/site/cgroup.conf /etc/slurm/
mkdir -p /run/munge
chown munge:munge /run/munge
mkdir -p /var/spool/slurmd
runuser -u munge -- munged
sh "/lab/shared/accounts-${conf##*/}.sh"
slurmd
touch "/lab/shared/booted-$LAB_HOST"
# shellcheck source=SCRIPTDIR/../common/reap.sh
. /lab/files/common/reap.sh
