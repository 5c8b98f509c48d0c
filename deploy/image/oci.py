"""Write an OCI image as a tar archive, from folders and static programs, with the standard library alone.

oci.py OUT.tar NAME:TAG [--architecture arm64] [--program FILE [--applets]] [--tree FOLDER=/PATH]...
       [--env NAME=VALUE]... [--entrypoint A,B] [--command A,B]

Each tree is a layer. The same input gives the same bytes: entries are sorted, belong to root, and have the time of
SOURCE_DATE_EPOCH (1970 by default); files of trees are read-only. Source: OCI image format specification 1.1.
"""

import argparse
import datetime
import gzip
import hashlib
import io
import json
import os
import subprocess
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

_FOLDERS = ("bin", "dev", "etc", "proc", "sys", "tmp", "root", "run", "var")
_USERS = {
    "etc/passwd": b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n",
    "etc/group": b"root:x:0:\nnogroup:x:65534:\n",
}
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


def main() -> None:
    """Write the image that the command line describes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("name")
    parser.add_argument("--architecture", default="amd64", choices=("amd64", "arm64"))
    parser.add_argument("--program", type=Path, help="a static program for /bin of an otherwise empty root")
    parser.add_argument(
        "--applets", action="store_true", help="also create a link for each name that `PROGRAM --list` prints"
    )
    parser.add_argument("--tree", action="append", default=[], help="a folder and its path in the image")
    parser.add_argument("--env", action="append", default=[], help="further variables; PATH is always set")
    parser.add_argument("--entrypoint", type=_split, default=None)
    parser.add_argument("--command", type=_split, default=None)
    options = parser.parse_args()
    layers = []
    for tree in options.tree:
        folder, _, path = tree.rpartition("=")
        layers.append(tree_layer(Path(folder), path))
    if options.program:
        layers.append(_program_layer(options.program, has_applets=options.applets))
    config = {
        "Env": ["PATH=/usr/bin:/bin", *options.env],
        "Entrypoint": options.entrypoint,
        "Cmd": options.command,
    }
    write(options.out, options.name, layers, config, architecture=options.architecture)


def _split(text: str) -> list[str]:
    return text.split(",")


def source_date() -> int:
    """Return SOURCE_DATE_EPOCH, the time of everything that is written, in seconds since 1970."""
    return int(os.environ.get("SOURCE_DATE_EPOCH", "0"))


def tree_layer(folder: Path, path: str = "/") -> bytes:
    """Return the layer that has `folder` at `path`, owned by root and read-only."""

    def reset(found: tarfile.TarInfo) -> tarfile.TarInfo:
        found.uid = found.gid = 0
        found.uname = found.gname = "root"
        found.mtime = source_date()
        if not found.issym():
            found.mode = 0o1777 if found.mode & 0o1000 else 0o555 if found.isdir() or found.mode & 0o100 else 0o444
        return found

    return _layer(lambda archive: archive.add(folder, path.strip("/") or ".", filter=reset))


def _program_layer(program: Path, *, has_applets: bool) -> bytes:
    def fill(archive: tarfile.TarFile) -> None:
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

    return _layer(fill)


def _layer(fill: Callable[[tarfile.TarFile], None]) -> bytes:
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        fill(archive)
    return layer.getvalue()


def _add(archive: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    file = tarfile.TarInfo(name)
    file.size, file.mode, file.mtime = len(data), mode, source_date()
    archive.addfile(file, io.BytesIO(data))


def write(
    out: Path,
    name: str,
    layers: Sequence[bytes],
    config: dict[str, Any],
    *,
    architecture: str = "amd64",
    labels: dict[str, str] | None = None,
) -> None:
    """Write the image `name` (repository:tag) with these layers; `config` is the specification's `config` object."""
    blobs: dict[str, bytes] = {}

    def blob(data: bytes, kind: str) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data)}

    document = {
        "created": datetime.datetime.fromtimestamp(source_date(), datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "architecture": architecture,
        "os": "linux",
        "config": config | ({"Labels": labels} if labels else {}),
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(each).hexdigest()}" for each in layers]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "config": blob(json.dumps(document).encode(), _CONFIG),
        "layers": [blob(gzip.compress(each, 6, mtime=0), _LAYER) for each in layers],
    }
    image = blob(json.dumps(manifest).encode(), _MANIFEST)
    image["platform"] = {"architecture": architecture, "os": "linux"}
    image["annotations"] = {
        "io.containerd.image.name": name,
        "org.opencontainers.image.ref.name": name.rpartition(":")[2],
    }
    with tarfile.open(out, "w", format=tarfile.GNU_FORMAT) as archive:
        _add(archive, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        _add(archive, "index.json", json.dumps({"schemaVersion": 2, "manifests": [image]}).encode())
        for digest, data in sorted(blobs.items()):
            _add(archive, f"blobs/sha256/{digest}", data)


if __name__ == "__main__":
    main()
