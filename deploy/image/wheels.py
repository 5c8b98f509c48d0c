"""The Python libraries of the image: wheels of a pinned version, each with its SHA-256, for any architecture."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from deploy import licences

LOCK = Path(__file__).with_name("requirements.lock")
TRACING_LOCK = Path(__file__).with_name("tracing.lock")
"""What traces need besides; nodeplug.pyz has none of it."""
PLATFORMS = {"amd64": "x86_64", "arm64": "aarch64"}
"""How wheels call an architecture of images."""


PYTHONS = ("3.11", "3.12", "3.13", "3.14")
"""For which wheels are pinned; the image has the first, Debian 12's."""


def target(architecture: str, folder: Path, python: str = PYTHONS[0]) -> list[str]:
    """Return pip's options for wheels that Debian 12, or newer, can load with this Python on this architecture."""
    machine = PLATFORMS[architecture]
    tags = [f"manylinux_2_{minor}_{machine}" for minor in (36, 35, 34, 31, 28, 27, 26, 24, 17)]
    platforms = [option for tag in (*tags, f"manylinux2014_{machine}") for option in ("--platform", tag)]
    return ["--only-binary=:all:", f"--python-version={python}", *platforms, "--target", str(folder)]


def install(
    architecture: str,
    folder: Path,
    wheel: Path,
    *,
    locks: Sequence[Path] = (LOCK, TRACING_LOCK),
    pythons: Sequence[str] = PYTHONS[:1],
) -> None:
    """Install nodeplug's wheel and the libraries that the locks name into `folder`, for each of `pythons`.

    Raises CalledProcessError where a file is not the one of the lock, SystemExit where one may not be shipped.
    """
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-compile", "--no-deps"]
    libraries = ["--require-hashes", *(option for lock in locks for option in ("-r", lock))]
    for what in (libraries, [wheel]):
        subprocess.run([*pip, *target(architecture, folder, pythons[0]), *what], check=True)
        subprocess.run(["rm", "-rf", folder / "bin"], check=True)  # the image's only command is its entrypoint
    for python in pythons[1:]:  # what is compiled has its Python in its name, and all else is the same
        with tempfile.TemporaryDirectory() as scratch:
            other = Path(scratch)
            subprocess.run([*pip, *target(architecture, other, python), *libraries], check=True)
            for path in other.rglob(f"*.cpython-{python.replace('.', '')}-*.so"):
                shutil.copy(path, folder / path.relative_to(other))
    # what differs from build to build
    for record in folder.glob("*.dist-info"):
        for name in ("direct_url.json", "INSTALLER", "REQUESTED", "RECORD"):
            (record / name).unlink(missing_ok=True)
    licences.check(folder)
