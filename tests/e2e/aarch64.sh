#!/bin/sh
# Builds the program of the arm64 image, and prints a command that runs it on this machine's files, for real-node tests:
#   NODEPLUG_E2E_PROGRAM=$(tests/e2e/aarch64.sh) make e2e
# Needs qemu-user-static (Debian).
set -eu
cd "$(dirname "$0")/../.."
home=${REALNODE_HOME:-$HOME/.cache/realnode}/aarch64
rm -rf "$home" && mkdir -p "$home/unpacked"
{
  .venv/bin/python -m hatchling build -t wheel -d "$home"
  .venv/bin/python -m deploy.image "$home"/*.whl "$home/image.oci.tar" --architecture arm64
} >"$home/log" 2>&1 || { cat "$home/log" >&2; exit 1; }
tar -xf "$home/image.oci.tar" -C "$home/unpacked"
mkdir "$home/root"
.venv/bin/python - "$home/unpacked" <<'END' | while read -r layer; do tar -xf "$layer" -C "$home/root"; done
import json, pathlib, sys

blobs = pathlib.Path(sys.argv[1]) / "blobs"
read = lambda digest: json.loads((blobs / digest.replace(":", "/")).read_text())
(image,) = json.loads((blobs.parent / "index.json").read_text())["manifests"]
for layer in read(image["digest"])["layers"]:
    print(blobs / layer["digest"].replace(":", "/"))
END
find "$home/root" -depth -type d -empty -delete  # an empty folder of the image would hide this machine's
cat >"$home/nodeplug" <<END
#!/bin/sh
export PYTHONHOME=$home/root/usr PYTHONPATH=$home/root/usr/lib/nodeplug
exec qemu-aarch64-static -L $home/root -0 $home/root/usr/bin/python3 $home/root/usr/bin/python3 -m nodeplug "\$@"
END
chmod +x "$home/nodeplug"
echo "$home/nodeplug"
