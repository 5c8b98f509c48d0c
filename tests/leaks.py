"""Descriptors and threads of this process: tests use it to check that nothing leaks."""

import os
import threading
from contextlib import suppress


class LeakCheck:
    """Descriptors and threads that were created after this object.

    Older ones are not reported: the garbage collector can close those of earlier tests at any time.
    """

    def __init__(self) -> None:
        self._descriptors = _descriptors()
        self._threads = set(threading.enumerate())

    def descriptors(self) -> list[str]:
        """The target of each new descriptor, such as `/tmp/a`, `socket:[12]` and `anon_inode:inotify`."""
        return sorted(link for _, link in _descriptors() - self._descriptors)

    def threads(self) -> set[threading.Thread]:
        return set(threading.enumerate()) - self._threads


def _descriptors() -> set[tuple[str, str]]:
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the descriptor of the listing itself
            found.add((number, os.readlink(f"/proc/self/fd/{number}")))
    return found
