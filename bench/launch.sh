#!/bin/sh
# Runs the daemon for the probe: launch.sh PLUGIN_DIR STATE ROOT CONFIG PYTHON; replaces @STATE@ in CONFIG with STATE.
# With the permission for mount namespaces, it mounts ROOT's sys/ and dev/ over the machine's, so that the daemon reads
# them as on a node. Otherwise the daemon runs for a host below ROOT, which costs it slightly more.
set -eu
mkdir "$2/kubelet"
ln -s "$1" "$2/kubelet/device-plugins"
sed "s#@STATE@#$2#g" "$4" > "$2/config.yaml"
start="$(dirname "$0")/start.py"
# shellcheck disable=SC2016 # the inner shell's own arguments
in_place='
for each in null zero random urandom; do # libraries need them
  : >> "$1/dev/$each"
  mount --bind "/dev/$each" "$1/dev/$each"
done
mount --rbind "$1/sys" /sys
mount --rbind "$1/dev" /dev
shift
exec "$@"'
if unshare --mount true 2>/dev/null; then
  exec unshare --mount sh -euc "$in_place" sh "$3" "$5" -P "$start" "$2/config.yaml" /
fi
exec "$5" -P "$start" "$2/config.yaml" "$3"
