#!/bin/bash
# make-venv.sh IMAGE SCRATCH OUT PATHS... -- REQUIREMENTS...
# Makes /opt/siteannex with the AP image's own python3, inside that image, with the network and pip settings of
# the machine that builds (PATHS are its certificate files, wheel folders and the like). Writes OUT (tar.zst).
# Runs in a mount and pid namespace of its own.
set -eu
image=$1 scratch=$2 out=$3
shift 3
mount -t tmpfs lab-venv "$scratch"
mkdir "$scratch/upper" "$scratch/work" "$scratch/root"
options="lowerdir=$image,upperdir=$scratch/upper,workdir=$scratch/work"
root=$scratch/root
mount -t overlay overlay -o "$options,userxattr" "$root" 2>/dev/null || mount -t overlay overlay -o "$options" "$root"
mount -t proc proc "$root/proc"
mkdir -p "$root/dev"
for node in null zero urandom random; do
    touch "$root/dev/$node"
    mount --bind "/dev/$node" "$root/dev/$node"
done
rm -f "$root/etc/resolv.conf" "$root/etc/hosts"
cp -L /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null || true
cp -L /etc/hosts "$root/etc/hosts" 2>/dev/null || true
paths=()
while [ "$1" != -- ]; do
    paths+=("$1")
    shift
done
shift
# First every mount point, then every mount: nothing may be made or removed below a mounted folder of the host.
for path in "${paths[@]}"; do
    mkdir -p "$root${path%/*}"
    if [ -d "$path" ]; then mkdir -p "$root$path"; else
        rm -f "$root$path"
        : >"$root$path"
    fi
done
for path in "${paths[@]}"; do
    mount --bind "$path" "$root$path"
    mount -o remount,bind,ro "$root$path" 2>/dev/null || mount -o remount,bind,ro,nosuid,nodev "$root$path"
done
# shellcheck disable=SC2016
PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TMPDIR=/tmp chroot "$root" sh -eu -c '
    python3 -m venv /opt/siteannex
    /opt/siteannex/bin/pip install --quiet --no-cache-dir --no-input "$@"
    site=$(echo /opt/siteannex/lib/python3.*/site-packages)
    echo /opt/siteannex-src/src >"$site/siteannex-src.pth"
    cat >/opt/siteannex/bin/siteannex <<EOF
#!/opt/siteannex/bin/python3
import sys

from siteannex.cli.main import main

sys.exit(main())
EOF
    chmod 755 /opt/siteannex/bin/siteannex
' sh "$@"
tar -C "$root/opt/siteannex" -c . | zstd -q -3 -T0 -o "$out.part" -f
mv "$out.part" "$out"
