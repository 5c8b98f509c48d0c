"""File systems that are full, for tests."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """Mount a tmpfs with these options at `folder` for the block; skip the test if it cannot be mounted."""
    with _mounted(folder, ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]):
        yield folder


@contextmanager
def mounted_ext4(folder: Path, size: int, block: int = 4096) -> Iterator[Path]:
    """Mount an ext4 of `size` MiB with blocks of `block` bytes at `folder`; skip the test if it cannot be mounted.

    mkfs.ext4 chooses blocks of 4096 bytes by default, and of 1024 bytes below 512 MiB.
    """
    image = folder.with_name(f"{folder.name}.image")
    image.touch()
    os.truncate(image, size << 20)
    made = ["mkfs.ext4", "-q", "-m", "0", "-b", str(block), str(image)]
    with _mounted(folder, made, ["mount", "-o", "loop", str(image), str(folder)]):
        yield folder
    image.unlink()


@contextmanager
def _mounted(folder: Path, *commands: list[str]) -> Iterator[None]:
    for command in commands:
        if shutil.which(command[0]) is None:
            pytest.skip(f"no {command[0]}")
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Fill the file system of `folder`; return the file that takes the space."""
    rest = folder / "rest"
    with rest.open("ab", buffering=0) as file:
        for size in (1 << 20, 1 << 16, 4096, 512):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))
        os.fsync(file.fileno())
    return rest


def take_all_names(folder: Path) -> list[Path]:
    """Create files until the file system of `folder` has no inode left; return them."""
    made: list[Path] = []
    with contextlib.suppress(OSError):
        while True:
            path = folder / f"filler{len(made)}"
            path.touch()
            made.append(path)
    return made
