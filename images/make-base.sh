#!/bin/sh
# Make a base image where none can be pulled: Debian 12 with its Python 3.11, by debootstrap from a Debian mirror.
#   images/make-base.sh NAME                  then: make images BASE=NAME
# Needs root, debootstrap, docker and a Debian mirror (MIRROR). Does nothing when the image is there.
set -eu
name=${1:?usage: images/make-base.sh NAME}
mirror=${MIRROR:-http://deb.debian.org/debian}
if docker image inspect "$name" > /dev/null 2>&1; then
    echo "$name is there"
    exit 0
fi
for tool in debootstrap tar; do
    command -v "$tool" > /dev/null || { echo "$tool is not installed: apt-get install $tool" >&2; exit 1; }
done
[ "$(id -u)" = 0 ] || { echo "debootstrap needs root: run this with sudo, or pull a base and name it by BASE=" >&2; exit 1; }
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
trap 'exit 130' INT TERM
echo "making $name from $mirror"
if ! debootstrap --variant=minbase --include=python3,python3-venv bookworm "$root/tree" "$mirror" > "$root/log" 2>&1; then
    tail -n 20 "$root/log" "$root/tree/debootstrap/debootstrap.log" >&2 || true
    exit 1
fi
rm -rf "$root"/tree/var/cache/apt/archives/*.deb "$root"/tree/var/lib/apt/lists/* "$root"/tree/var/cache/apt/*.bin \
    "$root"/tree/usr/share/doc/* "$root"/tree/usr/share/man/* "$root"/tree/usr/share/locale/* "$root"/tree/var/log/*.log
tar -C "$root/tree" -c . | docker import --change 'CMD ["python3"]' - "$name"
