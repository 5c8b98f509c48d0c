"""Build the Debian package: python -m deploy.debian_package WHEEL FOLDER [--architecture arm64].

The program runs with the system's Python, 3.11 to 3.14, and its own libraries in /opt/nodeplug: those of the image
(requirements.lock), with the compiled modules for each Python. The same inputs give the same bytes. The installation
does not start the service: it needs a kubelet and a configuration first.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from deploy import licences
from deploy.image import wheels

ROOT = Path(__file__).resolve().parents[1]
_CONTROL = """Package: nodeplug
Version: {version}
Architecture: {architecture}
Maintainer: the nodeplug project <nodeplug@localhost>
Installed-Size: {kib}
Depends: python3 (>= {oldest}), python3 (<< {too_new})
Section: admin
Priority: optional
Description: the host's devices for the kubelet
 One daemon per Kubernetes node that finds the devices the host really has and
 offers them through the device plugin API and Dynamic Resource Allocation.
"""
_LAUNCHER = """#!/usr/bin/python3 -I
import sys

sys.path.insert(0, "/opt/nodeplug/lib")
from nodeplug.__main__ import main

main()
"""
_REPOSITORY_PAGES = ("architecture.md", "contributing.md", "index.md", "release-notes.md", "security.md")
"""Pages that include or describe files outside of docs/."""
_COMPLETION = (sys.executable, "-m", "nodeplug", "completion", "bash")
_COMPILE = "python3 -Xno_debug_ranges -m compileall -q /opt/nodeplug/lib"  # as for the image
_SCRIPTS = {
    "postinst": f"""#!/bin/sh
set -e
{_COMPILE} || true
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  systemctl try-restart nodeplug.service
fi
""",
    "prerm": """#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then systemctl disable --now nodeplug.service; fi
find /opt/nodeplug -name __pycache__ -prune -exec rm -rf {} +
""",
    "postrm": """#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
if [ "$1" = purge ]; then rm -rf /var/lib/nodeplug; fi
""",
}


def main() -> None:
    """Build the package that the command line describes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--architecture", default="amd64", choices=sorted(wheels.PLATFORMS))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        site = Path(scratch) / "site"
        wheels.install(options.architecture, site, options.wheel.resolve(), pythons=wheels.PYTHONS)
        sys.stdout.write(f"{write(site, options.folder, options.architecture, options.wheel.name.split('-')[1])}\n")


def write(site: Path, folder: Path, architecture: str, version: str) -> Path:
    """Write the package with the contents of `site` into `folder`, and return its path."""
    out = folder / f"nodeplug_{version}_{architecture}.deb"
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / "root"
        shutil.copytree(site, root / "opt/nodeplug/lib")
        _put(root / "opt/nodeplug/bin/nodeplug", _LAUNCHER, 0o755)
        (root / "usr/bin").mkdir(parents=True)
        (root / "usr/bin/nodeplug").symlink_to("/opt/nodeplug/bin/nodeplug")
        _put(root / "lib/systemd/system/nodeplug.service", (ROOT / "systemd/nodeplug.service").read_text())
        _put(root / "etc/nodeplug/config.yaml", (ROOT / "systemd/config.yaml").read_text())
        for drop_in in (ROOT / "systemd/drop-ins").iterdir():
            _put(root / "usr/share/doc/nodeplug/drop-ins" / drop_in.name, drop_in.read_text())
        for page in (x for x in (ROOT / "docs").glob("*.md") if x.name not in _REPOSITORY_PAGES):
            _put(root / "usr/share/doc/nodeplug" / page.name, page.read_text())
        _put(root / "usr/share/doc/nodeplug/copyright", licences.notices(site, "/opt/nodeplug/lib"))
        completion = subprocess.run(_COMPLETION, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        _put(root / "usr/share/bash-completion/completions/nodeplug", completion)
        kib = sum(-(-path.stat().st_size // 1024) for path in root.rglob("*") if path.is_file())
        major, _, minor = wheels.PYTHONS[-1].partition(".")
        pythons = {"oldest": wheels.PYTHONS[0], "too_new": f"{major}.{int(minor) + 1}"}
        control = _CONTROL.format(version=version, architecture=architecture, kib=kib, **pythons)
        _put(root / "DEBIAN/control", control)
        _put(root / "DEBIAN/conffiles", "/etc/nodeplug/config.yaml\n")
        for name, text in _SCRIPTS.items():
            _put(root / "DEBIAN" / name, text, 0o755)
        for path in [root, *root.rglob("*")]:  # so that modes do not depend on the umask
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
        # dpkg-deb itself clamps times to SOURCE_DATE_EPOCH and sorts the entries
        subprocess.run(
            ["dpkg-deb", "--root-owner-group", "-Zxz", "--build", root, out], check=True, capture_output=True
        )
    return out


def _put(file: Path, text: str, mode: int = 0o644) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(mode)


if __name__ == "__main__":
    main()
