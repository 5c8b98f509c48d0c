"""What others do to a file of ours, for tests: afterwards a runtime reads something else, or nothing, or could soon."""

import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final


def _edit(path: Path) -> None:
    """In place, and the size stays; later than in the very tick of the clock in which it was written."""
    path.write_bytes(path.read_bytes().replace(b"/dev/", b"/etc/"))
    later = time.time_ns() + 1_000_000_000
    os.utime(path, ns=(later, later))


def _replace(path: Path) -> None:
    """By a new file, as most editors do it."""
    new = path.with_name("new")
    new.write_bytes(path.read_bytes().replace(b"/dev/", b"/etc/"))
    new.rename(path)


def _link(path: Path) -> None:
    elsewhere = shutil.copy(path, path.with_name("elsewhere"))
    path.unlink()
    path.symlink_to(elsewhere)


WAYS: Final[Mapping[str, Callable[[Path], None]]] = {
    "removes": Path.unlink,
    "empties": lambda path: path.open("wb").close(),
    "edits": _edit,
    "replaces": _replace,
    "keeps from readers": lambda path: path.chmod(0o600),
    "lets others write to": lambda path: path.chmod(0o666),
    "puts a link in the place of": _link,
    "gives away": lambda path: os.chown(path, 65534, 65534),
}


def as_written(path: Path) -> tuple[bytes, int, int] | None:
    """Return what a file says, how it may be read and whose it is; None where no file is."""
    try:
        found = path.lstat()
        return path.read_bytes(), found.st_mode, found.st_uid
    except FileNotFoundError:
        return None
