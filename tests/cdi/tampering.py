"""Changes by other programs to one of our files, after which a runtime reads other content or none, or soon could."""

import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final


def _edit(path: Path) -> None:
    """Edit the file in place, with the same size and an mtime after the clock tick of the first write."""
    path.write_bytes(path.read_bytes().replace(b"/dev/", b"/etc/"))
    later = time.time_ns() + 1_000_000_000
    os.utime(path, ns=(later, later))


def _replace(path: Path) -> None:
    """Replace it with a new file, as most editors do."""
    new = path.with_name("new")
    new.write_bytes(path.read_bytes().replace(b"/dev/", b"/etc/"))
    new.rename(path)


def _link(path: Path) -> None:
    elsewhere = shutil.copy(path, path.with_name("elsewhere"))
    path.unlink()
    path.symlink_to(elsewhere)


CHANGES: Final[Mapping[str, Callable[[Path], None]]] = {
    "removed": Path.unlink,
    "emptied": lambda path: path.open("wb").close(),
    "edited": _edit,
    "replaced": _replace,
    "unreadable for others": lambda path: path.chmod(0o600),
    "writable for others": lambda path: path.chmod(0o666),
    "replaced by a link": _link,
    "owner changed": lambda path: os.chown(path, 65534, 65534),
}


def as_written(path: Path) -> tuple[bytes, int, int] | None:
    """Return a file's content, mode and owner; None if it does not exist."""
    try:
        found = path.lstat()
        return path.read_bytes(), found.st_mode, found.st_uid
    except FileNotFoundError:
        return None
