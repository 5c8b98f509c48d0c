"""Pin the image's contents: `python -m deploy.image.lock` writes debian.lock, requirements.lock and tracing.lock.

It selects the newest versions that fit: Debian packages of this machine's sources, and wheels for the dependencies in
pyproject.toml.
"""

import json
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from deploy.image import debian, wheels

ROOT = Path(__file__).resolve().parents[2]
_HEADER = "# Written by `make lock`.\n"


def main() -> None:
    """Write the locks."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = project["dependencies"]
    tracing = [*needed, *project["optional-dependencies"]["tracing"]]
    debs: list[str] = []
    pins: dict[str, set[str]] = {}
    tracing_pins: dict[str, set[str]] = {}
    for architecture in wheels.PLATFORMS:
        newest = debian.Apt(ROOT / "build/image", architecture).newest(debian.PACKAGES)
        debs += [" ".join((architecture, name, *newest[name])) for name in debian.PACKAGES]
        for pin, sha256 in _resolve(needed, architecture).items():
            pins.setdefault(pin, set()).add(sha256)
        for pin, sha256 in _resolve(tracing, architecture).items():
            if pin not in pins:
                tracing_pins.setdefault(pin, set()).add(sha256)
        for found, others in ((pins, {}), (tracing_pins, pins)):
            for python in wheels.PYTHONS[1:]:  # the Debian package and nodeplug.pyz also run on these
                for pin, sha256 in _resolve([*found], architecture, python).items():
                    if pin not in others:
                        found.setdefault(pin, set()).add(sha256)
    debian.LOCK.write_text(_HEADER + "".join(f"{line}\n" for line in debs))
    for lock, found in ((wheels.LOCK, pins), (wheels.TRACING_LOCK, tracing_pins)):
        lines = (
            " ".join((pin, *(f"--hash=sha256:{each}" for each in sorted(hashes)))) for pin, hashes in found.items()
        )
        lock.write_text(_HEADER + "".join(f"{line}\n" for line in sorted(lines)))


def _resolve(needed: list[str], architecture: str, python: str = wheels.PYTHONS[0]) -> dict[str, str]:
    with tempfile.NamedTemporaryFile() as report:
        command = [sys.executable, "-m", "pip", "install", "-q", "--dry-run", "--ignore-installed"]
        command += ["--report", report.name, *wheels.target(architecture, Path("nowhere"), python), *needed]
        subprocess.run(command, check=True)
        found = json.load(report)["install"]
    return {
        f"{each['metadata']['name']}=={each['metadata']['version']}": each["download_info"]["archive_info"]["hashes"][
            "sha256"
        ]
        for each in found
    }


if __name__ == "__main__":
    main()
