#!/bin/sh
# unpack.sh ARCHIVE DIRECTORY: unpack once, whole or not at all. Runs where the archive's ids can be made.
set -eu
archive=$1 directory=$2
if [ -d "$directory" ]; then exit 0; fi
mkdir -p "$(dirname "$directory")"
exec 9>"$directory.lock"
flock 9
if [ -d "$directory" ]; then exit 0; fi
rm -rf "$directory.part"
mkdir -p "$directory.part"
zstd -dcq "$archive" | tar -x -C "$directory.part" --numeric-owner --exclude='./dev/*'
chmod 755 "$directory.part"
mv "$directory.part" "$directory"
rm -f "$directory.lock"
