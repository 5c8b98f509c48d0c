#!/bin/sh
# Becomes the daemon as the probe wants it: launch.sh PLUGIN_DIR STATE ROOT CONFIG PYTHON, @STATE@ in CONFIG filled in.
set -eu
mkdir "$2/kubelet"
ln -s "$1" "$2/kubelet/device-plugins"
sed "s#@STATE@#$2#g" "$4" > "$2/config.yaml"
exec "$5" -P "$(dirname "$0")/start.py" "$2/config.yaml" "$3"
