"""Build nodeplug.pyz, a file that Python 3.11 and later can run: python -m deploy.pyz WHEEL OUT.pyz.

The file contains the wheel and its libraries. The only compiled module is msgspec's, for each Python and processor.
Without gRPC's core, the commands with a stand-in kubelet are not available. The same inputs give the same bytes.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

from deploy import licences
from deploy.image import wheels

_START = Path(__file__).with_name("start.py")
_SHEBANG = b"#!/usr/bin/env python3\n"
_OMITTED = ("grpc/", "grpcio-")
_NAMESPACES = ("google/",)  # Python finds namespace packages in an archive only if they have their own entry


def main() -> None:
    """Build the file that the command line describes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        site = Path(scratch) / "site"
        wheels.install("amd64", site, options.wheel.resolve(), locks=[wheels.LOCK])
        libraries = dict(_libraries(site))
        shipped = Path(scratch) / "shipped"
        for name, data in libraries.items():
            if ".dist-info/" in name:
                (shipped / name).parent.mkdir(parents=True, exist_ok=True)
                (shipped / name).write_bytes(data)
        notices = licences.notices(shipped, "this archive").encode()
        write(options.out, {**libraries, **dict(_compiled(Path(scratch))), "NOTICES": notices})


def write(out: Path, content: dict[str, bytes]) -> None:
    """Write an executable archive of these files and its `__main__.py`."""
    when = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), 315532800))[:6]  # zip times start in 1980
    start = _START.read_bytes()
    with out.open("wb") as file:
        file.write(_SHEBANG)
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in sorted({**content, **dict.fromkeys(_NAMESPACES, b""), "__main__.py": start}.items()):
                info = zipfile.ZipInfo(name, when)
                info.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(info, data)
    out.chmod(0o755)


def _libraries(site: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the files of `site` that Python can import from an archive, which excludes compiled modules."""
    for path in site.rglob("*"):
        name = str(path.relative_to(site))
        if path.is_file() and path.suffix != ".so" and not name.startswith(_OMITTED):
            yield name, path.read_bytes()


def _compiled(scratch: Path) -> Iterator[tuple[str, bytes]]:
    """Yield msgspec's compiled module for each Python and processor. Raises CalledProcessError."""
    (pin,) = (line for line in wheels.LOCK.read_text().splitlines() if line.startswith("msgspec=="))
    lock = scratch / "msgspec.lock"
    lock.write_text(pin + "\n")
    for python in wheels.PYTHONS:
        for architecture, machine in wheels.PLATFORMS.items():
            folder = scratch / f"{python}-{architecture}"
            pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-compile"]
            target = wheels.target(architecture, folder, python)
            subprocess.run([*pip, "--no-deps", *target, "--require-hashes", "-r", lock], check=True)
            (found,) = folder.glob("msgspec/_core.*.so")
            yield f"compiled/cpython-{python.replace('.', '')}-{machine}.so", found.read_bytes()


if __name__ == "__main__":
    main()
