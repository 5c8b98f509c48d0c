#!/usr/bin/env bash
# An image with Debian's python3.11, busybox and the given Python requirements or wheels, without a container engine:
# .debs are unpacked, wheels installed with pip --target.
#   python_image.sh OUT.tar NAME:TAG REQUIREMENT_OR_WHEEL... [-- EXTRA_DIR=/path/in/image ...]
set -euo pipefail
H=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd); . "$H/../lib.sh"
OUT=$1 NAME=$2; shift 2; REQ=(); while [ $# -gt 0 ] && [ "$1" != -- ]; do REQ+=("$1"); shift; done; [ $# -gt 0 ] && shift
W=$STATE/python; T=$W/root; mkdir -p "$W/debs"
if [ ! -x "$T/usr/bin/python3.11" ]; then
  ( cd "$W/debs" && apt-get download -qq python3.11-minimal libpython3.11-minimal libpython3.11-stdlib libc6 libgcc-s1 libstdc++6 zlib1g libexpat1 libssl3 libffi8 libbz2-1.0 liblzma5 libsqlite3-0 libuuid1 media-types 2>&1 | grep -v unsandboxed || true )
  mkdir -p "$T"/{bin,lib,lib64,usr/bin,usr/lib,usr/lib64,etc,tmp,proc,sys,dev,run,var,root}
  for d in "$W"/debs/*.deb; do dpkg-deb -x "$d" "$T"; done
  ln -sf python3.11 "$T/usr/bin/python3"
  rm -rf "$T"/usr/share/{doc,man,lintian} "$T"/usr/lib/x86_64-linux-gnu/gconv
  BB=/bin/busybox; [ -x $BB ] || BB=/usr/bin/busybox
  cp $BB "$T/bin/busybox"
  for a in sh ls cat sleep mount umount id stat mkdir rm ps kill grep env; do ln -sf busybox "$T/bin/$a"; done
  echo root:x:0:0:root:/root:/bin/sh > "$T/etc/passwd"
fi
S=$W/site; rm -rf "$S"; mkdir -p "$S/usr/lib/python3/dist-packages"
[ ${#REQ[@]} = 0 ] || python3 -m pip install -q --target "$S/usr/lib/python3/dist-packages" --python-version 3.11 --only-binary=:all: "${REQ[@]}"
args=(--tree "$T=/" --tree "$S=/"); for x in "$@"; do args+=(--tree "$x"); done
python3 "$H/oci_image.py" "$OUT" "$NAME" "${args[@]}" --command /usr/bin/python3
