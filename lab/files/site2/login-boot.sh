#!/bin/bash
# First process of the second site's login node: munge, slurmctld without accounting, sshd with key and menu.
set -eu
cp /lab/files/site2/{slurm,gres}.conf /lab/files/site/cgroup.conf /etc/slurm/
mkdir -p /run/sshd /run/munge
chown munge:munge /run/munge
install -d -o slurm -g slurm /var/spool/slurmctld
runuser -u munge -- munged

sh /lab/shared/accounts-site2.sh
for key in /lab/shared/*.pub; do
    person=$(basename "$key" .pub)
    install -o "$person" -g "$person" -m 600 "$key" "/home/$person/.ssh/authorized_keys"
done
cp /lab/files/site2/sshd_config /etc/ssh/sshd_config
cp /lab/files/site2/banner /etc/ssh/banner
cp /lab/files/site2/pam-sshd /etc/pam.d/sshd
: >/etc/motd
install -m 644 -o root -g root /lab/shared/pam_lab_menu.so "$(dirname "$(find /usr/lib -name pam_unix.so -print -quit)")"/pam_lab_menu.so
for file in slurmctld sshd; do
    touch "/var/log/$file.log"
    chmod 644 "/var/log/$file.log"
done
chown slurm:slurm /var/log/slurmctld.log
/usr/sbin/sshd -E /var/log/sshd.log
slurmctld
until scontrol ping 2>/dev/null | grep -q UP; do sleep 0.05; done
touch /lab/shared/booted-login2
# shellcheck source=SCRIPTDIR/../common/reap.sh
. /lab/files/common/reap.sh
