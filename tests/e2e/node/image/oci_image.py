"""Write an OCI image as a tar archive, from static programs and folders, with the standard library alone.

oci_image.py OUT.tar NAME:TAG [--program FILE [--applets]] [--tree FOLDER=/PATH]... [--entrypoint A,B] [--command A,B]

The same input gives the same bytes. Source: OCI image format specification 1.1.
"""

import argparse
import hashlib
import io
import json
import subprocess
import tarfile
from pathlib import Path
from typing import Any

_FOLDERS = ("bin", "dev", "etc", "proc", "sys", "tmp", "root", "run", "var")
_USERS = {
    "etc/passwd": b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n",
    "etc/group": b"root:x:0:\nnogroup:x:65534:\n",
}
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"


def main() -> None:
    """Write the image that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("name")
    parser.add_argument("--program", type=Path, help="a static program for /bin of a root that is otherwise empty")
    parser.add_argument("--applets", action="store_true", help="link what `PROGRAM --list` names to it")
    parser.add_argument("--tree", action="append", default=[], help="a folder and where it goes")
    parser.add_argument("--entrypoint", type=_words, default=None)
    parser.add_argument("--command", type=_words, default=None)
    asked = parser.parse_args()
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as archive:
        for tree in asked.tree:
            folder, _, path = tree.rpartition("=")
            archive.add(folder, path.strip("/") or ".", filter=_as_root)
        if asked.program:
            _add_program(archive, asked.program, has_applets=asked.applets)
    _write(asked.out, asked.name, layer.getvalue(), asked.entrypoint, asked.command)


def _words(text: str) -> list[str]:
    return text.split(",")


def _as_root(found: tarfile.TarInfo) -> tarfile.TarInfo:
    found.uid = found.gid = found.mtime = 0
    found.uname = found.gname = "root"
    return found


def _add_program(archive: tarfile.TarFile, program: Path, *, has_applets: bool) -> None:
    for name in _FOLDERS:
        folder = tarfile.TarInfo(name)
        folder.type, folder.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
        archive.addfile(folder)
    for name, text in _USERS.items():
        _add(archive, name, text)
    _add(archive, f"bin/{program.name}", program.read_bytes(), mode=0o755)
    if has_applets:
        listed = subprocess.run([program, "--list"], capture_output=True, text=True, check=True).stdout.split()
        for name in listed:
            if name != program.name:
                link = tarfile.TarInfo(f"bin/{name}")
                link.type, link.linkname = tarfile.SYMTYPE, program.name
                archive.addfile(link)


def _add(archive: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    file = tarfile.TarInfo(name)
    file.size, file.mode = len(data), mode
    archive.addfile(file, io.BytesIO(data))


def _write(out: Path, name: str, layer: bytes, entrypoint: list[str] | None, command: list[str] | None) -> None:
    blobs: dict[str, bytes] = {}

    def blob(data: bytes, kind: str) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data)}

    layers = [blob(layer, _LAYER)]
    config = {
        "architecture": "amd64",
        "os": "linux",
        "rootfs": {"type": "layers", "diff_ids": [each["digest"] for each in layers]},
        "config": {"Env": ["PATH=/usr/bin:/bin"], "Entrypoint": entrypoint, "Cmd": command},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "config": blob(json.dumps(config).encode(), _CONFIG),
        "layers": layers,
    }
    image = blob(json.dumps(manifest).encode(), _MANIFEST)
    tag = name.rpartition(":")[2]
    image["annotations"] = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": tag}
    with tarfile.open(out, "w") as archive:
        _add(archive, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        _add(archive, "index.json", json.dumps({"schemaVersion": 2, "manifests": [image]}).encode())
        for digest, data in blobs.items():
            _add(archive, f"blobs/sha256/{digest}", data)


if __name__ == "__main__":
    main()
