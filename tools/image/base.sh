#!/bin/sh
# Writes a tar of a root file system like that of debian:bookworm-slim, made by debootstrap from the
# packages of Debian's archive, for a machine that reaches no registry of images:
#   tools/image/base.sh | docker import - debian:bookworm-20261005-slim
# Needs root and debootstrap (Debian).
set -eu
folder=$(mktemp -d)
root=$folder/root
trap 'rm -rf "$folder"' EXIT
debootstrap --variant=minbase bookworm "$root" >&2

mirror=$(awk '$1 == "deb" { print $2; exit }' "$root/etc/apt/sources.list")
cat > "$root/etc/apt/sources.list" <<LIST
deb $mirror bookworm main
deb $mirror bookworm-updates main
deb $mirror-security bookworm-security main
LIST
# As in the image of Debian: apt keeps no packages and no caches, dpkg installs no documentation.
cat > "$root/etc/apt/apt.conf.d/docker-clean" <<'CONF'
DPkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb /var/cache/apt/*.bin || true"; };
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
CONF
for name in doc info lintian locale man; do
  echo "path-exclude /usr/share/$name/*" >> "$root/etc/dpkg/dpkg.cfg.d/docker"
  rm -rf "${root:?}/usr/share/${name:?}"/*
done
rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/var/log/*.log
tar -C "$root" --numeric-owner -c .
