"""What this process holds since some moment: how a test sees that nothing is left behind."""

import os
import threading
from contextlib import suppress


class HeldSince:
    """Descriptors and threads that came after this was made.

    Only new ones are told: what earlier tests left to the collector may go at any time and says nothing of this one.
    """

    def __init__(self) -> None:
        self._descriptors = _descriptors()
        self._threads = set(threading.enumerate())

    def descriptors(self) -> list[str]:
        """What each new descriptor leads to, such as `/tmp/a`, `socket:[12]` and `anon_inode:inotify`."""
        return sorted(link for _, link in _descriptors() - self._descriptors)

    def threads(self) -> set[threading.Thread]:
        return set(threading.enumerate()) - self._threads


def _descriptors() -> set[tuple[str, str]]:
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the one of the listing
            found.add((number, os.readlink(f"/proc/self/fd/{number}")))
    return found
