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
"""The additional libraries for tracing, which nodeplug.pyz does not contain."""
PLATFORMS = {"amd64": "x86_64", "arm64": "aarch64"}
"""Image architecture -> its name in wheels."""


PYTHONS = ("3.11", "3.12", "3.13", "3.14")
"""The Python versions for which wheels are pinned; the image has the first, which is Debian 12's."""


def target(architecture: str, folder: Path, python: str = PYTHONS[0]) -> list[str]:
    """Return pip's options for wheels that work on Debian 12 or newer with this Python and architecture."""
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

    Raises CalledProcessError if a file differs from the lock, and SystemExit if a library must not be shipped.
    """
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-compile", "--no-deps"]
    libraries = ["--require-hashes", *(option for lock in locks for option in ("-r", lock))]
    for what in (libraries, [wheel]):
        subprocess.run([*pip, *target(architecture, folder, pythons[0]), *what], check=True)
        subprocess.run(["rm", "-rf", folder / "bin"], check=True)  # the image's only command is its entrypoint
    for python in pythons[1:]:  # names of compiled modules contain the Python version; all other files are the same
        with tempfile.TemporaryDirectory() as scratch:
            other = Path(scratch)
            subprocess.run([*pip, *target(architecture, other, python), *libraries], check=True)
            for path in other.rglob(f"*.cpython-{python.replace('.', '')}-*.so"):
                shutil.copy(path, folder / path.relative_to(other))
    # these files differ between builds
    for record in folder.glob("*.dist-info"):
        for name in ("direct_url.json", "INSTALLER", "REQUESTED", "RECORD"):
            (record / name).unlink(missing_ok=True)
    licences.check(folder)
