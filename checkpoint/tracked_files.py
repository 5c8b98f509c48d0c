"""Checks before each write whether open files are still the files at their paths, unchanged by other programs.

A database with a log is written to when the log is folded into it. A backup that is copied over it, or a tool, changes
its time of change.

The log is written all the time, so its times are not read: since Linux 6.13 a file whose times were read gets new ones
with its next write, and a commit took a quarter more CPU. Instead a descriptor with O_PATH refers to it, and /proc
shows its path. Closing this descriptor releases no lock of another descriptor for the same file.

Source: open(2), O_PATH; fcntl(2); Linux, Documentation/filesystems/multigrain-ts.rst.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeAlias

Identity: TypeAlias = tuple[int, int]
"""Device and inode."""

_Stamp: TypeAlias = tuple[int, int, int, int]  # with the size, and the time of change in ns, which no program can set


class TrackedFiles:
    """Files as they are at their paths now: `written` changes all the time, the others only with `note_written`.

    If `written` does not exist, the others can change at any time.
    """

    def __init__(self, others: Iterable[Path], written: Path) -> None:
        """Record their state. Raises OSError."""
        self._others = tuple(map(os.fspath, others))
        try:
            self._descriptor = os.open(written, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            self._descriptor = -1
        try:
            if self._descriptor >= 0:
                self._link = f"/proc/self/fd/{self._descriptor}"
                self._recorded_path = os.readlink(self._link)
            self._state_of: Callable[[str], Identity | _Stamp | None] = _stamp if self._descriptor >= 0 else identity
            self.note_written()
        except OSError:
            self.close()
            raise

    def are_in_place(self) -> bool:
        """Return whether no file was removed, replaced, moved, or written to by another program."""
        if self._descriptor >= 0 and os.readlink(self._link) != self._recorded_path:
            return False
        return [self._state_of(path) for path in self._others] == self._recorded

    def note_written(self) -> None:
        """Record the current state of the others after the owner has written to them."""
        self._recorded = [self._state_of(path) for path in self._others]

    def close(self) -> None:
        """Close the descriptor. Idempotent."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def identity(path: str) -> Identity | None:
    """Return what distinguishes a file from one that replaces it; None if there is no file."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _stamp(path: str) -> _Stamp | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns
