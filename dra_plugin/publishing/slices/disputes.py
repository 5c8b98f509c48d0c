"""Detects another writer of this driver's ResourceSlices: two instances would overwrite each other without any error.

If a synchronization corrects a slice although the desired state has not changed since the last one, another program
changed the slice. Slices that are created again do not count: a kubelet deleted them, or they went with their Node, and
then other slices of the pool are updated, too.
"""

import logging
import time
from collections import deque
from typing import Final

from dra_plugin.publishing.slices.publisher import Statistics

_OFTEN: Final = (3, 600.0)  # corrections within so many seconds
_SAID_AGAIN: Final = 3600.0  # seconds between warnings
log = logging.getLogger("nodeplug.dra")


class Disputes:
    """Logs a warning if slices are corrected again and again."""

    def __init__(self) -> None:
        """Nothing is desired so far."""
        self.desires = 0
        """Incremented when another state is desired, or when the server might be another one."""
        self._settled: dict[str, int] = {}  # by pool: the value of `desires` at its last successful synchronization
        self._set_right: deque[float] = deque(maxlen=_OFTEN[0])  # times of the last corrections of what others wrote
        self._said_at = -_SAID_AGAIN

    def note_synced(self, pool: str, desire: int, before: Statistics, now: Statistics) -> None:
        """Record that a pool is as desired; `desire` and `before` are the values from before the synchronization."""
        if self._settled.get(pool) == desire and now.creates == before.creates and now != before:
            self._note(pool)
        self._settled[pool] = desire

    def _note(self, pool: str) -> None:
        now, (count, seconds) = time.monotonic(), _OFTEN
        self._set_right.append(now)
        is_often = len(self._set_right) == count and now - self._set_right[0] < seconds
        if is_often and now - self._said_at >= _SAID_AGAIN:
            self._said_at = now
            log.warning(
                "ResourceSlices of pool %s are changed by another program again and again, and restored each time;"
                " check whether another nodeplug runs with the same settings.nodeName and settings.driverName",
                pool,
            )
