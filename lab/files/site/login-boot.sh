#!/bin/bash
# First process of the login node: munge, the accounting database, slurmdbd, slurmctld, sshd.
set -eu
cp /lab/files/site/{slurm,gres,cgroup}.conf /etc/slurm/
install -o slurm -g slurm -m 600 /lab/files/site/slurmdbd.conf /etc/slurm/slurmdbd.conf
mkdir -p /run/sshd /run/munge /run/mysqld
chown munge:munge /run/munge
chown mysql:mysql /run/mysqld
install -d -o slurm -g slurm /var/spool/slurmctld
runuser -u munge -- munged &
mariadbd --user=mysql >>/var/log/mariadbd.log 2>&1 &

sh /lab/shared/accounts-site.sh
cp /lab/files/site/sshd_config /etc/ssh/sshd_config
cp /lab/files/site/banner /etc/ssh/banner
cp /lab/files/site/motd /etc/motd
cp /lab/files/site/pam-sshd /etc/pam.d/sshd
install -m 644 -o root -g root /lab/shared/pam_lab_menu.so "$(dirname "$(find /usr/lib -name pam_unix.so -print -quit)")"/pam_lab_menu.so
for file in slurmctld slurmdbd sshd; do
    touch "/var/log/$file.log"
    chmod 644 "/var/log/$file.log"
done
chown slurm:slurm /var/log/slurmctld.log /var/log/slurmdbd.log
/usr/sbin/sshd -E /var/log/sshd.log

until mariadb -e "CREATE DATABASE IF NOT EXISTS slurm_acct_db;
    CREATE USER IF NOT EXISTS slurm@localhost IDENTIFIED BY 'slurm';
    GRANT ALL ON slurm_acct_db.* TO slurm@localhost" 2>/dev/null; do sleep 0.05; done
runuser -u slurm -- slurmdbd
until sacctmgr -n list cluster >/dev/null 2>&1; do sleep 0.05; done
sacctmgr -i add cluster lab >/dev/null
sh /lab/shared/slurm-accounts.sh
slurmctld
until scontrol ping 2>/dev/null | grep -q UP; do sleep 0.05; done
# Only now does the database know the resource gres/gpu.
until sh /lab/files/site/qos.sh >/dev/null 2>&1; do sleep 0.2; done
touch /lab/shared/booted-login1
# shellcheck source=SCRIPTDIR/../common/reap.sh
. /lab/files/common/reap.sh
