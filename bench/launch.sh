#!/bin/sh
# Becomes the daemon as the probe wants it: launch.sh PLUGIN_DIR STATE ROOT CONFIG PYTHON, @STATE@ in CONFIG filled in.
# Root has ROOT's sys/ and dev/ in the place of the machine's, in a mount namespace: then the daemon reads them as on a
# node. For others, and where that is not allowed, it is the daemon of a host below ROOT, which costs it some more.
set -eu
mkdir "$2/kubelet"
ln -s "$1" "$2/kubelet/device-plugins"
sed "s#@STATE@#$2#g" "$4" > "$2/config.yaml"
start="$(dirname "$0")/start.py"
# shellcheck disable=SC2016 # the inner shell's own arguments
in_place='
for each in null zero random urandom; do # libraries ask for them
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
