#!/bin/bash
# host-init.sh NAME ADDRESS GATEWAY IMAGE UPPER SHARED FILES BOOT [KIND=SOURCE:TARGET...]
# Runs as the first process of new mount, pid, net, uts and ipc namespaces, while /proc is still that of the
# lab's outer namespace (whose process 1 stands on the router). Wires the host, enters its own root, boots it.
set -eu
name=$1 address=$2 gateway=$3 image=$4 upper=$5 shared=$6 files=$7 boot=$8
shift 8

mount --make-rprivate /
hostname "$name"

# One veth pair, one end pushed to the router. The path form is needed: a bare number would be read in our pid namespace.
router=/proc/1/ns/net
ip link set lo up
ip link add eth0 type veth peer name "v-$name"
ip link set "v-$name" netns "$router"
ip addr add "$address" peer "$gateway" dev eth0
ip link set eth0 up
ip route add default via "$gateway" dev eth0
nsenter --net="$router" sh -c "ip addr add '$gateway' peer '$address' dev 'v-$name' && ip link set 'v-$name' up"

mkdir -p "$upper/upper" "$upper/work" "$upper/root"
root=$upper/root
options="lowerdir=$image,upperdir=$upper/upper,workdir=$upper/work"
mount -t overlay overlay -o "$options,userxattr" "$root" 2>/dev/null || mount -t overlay overlay -o "$options" "$root"
cd "$root"

mount -t tmpfs -o mode=755,size=1m lab-dev dev
for node in null zero full random urandom tty; do
    touch "dev/$node"
    mount --bind "/dev/$node" "dev/$node"
done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts dev/pts
mount -t tmpfs -o mode=1777 lab-shm dev/shm
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
ln -s /proc/self/fd/0 dev/stdin
ln -s /proc/self/fd/1 dev/stdout
ln -s /proc/self/fd/2 dev/stderr
mkdir -p proc sys run lab scratch .outer
mount -t sysfs -o ro sysfs sys 2>/dev/null || true
mount -t tmpfs -o mode=755 lab-run run
mkdir -p run/lock

mkdir -p lab/files lab/shared
mount --bind "$files" lab/files
mount -o remount,bind,ro lab/files 2>/dev/null || true
mount --bind "$shared" lab/shared
for extra; do
    kind=${extra%%=*} source=${extra#*=}
    target=${source#*:} source=${source%%:*}
    case $kind in
    dir | ro)
        mkdir -p ".$target"
        mount --bind "$source" ".$target"
        if [ "$kind" = ro ]; then mount -o remount,bind,ro ".$target"; fi
        ;;
    dev)
        touch ".$target"
        mount --bind "$source" ".$target"
        ;;
    esac
done

cp "$files/common/hosts" etc/hosts
cp "$files/common/nsswitch.conf" etc/nsswitch.conf
# A resolver that cannot answer makes every HTCondor tool hang for minutes, without a word in any log.
rm -f etc/resolv.conf
: >etc/resolv.conf
echo "$name" >etc/hostname
chmod 1777 tmp scratch
install -m 755 "$files/common/as" usr/local/bin/lab-as

pivot_root . .outer
cd /
mount -t proc proc /proc
umount -l /.outer
rmdir /.outer 2>/dev/null || true
exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 LAB_HOST="$name" \
    bash "/lab/files/$boot" </dev/null >>/var/log/boot.log 2>&1
