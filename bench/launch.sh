#!/bin/sh
# Becomes the daemon as the probe wants it: launch.sh PLUGIN_DIR STATE ROOT CONFIG PYTHON, @STATE@ in CONFIG filled in.
set -eu
mkdir "$2/kubelet"
ln -s "$1" "$2/kubelet/device-plugins"
sed "s#@STATE@#$2#g" "$4" > "$2/config.yaml"
# As `nodeplug run --config` begins, which takes no root.
exec "$5" -c "from nodeplug.deferred import defer_unused; defer_unused(); import sys; from pathlib import Path; from nodeplug import process; sys.exit(process.run(*map(Path, sys.argv[1:])))" \
  "$2/config.yaml" "$3"
