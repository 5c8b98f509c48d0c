"""File systems that are full, for tests."""

import contextlib
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """Have a tmpfs with these options at `folder` meanwhile; skip the test where none can be mounted."""
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def take_all_names(folder: Path) -> list[Path]:
    """Make files until the file system of `folder` has no inode left; return them."""
    made: list[Path] = []
    with contextlib.suppress(OSError):
        while True:
            path = folder / f"filler{len(made)}"
            path.touch()
            made.append(path)
    return made
